//! The settings with which a server runs in a test: on 127.0.0.1, on these ports, counting in memory.

use std::collections::BTreeMap;
use std::path::Path;

use crate::port::Port;

/// The settings that a server needs to run here; `root` is its `RUNTIME_ROOT`, the rules lie in `ratelimit/config` of it.
pub fn settings(root: &Path, [grpc, http, debug]: [&Port; 3]) -> BTreeMap<String, String> {
    let number = |port: &Port| port.number().to_string();
    [
        ("HOST", "127.0.0.1"),
        ("GRPC_HOST", "127.0.0.1"),
        ("DEBUG_HOST", "127.0.0.1"),
        ("PORT", &number(http)),
        ("GRPC_PORT", &number(grpc)),
        ("DEBUG_PORT", &number(debug)),
        ("RUNTIME_ROOT", &root.to_string_lossy()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("LOG_LEVEL", "warn"),
        ("USE_STATSD", "false"),
        ("DISABLE_STATS", "true"),
        ("BACKEND_TYPE", "memory"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}
