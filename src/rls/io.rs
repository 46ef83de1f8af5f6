//! The bytes of a connection, TCP or unix socket, in the clear or not, and what its other parts need to know about them.

use std::{
    cell::Cell,
    future::poll_fn,
    io::{self, IoSlice},
    net::{self, SocketAddr},
    os::unix,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use rustls::server::Acceptor;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::Semaphore,
    time::Instant,
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tokio_util::either::Either;

use super::{authority::Rewriter, counts::Open};
use crate::tls::Tls;

/// The bytes that every HTTP/2 client says first.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// A connection that belongs to no runtime yet.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

/// What was heard on a connection so far.
#[derive(Debug)]
pub(super) struct Heard {
    /// When bytes were last read: the arrival of the calls that were in them.
    last: Cell<Instant>,
    preface_left: Cell<usize>,
}

impl Heard {
    pub(super) fn nothing_yet() -> Rc<Self> {
        Rc::new(Self { last: Cell::new(Instant::now()), preface_left: Cell::new(PREFACE) })
    }

    pub(super) fn last(&self) -> Instant {
        self.last.get()
    }

    /// Whether the client has said as much as a greeting.
    pub(super) fn greeting(&self) -> bool {
        self.preface_left.get() == 0
    }

    fn bytes(&self, n: usize) {
        self.last.set(Instant::now());
        self.preface_left.set(self.preface_left.get().saturating_sub(n));
    }
}

type Socket = Either<TcpStream, UnixStream>;

/// A connection whose bytes are not read yet.
#[derive(Debug)]
pub(super) struct Opened {
    socket: Socket,
    open: Open,
}

impl Opened {
    /// Takes over a connection in this thread's runtime.
    pub(super) fn new(accepted: Accepted, open: Open) -> io::Result<Self> {
        let socket = match accepted {
            Accepted::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Either::Left(TcpStream::from_std(stream)?)
            }
            Accepted::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Either::Right(UnixStream::from_std(stream)?)
            }
        };
        Ok(Self { socket, open })
    }

    /// Who is at the other end; nobody has an address on a unix socket.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match &self.socket {
            Either::Left(stream) => stream.peer_addr().ok(),
            Either::Right(_) => None,
        }
    }

    pub(super) fn in_the_clear(self, heard: Rc<Heard>) -> Io {
        let Self { socket, open } = self;
        Io { rewriter: rewriter(&socket), stream: Either::Left(socket), heard, _open: open }
    }

    /// Shakes hands. Not bounded in time: its owner drops it when it takes too long.
    pub(super) async fn secured(self, handshakes: &Handshakes, heard: Rc<Heard>) -> io::Result<Io> {
        let Self { socket, open } = self;
        let rewriter = rewriter(&socket);
        let stream = Either::Right(Box::new(handshakes.shake(socket).await?));
        Ok(Io { stream, rewriter, heard, _open: open })
    }
}

/// The TLS handshakes of one worker, which has calls to answer meanwhile: when a fleet connects at once, one signature is made
/// between two looks at what else has come.
#[derive(Clone, Debug)]
pub(super) struct Handshakes {
    tls: Tls,
    turn: Rc<Semaphore>,
}

impl Handshakes {
    pub(super) fn by(tls: Tls) -> Self {
        Self { tls, turn: Rc::new(Semaphore::new(1)) }
    }

    async fn shake(&self, socket: Socket) -> io::Result<TlsStream<Socket>> {
        // Who says nothing takes no turn.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let turn = self.turn.acquire().await.map_err(io::Error::other)?;
        let mut shaking = pin!(hello.into_stream(self.tls.config()));
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(shaking.as_mut().poll(cx))).await {
            return done;
        }
        tokio::task::yield_now().await;
        drop(turn);
        shaking.await
    }
}

/// On a unix socket, clients name its path as their authority.
fn rewriter(socket: &Socket) -> Option<Rewriter> {
    match socket {
        Either::Left(_) => None,
        Either::Right(_) => Some(Rewriter::new()),
    }
}

/// The bytes of one connection, which is open until this is dropped.
#[derive(Debug)]
pub(super) struct Io {
    stream: Either<Socket, Box<TlsStream<Socket>>>,
    rewriter: Option<Rewriter>,
    heard: Rc<Heard>,
    _open: Open,
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let (Some(rewriter), Some(new)) = (&mut self.rewriter, buf.filled_mut().get_mut(n_before..)) {
            rewriter.pass(new);
        }
        if read.is_ready() {
            self.heard.bytes(buf.filled().len() - n_before);
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
