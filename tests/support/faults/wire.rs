//! What the kernel says that went over a server's connections: segments, which on the loopback device are writes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, ensure};

/// Segments with data so far, as one connection's server sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    pub n_in: u64,
    pub n_out: u64,
}

/// The open connections of the server at `server`, by their clients' ports.
pub fn segments(server: SocketAddr) -> anyhow::Result<BTreeMap<u16, Segments>> {
    let filter = ["state", "established", "src", &server.to_string()].map(str::to_owned);
    let output =
        Command::new("ss").args(["-tinHO"]).args(filter).output().context("cannot run ss, of iproute2")?;
    ensure!(output.status.success(), "ss said: {}", String::from_utf8_lossy(&output.stderr));
    let mut connections = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let peer = line.split_whitespace().nth(3).and_then(|peer| peer.rsplit(':').next()?.parse().ok());
        let number = |name: &str| {
            line.split_whitespace()
                .find_map(|field| field.strip_prefix(name)?.parse().ok())
                .unwrap_or_default()
        };
        let found = Segments { n_in: number("data_segs_in:"), n_out: number("data_segs_out:") };
        connections.insert(peer.with_context(|| format!("no client in {line:?}"))?, found);
    }
    Ok(connections)
}
