//! The process: puts the parts together, runs until it is told to stop, and stops in order. Start-up and shutdown are
//! written here and nowhere else.
//!
//! **Invariant:** ports open only once the rules were looked at, so that a process that takes over a port answers from its
//! first call on. Every task that is started here is waited for here.

mod certificates;
mod following;
mod statistics;
mod stores;

use std::{
    net::{SocketAddr, ToSocketAddrs},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{certificates::Certificates, following::Following, stores::Stores};
use crate::{
    admin::{self, Admin, Bounds, Pages},
    clock::Clock,
    decision::{HeaderNames, LimitHeaders, Modes, NearLimitRatio},
    health::{Health, RulesNeeded},
    limiter::{self, Limiter},
    local::{self, SketchKeeps},
    rls::{
        budget::Budgets,
        health::Health as GrpcHealth,
        listener::{Address, Listener},
        serve::{Ages, MAX_CONNECTIONS, Options, Server},
    },
    rules::{
        Charging,
        reload::{LoadFailure, Reloaded},
    },
    settings::{Endpoint, GrpcListener, Settings},
    stats::Names,
    store::memory::MemoryStore,
    telemetry::{
        metrics::Metrics,
        traces::{self, Sending, Tracer},
    },
    tls::Tls,
};

/// How often the wall clock is looked at for a step.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the server until a signal ends it.
///
/// Errors: it could not start. Logs must have been set up before.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(settings, Instant::now()));
    // A file that cannot be read to its end must not hold the process.
    runtime.shutdown_background();
    outcome
}

async fn serve(settings: &Settings, began: Instant) -> anyhow::Result<()> {
    settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let mut signals = Signals::new()?;
    let metrics = Metrics::with_names(settings.stats.max_names.map(Names::at_most));
    let (metrics, health) = (Arc::new(metrics), Arc::new(Health::new(rules_needed(settings))));
    let clock = Clock::process();
    let memory = usize::try_from(settings.store.memory_max_keys).unwrap_or(usize::MAX);
    let memory = Arc::new(MemoryStore::new(memory));
    let stores = Stores::new(settings, &clock, &memory)?;
    let (tracer, traces) = tracing_to(settings, &clock, &metrics)?.unzip();
    say_where(&stores, settings);
    if stores.redis().is_some() {
        health.store_lost("redis: connecting".to_owned());
    }
    let shared =
        Arc::new(limiter::Shared::new(clock.clone(), decisions(settings), Arc::clone(&metrics), memory));

    let in_force = InForce {
        limiter: Arc::clone(&shared),
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
        source: if settings.control_plane.is_some() { Source::ControlPlane } else { Source::Files },
    };
    let rules = tokio::select! {
        rules = Following::start(settings, in_force) => rules?,
        name = signals.stop() => {
            tracing::warn!("{name}: shutting down before the rules were read");
            return Ok(());
        }
    };

    let grpc_health = GrpcHealth::new().await;
    report(&health, &grpc_health).await;
    let certificates = match settings.grpc_tls.clone() {
        Some(files) => Some(Certificates::start(files).await?),
        None => None,
    };
    let tls = certificates.as_ref().map(|certificates| certificates.tls.clone());
    let grpc = Listener::bind(&grpc_address(&settings.grpc)?)?;
    let http = open("HTTP", &settings.http)?;
    let debug = open("debug", &settings.debug);
    warn_of_sharing("gRPC", &grpc);
    let grpc_at = grpc.address().clone();
    let limiter = Arc::new(Limiter::new(Arc::clone(&shared), stores.open()));
    limiter.ready().await;
    let server = {
        let stores = stores.clone();
        let limiter = move |_worker| Limiter::new(Arc::clone(&shared), stores.open());
        Server::start(grpc, options(settings, tls.clone(), tracer), &grpc_health, limiter)?
    };
    if let Some(redis) = stores.redis() {
        redis.tell(&health);
        report(&health, &grpc_health).await;
    }

    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let admin = Admin {
        limiter: Arc::clone(&limiter),
        health: Arc::clone(&health),
        metrics,
        clock: clock.clone(),
        control_plane: rules.control_plane(),
        counts: server.counts().clone(),
        budget: settings.request_budget,
        tls: tls.clone(),
        profiling: settings.debug_profiling,
        pages: Pages::default(),
    };
    let sender = statistics::start(&settings.stats.sink, &admin, &stop, &mut tasks);
    let http_at = http.local_addr()?;
    let bounds = Bounds::for_answers_in(settings.request_budget);
    tasks.spawn(watched("HTTP", admin::serve(http, admin::http_router(admin.clone()), bounds, stop.clone())));
    match debug {
        Ok(debug) => {
            let debug_at = debug.local_addr()?;
            tracing::warn!("Listening for debug on '{debug_at}'");
            let bounds = Bounds::for_answers_in(admin::DEBUG_ANSWER);
            tasks.spawn(watched(
                "debug",
                admin::serve(debug, admin::debug_router(admin), bounds, stop.clone()),
            ));
        }
        Err(error) => tracing::error!("no debug port: {error:#}"),
    }
    tracing::warn!("Listening for HTTP on '{http_at}'");
    tracing::warn!("Listening for gRPC on '{grpc_at}'");
    tasks.spawn(report_changes(Arc::clone(&health), grpc_health.clone(), stop.clone()));
    if let Some(tls) = tls {
        tasks.spawn(certificates::remind(tls, clock.clone(), stop.clone()));
    }
    tasks.spawn(follow_wall_clock(clock, stop.clone()));
    let mut gave_up = pin!(follow_store(&stores, &health, &stop, &mut tasks));
    tracing::info!(ready_after_ms = millis(began.elapsed()), "started");

    let mut failure = None;
    loop {
        tokio::select! {
            error = &mut gave_up => {
                failure = Some(error);
                break;
            }
            ask = signals.next() => match ask {
                Ask::Reload => {
                    rules.again();
                    certificates.iter().for_each(Certificates::again);
                }
                Ask::Stop(name) => {
                    tracing::warn!("{name}: shutting down");
                    break;
                }
            },
            () = server.ended() => {
                tracing::error!("a serving thread has ended by itself; shutting down: this is a bug");
                break;
            }
        }
    }
    health.terminate();
    report(&health, &grpc_health).await;
    if !settings.pre_stop_delay.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(settings.pre_stop_delay) => {}
            name = signals.stop() => tracing::warn!("{name}: PRE_STOP_DELAY is cut short"),
        }
    }
    let until = tokio::time::Instant::now() + settings.drain_timeout;
    grpc_health.noticed(settings.drain_timeout / 2).await;
    shut_down(server, until, (rules, certificates), stop, tasks).await?;
    limiter.close().await;
    statistics::stop(sender).await;
    if let Some(traces) = traces {
        traces.flush().await;
    }
    failure.map_or(Ok(()), Err)
}

/// The first log line that says where hits are counted, and why there.
fn say_where(stores: &Stores, settings: &Settings) {
    let why = &settings.store.why;
    match stores {
        Stores::Memory(_) => tracing::warn!("counting in the memory of this process: {why}"),
        Stores::Redis(_) => tracing::warn!("counting in Redis: {why}"),
    }
}

/// Has health follow the store. The future ends when there is no hope of one.
fn follow_store(
    stores: &Stores,
    health: &Arc<Health>,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = anyhow::Error> + use<> {
    let (sender, receiver) = oneshot::channel();
    if let Some(redis) = stores.redis().cloned() {
        let (health, stop) = (Arc::clone(health), stop.clone());
        tasks.spawn(async move {
            if let Err(error) = redis.follow(&health, &stop).await {
                // Nobody listens once the process is ending.
                let _ = sender.send(error);
            }
        });
    }
    async {
        match receiver.await {
            Ok(error) => error,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Drains calls, then ends everything else. Health has said no before, and goes on to say it until the calls are done.
async fn shut_down(
    server: Server,
    until: tokio::time::Instant,
    (rules, certificates): (Following, Option<Certificates>),
    stop: CancellationToken,
    mut tasks: JoinSet<()>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let left = until.saturating_duration_since(tokio::time::Instant::now());
    let drained = server.drain(left).await;
    if drained.n_cut > 0 {
        tracing::warn!(connections = drained.n_cut, "calls were cut off after DRAIN_TIMEOUT");
    }
    stop.cancel();
    let all_done = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(HTTP_GRACE, all_done).await.is_err() {
        tracing::warn!("HTTP requests were cut off");
    }
    rules.stop().await?;
    if let Some(certificates) = certificates {
        certificates.stop().await?;
    }
    tracing::info!(after_ms = millis(began.elapsed()), "shut down");
    Ok(())
}

/// What HTTP requests get to finish once gRPC has drained: health is asked no more, and who does not read a page must not hold
/// the process.
const HTTP_GRACE: Duration = Duration::from_secs(1);

/// Where loaded rules go, and what is said about them.
struct InForce {
    limiter: Arc<limiter::Shared>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    source: Source,
}

/// Who says what the rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Files,
    ControlPlane,
}

impl Source {
    /// What is good again once a load succeeds.
    fn rules(self) -> &'static str {
        match self {
            Self::Files => "the rules files are",
            Self::ControlPlane => "the control plane's rules are",
        }
    }

    /// That there is nothing.
    fn nothing(self) -> &'static str {
        match self {
            Self::Files => "there are no rules files",
            Self::ControlPlane => "the control plane has sent no rules",
        }
    }
}

impl InForce {
    fn take(&self, outcome: Result<Reloaded, LoadFailure>) {
        match outcome {
            Ok(Reloaded { rules, warnings, n_files }) => {
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                let (n_domains, n_rules) = (rules.n_domains(), rules.rules().count());
                if self.health.load_failure().is_some() {
                    tracing::warn!("{} good again", self.source.rules());
                }
                self.limiter.set_rules(rules);
                self.metrics.reloaded();
                self.health.rules_loaded(n_domains);
                if n_files == 0 {
                    tracing::warn!("{}: every request is let through until there are", self.source.nothing());
                }
                match self.source {
                    Source::Files => {
                        tracing::info!(files = n_files, domains = n_domains, rules = n_rules, "rules loaded");
                    }
                    Source::ControlPlane => {
                        tracing::info!(
                            resources = n_files,
                            domains = n_domains,
                            rules = n_rules,
                            "rules loaded"
                        );
                    }
                }
            }
            Err(failure) => {
                let text = failure.to_string();
                text.lines().for_each(|problem| tracing::error!("{problem}"));
                let kept = if self.limiter.rules().is_some() {
                    "the rules before stay in force"
                } else {
                    "there are no rules yet"
                };
                tracing::error!("rules refused; {kept}");
                self.metrics.reload_failed();
                self.health.rules_refused(text);
            }
        }
    }
}

fn decisions(settings: &Settings) -> limiter::Options {
    limiter::Options {
        key_prefix: settings.cache_key_prefix.as_bytes().into(),
        key_style: settings.key_style(),
        modes: modes(settings),
        posture: settings.store_failure_posture,
        replicas: settings.local_fallback_replicas,
        charging: if settings.charge_admitted { Charging::Admitted } else { Charging::Always },
        local: local::Options {
            memo: settings.memo,
            leases: settings.leases,
            sketch: if settings.top_names_keys { SketchKeeps::Named } else { SketchKeeps::Unnamed },
        },
    }
}

fn modes(settings: &Settings) -> Modes {
    let limit = settings.limit_headers.as_ref().map(|names| LimitHeaders {
        limit: names.limit.as_str().into(),
        remaining: names.remaining.as_str().into(),
        reset: names.reset.as_str().into(),
    });
    Modes {
        shadow: settings.shadow_mode,
        quota: settings.quota_mode,
        near_limit_ratio: NearLimitRatio(settings.near_limit_ratio),
        headers: HeaderNames { limit, retry_after: settings.retry_after_header.then(|| RETRY_AFTER.into()) },
        dynamic_metadata: settings.response_dynamic_metadata,
    }
}

/// RFC 9110, 10.2.3.
const RETRY_AFTER: &str = "Retry-After";

fn rules_needed(settings: &Settings) -> RulesNeeded {
    if settings.healthy_with_at_least_one_config_loaded {
        RulesNeeded::OneDomain
    } else if settings.force_start_without_initial_config {
        RulesNeeded::None
    } else {
        RulesNeeded::Loaded
    }
}

/// Where spans go, if anywhere.
fn tracing_to(
    settings: &Settings,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<(Tracer, Sending)>> {
    let Some(tracing) = &settings.tracing else { return Ok(None) };
    let started = traces::start(tracing, clock.clone(), Arc::clone(metrics))?;
    tracing::info!(endpoint = tracing.collector(), sampling_rate = tracing.sampling_rate, "calls are traced");
    Ok(Some(started))
}

fn options(settings: &Settings, tls: Option<Tls>, tracer: Option<Tracer>) -> Options {
    Options {
        n_workers: settings.workers,
        max_in_flight: settings.max_in_flight,
        max_connections: MAX_CONNECTIONS,
        budgets: Budgets::at_most(settings.request_budget),
        ages: Ages { most: settings.grpc_max_connection_age, grace: settings.grpc_max_connection_age_grace },
        tls,
        tracer,
    }
}

fn grpc_address(listener: &GrpcListener) -> anyhow::Result<Address> {
    Ok(match listener {
        GrpcListener::Tcp(endpoint) => Address::Tcp(resolve(endpoint)?),
        GrpcListener::Unix(path) => Address::Unix(path.clone()),
    })
}

/// Opens a port for HTTP, shared with a process that is about to go away, if there is one.
fn open(what: &str, endpoint: &Endpoint) -> anyhow::Result<TcpListener> {
    let listener = Listener::bind(&Address::Tcp(resolve(endpoint)?))?;
    warn_of_sharing(what, &listener);
    listener.into_tcp().context("an HTTP port is no unix socket")?.context("cannot watch the port")
}

fn resolve(endpoint: &Endpoint) -> anyhow::Result<SocketAddr> {
    let mut addresses = (endpoint.host.as_str(), endpoint.port)
        .to_socket_addrs()
        .with_context(|| format!("cannot find an address to listen on for '{endpoint}'"))?;
    addresses.next().with_context(|| format!("'{endpoint}' has no address to listen on"))
}

fn warn_of_sharing(what: &str, listener: &Listener) {
    if listener.is_shared() {
        let address = listener.address();
        tracing::warn!(
            "another process listens on {address} ({what}) too: meant during a restart, a mistake otherwise"
        );
    }
}

/// Keeps gRPC health as ours is.
async fn report_changes(health: Arc<Health>, grpc: GrpcHealth, stop: CancellationToken) {
    let mut watcher = health.watch();
    while !stop.is_cancelled() {
        report(&health, &grpc).await;
        tokio::select! {
            changed = watcher.changed() => if !changed { return },
            () = stop.cancelled() => return,
        }
    }
}

async fn report(health: &Health, grpc: &GrpcHealth) {
    match health.check() {
        Ok(()) => grpc.set_serving().await,
        Err(_) => grpc.set_not_serving().await,
    }
}

async fn follow_wall_clock(clock: Clock, stop: CancellationToken) {
    let mut interval = tokio::time::interval(CLOCK_INTERVAL);
    loop {
        tokio::select! {
            _ = interval.tick() => clock.follow_wall(),
            () = stop.cancelled() => return,
        }
    }
}

/// An HTTP port that ends before it was asked to is reported; the process goes on without it.
async fn watched(what: &'static str, serving: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = serving.await {
        tracing::error!("the {what} port has failed: {error}");
    }
}

/// What a signal asks for.
enum Ask {
    Reload,
    Stop(&'static str),
}

struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one that ends the process. Cancel safe.
    async fn stop(&mut self) -> &'static str {
        loop {
            if let Ask::Stop(name) = self.next().await {
                return name;
            }
        }
    }

    /// Waits for the next signal. Cancel safe.
    async fn next(&mut self) -> Ask {
        tokio::select! {
            _ = self.term.recv() => Ask::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Ask::Stop("SIGINT"),
            _ = self.hangup.recv() => Ask::Reload,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
