//! Rules from a control plane: a real ADS server, our client and a real `tidegate` process.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure here is a failed test"
)]

#[path = "support/redis/certificates.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod certificates;
#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod http;
#[path = "support/port.rs"]
mod port;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod process;
#[path = "support/faults/proxy.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod proxy;
#[path = "support/settings.rs"]
mod settings;

#[path = "xds/control_plane.rs"]
mod control_plane;
#[path = "xds/faults.rs"]
mod faults;
#[path = "xds/followed.rs"]
mod followed;
#[path = "xds/parity.rs"]
mod parity;
#[path = "xds/served.rs"]
mod served;
#[path = "xds/snapshots.rs"]
mod snapshots;
#[path = "xds/tls.rs"]
mod tls;
