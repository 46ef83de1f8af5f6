//! The load generator of nghttp2: two connections with a hundred calls each in flight, for as many calls as asked for.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;

use crate::client::PATH;

/// Sends `calls` times the same frame. Returns the calls per second.
pub fn run(to: SocketAddr, frame: &[u8], calls: u64) -> anyhow::Result<f64> {
    let mut body = NamedTempFile::new()?;
    body.write_all(frame)?;
    let output = Command::new("h2load")
        .args([
            "-t",
            "1",
            "-c",
            "2",
            "-m",
            "100",
            "-H",
            "content-type: application/grpc",
            "-H",
            "te: trailers",
        ])
        .args(["-n", &calls.to_string(), "-d"])
        .arg(body.path())
        .arg(format!("http://{to}{PATH}"))
        .output()
        .context("h2load")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains(&format!("status codes: {calls} 2xx")), "not all calls were answered:\n{text}");
    let rate = text.lines().find_map(|line| line.strip_prefix("finished in ")?.split(", ").nth(1));
    let rate = rate.and_then(|rate| rate.strip_suffix(" req/s")?.parse().ok());
    rate.with_context(|| format!("no rate in:\n{text}"))
}
