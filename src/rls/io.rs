//! The bytes of a connection, TCP or unix socket, and what its other parts need to know about them.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    net,
    os::unix,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::Instant,
};

use super::{authority::Rewriter, counts::Open};

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

/// The bytes of one connection, which is open until this is dropped.
#[derive(Debug)]
pub(super) struct Io {
    stream: Stream,
    heard: Rc<Heard>,
    _open: Open,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream, Rewriter),
}

impl Io {
    /// Takes over a connection in this thread's runtime.
    pub(super) fn new(accepted: Accepted, heard: Rc<Heard>, open: Open) -> io::Result<Self> {
        let stream = match accepted {
            Accepted::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(TcpStream::from_std(stream)?)
            }
            Accepted::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Unix(UnixStream::from_std(stream)?, Rewriter::new())
            }
        };
        Ok(Self { stream, heard, _open: open })
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        let read = match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream, rewriter) => {
                let read = Pin::new(stream).poll_read(cx, buf);
                if let Some(new) = buf.filled_mut().get_mut(n_before..) {
                    rewriter.pass(new);
                }
                read
            }
        };
        if read.is_ready() {
            self.heard.bytes(buf.filled().len() - n_before);
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Unix(stream, _) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Unix(stream, _) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream, _) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
