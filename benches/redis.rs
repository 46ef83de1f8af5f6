//! What a decision costs Redis, and this process: each way of charging, at 1, 32 and 256 requests in flight on one
//! connection, beside the pair of commands that the reference sends.
//!
//! Starts a `redis-server` of its own. `cargo bench --bench redis`; an argument picks the rows whose name contains it.
//! Columns: decisions a second; µs of the server's command time (`INFO commandstats`) and of its CPU for a request; µs of
//! this process's CPU for a request.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench that fails is to stop"
)]

use std::{
    cell::Cell,
    net::TcpListener,
    process::{Child, Command, Stdio},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tidegate::{
    clock::Clock,
    key::CounterKey,
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    store::{
        Budget, Charge,
        redis::{
            RedisConfig, RedisStore, Shared,
            config::{SocketType, Topology, TopologyKind},
        },
    },
};

const N_KEYS: usize = 100_000;
const N_REQUESTS: usize = 60_000;
const IN_FLIGHT: [usize; 3] = [1, 32, 256];

#[derive(Clone, Copy)]
enum Way {
    /// `INCRBY` and `EXPIRE`, sent by the `redis` crate alone.
    Reference,
    Charge(Algorithm, Cost),
    AllOrNothing,
}

struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--dir"])
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is on PATH");
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        Self { process, port, _folder: folder }
    }
}

/// Server: command time, CPU time; this process: CPU time. In microseconds.
async fn spent(connection: &mut MultiplexedConnection) -> [f64; 3] {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
    let usec = |line: &str| line.split(",usec=").nth(1)?.split(',').next()?.parse::<f64>().ok();
    let counted = ["incrby", "expire", "get", "evalsha"].map(|name| format!("cmdstat_{name}:"));
    let commands =
        stats.lines().filter(|line| counted.iter().any(|name| line.starts_with(name))).filter_map(usec).sum();
    let cpu: String = redis::cmd("INFO").arg("cpu").query_async(connection).await.unwrap();
    let field = |name: &str| cpu.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    let server = field("used_cpu_user:").unwrap() + field("used_cpu_sys:").unwrap();
    let own = clock_gettime(ClockId::ProcessCPUTime);
    [commands, server * 1e6, own.tv_sec as f64 * 1e6 + own.tv_nsec as f64 / 1e3]
}

struct Bench {
    store: Arc<RedisStore>,
    clock: Clock,
    control: MultiplexedConnection,
    raw: MultiplexedConnection,
}

impl Bench {
    async fn run(&mut self, name: &str, way: Way, n_charges: usize) {
        for in_flight in IN_FLIGHT {
            let algorithm =
                if let Way::Charge(algorithm, _) = way { algorithm } else { Algorithm::FixedWindow };
            let window = Window::of(Unit::Minute);
            let limit = Limit { requests_per_unit: 1_000, window, algorithm };
            let keys: Rc<Vec<CounterKey>> = Rc::new(
                (0..N_KEYS)
                    .map(|n| {
                        let value = format!("{name}-{n:07}");
                        CounterKey::new(
                            b"",
                            b"bench",
                            [(&b"remote_address"[..], value.as_bytes())].into_iter(),
                            &limit,
                        )
                    })
                    .collect(),
            );
            let n_requests = if in_flight == 1 { N_REQUESTS / 6 } else { N_REQUESTS };
            let left = Rc::new(Cell::new(n_requests));
            let before = spent(&mut self.control).await;
            let began = Instant::now();
            let tasks: Vec<_> = (0..in_flight)
                .map(|_| {
                    let (keys, left) = (keys.clone(), left.clone());
                    let (store, clock, raw) = (self.store.clone(), self.clock.clone(), self.raw.clone());
                    tokio::task::spawn_local(async move {
                        while left.get() > 0 {
                            left.set(left.get() - 1);
                            request(&store, &clock, raw.clone(), way, &limit, &keys, left.get(), n_charges)
                                .await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let took = began.elapsed();
            let after = spent(&mut self.control).await;
            let [commands, server, own] = [0, 1, 2].map(|n| (after[n] - before[n]) / n_requests as f64);
            println!(
                "{name:<34} {n_charges} {in_flight:>4} {:>9.0}/s {commands:>7.2} {server:>7.2} {own:>7.2}",
                n_requests as f64 / took.as_secs_f64()
            );
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the whole of a request")]
async fn request(
    store: &RedisStore,
    clock: &Clock,
    mut raw: MultiplexedConnection,
    way: Way,
    limit: &Limit,
    keys: &[CounterKey],
    nth: usize,
    n_charges: usize,
) {
    let cost = if let Way::Charge(_, cost) = way { cost } else { Cost::Charge(Hits::new(1)) };
    let picked = (0..n_charges).map(|n| &keys[(nth * 7_919 + n * 104_729) % N_KEYS]);
    if let Way::Reference = way {
        let mut pipeline = redis::Pipeline::with_capacity(2 * n_charges);
        for key in picked {
            pipeline.cmd("INCRBY").arg(key.as_bytes()).arg(1);
            pipeline.cmd("EXPIRE").arg(key.as_bytes()).arg(60 + nth % 300);
        }
        raw.send_packed_commands(&pipeline, 0, 2 * n_charges).await.unwrap();
        return;
    }
    let charges: Vec<Charge<'_>> =
        picked.map(|key| Charge { key, limit, cost, max_wait: Duration::from_millis(10) }).collect();
    // Longer than any stall of a shared machine.
    let budget = Budget::of(Duration::from_secs(10));
    let outcomes = match way {
        Way::AllOrNothing => {
            store.charge_all_or_nothing(&charges, &[true; 8][..n_charges], clock.now(), budget).await
        }
        _ => store.charge(&charges, clock.now(), budget).await,
    };
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let url = format!("127.0.0.1:{}", server.port);
        let clock = Clock::process();
        let config = RedisConfig::new(Topology::parse(TopologyKind::Single, SocketType::Tcp, &url).unwrap());
        let store = Arc::new(RedisStore::connect(Shared::new(config, clock.clone()).unwrap()));
        store.tried(Duration::from_secs(5)).await;
        let client = redis::Client::open(format!("redis://{url}")).unwrap();
        let config =
            redis::AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(4096);
        let raw = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let mut bench = Bench { store, clock, control: raw.clone(), raw };
        println!("{:<34} n  fly   requests  cmd µs  srv µs  own µs", "");
        let one = Cost::Charge(Hits::new(1));
        let leaky = Algorithm::LeakyBucket { burst: 100, max_delay: Duration::from_millis(10) };
        let rows: [(&str, Way); 8] = [
            ("reference pair", Way::Reference),
            ("fixed_window pair", Way::Charge(Algorithm::FixedWindow, one)),
            ("fixed_window all or nothing", Way::AllOrNothing),
            ("fixed_window refund", Way::Charge(Algorithm::FixedWindow, Cost::Refund(Hits::new(1)))),
            ("sliding_window", Way::Charge(Algorithm::SlidingWindow, one)),
            ("sliding_log", Way::Charge(Algorithm::SlidingLog, one)),
            ("token_bucket", Way::Charge(Algorithm::TokenBucket { burst: 1_000 }, one)),
            ("leaky_bucket", Way::Charge(leaky, one)),
        ];
        for (name, way) in rows.into_iter().filter(|(name, _)| name.contains(&wanted)) {
            for n_charges in [1, 4] {
                bench.run(name, way, n_charges).await;
            }
        }
    });
}
