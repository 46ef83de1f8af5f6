//! The steps of the ladder: which server, which store, and what it is asked for.

use crate::client::Expect;
use crate::keys::{About, Draw, N_KEYS, Shape, message};
use crate::server::Kind;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The unit: tonic as it comes, one runtime and listener a core, a constant answer.
    BareTonic,
    /// Tidegate's edge around a constant answer.
    BareEdge,
    Memory,
    /// Every call asks for keys that were never asked for.
    RedisCold,
    /// Every call asks for the same keys, which are far from their limits.
    RedisHot,
    /// Every call asks for the same keys, which are over their limits.
    RedisRefused,
}

impl Case {
    pub const ALL: [Self; 6] =
        [Self::BareTonic, Self::BareEdge, Self::Memory, Self::RedisCold, Self::RedisHot, Self::RedisRefused];

    /// In the words of the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::BareTonic => "bare tonic",
            Self::BareEdge => "bare edge",
            Self::Memory => "memory",
            Self::RedisCold => "Redis, cold keys",
            Self::RedisHot => "Redis, hot key",
            Self::RedisRefused => "Redis, refused flood",
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Self::BareTonic => Kind::BareTonic,
            Self::BareEdge => Kind::BareEdge,
            Self::Memory => Kind::Memory,
            Self::RedisCold | Self::RedisHot | Self::RedisRefused => Kind::Redis,
        }
    }

    pub fn message(self, shape: Shape, key: usize) -> Vec<u8> {
        let about = match self {
            Self::BareTonic | Self::BareEdge | Self::Memory | Self::RedisHot => About::Users,
            Self::RedisCold => About::Strangers,
            Self::RedisRefused => About::Flooders,
        };
        message(shape, about, if self == Self::RedisHot { 0 } else { key })
    }

    pub fn expects(self) -> Expect {
        if self == Self::RedisRefused { Expect::OverLimit } else { Expect::Ok }
    }

    /// The keys of a round at a fixed rate.
    pub fn keys(self, draw: Draw, round: u64) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::BareTonic | Self::BareEdge | Self::Memory => draw.keys(round),
            Self::RedisCold => {
                // Far from those of the other rounds.
                let first = usize::try_from(round).unwrap_or(0).saturating_add(1).saturating_mul(N_KEYS);
                Box::new(first..)
            }
            Self::RedisHot | Self::RedisRefused => Draw::Hot.keys(round),
        }
    }
}
