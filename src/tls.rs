//! TLS on the gRPC port: which certificate is shown, whose clients are let in, and how both follow their files.
//!
//! **Invariants:** no client is trusted but by the authorities that were configured; files that cannot be used change nothing,
//! and what was good stays in force.

mod clients;
pub(crate) mod pem;
mod refusal;
mod reload;
mod server;
mod validity;

pub(crate) use self::refusal::{Reason, refusal};
pub use self::{
    reload::{Reloader, Tls},
    server::{Clients, Files, TlsError},
    validity::{Reminder, Standing, Validity},
};

#[cfg(test)]
mod tests;
