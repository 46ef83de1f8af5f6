//! What goes wrong between a program and its Redis, and what the program's callers see of it meanwhile.

#[path = "faults/load.rs"]
pub mod load;
#[path = "faults/namespace.rs"]
pub mod namespace;
#[path = "faults/proxy.rs"]
pub mod proxy;
#[path = "faults/wire.rs"]
pub mod wire;
