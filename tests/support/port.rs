//! Ports on 127.0.0.1 for servers that cannot be asked which port they got.
//!
//! Invariant: while a [`Port`] lives, neither another test nor an outgoing connection is given its number, in this
//! process or in any other: a socket stays bound to it, never listening, so that one listener can still bind.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port kept free for one server.
pub struct Port {
    number: u16,
    _bound: Socket,
}

impl Port {
    /// Lets the kernel choose a port and keeps it.
    pub fn reserve() -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let number = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
        Ok(Self { number, _bound: socket })
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
