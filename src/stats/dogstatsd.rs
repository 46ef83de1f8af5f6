//! Names made for DogStatsD: an expression turns parts of a name into tags.

use regex::Regex;

use super::{name::clean_tag, template};

/// Turns a name that its expression matches into another one with tags.
#[derive(Clone, Debug)]
pub struct Mogrifier {
    pub pattern: Regex,
    /// May refer to groups of the pattern: `$1`.
    pub name: String,
    /// Keys and values, both may refer to groups.
    pub tags: Vec<(String, String)>,
}

/// In their order: the first that matches makes the name.
#[derive(Clone, Debug, Default)]
pub(super) struct Mogrifiers(Vec<Mogrifier>);

impl Mogrifiers {
    pub fn new(mogrifiers: Vec<Mogrifier>) -> Self {
        Self(mogrifiers)
    }

    /// The name to send and its tags; a name that none matches stays.
    pub fn apply(&self, name: &str) -> (String, Vec<(String, String)>) {
        let matched = self.0.iter().find_map(|one| Some((one, one.pattern.captures(name)?)));
        let Some((mogrifier, groups)) = matched else { return (name.to_owned(), Vec::new()) };
        let filled = |text: &str| template::with_numbers(text, &groups);
        let tag = |text: &str| clean_tag_text(&filled(text));
        let tags = mogrifier.tags.iter().map(|(key, value)| (tag(key), tag(value)));
        (filled(&mogrifier.name), tags.collect())
    }
}

/// Nothing that a client sent ends a tag. Dots may stay here.
fn clean_tag_text(text: &str) -> String {
    text.split('.').map(clean_tag).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mogrifier(pattern: &str, name: &str, tags: &[(&str, &str)]) -> Mogrifier {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Mogrifier { pattern: Regex::new(pattern).unwrap(), name: name.to_owned(), tags }
    }

    fn applied(mogrifiers: &Mogrifiers, name: &str) -> (String, String) {
        let (name, tags) = mogrifiers.apply(name);
        (name, tags.iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn the_first_that_matches_makes_the_name() {
        let all = Mogrifiers::new(vec![
            mogrifier(
                r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$",
                "ratelimit.service.rate_limit.$3",
                &[("domain", "$1"), ("descriptor", "$2")],
            ),
            mogrifier("total_requests", "other", &[]),
            mogrifier("^ratelimit", "never.$1$9", &[("x$0", "${0}")]),
        ]);
        for (name, made) in [
            (
                "ratelimit.service.rate_limit.shop.path_/a.over_limit",
                ("ratelimit.service.rate_limit.over_limit", "domain:shop,descriptor:path_/a"),
            ),
            ("ratelimit_server.Check.total_requests", ("other", "")),
            ("ratelimit.redis_pool.cx_total", ("never.$1$9", "xratelimit:ratelimit")),
            ("something.else", ("something.else", "")),
        ] {
            assert_eq!(applied(&all, name), (made.0.to_owned(), made.1.to_owned()));
        }
    }

    #[test]
    fn a_value_cannot_add_tags() {
        let all = Mogrifiers::new(vec![mogrifier("^a_(.*)$", "a", &[("value", "$1")])]);
        assert_eq!(applied(&all, "a_1,admin:true|#x").1, "value:1_admin_true__x");
    }
}
