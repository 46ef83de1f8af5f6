//! Whether this process should get traffic, and if not, why. Knows nothing of how that is told.

use std::fmt;

use tokio::sync::watch;

/// What health asks of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesNeeded {
    /// Nothing (`FORCE_START_WITHOUT_INITIAL_CONFIG`).
    None,
    /// That they were loaded once; an empty set counts.
    Loaded,
    /// That those in force have a domain (`HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED`).
    OneDomain,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// How many domains the rules in force have; `None` until rules were loaded.
    n_domains: Option<usize>,
    /// Why the last load failed, while it is the last.
    load_failure: Option<String>,
    /// Why nothing comes from where rules come from.
    rules_trouble: Option<String>,
    /// Why the store cannot be used, where that matters.
    store_trouble: Option<String>,
    terminating: bool,
}

/// The health of this process, shared by all who report on it.
#[derive(Debug)]
pub struct Health {
    needed: RulesNeeded,
    state: watch::Sender<State>,
}

/// One of the things that make up health, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aspect {
    pub mark: Mark,
    pub name: &'static str,
    pub text: String,
}

/// Whether it is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Well,
    /// It is not, and traffic may come all the same.
    Warning,
    /// No traffic should come.
    Ill,
}

impl Aspect {
    /// Of the text one line is made.
    pub fn new(name: &'static str, mark: Mark, text: &str) -> Self {
        Self { mark, name, text: text.replace('\n', "; ") }
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.mark {
            Mark::Well => "[+]",
            Mark::Warning => "[!]",
            Mark::Ill => "[-]",
        };
        write!(f, "{mark} {}: {}", self.name, self.text)
    }
}

/// Sees every change of [`Health`].
#[derive(Debug)]
pub struct Watcher(watch::Receiver<State>);

impl Health {
    pub fn new(needed: RulesNeeded) -> Self {
        Self { needed, state: watch::Sender::new(State::default()) }
    }

    pub fn rules_loaded(&self, n_domains: usize) {
        self.state.send_modify(|state| {
            state.n_domains = Some(n_domains);
            state.load_failure = None;
        });
    }

    /// The rules in force stay; `why` is shown for as long as they are not those of the files.
    pub fn rules_refused(&self, why: String) {
        self.state.send_modify(|state| state.load_failure = Some(why));
    }

    /// Nothing comes from where rules come from; that matters while there are none.
    pub fn rules_awaited(&self, why: String) {
        self.state.send_if_modified(|state| {
            let is_news = state.rules_trouble.as_ref() != Some(&why);
            state.rules_trouble = Some(why);
            is_news
        });
    }

    pub fn rules_source_answers(&self) {
        self.state.send_if_modified(|state| state.rules_trouble.take().is_some());
    }

    /// There is no way to the counters.
    pub fn store_lost(&self, why: String) {
        self.state.send_if_modified(|state| {
            let is_news = state.store_trouble.as_ref() != Some(&why);
            state.store_trouble = Some(why);
            is_news
        });
    }

    pub fn store_ready(&self) {
        self.state.send_if_modified(|state| state.store_trouble.take().is_some());
    }

    /// The process is going away; there is no way back.
    pub fn terminate(&self) {
        self.state.send_modify(|state| state.terminating = true);
    }

    /// Whether to send traffic here; the error says why not.
    pub fn check(&self) -> Result<(), String> {
        let state = self.state.borrow();
        if state.terminating {
            return Err("shutting down".to_owned());
        }
        if let Some(why) = &state.store_trouble {
            return Err(why.clone());
        }
        self.rules_suffice(&state)
    }

    /// All that matters, well or not; [`Health::check`] fails if and only if one of them is [`Mark::Ill`].
    ///
    /// `store`: what is wrong with it although it is in use.
    pub fn aspects(&self, store: &[String]) -> Vec<Aspect> {
        let state = self.state.borrow();
        let process = if state.terminating {
            Aspect::new("process", Mark::Ill, "shutting down")
        } else {
            Aspect::new("process", Mark::Well, "serving")
        };
        let store = match &state.store_trouble {
            Some(why) => vec![Aspect::new("store", Mark::Ill, why)],
            None if store.is_empty() => vec![Aspect::new("store", Mark::Well, "in use")],
            None => store.iter().map(|why| Aspect::new("store", Mark::Warning, why)).collect(),
        };
        let rules = match (self.rules_suffice(&state), state.n_domains) {
            (Err(why), _) => Aspect::new("rules", Mark::Ill, &why),
            (Ok(()), Some(n)) => Aspect::new("rules", Mark::Well, &format!("in force, domains: {n}")),
            (Ok(()), None) => {
                Aspect::new("rules", Mark::Warning, "none were loaded yet, and the start was forced")
            }
        };
        let warning =
            |name, why: &Option<String>| why.as_ref().map(|why| Aspect::new(name, Mark::Warning, why));
        let newest = warning("newest rules, refused", &state.load_failure);
        let source = warning("source of rules", &state.rules_trouble);
        [process].into_iter().chain(store).chain([rules]).chain(newest).chain(source).collect()
    }

    fn rules_suffice(&self, state: &State) -> Result<(), String> {
        match (self.needed, state.n_domains) {
            (RulesNeeded::None, _) | (RulesNeeded::Loaded, Some(_)) => Ok(()),
            (RulesNeeded::OneDomain, Some(n)) if n > 0 => Ok(()),
            (RulesNeeded::OneDomain, Some(_)) => Err(
                "the rules in force have no domain, and HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED asks for one"
                    .to_owned(),
            ),
            (_, None) => Err(match state.load_failure.as_ref().or(state.rules_trouble.as_ref()) {
                Some(why) => format!("no rules were loaded yet: {why}"),
                None => "no rules were loaded yet".to_owned(),
            }),
        }
    }

    /// Why the files as they are now were refused, while older rules are in force.
    pub fn load_failure(&self) -> Option<String> {
        self.state.borrow().load_failure.clone()
    }

    pub fn watch(&self) -> Watcher {
        Watcher(self.state.subscribe())
    }
}

impl Watcher {
    /// Waits for the next change.
    ///
    /// Returns `false` once the health it watches is gone. Cancel safe.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_ready_until_rules_were_loaded_and_says_why() {
        let health = Health::new(RulesNeeded::Loaded);
        assert_eq!(health.check(), Err("no rules were loaded yet".to_owned()));
        health.rules_refused("limits.yaml:3: unknown key".to_owned());
        assert_eq!(health.check(), Err("no rules were loaded yet: limits.yaml:3: unknown key".to_owned()));
        health.rules_loaded(0);
        assert_eq!((health.check(), health.load_failure()), (Ok(()), None));
        health.rules_refused("again".to_owned());
        assert_eq!((health.check(), health.load_failure()), (Ok(()), Some("again".to_owned())));
        health.terminate();
        assert_eq!(health.check(), Err("shutting down".to_owned()));
    }

    #[test]
    fn trouble_with_the_source_of_rules_matters_until_there_are_some() {
        let health = Health::new(RulesNeeded::Loaded);
        health.rules_awaited("the control plane is away".to_owned());
        assert_eq!(health.check(), Err("no rules were loaded yet: the control plane is away".to_owned()));
        health.rules_source_answers();
        assert_eq!(health.check(), Err("no rules were loaded yet".to_owned()));
        health.rules_loaded(0);
        health.rules_awaited("the control plane is away".to_owned());
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn not_ready_while_the_store_is_lost_and_says_why() {
        let health = Health::new(RulesNeeded::None);
        health.store_lost("redis r:6379: connection refused".to_owned());
        assert_eq!(health.check(), Err("redis r:6379: connection refused".to_owned()));
        health.store_ready();
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn with_at_least_one_config_an_empty_set_is_not_enough() {
        let health = Health::new(RulesNeeded::OneDomain);
        for (n_domains, healthy) in [(0, false), (2, true), (0, false)] {
            health.rules_loaded(n_domains);
            assert_eq!(health.check().is_ok(), healthy, "{n_domains} domains");
        }
    }

    #[test]
    fn a_forced_start_needs_no_rules() {
        assert_eq!(Health::new(RulesNeeded::None).check(), Ok(()));
    }

    #[test]
    fn the_aspects_are_ill_when_the_check_fails() {
        let health = Health::new(RulesNeeded::Loaded);
        let lines = || health.aspects(&[]).iter().map(ToString::to_string).collect::<Vec<_>>();
        let is_ill = || health.aspects(&[]).iter().any(|aspect| aspect.mark == Mark::Ill);
        assert_eq!(
            lines(),
            ["[+] process: serving", "[+] store: in use", "[-] rules: no rules were loaded yet"]
        );
        assert_eq!(is_ill(), health.check().is_err());
        health.rules_loaded(2);
        health.rules_refused("a.yaml:1:1: bad\nb.yaml:2:2: worse".to_owned());
        assert_eq!(
            lines()[2..],
            [
                "[+] rules: in force, domains: 2",
                "[!] newest rules, refused: a.yaml:1:1: bad; b.yaml:2:2: worse"
            ]
        );
        assert_eq!((is_ill(), health.check()), (false, Ok(())));
        health.rules_awaited("nobody answers".to_owned());
        assert_eq!(lines().last().unwrap(), "[!] source of rules: nobody answers");
        let of_store = |troubles: &[String]| -> Vec<_> {
            health.aspects(troubles).iter().skip(1).take(2).map(ToString::to_string).collect()
        };
        let troubles = ["a:1 is away".to_owned(), "b:2 is slow".to_owned()];
        assert_eq!(of_store(&troubles), ["[!] store: a:1 is away", "[!] store: b:2 is slow"]);
        health.store_lost("redis: away".to_owned());
        assert_eq!(of_store(&troubles)[0], "[-] store: redis: away");
        health.terminate();
        assert_eq!(lines()[..2], ["[-] process: shutting down", "[-] store: redis: away"]);
        assert_eq!(is_ill(), health.check().is_err());
    }

    #[tokio::test]
    async fn a_watcher_sees_changes() {
        let health = Health::new(RulesNeeded::Loaded);
        let mut watcher = health.watch();
        health.rules_loaded(1);
        assert!(watcher.changed().await);
        drop(health);
        assert!(!watcher.changed().await);
    }
}
