//! Receivers that listen, close, are away, and never read.

use std::{io::BufRead as _, io::BufReader, net::TcpListener};

use super::*;
use crate::stats::collect::Value;

fn target(port: u16, protocol: Protocol) -> Target {
    Target {
        host: "127.0.0.1".to_owned(),
        port,
        protocol,
        dogstatsd: None,
        tags: Vec::new(),
        interval: Duration::from_secs(3_600),
        is_wanted: false,
    }
}

fn counters(n: u64) -> Collected {
    Collected::from([("a".to_owned(), Value::Counter(n))])
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

fn line(stream: &TcpStream) -> String {
    let mut line = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn what_has_changed_is_sent_over_one_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut flusher = Flusher::new(target(port(&listener), Protocol::Tcp));
    let now = Instant::now();
    assert!(flusher.flush(&counters(2), now));
    let (stream, _) = listener.accept().unwrap();
    assert_eq!(line(&stream), "a:2|c\n");
    assert!(flusher.flush(&counters(5), now));
    assert_eq!(line(&stream), "a:3|c\n");
}

#[test]
fn a_receiver_that_closed_gets_a_new_connection_and_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut flusher = Flusher::new(target(port(&listener), Protocol::Tcp));
    let now = Instant::now();
    assert!(flusher.flush(&counters(2), now));
    let (stream, _) = listener.accept().unwrap();
    line(&stream);
    drop(stream);
    assert!(flusher.flush(&counters(5), now));
    let (stream, _) = listener.accept().unwrap();
    assert_eq!(line(&stream), "a:3|c\n");
}

#[test]
fn a_receiver_that_is_away_is_left_alone_for_a_while_and_misses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = port(&listener);
    let mut flusher = Flusher::new(target(port, Protocol::Tcp));
    let began = Instant::now();
    drop(listener);
    assert!(!flusher.flush(&counters(2), began));
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    assert!(!flusher.may_be_last());
    assert!(!flusher.flush(&counters(3), began + RETRY_AFTER / 2), "not tried again so soon");
    assert!(flusher.flush(&counters(4), began + RETRY_AFTER));
    let (stream, _) = listener.accept().unwrap();
    assert_eq!(line(&stream), "a:4|c\n");
}

#[test]
fn a_receiver_that_never_reads_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut flusher = Flusher::new(target(port(&listener), Protocol::Tcp));
    // More than any socket buffer holds.
    let all: Collected = (0..20_000).map(|n| (format!("{:0>1000}{n}", ""), Value::Counter(1))).collect();
    assert!(!flusher.flush(&all, Instant::now()));
    assert!(flusher.wire.is_none());
    let (_stream, _) = listener.accept().unwrap();
}

/// Every whole line that comes until the connection ends.
fn whole_lines(stream: TcpStream) -> Vec<String> {
    let mut text = String::new();
    BufReader::new(stream).read_to_string(&mut text).unwrap();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_slow_receiver_gets_no_line_twice() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut flusher = Flusher::new(target(port(&listener), Protocol::Tcp));
    let now = Instant::now();
    // More than any socket buffer holds, so that a write ends in the middle.
    let all: Collected = (0..20_000).map(|n| (format!("{:0>1000}{n}", ""), Value::Counter(1))).collect();
    assert!(!flusher.flush(&all, now));
    let receiver = thread::spawn(move || {
        let read = |stream: io::Result<TcpStream>| thread::spawn(|| whole_lines(stream.unwrap()));
        let readers: Vec<_> = listener.incoming().take(2).map(read).collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(flusher.flush(&all, now + RETRY_AFTER));
    drop(flusher);
    let lines = receiver.join().unwrap();
    let different: std::collections::HashSet<&String> = lines.iter().collect();
    assert_eq!((lines.len(), different.len()), (20_000, 20_000));
}

#[test]
fn datagrams_hold_whole_lines_and_fit_a_frame() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut flusher = Flusher::new(target(socket.local_addr().unwrap().port(), Protocol::Udp));
    let all: Collected = (0..100).map(|n| (format!("{:0>100}.{n}", ""), Value::Counter(1))).collect();
    assert!(flusher.flush(&all, Instant::now()));
    let mut n_lines = 0;
    while n_lines < 100 {
        let mut buffer = [0; 65_536];
        let n = socket.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..n]).unwrap();
        assert!(n <= DATAGRAM && text.ends_with('\n'));
        n_lines += text.lines().inspect(|line| assert!(line.ends_with(":1|c"), "{line}")).count();
    }
}

#[test]
fn the_end_sends_what_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let statistics = crate::stats::tests::statistics("domain: d\n");
    statistics.metrics.reloaded();
    let sender = Sender::start(target(port(&listener), Protocol::Tcp), statistics).unwrap();
    sender.stop();
    let (stream, _) = listener.accept().unwrap();
    assert_eq!(line(&stream), "ratelimit.service.config_load_success:1|c\n");
}
