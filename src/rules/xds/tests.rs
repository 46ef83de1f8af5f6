use tokio::{sync::mpsc::unbounded_channel, time::Instant};

use super::*;

pub(super) fn nowhere(jitter: Jitter) -> Options {
    let keepalive = Keepalive { interval: Duration::from_secs(330), timeout: Duration::from_secs(20) };
    let address = Address::Unix("/there/is/no/such/socket".into());
    let (initial, max) = (Duration::from_secs(10), Duration::from_secs(60));
    Options {
        server: Server { address, tls: None, keepalive },
        node: Node::default(),
        headers: Headers::default(),
        max_message: DEFAULT_MAX_MESSAGE,
        backoff: Schedule { initial, max, factor: 0.5, jitter },
        cache_directory: None,
    }
}

/// When each of the first attempts failed, since the first.
async fn failures(options: Options, n: usize) -> Vec<Duration> {
    let (tell, mut told) = unbounded_channel();
    let listener = move |event| {
        if let Event::Trouble(why) = event {
            assert!(why.contains("cannot open the socket"), "{why}");
            let _ = tell.send(Instant::now());
        }
    };
    let handle = follow(options, LoadOptions::default(), Arc::new(listener)).await;
    let mut moments = Vec::new();
    while moments.len() < n {
        moments.push(told.recv().await.unwrap());
    }
    handle.stop().await;
    moments.iter().map(|moment| *moment - moments[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn pauses_between_attempts_grow() {
    let secs = |moments: Vec<Duration>| moments.iter().map(Duration::as_secs).collect::<Vec<_>>();
    assert_eq!(secs(failures(nowhere(Jitter::None), 6).await), [0, 10, 30, 70, 130, 190]);
    let random = failures(nowhere(Jitter::Random), 6).await;
    assert!((95..=190).contains(&random[5].as_secs()), "{random:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_first_look_is_over_once_it_is_known_that_there_is_nothing() {
    let handle = follow(nowhere(Jitter::None), LoadOptions::default(), Arc::new(|_| {})).await;
    let began = Instant::now();
    handle.looked(Duration::from_secs(3600)).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    handle.stop().await;
}
