//! Redis servers that a test starts for itself: Redis 7 (`redis-server` on PATH), Redis 6.2 and Valkey 9
//! (`scripts/fetch redis62`, `… valkey`), alone, under sentinels or as a cluster, with TLS and passwords as asked for.
//!
//! Invariant: a server listens on ports that the kernel chose, on 127.0.0.1 only, keeps its files in a folder of its own,
//! and ends with the value that stands for it, or with the thread that started it.

#[path = "redis/certificates.rs"]
pub mod certificates;
#[path = "redis/clock.rs"]
pub mod clock;
#[path = "redis/cluster.rs"]
pub mod cluster;
#[path = "redis/resp.rs"]
pub mod resp;
#[path = "redis/sentinel.rs"]
pub mod sentinel;
#[path = "redis/server.rs"]
pub mod server;
#[path = "redis/wait.rs"]
pub mod wait;
