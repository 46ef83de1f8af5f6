//! The process shape of Tidegate around a constant answer: what the edge alone costs. `bare [ADDRESS [WORKERS]]`
//!
//! Compare with `bare_tonic`, which sends the same bytes from tonic's own transport.

use std::{env::args, error::Error, num::NonZeroUsize, thread, time::Duration};

use smallvec::smallvec;
use tidegate::{
    decision::{Answer, Code, CurrentLimit, Status},
    descriptor::Request,
    limit::{Algorithm, Limit, Unit, Window},
    limiter::DecideError,
    rls::{
        Decide,
        health::Health,
        listener::{Address, Listener},
        serve::{Options, Server},
    },
    store::Budget,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Constant(Status);

impl Decide for Constant {
    async fn decide(&self, request: &Request, _budget: Budget) -> Result<Answer, DecideError> {
        Ok(Answer {
            overall: Code::Ok,
            statuses: smallvec![self.0.clone(); request.descriptors.len()],
            headers: smallvec![],
            dynamic_metadata: None,
        })
    }
}

fn constant() -> Constant {
    let limit =
        Limit { requests_per_unit: 100, window: Window::of(Unit::Minute), algorithm: Algorithm::FixedWindow };
    Constant(Status {
        code: Code::Ok,
        limit: Some(CurrentLimit { limit, name: None }),
        remaining: 99,
        reset_after: Some(Duration::from_secs(30)),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned()).parse()?;
    let n_workers = match args().nth(2) {
        Some(n_workers) => n_workers.parse()?,
        None => thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let health = Health::new().await;
        let listener = Listener::bind(&Address::Tcp(address))?;
        let server = Server::start(listener, Options::with_workers(n_workers), &health, |_| constant())?;
        health.set_serving().await;
        eprintln!("listening on {}", server.address());
        tokio::signal::ctrl_c().await?;
        health.set_not_serving().await;
        let drained = server.drain(Duration::from_secs(10)).await;
        eprintln!("{drained:?}");
        Ok(())
    })
}
