//! The caller's side of a trace, as it stands in the headers: W3C's `traceparent`, else Zipkin's B3 in either of its forms.
//!
//! **Invariant:** headers that are no context are no parent; nothing in them fails a call. Allocates nothing, but for
//! [`state`].

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::{SpanId, TraceId, TraceState};

/// The span of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    /// `None`: the caller leaves it to us.
    pub sampled: Option<bool>,
}

/// `tracestate` as it is handed on; empty where it cannot be read.
pub(super) fn state(headers: &HeaderMap) -> TraceState {
    let text = headers.get("tracestate").and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub(super) fn parent(headers: &HeaderMap) -> Option<Parent> {
    w3c(headers).or_else(|| b3(headers)).or_else(|| b3_by_parts(headers))
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; later versions may go on after another dash (W3C Trace Context, "traceparent").
fn w3c(headers: &HeaderMap) -> Option<Parent> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let mut parts = text.split('-');
    let version = hex(parts.next()?, 2)?;
    let (trace_id, span_id) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
    let flags = hex(parts.next()?, 2)?;
    let is_version_known = version == 0;
    if version == 0xff || (is_version_known && parts.next().is_some()) {
        return None;
    }
    parent_of(trace_id, span_id, Some(flags & 1 == 1))
}

/// `b3: <trace>-<span>[-<0|1|d>[-<parent>]]`.
fn b3(headers: &HeaderMap) -> Option<Parent> {
    let mut parts = headers.get("b3")?.to_str().ok()?.split('-');
    let (trace_id, span_id) = (b3_trace_id(parts.next()?)?, hex(parts.next()?, 16)?);
    parent_of(trace_id, span_id, parts.next().and_then(b3_decision))
}

fn b3_by_parts(headers: &HeaderMap) -> Option<Parent> {
    let part = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let trace_id = b3_trace_id(part("x-b3-traceid")?)?;
    let span_id = hex(part("x-b3-spanid")?, 16)?;
    let is_debug = part("x-b3-flags") == Some("1");
    let sampled = if is_debug { Some(true) } else { part("x-b3-sampled").and_then(b3_decision) };
    parent_of(trace_id, span_id, sampled)
}

fn b3_trace_id(text: &str) -> Option<u128> {
    hex(text, 32).or_else(|| hex(text, 16))
}

fn b3_decision(text: &str) -> Option<bool> {
    match text {
        "1" | "d" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// Numbers of zero name nothing.
fn parent_of(trace_id: u128, span_id: u128, sampled: Option<bool>) -> Option<Parent> {
    let span_id = u64::try_from(span_id).ok()?;
    let (trace_id, span_id) = (TraceId::from(trace_id), SpanId::from(span_id));
    (trace_id != TraceId::INVALID && span_id != SpanId::INVALID).then_some(Parent {
        trace_id,
        span_id,
        sampled,
    })
}

/// A number of exactly so many hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const N: usize>(headers: [(&'static str, &str); N]) -> Option<(u128, u64, Option<bool>)> {
        let headers: HeaderMap = headers
            .into_iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        parent(&headers).map(|parent| {
            let trace_id = u128::from_be_bytes(parent.trace_id.to_bytes());
            (trace_id, u64::from_be_bytes(parent.span_id.to_bytes()), parent.sampled)
        })
    }

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;
    const TRACE_TEXT: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN_TEXT: &str = "00f067aa0ba902b7";

    #[test]
    fn the_parent_of_w3c() {
        let of = |version: &str, flags: &str| {
            read([("traceparent", &format!("{version}-{TRACE_TEXT}-{SPAN_TEXT}-{flags}"))])
        };
        assert_eq!(of("00", "01"), Some((TRACE, SPAN, Some(true))));
        assert_eq!(of("00", "00"), Some((TRACE, SPAN, Some(false))));
        assert_eq!(of("00", "ff"), Some((TRACE, SPAN, Some(true))));
        assert_eq!(of("cc", "02-and-more"), Some((TRACE, SPAN, Some(false))), "a later version");
        for (version, flags) in [
            ("ff", "01"),
            ("00", "01-more"),
            ("0", "01"),
            ("00", "1"),
            ("00", ""),
            ("0x", "01"),
            ("+0", "01"),
        ] {
            assert_eq!(of(version, flags), None, "{version} {flags}");
        }
        let zero = "0".repeat(32);
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{zero}-{SPAN_TEXT}-01"),
            format!("00-{TRACE_TEXT}-{}-01", &zero[..16]),
            format!("00-{}-{SPAN_TEXT}-01", TRACE_TEXT.to_uppercase()),
            format!("00-{TRACE_TEXT}{SPAN_TEXT}-01"),
        ] {
            assert_eq!(read([("traceparent", &text)]), None, "{text}");
        }
    }

    #[test]
    fn the_parent_of_zipkin_where_there_is_no_other() {
        let single = format!("{TRACE_TEXT}-{SPAN_TEXT}");
        assert_eq!(read([("b3", &single)]), Some((TRACE, SPAN, None)));
        for (more, sampled) in [("-1", true), ("-0", false), ("-d", true), (&format!("-1-{SPAN_TEXT}"), true)]
        {
            assert_eq!(read([("b3", &format!("{single}{more}"))]), Some((TRACE, SPAN, Some(sampled))));
        }
        assert_eq!(read([("b3", "0")]), None);
        let parts = [("x-b3-traceid", SPAN_TEXT), ("x-b3-spanid", SPAN_TEXT)];
        assert_eq!(read(parts), Some((u128::from(SPAN), SPAN, None)), "64 bits are a trace, too");
        let [trace_id, span_id] = parts;
        assert_eq!(read([trace_id, span_id, ("x-b3-sampled", "0")]).unwrap().2, Some(false));
        assert_eq!(
            read([trace_id, span_id, ("x-b3-sampled", "0"), ("x-b3-flags", "1")]).unwrap().2,
            Some(true)
        );
        let w3c = format!("00-{TRACE_TEXT}-{SPAN_TEXT}-00");
        assert_eq!(read([trace_id, span_id, ("traceparent", &w3c)]), Some((TRACE, SPAN, Some(false))));
    }

    #[test]
    fn a_state_that_is_none_is_empty() {
        let state_of = |text: &str| {
            let headers: HeaderMap =
                [("tracestate".parse().unwrap(), text.parse().unwrap())].into_iter().collect();
            state(&headers).header()
        };
        assert_eq!(state_of("a=1,b=2"), "a=1,b=2");
        assert_eq!(state_of("no state"), "");
    }
}
