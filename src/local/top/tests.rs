use super::*;
use crate::{
    key::CounterKey,
    limit::{Algorithm, Limit, Unit, Window},
    local::{Local, Options, SketchKeeps, sketch::Seen},
};

fn key(name: &str) -> CounterKey {
    let limit =
        Limit { requests_per_unit: 1, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow };
    CounterKey::new(b"", b"d", [(&b"k"[..], name.as_bytes())].into_iter(), &limit)
}

#[test]
fn the_workers_sketches_add_up() {
    let local = Local::new(Options::default());
    let workers: Vec<_> = (0..3).filter_map(|_| local.add_worker()).collect();
    let rule = Arc::new(RuleCounters::default());
    let (hot, warm, refused) = (key("hot"), key("warm"), key("refused"));
    let now = |n: u64| UnixMicros::new(1_000_000_000 + n * 1_000);
    let seen = |key, refused| Seen { key, rule: Some(&rule), hits: 1, refused };
    // 1000 turns a second on each of the three workers.
    for n in 0..20_000 {
        for (place, worker) in workers.iter().enumerate() {
            let mut calls = vec![seen(&hot, n % 4 == 0)];
            if place == 0 {
                calls.push(seen(&warm, false));
            }
            if n % 2 == 0 {
                calls.push(seen(&refused, true));
            }
            worker.record(now(n), calls.into_iter());
        }
    }
    let top = local.top(2, now(20_000));
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.03;
    assert!(close(top.calls, 5_500.0) && close(top.refusals, 2_250.0), "{top:?}");
    let [first, second] = &top.hottest[..] else { panic!("{top:?}") };
    assert_eq!((&*first.key, &*second.key), ("d|k=hot|60s", "d|k=refused|60s"));
    assert!(close(first.rate, 3_000.0) && close(first.share, 6.0 / 11.0), "{first:?}");
    assert!(close(first.refused_share, 0.25) && close(second.refused_share, 1.0), "{top:?}");
    assert!(first.rule.as_ref().is_some_and(|known| Arc::ptr_eq(known, &rule)));
    assert_eq!((first.error, top.most_unlisted), (0.0, 0.0), "all keys have counters");
    let [first, second] = &top.most_refused[..] else { panic!("{top:?}") };
    assert_eq!((&*first.key, &*second.key), ("d|k=refused|60s", "d|k=hot|60s"));
    assert!(close(first.rate, 1_500.0) && close(second.share, 1.0 / 3.0), "{top:?}");
    let rate = local.rate(hot.id(), now(20_000));
    assert!(close(rate.calls_per_second, 3_000.0), "{rate:?}");
}

#[test]
fn what_one_worker_does_not_list_may_have_been_asked_there() {
    let local = Local::new(Options::default());
    let [busy, other] = [local.add_worker().unwrap(), local.add_worker().unwrap()];
    let (hot, now) = (key("hot"), UnixMicros::from_secs(1_000));
    fn seen(key: &CounterKey) -> Seen<'_> {
        Seen { key, rule: None, hits: 1, refused: false }
    }
    for n in 0..30_000 {
        let cold = key(&n.to_string());
        busy.record(now, std::iter::once(seen(&cold)));
    }
    busy.record(now, std::iter::once(seen(&hot)));
    (0..1_000).for_each(|_| other.record(now, std::iter::once(seen(&hot))));
    let top = local.top(1, now);
    let row = &top.hottest[0];
    let [rate, error, most] = [row.rate, row.error, top.most_unlisted].map(|r| r / per_second(1.0));
    assert!(rate >= 1_001.0 - 1e-6 && rate - error <= 1_001.0 + 1e-6, "{rate} {error}");
    assert!(error > 0.0 && error <= most, "{error} {most}");
}

#[test]
fn without_sketches_nothing_is_hot() {
    let local = Local::new(Options { sketch: SketchKeeps::Nothing, ..Options::default() });
    assert!(local.add_worker().is_none());
    assert!(local.top(10, UnixMicros::from_secs(1)).hottest.is_empty());
}
