//! Settings about memcached, which is not supported: they are known, say nothing, and are never a problem.

use super::{given::Origin, table::Values};

const PREFIX: &str = "MEMCACHE_";

/// One warning for all that were set to something.
pub(super) fn warn(values: &Values, warnings: &mut Vec<String>) {
    let shown = values.shown();
    let set = shown.iter().filter(|shown| {
        shown.row.name.starts_with(PREFIX) && shown.origin != Origin::Default && !shown.value.is_empty()
    });
    let names: Vec<_> = set.map(|shown| shown.row.name).collect();
    if let [.., _] = names.as_slice() {
        warnings
            .push(format!("memcached is not supported, so that this has no effect: {}", names.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{Given, Settings};

    #[test]
    fn what_is_set_is_told_in_one_warning() {
        let given = Given::of([
            ("MEMCACHE_HOST_PORT", "cache:11211"),
            ("MEMCACHE_MAX_IDLE_CONNS", "many"),
            ("MEMCACHE_SRV", ""),
        ]);
        let warnings = Settings::read(&given).unwrap().warnings;
        let told = "memcached is not supported, so that this has no effect: MEMCACHE_HOST_PORT, MEMCACHE_MAX_IDLE_CONNS";
        assert_eq!(warnings, [told]);
    }

    #[test]
    fn a_service_link_is_none_of_them() {
        let given = Given::of([("MEMCACHE_HOST_PORT", "tcp://10.0.0.9:11211")]);
        let warnings = Settings::read(&given).unwrap().warnings;
        assert!(matches!(warnings.as_slice(), [one] if one.contains("`memcache-host`")), "{warnings:?}");
    }
}
