//! The kinds of values that are made of several: lists, maps, an address with its port.

use std::borrow::Cow;

use super::{
    go,
    value::{Host, Value},
};

/// Names with commas between, as the reference reads them: nothing is trimmed, a blank text is no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(pub Vec<String>);

impl Value for NameList {
    const KIND: &'static str = "list";

    fn parse(text: &str) -> Option<Self> {
        let names = || text.split(',').map(str::to_owned).collect();
        Some(Self(if text.trim().is_empty() { Vec::new() } else { names() }))
    }

    fn expected() -> String {
        "names with commas between".to_owned()
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// Keys and values, `key:value` with commas between, as the reference reads them: nothing is trimmed, a blank text is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

impl Value for Pairs {
    const KIND: &'static str = "map";

    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::default());
        }
        let pair = |item: &str| {
            let (key, value) = item.split_once(':')?;
            (!value.contains(':')).then(|| (key.to_owned(), value.to_owned()))
        };
        text.split(',').map(pair).collect::<Option<_>>().map(Self)
    }

    fn expected() -> String {
        "pairs with commas between, each key:value with one colon, such as zone:z1,app:edge".to_owned()
    }

    fn show(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>().join(",")
    }
}

/// Where to listen, as Go writes it: `host:port`, or `:port` for all addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub host: Host,
    pub port: u16,
}

impl ListenAddress {
    /// A port on all addresses.
    pub const fn any(port: u16) -> Self {
        Self { host: Host::new(""), port }
    }
}

impl Value for ListenAddress {
    const KIND: &'static str = "address";

    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = !host.contains(':') || host.starts_with('[');
        let host = Host::parse(host).filter(|_| bare)?;
        Some(Self { host, port: u16::try_from(go::integer(port)?).ok()? })
    }

    fn expected() -> String {
        "host:port or :port, such as :9090, 127.0.0.1:9090 or [::1]:9090".to_owned()
    }

    fn show(&self) -> String {
        let host = self.host.as_str();
        if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) }
    }
}

/// An address to listen on that may be empty, which is its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrDefault<T>(pub Option<T>);

impl<T: Value> Value for OrDefault<T> {
    const KIND: &'static str = T::KIND;

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() { Some(Self(None)) } else { T::parse(text).map(|value| Self(Some(value))) }
    }

    fn expected() -> String {
        T::expected()
    }

    fn show(&self) -> String {
        self.0.as_ref().map(T::show).unwrap_or_default()
    }
}

/// A path of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPath(Cow<'static, str>);

impl HttpPath {
    pub const fn new(path: &'static str) -> Self {
        Self(Cow::Borrowed(path))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for HttpPath {
    const KIND: &'static str = "path";

    fn parse(text: &str) -> Option<Self> {
        let fits = text.starts_with('/')
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        fits.then(|| Self(Cow::Owned(text.to_owned())))
    }

    fn expected() -> String {
        "a path that begins with /, such as /metrics".to_owned()
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<T: Value>(text: &str) -> Option<String> {
        T::parse(text).map(|value| value.show())
    }

    #[test]
    fn lists_and_maps_are_read_as_the_reference_reads_them() {
        assert_eq!(NameList::parse("A, B,").unwrap().0, ["A", " B", ""]);
        assert!(NameList::parse(" ").unwrap().0.is_empty());
        let pairs = |text| Pairs::parse(text).map(|pairs| pairs.0.len());
        assert_eq!(
            ["", "a:b", "a:b,c:", "a", "a:b:c", "a:b,"].map(pairs),
            [Some(0), Some(1), Some(2), None, None, None]
        );
    }

    #[test]
    fn an_address_is_written_as_go_writes_it() {
        for (text, expected) in [
            (":9090", Some(":9090")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("[::1]:19001", Some("[::1]:19001")),
            ("metrics.local:80", Some("metrics.local:80")),
            ("9090", None),
            ("::1:9090", None),
            (":http", None),
            (":70000", None),
        ] {
            assert_eq!(shown::<ListenAddress>(text).as_deref(), expected, "{text}");
        }
    }
}
