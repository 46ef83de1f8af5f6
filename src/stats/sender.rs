//! Sends statistics to statsd or DogStatsD, on a thread of its own, as often as it is told.
//!
//! **Invariant:** nobody waits for this thread. It keeps no queue: what could not be sent is still in the counters, and goes
//! out once the receiver is back.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use super::{
    Statistics,
    collect::Collected,
    dogstatsd::{Mogrifier, Mogrifiers},
    lines::{Dialect, Line, Unsent},
};
use crate::store::redis::config::masked;

/// The longest that connecting, or one write, may take. The reference's.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a receiver that could not be reached is left alone. The reference's.
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// How long datagrams go to the address that a host's name had: it may have moved, and nothing says so.
const RESOLVED_FOR: Duration = Duration::from_secs(60);

/// What goes in one write to a stream.
const CHUNK: usize = 64 << 10;

/// What goes in one datagram: it fits a frame of Ethernet, with room for the headers of tunnels.
const DATAGRAM: usize = 1_432;

/// How statistics travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// Where statistics are sent, and how.
#[derive(Clone, Debug)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub protocol: Protocol,
    /// `None`: plain statsd.
    pub dogstatsd: Option<Vec<Mogrifier>>,
    /// Tags of every statistic, in any order.
    pub tags: Vec<(String, String)>,
    pub interval: Duration,
    /// Somebody asked for it, so that a receiver that is away is worth a warning.
    pub is_wanted: bool,
}

/// The thread that sends. Dropped without [`Sender::stop`], it ends by itself.
#[derive(Debug)]
pub struct Sender {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Sender {
    pub fn start(target: Target, statistics: Statistics) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("statistics".to_owned()).spawn(move || {
            let interval = target.interval;
            let mut flusher = Flusher::new(target);
            let flush = |flusher: &mut Flusher| {
                let sending = &statistics.metrics.sending;
                if flusher.flush(&statistics.collect(), Instant::now()) {
                    sending.sent()
                } else {
                    sending.failed()
                }
            };
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                flush(&mut flusher);
            }
            if flusher.may_be_last() {
                flush(&mut flusher);
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Sends what there is once more, unless the receiver is away, and ends. Blocks for a few seconds at most.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that sends statistics panicked; this is a bug");
        }
    }
}

/// The connection, and what has gone over it.
struct Flusher {
    target: Target,
    unsent: Unsent,
    wire: Option<Wire>,
    /// The last time that the receiver could not be reached.
    failed: Option<Instant>,
}

impl Flusher {
    fn new(target: Target) -> Self {
        let dialect = match &target.dogstatsd {
            None => Dialect::statsd(&target.tags),
            Some(mogrifiers) => Dialect::dogstatsd(&target.tags, Mogrifiers::new(mogrifiers.clone())),
        };
        Self { target, unsent: Unsent::new(dialect), wire: None, failed: None }
    }

    /// Whether a last flush can be tried without waiting for a receiver that is away.
    fn may_be_last(&self) -> bool {
        self.failed.is_none()
    }

    /// Sends what has changed. Whether all of it went out.
    fn flush(&mut self, all: &Collected, now: Instant) -> bool {
        if self.failed.is_some_and(|failed| now.saturating_duration_since(failed) < RETRY_AFTER) {
            return false;
        }
        let was_away = self.failed.is_some();
        match self.send(all) {
            Ok(()) => {
                if was_away {
                    self.say(&format!("statistics are sent to {} again", self.receiver()));
                }
                self.failed = None;
                true
            }
            Err(error) => {
                if !was_away {
                    self.say(&format!(
                        "cannot send statistics to {}, trying again: {error}; calls do not wait for it",
                        self.receiver()
                    ));
                }
                (self.wire, self.failed) = (None, Some(now));
                false
            }
        }
    }

    fn send(&mut self, all: &Collected) -> io::Result<()> {
        let mut wire = match self.wire.take().filter(Wire::is_open) {
            Some(wire) => wire,
            None => Wire::connect(&self.target)?,
        };
        let limit = match self.target.protocol {
            Protocol::Tcp => CHUNK,
            Protocol::Udp => DATAGRAM,
        };
        let (mut bytes, mut lines) = (String::new(), Vec::new());
        for line in self.unsent.lines(all) {
            if !bytes.is_empty() && bytes.len() + line.text.len() > limit {
                self.write(&mut wire, &mut bytes, &mut lines)?;
            }
            bytes.push_str(&line.text);
            lines.push(line);
        }
        self.write(&mut wire, &mut bytes, &mut lines)?;
        self.wire = Some(wire);
        Ok(())
    }

    fn write(&mut self, wire: &mut Wire, bytes: &mut String, lines: &mut Vec<Line>) -> io::Result<()> {
        let (n_out, outcome) = wire.write(bytes.as_bytes());
        bytes.clear();
        let mut end = 0;
        for line in lines.drain(..) {
            end += line.text.len();
            if end <= n_out {
                self.unsent.was_sent(line);
            }
        }
        outcome
    }

    fn receiver(&self) -> String {
        let Target { host, port, protocol, .. } = &self.target;
        let host = if host.contains(':') { format!("[{}]", masked(host)) } else { masked(host) };
        format!("{host}:{port} ({})", if *protocol == Protocol::Tcp { "tcp" } else { "udp" })
    }

    /// Nobody who did not ask for statistics is told that they do not arrive.
    fn say(&self, what: &str) {
        if self.target.is_wanted {
            tracing::warn!("{what}");
        } else {
            tracing::info!("{what}");
        }
    }
}

enum Wire {
    Tcp(TcpStream),
    Udp { socket: UdpSocket, since: Instant },
}

impl Wire {
    /// The first of the host's addresses that can be reached.
    fn connect(target: &Target) -> io::Result<Self> {
        let mut outcome = Err(io::Error::other("the host has no address"));
        for address in (target.host.as_str(), target.port).to_socket_addrs()? {
            outcome = match target.protocol {
                Protocol::Tcp => tcp(address),
                Protocol::Udp => udp(address),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Whether the other side still listens, as far as it has said.
    fn is_open(&self) -> bool {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Udp { since, .. } => return since.elapsed() < RESOLVED_FOR,
        };
        let is_silent = |mut stream: &TcpStream| {
            stream.set_nonblocking(true)?;
            // What a receiver says is nothing to us; that it has closed is.
            let read = stream.read(&mut [0; 256]);
            stream.set_nonblocking(false)?;
            match read {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(error),
            }
        };
        is_silent(stream).is_ok()
    }

    /// How many bytes went out, and what kept the others. A slow receiver still gets those once it reads, so that they must
    /// not be sent again.
    fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut n_out = 0;
        while let Some(rest) = bytes.get(n_out..).filter(|rest| !rest.is_empty()) {
            let written = match self {
                Self::Tcp(stream) => stream.write(rest),
                Self::Udp { socket, .. } => socket.send(rest),
            };
            match written {
                Ok(0) => return (n_out, Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => n_out += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (n_out, Err(error)),
            }
        }
        (n_out, Ok(()))
    }
}

fn tcp(address: SocketAddr) -> io::Result<Wire> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(Wire::Tcp(stream))
}

fn udp(address: SocketAddr) -> io::Result<Wire> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(Wire::Udp { socket, since: Instant::now() })
}

#[cfg(test)]
mod tests;
