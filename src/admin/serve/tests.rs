//! On real sockets, with short bounds and a page that can be made to wait.

use std::net::SocketAddr;

use axum::{
    body::Bytes,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::*;

/// Far beyond what any of these tests takes: only a hanging one meets it.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
/// Long enough for a whole request on a busy machine.
const ENOUGH: Duration = Duration::from_secs(1);

const WIDE: Bounds = Bounds { connections: 10, head: LONG, request: LONG, sending: LONG, age: LONG };

/// Far more than the kernel holds for a client that does not read.
const LARGE: usize = 64 << 20;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";

struct Port {
    address: SocketAddr,
    stop: CancellationToken,
    is_in: Arc<Semaphore>,
    gate: Arc<Semaphore>,
    /// Of the page `/large`, for as long as it is in memory.
    place: Arc<Semaphore>,
}

struct Page(Vec<u8>, #[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// `/` answers at once, `/large` with much, `/wait` when the gate is opened, `/read` when the whole body is there.
async fn port(bounds: Bounds) -> Port {
    let (is_in, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (stop, place) = (CancellationToken::new(), Arc::new(Semaphore::new(1)));
    let large = Arc::clone(&place);
    let (enters, waits) = (Arc::clone(&is_in), Arc::clone(&gate));
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route(
            "/large",
            get(async || {
                let place = large.acquire_owned().await.unwrap();
                Bytes::from_owner(Page(vec![b'.'; LARGE], place))
            }),
        )
        .route("/read", post(async |body: String| body))
        .route(
            "/wait",
            get(move || {
                let (is_in, gate) = (Arc::clone(&enters), Arc::clone(&waits));
                async move {
                    is_in.add_permits(1);
                    gate.acquire().await.unwrap().forget();
                    "waited"
                }
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router, bounds, stop.clone()));
    Port { address, stop, is_in, gate, place }
}

impl Port {
    async fn connect(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// A connection whose request is being answered, until the gate is opened.
    async fn busy(&self) -> TcpStream {
        let busy = self.connect(b"GET /wait HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await;
        timeout(LONG, self.is_in.acquire()).await.unwrap().unwrap().forget();
        busy
    }
}

/// Up to the end of the connection.
async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A connection that was cut says so.
    let _ = timeout(LONG, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

async fn answered(stream: &mut TcpStream) {
    let mut text = Vec::new();
    while !text.ends_with(b"hello") {
        assert_ne!(timeout(LONG, stream.read_buf(&mut text)).await.unwrap().unwrap(), 0);
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_and_one_that_comes_by_half_end_the_connection() {
    let port = port(Bounds { head: SHORT, ..WIDE }).await;
    for said in [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nhost: h\r\n"] {
        let text = rest(port.connect(said).await).await;
        assert!(!text.contains("hello"), "{text}");
    }
}

#[tokio::test]
async fn a_connection_that_stays_idle_after_an_answer_is_closed() {
    let port = port(Bounds { head: ENOUGH, ..WIDE }).await;
    assert!(rest(port.connect(GET).await).await.ends_with("hello"));
}

#[tokio::test]
async fn a_body_that_comes_by_half_is_given_up() {
    let port = port(Bounds { request: SHORT, ..WIDE }).await;
    let text =
        rest(port.connect(b"POST /read HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nhalf").await).await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
}

const GET_LARGE: &[u8] = b"GET /large HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn an_answer_that_is_not_read_in_time_is_dropped_with_its_connection() {
    let port = port(Bounds { sending: SHORT, ..WIDE }).await;
    let mut unread = port.connect(GET_LARGE).await;
    unread.read_u8().await.unwrap();
    timeout(LONG, port.place.acquire()).await.unwrap().unwrap().forget();
    assert!(rest(unread).await.len() < LARGE);
}

#[tokio::test]
async fn who_reads_a_little_now_and_then_has_no_more_time_for_it() {
    let port = port(Bounds { sending: SHORT, ..WIDE }).await;
    let mut slow = port.connect(GET_LARGE).await;
    let mut n_read = slow.read(&mut [0; 1 << 10]).await.unwrap();
    let drip = async {
        while let Ok(n @ 1..) = slow.read(&mut [0; 1 << 10]).await {
            n_read += n;
            sleep(Duration::from_millis(1)).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        () = drip => {}
        free = timeout(LONG, port.place.acquire()) => free.unwrap().unwrap().forget(),
    }
    assert!(n_read < LARGE / 2, "{n_read}");
}

#[tokio::test]
async fn who_reads_gets_all_of_it() {
    let port = port(WIDE).await;
    assert!(rest(port.connect(GET_LARGE).await).await.ends_with("...."));
}

#[tokio::test]
async fn a_connection_ends_at_its_age_between_two_requests() {
    let port = port(Bounds { age: ENOUGH, ..WIDE }).await;
    let mut stream = port.connect(GET).await;
    answered(&mut stream).await;
    assert_eq!(rest(stream).await, "");
}

#[tokio::test]
async fn an_idle_connection_gives_way_and_one_that_is_answered_does_not() {
    let port = port(Bounds { connections: 2, ..WIDE }).await;
    let busy = port.busy().await;
    let idle = port.connect(b"").await;
    answered(&mut port.connect(GET).await).await;
    assert_eq!(rest(idle).await, "");
    port.gate.add_permits(1);
    assert!(rest(busy).await.ends_with("waited"));
}

#[tokio::test]
async fn who_comes_when_all_are_answered_waits() {
    let port = port(Bounds { connections: 1, ..WIDE }).await;
    let busy = port.busy().await;
    let mut second = port.connect(GET).await;
    port.gate.add_permits(1);
    assert!(rest(busy).await.ends_with("waited"));
    answered(&mut second).await;
}

#[tokio::test]
async fn at_the_stop_what_is_answered_is_finished() {
    let port = port(WIDE).await;
    let idle = port.connect(b"").await;
    let busy = port.busy().await;
    port.stop.cancel();
    port.gate.add_permits(1);
    assert!(rest(busy).await.ends_with("waited"));
    assert_eq!(rest(idle).await, "");
}
