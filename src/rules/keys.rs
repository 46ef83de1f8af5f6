//! The keys of a rules file: which there are and at which level each means something.

/// A kind of mapping in a rules file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Root,
    Descriptor,
    RateLimit,
    /// An item of `replaces`.
    Replaces,
}

impl Level {
    /// Where this level is, for a message.
    pub const fn place(self) -> &'static str {
        match self {
            Self::Root => "at the root of the file",
            Self::Descriptor => "in a descriptor, beside its key",
            Self::RateLimit => "under rate_limit",
            Self::Replaces => "in an item of replaces",
        }
    }
}

/// Whose a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The reference's: at a level where it means nothing it is ignored, as there.
    Reference,
    /// Ours: the reference refuses it, so it is refused at a wrong level.
    Ours,
    /// Described, and not built yet.
    Later,
}

/// A key that a rules file may hold.
#[derive(Debug)]
pub(crate) struct Known {
    pub name: &'static str,
    pub levels: &'static [Level],
    pub origin: Origin,
}

const fn known(name: &'static str, levels: &'static [Level], origin: Origin) -> Known {
    Known { name, levels, origin }
}

const KEYS: [Known; 26] = {
    use {Level::*, Origin::*};
    [
        known("domain", &[Root], Reference),
        known("descriptors", &[Root, Descriptor], Reference),
        known("key", &[Descriptor], Reference),
        known("value", &[Descriptor], Reference),
        known("rate_limit", &[Descriptor], Reference),
        known("shadow_mode", &[Descriptor], Reference),
        known("quota_mode", &[Descriptor], Reference),
        known("detailed_metric", &[Descriptor], Reference),
        known("value_to_metric", &[Descriptor], Reference),
        known("share_threshold", &[Descriptor], Reference),
        known("metadata", &[Descriptor], Reference),
        known("unit", &[RateLimit], Reference),
        known("requests_per_unit", &[RateLimit], Reference),
        known("unlimited", &[RateLimit], Reference),
        // At the root, control planes write the name of their resource.
        known("name", &[RateLimit, Replaces, Root], Reference),
        known("replaces", &[RateLimit], Reference),
        known("unit_multiplier", &[RateLimit], Ours),
        known("algorithm", &[RateLimit], Ours),
        known("burst", &[RateLimit], Ours),
        known("max_delay", &[RateLimit], Ours),
        known("on_store_failure", &[RateLimit], Ours),
        known("charge", &[Root], Ours),
        known("lease", &[RateLimit], Ours),
        known("candidate", &[RateLimit], Later),
        known("soft_mode", &[Descriptor], Later),
        known("enforce_percent", &[Descriptor], Later),
    ]
};

/// The key of this name. Names are case-sensitive.
pub(crate) fn find(name: &str) -> Option<&'static Known> {
    KEYS.iter().find(|known| known.name == name)
}

/// The names that a misspelt key can have meant.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(|known| known.origin != Origin::Later).map(|known| known.name)
}
