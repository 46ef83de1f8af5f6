use std::net::Ipv4Addr;

use futures_util::future::join_all;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};

use super::*;
use crate::rls::{
    constant::LetsThrough,
    frames::{ACK, DATA, Frame, GO_AWAY, PING, SETTINGS, Script},
};

/// Far beyond what any of these tests takes: only a hanging one meets it.
const LONG: Duration = Duration::from_secs(60);

fn any_port() -> Address {
    Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())
}

async fn start() -> Server {
    start_with(Options::with_workers(NonZeroUsize::new(2).unwrap())).await
}

async fn start_with(options: Options) -> Server {
    let listener = Listener::bind(&any_port()).unwrap();
    Server::start(listener, options, &Health::new().await, |_| LetsThrough).unwrap()
}

async fn connect(server: &Server) -> TcpStream {
    let Address::Tcp(address) = server.address() else { panic!("a port") };
    TcpStream::connect(address).await.unwrap()
}

/// All frames until the server closes the connection.
async fn read_to_end(mut connection: TcpStream) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = timeout(LONG, Frame::read(&mut connection)).await.unwrap() {
        if frame.kind == PING && frame.flags == 0 {
            let pong = Script::default().frame(PING, ACK, 0, &frame.payload);
            // The server asks once more before it closes, and may be gone then.
            let _ = connection.write_all(pong.bytes()).await;
        }
        frames.push(frame);
    }
    frames
}

/// Reads up to the answer to this call. The connection must not end before.
async fn answered(connection: &mut TcpStream, stream: u32) -> Frame {
    loop {
        let frame = timeout(LONG, Frame::read(connection)).await.unwrap().unwrap();
        assert_ne!(frame.kind, GO_AWAY, "{frame:?}");
        if frame.kind == DATA && frame.stream == stream {
            return frame;
        }
    }
}

/// Connections that the acceptor has not seen yet, and others that it has: none of what was sent is lost.
#[tokio::test]
async fn what_was_sent_before_the_drain_is_answered_after_it_began() {
    let server = start().await;
    let mut connections = Vec::new();
    for _ in 0..50 {
        let mut connection = connect(&server).await;
        connection.write_all(Script::greeting().call(1).bytes()).await.unwrap();
        connections.push(connection);
    }
    let (drained, answers) =
        tokio::join!(server.drain(LONG), join_all(connections.into_iter().map(read_to_end)));
    assert_eq!(drained, Drained { n_cut: 0 });
    for frames in answers {
        assert!(frames.iter().any(|frame| frame.kind == DATA && frame.stream == 1), "{frames:?}");
        assert!(frames.iter().any(|frame| frame.kind == GO_AWAY), "{frames:?}");
    }
}

/// As Envoy does when we stalled: everything in flight is taken back at once. What comes after that is answered.
#[tokio::test]
async fn calls_taken_back_by_the_hundred_do_not_cost_the_connection() {
    let server = start().await;
    let mut connection = connect(&server).await;
    let script =
        (0..500).fold(Script::greeting(), |script, n| script.call(2 * n + 1).reset(2 * n + 1)).call(1001);
    connection.write_all(script.bytes()).await.unwrap();
    answered(&mut connection, 1001).await;
}

#[tokio::test]
async fn an_answer_is_never_compressed() {
    let server = start().await;
    let mut connection = connect(&server).await;
    connection.write_all(Script::greeting().call(1).bytes()).await.unwrap();
    assert_eq!(answered(&mut connection, 1).await.payload.first(), Some(&0), "the compressed flag");
}

#[tokio::test]
async fn a_dropped_server_cuts_its_connections() {
    let server = start().await;
    let connection = connect(&server).await;
    drop(server);
    assert!(read_to_end(connection).await.iter().all(|frame| frame.kind == SETTINGS));
}

#[tokio::test]
async fn a_connection_above_the_bound_waits_until_another_ends() {
    let one = NonZeroUsize::MIN;
    let server = start_with(Options { max_connections: one, ..Options::with_workers(one) }).await;
    let call = Script::greeting().call(1);
    let mut first = connect(&server).await;
    first.write_all(call.bytes()).await.unwrap();
    answered(&mut first, 1).await;
    let mut second = connect(&server).await;
    second.write_all(call.bytes()).await.unwrap();
    first.write_all(Script::default().call(3).bytes()).await.unwrap();
    answered(&mut first, 3).await;
    assert_eq!((server.counts().calls(), server.counts().connections()), (2, 1));
    drop(first);
    answered(&mut second, 1).await;
    assert_eq!(server.counts().calls(), 3);
}

#[tokio::test]
async fn headers_above_the_bound_cost_their_call_and_no_other() {
    let server = start().await;
    let mut connection = connect(&server).await;
    let script = Script::greeting().call_with_headers(1, 17 << 20).call(3);
    connection.write_all(script.bytes()).await.unwrap();
    answered(&mut connection, 3).await;
    assert_eq!(server.counts().calls(), 1);
}

#[tokio::test]
async fn a_decider_that_cannot_be_made_fails_the_start() {
    let listener = Listener::bind(&any_port()).unwrap();
    let options = Options::with_workers(NonZeroUsize::MIN);
    let decider = |_| -> LetsThrough { panic!("meant to") };
    let error = Server::start(listener, options, &Health::new().await, decider).unwrap_err();
    assert!(matches!(error, StartError::Thread(_)), "{error}");
}

#[tokio::test]
async fn the_end_of_a_thread_is_noticed() {
    let server = start().await;
    let ended = server.ended.clone();
    assert!(!ended.is_cancelled());
    server.drain(LONG).await;
    assert!(ended.is_cancelled());
}
