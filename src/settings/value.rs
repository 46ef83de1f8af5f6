//! The kinds of values that a setting can have: how each is read, how it is shown, what to say when it does not fit.
//! Knows no setting by name.

use std::{borrow::Cow, fmt, time::Duration};

use super::go;
use crate::store::redis::config::masked;

/// A kind of value.
pub trait Value: Sized {
    /// What the kind is called in the reference of settings.
    const KIND: &'static str;
    /// Whether the value must never be shown.
    const SECRET: bool = false;

    /// The value, or `None` if the text does not spell one.
    fn parse(text: &str) -> Option<Self>;

    /// What would have fitted, to stand after "expected".
    fn expected() -> String;

    /// The value as an operator would write it.
    fn show(&self) -> String;
}

impl Value for bool {
    const KIND: &'static str = "boolean";

    fn parse(text: &str) -> Option<Self> {
        go::boolean(text)
    }

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A port number.
impl Value for u16 {
    const KIND: &'static str = "port";

    fn parse(text: &str) -> Option<Self> {
        go::integer(text)?.try_into().ok()
    }

    fn expected() -> String {
        "a port number from 0 to 65535".to_owned()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Any whole number, for what the reference reads as one.
impl Value for i64 {
    const KIND: &'static str = "integer";

    fn parse(text: &str) -> Option<Self> {
        go::integer(text)
    }

    fn expected() -> String {
        "a whole number".to_owned()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for f32 {
    const KIND: &'static str = "number";

    #[expect(clippy::cast_possible_truncation, reason = "the reference computes with this ratio in 32 bits")]
    fn parse(text: &str) -> Option<Self> {
        go::float(text).map(|number| number as Self).filter(|number| number.is_finite())
    }

    fn expected() -> String {
        "a number such as 0.8".to_owned()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for f64 {
    const KIND: &'static str = "number";

    fn parse(text: &str) -> Option<Self> {
        go::float(text)
    }

    fn expected() -> String {
        "a number such as 0.1".to_owned()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Any text, also none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(Cow<'static, str>);

impl Text {
    pub const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` for an empty text.
    pub fn non_empty(&self) -> Option<&str> {
        Some(self.as_str()).filter(|text| !text.is_empty())
    }
}

impl Value for Text {
    const KIND: &'static str = "text";

    fn parse(text: &str) -> Option<Self> {
        Some(Self(Cow::Owned(text.to_owned())))
    }

    fn expected() -> String {
        "text in UTF-8".to_owned()
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Cow<'static, str>);

impl Password {
    pub const NONE: Self = Self(Cow::Borrowed(""));

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// `None` if there is none.
    pub fn non_empty(&self) -> Option<&str> {
        Some(self.reveal()).filter(|text| !text.is_empty())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Value for Password {
    const KIND: &'static str = "password";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        Some(Self(Cow::Owned(text.to_owned())))
    }

    fn expected() -> String {
        "text in UTF-8".to_owned()
    }

    fn show(&self) -> String {
        self.0.clone().into_owned()
    }
}

/// One address or several, shown without the passwords and the values of queries in them.
#[derive(Clone, PartialEq, Eq)]
pub struct Addresses(Cow<'static, str>);

impl Addresses {
    pub const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// `None` for an empty text.
    pub fn non_empty(&self) -> Option<&str> {
        Some(self.reveal()).filter(|text| !text.is_empty())
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl Value for Addresses {
    const KIND: &'static str = "addresses";

    fn parse(text: &str) -> Option<Self> {
        Some(Self(Cow::Owned(text.to_owned())))
    }

    fn expected() -> String {
        "text in UTF-8".to_owned()
    }

    fn show(&self) -> String {
        masked(&self.0)
    }
}

/// What is said about something that this program does not have: whatever it is, it will do. It may be an address, and is
/// shown as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused(Cow<'static, str>);

impl Unused {
    pub const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for Unused {
    const KIND: &'static str = "anything";

    fn parse(text: &str) -> Option<Self> {
        Some(Self(Cow::Owned(text.to_owned())))
    }

    fn expected() -> String {
        "text in UTF-8".to_owned()
    }

    fn show(&self) -> String {
        masked(self.as_str())
    }
}

/// On when set to anything but nothing, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence(pub bool);

impl Value for Presence {
    const KIND: &'static str = "presence";

    fn parse(text: &str) -> Option<Self> {
        Some(Self(!text.is_empty()))
    }

    fn expected() -> String {
        "anything".to_owned()
    }

    fn show(&self) -> String {
        if self.0 { "1" } else { "" }.to_owned()
    }
}

/// A host name or an address to listen on, without its port. Empty means all addresses, as in Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(Cow<'static, str>);

impl Host {
    pub const fn new(host: &'static str) -> Self {
        Self(Cow::Borrowed(host))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for Host {
    const KIND: &'static str = "host";

    fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let address = bare.split('%').next().is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_ok());
        let name = bare.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        (address || (name && bare.len() == text.len())).then(|| Self(Cow::Owned(bare.to_owned())))
    }

    fn expected() -> String {
        "a host name or an IP address without a port, such as 0.0.0.0 or ::".to_owned()
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

/// The name of an HTTP header, kept as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderName(Cow<'static, str>);

impl HeaderName {
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for HeaderName {
    const KIND: &'static str = "header name";

    fn parse(text: &str) -> Option<Self> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        (!text.is_empty() && text.bytes().all(token)).then(|| Self(Cow::Owned(text.to_owned())))
    }

    fn expected() -> String {
        "the name of an HTTP header: letters, digits and any of !#$%&'*+-.^_`|~".to_owned()
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

/// A whole number with its bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    /// A number outside the bounds is moved to the nearer one.
    pub const fn new(n: u32) -> Self {
        Self(if n < MIN {
            MIN
        } else if n > MAX {
            MAX
        } else {
            n
        })
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> Value for Count<MIN, MAX> {
    const KIND: &'static str = "integer";

    fn parse(text: &str) -> Option<Self> {
        let n = u32::try_from(go::integer(text)?).ok()?;
        (MIN..=MAX).contains(&n).then_some(Self(n))
    }

    fn expected() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A span of time with its bounds in milliseconds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const MIN_MS: u64, const MAX_MS: u64>(Duration);

impl<const MIN_MS: u64, const MAX_MS: u64> Span<MIN_MS, MAX_MS> {
    /// A span outside the bounds is moved to the nearer one.
    pub const fn secs(seconds: u64) -> Self {
        Self::millis(seconds.saturating_mul(1_000))
    }

    /// A span outside the bounds is moved to the nearer one.
    pub const fn millis(ms: u64) -> Self {
        Self(Duration::from_millis(if ms < MIN_MS {
            MIN_MS
        } else if ms > MAX_MS {
            MAX_MS
        } else {
            ms
        }))
    }

    pub const fn get(self) -> Duration {
        self.0
    }
}

impl<const MIN_MS: u64, const MAX_MS: u64> Value for Span<MIN_MS, MAX_MS> {
    const KIND: &'static str = "duration";

    fn parse(text: &str) -> Option<Self> {
        let span = Duration::from_nanos(u64::try_from(go::duration(text)?).ok()?);
        let fits = Duration::from_millis(MIN_MS) <= span && span <= Duration::from_millis(MAX_MS);
        fits.then_some(Self(span))
    }

    fn expected() -> String {
        let [min, max] = [MIN_MS, MAX_MS].map(|ms| go::show_duration(Duration::from_millis(ms)));
        format!("a duration from {min} to {max}, with its unit, such as 500ms or 10s")
    }

    fn show(&self) -> String {
        go::show_duration(self.0)
    }
}

/// A value that is chosen for the operator unless there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto<T>(pub Option<T>);

impl<T: Value> Value for Auto<T> {
    const KIND: &'static str = T::KIND;

    fn parse(text: &str) -> Option<Self> {
        if text == "auto" { Some(Self(None)) } else { T::parse(text).map(|value| Self(Some(value))) }
    }

    fn expected() -> String {
        format!("auto, or {}", T::expected())
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "auto".to_owned(), T::show)
    }
}
