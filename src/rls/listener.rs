//! Where calls come in: a TCP port that may be shared with another process, or a unix socket.
//!
//! A port is opened with `SO_REUSEPORT`, so that a new process can take over from an old one. **Invariant:** a socket file is
//! removed only if nobody answers on it, or if it is this listener's own.

use std::{
    fmt, fs, io,
    iter::repeat_with,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::io::Accepted;

/// Connections that may wait to be accepted: a thousand proxies that reconnect at once. The kernel cuts it to `somaxconn`.
const BACKLOG: i32 = 1024;

/// Owner and group may connect. A socket file that everybody may write to needs a `chmod` that somebody decided on.
const SOCKET_MODE: u32 = 0o660;

/// What to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Port 0 takes a free one.
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Why an address cannot be listened on, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "cannot listen on {0}: another process does and does not share it: stop that process, or use another address"
    )]
    InUse(Address),
    #[error(
        "cannot listen on {0}: not permitted: use a port of 1024 or above, or a directory that this user may write to"
    )]
    NotPermitted(Address),
    #[error(
        "cannot listen on {0}: no interface of this machine has that address: use one that has, or 0.0.0.0 for all"
    )]
    NotLocal(Address),
    #[error("cannot listen on {0}: the file is there and is no socket: remove it, or use another path")]
    NotASocket(Address),
    #[error("cannot listen on {0}: its directory is not there: make it, or use another path")]
    NoDirectory(Address),
    #[error("cannot listen on {address}: {source}")]
    Other { address: Address, source: io::Error },
}

impl BindError {
    fn of(address: &Address, source: io::Error) -> Self {
        let address = address.clone();
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::PermissionDenied => Self::NotPermitted(address),
            io::ErrorKind::AddrNotAvailable => Self::NotLocal(address),
            io::ErrorKind::NotFound => Self::NoDirectory(address),
            _ => Self::Other { address, source },
        }
    }
}

/// A socket that listens; connections wait in its backlog until a [`Server`](super::serve::Server) accepts them.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Address,
    is_shared: bool,
    file: Option<SocketFile>,
}

impl Listener {
    pub fn bind(address: &Address) -> Result<Self, BindError> {
        match address {
            Address::Tcp(tcp) => match Self::bind_tcp(*tcp) {
                Err(error) if is_without_ipv6(*tcp, &error) => {
                    tracing::warn!("this machine has no IPv6: listening on 0.0.0.0 instead of ::");
                    Self::bind_tcp((Ipv4Addr::UNSPECIFIED, tcp.port()).into())
                }
                bound => bound,
            },
            Address::Unix(path) => Self::bind_unix(path),
        }
        .map_err(|error| match error.downcast::<BindError>() {
            Ok(known) => known,
            Err(source) => BindError::of(address, source),
        })
    }

    /// The address listened on, with the port that was found.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether another process listened on the port when this one began to: meant during a restart, else a mistake to warn of.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// For a server of another kind that shares its port likewise; `None` for a unix socket. In this thread's runtime.
    pub fn into_tcp(self) -> Option<io::Result<TcpListener>> {
        match self.address {
            Address::Tcp(_) => Some(TcpListener::from_std(self.socket.into())),
            Address::Unix(_) => None,
        }
    }

    fn bind_tcp(address: SocketAddr) -> io::Result<Self> {
        let open = |port: SharedPort| -> io::Result<Socket> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            if address.is_ipv6() {
                // `::` takes IPv4 too, whatever the machine's default.
                socket.set_only_v6(false)?;
            }
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(port == SharedPort::Yes)?;
            socket.bind(&address.into())?;
            Ok(socket)
        };
        // A socket that shares no port cannot have one that is listened on; it is closed again before it listens.
        let alone = open(SharedPort::No);
        let is_shared = alone.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
        let socket = open(SharedPort::Yes)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, address: Address::Tcp(address), is_shared, file: None })
    }

    fn bind_unix(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile::of(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address: Address::Unix(path.to_owned()), is_shared: false, file: Some(file) })
    }

    /// Ready to accept, in this thread's runtime.
    pub(super) fn accepting(self) -> io::Result<Accepting> {
        let source = match self.address {
            Address::Tcp(_) => Source::Tcp(TcpListener::from_std(self.socket.into())?),
            Address::Unix(_) => Source::Unix(UnixListener::from_std(self.socket.into())?),
        };
        Ok(Accepting { source, _file: self.file })
    }
}

/// A listener at work; closed when it is dropped.
#[derive(Debug)]
pub(super) struct Accepting {
    source: Source,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Source {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    /// The next connection. Cancel safety: none is lost.
    pub(super) async fn next(&self) -> io::Result<Accepted> {
        match &self.source {
            Source::Tcp(listener) => Ok(Accepted::Tcp(listener.accept().await?.0.into_std()?)),
            Source::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
        }
    }

    /// Accepts what waits in the backlog now, whether or not the reactor has noticed, and closes the listener.
    pub(super) fn last(self) -> Vec<Accepted> {
        match self.source {
            Source::Tcp(listener) => {
                waiting(listener.into_std(), |listener| Ok(Accepted::Tcp(listener.accept()?.0)))
            }
            Source::Unix(listener) => {
                waiting(listener.into_std(), |listener| Ok(Accepted::Unix(listener.accept()?.0)))
            }
        }
    }
}

/// Bound: twice the backlog, since more may come meanwhile. Connections that were given up while they waited are passed over.
fn waiting<L>(listener: io::Result<L>, accept: impl Fn(&L) -> io::Result<Accepted>) -> Vec<Accepted> {
    let Ok(listener) = listener else { return Vec::new() };
    let is_one = |accepted: &io::Result<Accepted>| {
        !accepted.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    repeat_with(|| accept(&listener)).take(2 * BACKLOG as usize).take_while(is_one).flatten().collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedPort {
    Yes,
    No,
}

/// Whether all addresses were meant, and the machine has only those of IPv4 (socket(2), ipv6(7)).
fn is_without_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    address.ip() == Ipv6Addr::UNSPECIFIED
        && (error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Removes the file that a process left which is no more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let address = || Address::Unix(path.to_owned());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::other(BindError::NotASocket(address())));
        }
        Ok(_) => {}
    }
    let knock = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    knock.set_nonblocking(true)?;
    match knock.connect(&SockAddr::unix(path)?).map_err(|error| error.kind()) {
        Err(io::ErrorKind::ConnectionRefused) => fs::remove_file(path),
        // Somebody accepts, or is too busy to.
        Ok(()) | Err(io::ErrorKind::WouldBlock) => Err(io::ErrorKind::AddrInUse.into()),
        Err(kind) => Err(kind.into()),
    }
}

/// The file of a unix socket, removed at the end unless another process has put its own there.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), device_and_inode: device_and_inode(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if device_and_inode(&self.path).is_ok_and(|now| now == self.device_and_inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket file was left behind");
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests;
