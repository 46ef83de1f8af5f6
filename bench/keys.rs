//! Which keys are asked for, and the message that asks for one.

use prost::Message;

/// The keys that the draws are from.
pub const N_KEYS: usize = 1_000_000;

/// The rules that the messages match, one each; only a flooder ever reaches its limit.
pub const RULES: &str = "
domain: bench
descriptors:
- key: tenant
  value: acme
  rate_limit: { unit: hour, requests_per_unit: 4294967295 }
  descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 4294967295 } }
- { key: path, rate_limit: { unit: hour, requests_per_unit: 4294967295 } }
- { key: remote_address, rate_limit: { unit: hour, requests_per_unit: 4294967295 } }
- { key: session, rate_limit: { unit: hour, requests_per_unit: 4294967295 } }
- { key: flooder, rate_limit: { unit: hour, requests_per_unit: 10 } }
";

/// How many descriptors a message has.
#[derive(Clone, Copy)]
pub enum Shape {
    One,
    Four,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one descriptor",
            Self::Four => "four descriptors",
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// What the descriptors of a message are about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The first is about the key's own user, the others about what many have in common.
    Users,
    /// All of them are about what only this key has.
    Strangers,
    /// All of them are about somebody who is over the limit.
    Flooders,
}

/// The gRPC frame that asks for this key: its prefix, then a `RateLimitRequest`.
pub fn message(shape: Shape, about: About, key: usize) -> Vec<u8> {
    let user = format!("user-{key:07}");
    let [path, address, session] =
        [format!("/v1/orders/{key:07}"), format!("stranger-{key:07}"), format!("session-{key:07}")];
    let all = match about {
        About::Users => [
            descriptor(&[("tenant", "acme"), ("user", &user)]),
            descriptor(&[("tenant", "acme")]),
            descriptor(&[("path", "/v1/orders")]),
            descriptor(&[("remote_address", "203.0.113.7")]),
        ],
        About::Strangers => [
            descriptor(&[("tenant", "acme"), ("user", &user)]),
            descriptor(&[("path", &path)]),
            descriptor(&[("remote_address", &address)]),
            descriptor(&[("session", &session)]),
        ],
        About::Flooders => ["a", "b", "c", "d"].map(|name| descriptor(&[("flooder", name)])),
    };
    let n_descriptors = match shape {
        Shape::One => 1,
        Shape::Four => 4,
    };
    let descriptors = all.into_iter().take(n_descriptors).collect();
    let request = Request { domain: "bench".into(), descriptors };
    let mut frame = vec![0; 5];
    // A message of a few hundred bytes: its length fits into the last byte but one and the last.
    frame.splice(3..5, (request.encoded_len() as u16).to_be_bytes());
    frame.extend(request.encode_to_vec());
    frame
}

fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.into(), value: value.into() };
    Descriptor { entries: entries.iter().map(entry).collect() }
}

/// How the keys of the calls are drawn; the same for the same seed.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Draw {
    /// Always the same one.
    Hot,
    /// Each as often as any other.
    Uniform,
    /// The k-th is asked for 1/k as often as the first: what the popularity of users, paths and tenants looks like.
    Zipf,
}

impl Draw {
    /// In the words of the page.
    pub fn name(self) -> String {
        match self {
            Self::Hot => "always the same key".into(),
            Self::Uniform => format!("keys drawn evenly from {N_KEYS}"),
            Self::Zipf => format!("keys drawn by Zipf's law from {N_KEYS}"),
        }
    }

    pub fn keys(self, seed: u64) -> Box<dyn Iterator<Item = usize>> {
        let mut random = Random(seed);
        match self {
            Self::Hot => Box::new(std::iter::repeat(0)),
            Self::Uniform => {
                Box::new(std::iter::repeat_with(move || (random.share() * N_KEYS as f64) as usize))
            }
            Self::Zipf => {
                let shares = zipf_shares();
                let draw = move || {
                    let share = random.share();
                    shares.partition_point(|&until| until <= share)
                };
                Box::new(std::iter::repeat_with(draw))
            }
        }
    }
}

/// For each key, the share of the calls that go to it or to one before it.
fn zipf_shares() -> Vec<f64> {
    let mut shares: Vec<f64> = (1..=N_KEYS).map(|k| 1.0 / k as f64).collect();
    let sum: f64 = shares.iter().sum();
    let mut until = 0.0;
    for share in &mut shares {
        until += *share / sum;
        *share = until;
    }
    shares
}

/// SplitMix64: small, seedable, and good enough to draw keys.
struct Random(u64);

impl Random {
    /// In [0, 1).
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
