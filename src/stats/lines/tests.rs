//! What goes out, and what is known to be out.

use std::time::Duration;

use super::*;
use crate::telemetry::timing::{Timed, Timing};

fn counters(pairs: &[(&str, u64)]) -> Collected {
    pairs.iter().map(|(name, n)| ((*name).to_owned(), Value::Counter(*n))).collect()
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.trim_end()).collect()
}

fn send(unsent: &mut Unsent, all: &Collected) -> Vec<String> {
    let lines = unsent.lines(all);
    let texts = texts(&lines).iter().map(|text| (*text).to_owned()).collect();
    lines.into_iter().for_each(|line| unsent.was_sent(line));
    texts
}

#[test]
fn counters_are_what_was_added_and_zero_is_silent() {
    let mut unsent = Unsent::new(Dialect::statsd(&[]));
    assert_eq!(send(&mut unsent, &counters(&[("a", 2), ("b", 0)])), ["a:2|c"]);
    assert_eq!(send(&mut unsent, &counters(&[("a", 5), ("b", 1)])), ["a:3|c", "b:1|c"]);
    assert!(send(&mut unsent, &counters(&[("a", 5), ("b", 1)])).is_empty());
}

#[test]
fn what_could_not_be_sent_goes_with_the_next() {
    let mut unsent = Unsent::new(Dialect::statsd(&[]));
    assert_eq!(texts(&unsent.lines(&counters(&[("a", 2)]))), ["a:2|c"]);
    assert_eq!(send(&mut unsent, &counters(&[("a", 7)])), ["a:7|c"]);
}

#[test]
fn a_counter_that_begins_anew_or_is_gone_takes_nothing_back() {
    let mut unsent = Unsent::new(Dialect::statsd(&[]));
    send(&mut unsent, &counters(&[("a", 9)]));
    assert!(send(&mut unsent, &counters(&[("a", 1)])).is_empty());
    assert_eq!(send(&mut unsent, &counters(&[("a", 3)])), ["a:2|c"]);
    assert!(send(&mut unsent, &counters(&[])).is_empty());
    assert!(unsent.sent.is_empty());
    assert_eq!(send(&mut unsent, &counters(&[("a", 1)])), ["a:1|c"]);
}

#[test]
fn gauges_are_always_said() {
    let mut unsent = Unsent::new(Dialect::statsd(&[]));
    let all = Collected::from([("g".to_owned(), Value::Gauge(0))]);
    for _ in 0..2 {
        assert_eq!(send(&mut unsent, &all), ["g:0|g"]);
    }
}

#[test]
fn durations_are_means_that_stand_for_many() {
    let timing = Timing::default();
    [3, 4].into_iter().for_each(|millis| timing.took(Duration::from_millis(millis)));
    timing.took(Duration::from_micros(1_234_567));
    let all = || {
        let timed = Timed::of(std::iter::once(&timing));
        Collected::from([("t".to_owned(), Value::Timer(Box::new(timed)))])
    };
    let mut unsent = Unsent::new(Dialect::statsd(&[]));
    assert_eq!(send(&mut unsent, &all()), ["t:3.500000|ms|@0.500000000000000", "t:1234.567000|ms"]);
    timing.took(Duration::from_millis(5));
    assert_eq!(send(&mut unsent, &all()), ["t:5.000000|ms"]);
}

#[test]
fn a_rate_stands_for_every_duration() {
    for n in [2, 3, 7, 49, 1_000, 999_983, 10_000_000] {
        let text = times(Bucket { n, nanos: n });
        let rate: f64 = text.rsplit('@').next().unwrap().parse().unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as a receiver does")]
        let times = (1.0 / rate) as u64;
        assert_eq!(times, n, "{text}");
    }
}

#[test]
fn tags_are_sorted_cleaned_and_complete() {
    let extra = [("zone", "z1"), ("app", "my.app:x|y\n"), ("", "no"), ("no", "")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let all = counters(&[("a.b", 1)]);
    let mut statsd = Unsent::new(Dialect::statsd(&extra));
    assert_eq!(send(&mut statsd, &all), ["a.b.__app=my_app_x_y_.__zone=z1:1|c"]);
    let mut dog = Unsent::new(Dialect::dogstatsd(&extra, Mogrifiers::default()));
    assert_eq!(send(&mut dog, &all), ["a.b:1|c|#app:my_app_x_y_,zone:z1"]);
}
