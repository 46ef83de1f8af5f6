//! Brings the statistics to where they are wanted: a port for Prometheus, or a thread that sends them. What goes wrong here
//! is told, and ends nothing: limits do not depend on being counted.

use std::{fs, path::Path};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{open, watched};
use crate::{
    admin::{self, Admin, Bounds, Prometheus},
    settings::{PrometheusSettings, StatsSink},
    stats::{Exposition, Mapper, MapperError, Sender},
};

/// Starts what the sink needs; the sender, if there is one, is to be stopped last.
pub(super) fn start(
    sink: &StatsSink,
    admin: &Admin,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Option<Sender> {
    match sink {
        StatsSink::Off => None,
        StatsSink::Send(target) => match Sender::start(target.clone(), admin.statistics()) {
            Ok(sender) => Some(sender),
            Err(error) => {
                tracing::error!("no statistics are sent: cannot start a thread: {error}");
                None
            }
        },
        StatsSink::Prometheus(settings) => {
            if let Err(error) = expose(settings, admin, stop, tasks) {
                tracing::error!("no port for Prometheus: {error:#}");
            }
            None
        }
    }
}

/// Sends what has not been sent yet.
pub(super) async fn stop(sender: Option<Sender>) {
    if let Some(sender) = sender
        && tokio::task::spawn_blocking(|| sender.stop()).await.is_err()
    {
        tracing::error!("the end of the statistics panicked; this is a bug");
    }
}

fn expose(
    settings: &PrometheusSettings,
    admin: &Admin,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let mapper = match &settings.mapper {
        Some(path) => mapper(path, settings.in_millis)?,
        None => built_in(settings.in_millis)?,
    };
    let listener = open("Prometheus", &settings.listen)?;
    let address = listener.local_addr()?;
    let prometheus = Prometheus {
        statistics: admin.statistics(),
        exposition: Exposition { mapper, tags: settings.tags.clone() },
        path: settings.path.clone(),
        pages: admin.pages.clone(),
    };
    let router = admin::prometheus_router(prometheus);
    let bounds = Bounds::for_answers_in(admin::DEBUG_ANSWER);
    tasks.spawn(watched("Prometheus", admin::serve(listener, router, bounds, stop.clone())));
    tracing::warn!("Listening for Prometheus on '{address}'");
    Ok(())
}

/// The mappings of a file. One that cannot be used leaves the built-in ones in force: they are what most files say.
fn mapper(path: &Path, in_millis: bool) -> Result<Mapper, MapperError> {
    let setting = format!("PROMETHEUS_MAPPER_YAML={}", path.display());
    let read = match fs::read_to_string(path) {
        Ok(yaml) => Mapper::read(&yaml),
        Err(error) => {
            tracing::warn!("{setting}: cannot read it, the built-in mapping is used: {error}");
            return built_in(in_millis);
        }
    };
    for word in read.iter().flat_map(Mapper::passed_over) {
        tracing::warn!("{setting}: {word}");
    }
    read.or_else(|error| {
        tracing::error!("{setting}: it is not used, the built-in mapping is: {error}");
        built_in(in_millis)
    })
}

fn built_in(in_millis: bool) -> Result<Mapper, MapperError> {
    let mapper = Mapper::built_in()?;
    Ok(if in_millis { mapper.without_scales() } else { mapper })
}
