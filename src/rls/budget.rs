//! How long a call may take: three quarters of what the caller waits, so that the answer still reaches it.
//!
//! **Invariant:** every call has a budget, counted from the arrival of its bytes, not from when we came to it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::store::Budget;

/// The longest budget there is. One second: far above any deadline that a data plane sets for a limit check (Envoy's
/// default is 20 ms), short enough that a stalled store cannot pile up calls.
pub const REQUEST_BUDGET: Duration = Duration::from_secs(1);

/// The budget of a call whose caller names no deadline. 100 ms: five times what Envoy waits by default.
pub const UNNAMED_BUDGET: Duration = Duration::from_millis(100);

/// Turns a caller's deadline into a budget.
#[derive(Clone, Copy, Debug)]
pub struct Budgets {
    longest: Duration,
}

impl Budgets {
    /// No budget is longer than `longest`.
    pub fn at_most(longest: Duration) -> Self {
        Self { longest }
    }

    pub(super) fn of(&self, headers: &HeaderMap, arrived: Instant) -> Budget {
        let named = headers.get("grpc-timeout").and_then(grpc_timeout);
        let span = named.map_or(UNNAMED_BUDGET, |named| named / 4 * 3).min(self.longest);
        Budget::until(arrived.checked_add(span).unwrap_or(arrived))
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::at_most(REQUEST_BUDGET)
    }
}

/// Reads `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").
fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0_u64, |n, digit| n * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(n * 3_600),
        b'M' => Duration::from_secs(n * 60),
        b'S' => Duration::from_secs(n),
        b'm' => Duration::from_millis(n),
        b'u' => Duration::from_micros(n),
        b'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(timeout: Option<&str>) -> Duration {
        let mut headers = HeaderMap::new();
        if let Some(timeout) = timeout {
            headers.insert("grpc-timeout", timeout.parse().unwrap());
        }
        let arrived = Instant::now();
        Budgets::default().of(&headers, arrived).deadline() - arrived
    }

    #[test]
    fn three_quarters_of_the_callers_deadline() {
        assert_eq!(span(Some("20m")), Duration::from_millis(15));
        assert_eq!(span(Some("1000u")), Duration::from_micros(750));
        assert_eq!(span(Some("400n")), Duration::from_nanos(300));
        assert_eq!(span(Some("1S")), Duration::from_millis(750));
        assert_eq!(span(Some("0m")), Duration::ZERO);
    }

    #[test]
    fn at_most_the_longest() {
        for long in ["2S", "1M", "1H", "99999999H"] {
            assert_eq!(span(Some(long)), REQUEST_BUDGET, "{long}");
        }
        let tight = Budgets::at_most(Duration::from_millis(5));
        let arrived = Instant::now();
        assert_eq!(tight.of(&HeaderMap::new(), arrived).deadline() - arrived, Duration::from_millis(5));
    }

    #[test]
    fn a_caller_without_a_readable_deadline_gets_a_short_one() {
        for unreadable in
            [None, Some(""), Some("m"), Some("20"), Some("20x"), Some("-1m"), Some("123456789m")]
        {
            assert_eq!(span(unreadable), UNNAMED_BUDGET, "{unreadable:?}");
        }
    }
}
