//! Slots: which one a key is in, and which node serves it.

use std::sync::Arc;

use redis::Value;

use super::super::{clock::ShardClock, config::Endpoint, link::Link};

const N_SLOTS: u16 = 16_384;

/// No node.
const NOBODY: u16 = u16::MAX;

/// The slot of a key: of what stands in its first braces, if there is something, else of all of it.
pub(in super::super) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let after = key.get(open + 1..)?;
        let close = after.iter().position(|byte| *byte == b'}')?;
        after.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % N_SLOTS
}

/// Slots from the first to the last, and the master that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub first: u16,
    pub last: u16,
    pub master: Endpoint,
}

/// Reads what `CLUSTER SLOTS` answered; what cannot be read is left out. `asked`: the address of the node that answered.
pub(super) fn parse(reply: &Value, asked: &str) -> Vec<Range> {
    let Value::Array(entries) = reply else { return Vec::new() };
    let range = |entry: &Value| {
        let Value::Array(parts) = entry else { return None };
        let [first, last, Value::Array(master), ..] = parts.as_slice() else { return None };
        let (host, port) = (text(master.first()?), number(master.get(1)?)?);
        let (first, last) = (number(first)?, number(last)?);
        let master = endpoint(&format!("{}:{port}", bracketed(&host)), asked)?;
        (first <= last && last < N_SLOTS).then_some(Range { first, last, master })
    };
    entries.iter().filter_map(range).collect()
}

/// `host:port`, where an empty host is the one that was asked, and `?` one that nobody knows.
pub(super) fn endpoint(address: &str, asked: &str) -> Option<Endpoint> {
    let (host, port) = address.rsplit_once(':')?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "?" => return None,
        "" => asked.rsplit_once(':')?.0.trim_start_matches('[').trim_end_matches(']'),
        host => host,
    };
    Some(Endpoint::Tcp { host: host.to_owned(), port: port.parse().ok()? })
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

/// Who serves what.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotMap {
    links: Vec<Arc<Link>>,
    /// For each slot the place of its link, or [`NOBODY`]; empty when nothing is known.
    owners: Vec<u16>,
}

impl SlotMap {
    /// `link`: called once for each master, with all its ranges.
    pub fn of(ranges: &[Range], link: impl Fn(&Endpoint, &[(u16, u16)]) -> Arc<Link>) -> Self {
        let mut masters: Vec<(&Endpoint, Vec<(u16, u16)>)> = Vec::new();
        for Range { first, last, master } in ranges {
            match masters.iter_mut().find(|(known, _)| *known == master) {
                Some((_, owned)) => owned.push((*first, *last)),
                None => masters.push((master, vec![(*first, *last)])),
            }
        }
        let mut owners = vec![NOBODY; usize::from(N_SLOTS)];
        for (place, (_, owned)) in (0..NOBODY).zip(&masters) {
            for (first, last) in owned {
                if let Some(slots) = owners.get_mut(usize::from(*first)..=usize::from(*last)) {
                    slots.fill(place);
                }
            }
        }
        Self { links: masters.iter().map(|(master, owned)| link(master, owned)).collect(), owners }
    }

    pub fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.iter()
    }

    pub fn owner(&self, slot: u16) -> Option<&Arc<Link>> {
        self.links.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// The clock that numbers the windows: of the node that serves the first slot, so that all replicas follow one.
    pub fn clock(&self) -> Option<&ShardClock> {
        self.owner(0).or(self.links.first()).map(|link| &link.shard.clock)
    }

    /// The same, and a link to a node that serves nothing yet.
    pub fn with_link(&self, link: Arc<Link>) -> Self {
        let mut map = self.clone();
        if !map.links.iter().any(|known| Arc::ptr_eq(known, &link)) {
            map.links.push(link);
        }
        map
    }

    /// The same, but this slot is served over there.
    pub fn with(&self, slot: u16, link: Arc<Link>) -> Self {
        let mut map = self.with_link(link.clone());
        let place = map.links.iter().position(|known| Arc::ptr_eq(known, &link)).unwrap_or(0);
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(place).unwrap_or(NOBODY);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn keys_are_in_the_slots_that_servers_say() {
        for (key, expected) in [("123456789", 12_739), ("foo", 12_182), ("{foo}.bar", 12_182), ("a", 15_495)]
        {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(slot(b"foo{}{bar}"), crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % N_SLOTS);
        assert_eq!(slot(b"foo{{bar}}"), slot(b"{bar"));
    }

    #[test]
    fn slots_are_read_with_what_is_left_out_filled_in() {
        let entry = |first, last, host: Value, port| {
            let node = Value::Array(vec![host, Value::Int(port), bulk("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), node])
        };
        let reply = Value::Array(vec![
            entry(0, 10, bulk("10.0.0.1"), 1),
            entry(11, 20, bulk(""), 2),
            entry(21, 30, Value::Nil, 3),
            entry(31, 40, bulk("?"), 4),
            entry(41, 50, bulk("::1"), 5),
            entry(51, 16_384, bulk("10.0.0.1"), 6),
            Value::Nil,
        ]);
        let found: Vec<(u16, u16, Endpoint)> = parse(&reply, "seed:7000")
            .into_iter()
            .map(|range| (range.first, range.last, range.master))
            .collect();
        assert_eq!(
            found,
            [
                (0, 10, tcp("10.0.0.1", 1)),
                (11, 20, tcp("seed", 2)),
                (21, 30, tcp("seed", 3)),
                (41, 50, tcp("::1", 5))
            ]
        );
    }

    #[test]
    fn a_redirection_without_a_host_means_the_one_that_was_asked() {
        assert_eq!(endpoint(":6380", "h:1"), Some(tcp("h", 6380)));
        assert_eq!(endpoint(":6380", "[::1]:1"), Some(tcp("::1", 6380)));
        assert_eq!(endpoint("[::2]:6380", "h:1"), Some(tcp("::2", 6380)));
        assert_eq!(endpoint("?:6380", "h:1"), None);
        assert_eq!(endpoint("nonsense", "h:1"), None);
    }
}
