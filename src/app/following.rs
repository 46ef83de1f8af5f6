//! Rules that are followed, wherever they come from.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;

use super::InForce;
use crate::{
    rules::{
        LoadOptions,
        reload::{self, Reloader},
        xds,
    },
    settings::Settings,
};

/// How long ports stay closed for a control plane's first snapshot: who takes over a port had better answer from its first
/// call on, and who waits for long is thought to be dead.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// What follows the rules.
#[derive(Debug)]
pub(super) enum Following {
    Files(reload::Handle),
    ControlPlane(xds::Handle),
}

impl Following {
    /// Loads the rules that there are, off this thread, and follows them from then on.
    pub async fn start(settings: &Settings, in_force: InForce) -> anyhow::Result<Self> {
        let load = settings.rules_options();
        match &settings.control_plane {
            Some(options) => control_plane(options.clone(), load, in_force, settings).await,
            None => files(Reloader::new(settings.rules.clone(), load), in_force).await,
        }
    }

    /// Has everything read, or sent, again. Never blocks.
    pub fn again(&self) {
        match self {
            Self::Files(handle) => handle.reload_now(),
            Self::ControlPlane(handle) => handle.again(),
        }
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Files(handle) => tokio::task::spawn_blocking(move || handle.stop())
                .await
                .context("the thread that follows the rules panicked"),
            Self::ControlPlane(handle) => {
                handle.stop().await;
                Ok(())
            }
        }
    }

    pub fn control_plane(&self) -> Option<Arc<xds::Stats>> {
        match self {
            Self::Files(_) => None,
            Self::ControlPlane(handle) => Some(Arc::clone(&handle.stats)),
        }
    }
}

async fn files(mut reloader: Reloader, in_force: InForce) -> anyhow::Result<Following> {
    let load = move || {
        in_force.take(reloader.load_once());
        reloader.start(move |outcome| in_force.take(outcome))
    };
    let handle = tokio::task::spawn_blocking(load).await.context("loading the rules panicked")?;
    handle.context("cannot start the thread that follows the rules").map(Following::Files)
}

/// Errors: the files of TLS cannot be used. Later that is only told: who rotates them may be half-way.
async fn control_plane(
    options: xds::Options,
    load: LoadOptions<'static>,
    in_force: InForce,
    settings: &Settings,
) -> anyhow::Result<Following> {
    if let Some(tls) = options.server.tls.clone() {
        let loaded = tokio::task::spawn_blocking(move || tls.load()).await;
        let loaded = loaded.context("reading the certificates panicked")?;
        loaded.map_err(anyhow::Error::msg).context("cannot speak TLS to the control plane")?;
    }
    tracing::warn!("rules come from the control plane at {}", options.server.address);
    let hear = move |event| match event {
        xds::Event::Rules(outcome) => in_force.take(outcome),
        xds::Event::Trouble(why) => in_force.health.rules_awaited(why),
        xds::Event::Heard => in_force.health.rules_source_answers(),
    };
    let handle = xds::follow(options, load, Arc::new(hear)).await;
    if !settings.force_start_without_initial_config {
        handle.looked(FIRST_LOOK).await;
    }
    Ok(Following::ControlPlane(handle))
}
