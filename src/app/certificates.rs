//! The certificates of the gRPC port: read before it opens, followed from then on, and spoken of when they come to their end.

use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    follow,
    tls::{Files, Reloader, Reminder, Standing, Tls},
};

/// How often it is looked how long the certificate is still good for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// What follows the files.
pub(super) struct Certificates {
    pub(super) tls: Tls,
    reload: follow::Handle,
}

impl Certificates {
    /// Reads the files, off this thread, and follows them from then on.
    pub async fn start(files: Files) -> anyhow::Result<Self> {
        let clients =
            if files.clients.is_some() { "with a certificate of GRPC_CLIENT_TLS_CACERT" } else { "any" };
        let loaded = tokio::task::spawn_blocking(move || Reloader::load(files)).await;
        let reloader =
            loaded.context("reading the certificates panicked")?.context("cannot serve gRPC over TLS")?;
        let tls = reloader.tls();
        let reload = reloader.start().context("cannot start the thread that follows the certificates")?;
        tracing::info!(clients, "gRPC is served over TLS");
        Ok(Self { tls, reload })
    }

    /// Has everything read again. Never blocks.
    pub fn again(&self) {
        self.reload.reload_now();
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        let stop = tokio::task::spawn_blocking(move || self.reload.stop());
        stop.await.context("the thread that follows the certificates panicked")
    }
}

/// Says when the certificate comes to its end and nobody has replaced it.
pub(super) async fn remind(tls: Tls, clock: Clock, stop: CancellationToken) {
    let (mut interval, mut reminder) = (tokio::time::interval(EXPIRY_INTERVAL), Reminder::default());
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = stop.cancelled() => return,
        }
        let (Some(validity), now) = (tls.validity(), clock.now()) else { continue };
        let hours = now.until(validity.not_after).as_secs() / 3_600;
        match reminder.look(&validity, now) {
            None | Some(Standing::Fine) => {}
            Some(Standing::Near) => {
                tracing::warn!(hours, "the certificate in GRPC_SERVER_TLS_CERT expires soon");
            }
            Some(Standing::Expired) => {
                tracing::error!("the certificate in GRPC_SERVER_TLS_CERT has expired: clients refuse it");
            }
            Some(Standing::NotYet) => {
                tracing::error!(
                    "the certificate in GRPC_SERVER_TLS_CERT is not valid yet: is the clock right?"
                );
            }
        }
    }
}
