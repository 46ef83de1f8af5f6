//! The unit of the benchmarks: tonic's transport as it comes, one single-threaded runtime and one listener per core, nothing
//! else mounted, a constant answer. `bare_tonic [ADDRESS [THREADS]]`

use std::{env::args, error::Error, net::SocketAddr, num::NonZeroUsize, thread};

use futures_util::stream;
use socket2::{Domain, Protocol, Socket, Type};
use tidegate::pb::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, transport::Server};

type Failure = Box<dyn Error + Send + Sync>;

struct Constant;

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let limit = RateLimit { requests_per_unit: 100, unit: Unit::Minute.into(), ..RateLimit::default() };
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(limit),
            limit_remaining: 99,
            duration_until_reset: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
            quota: None,
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![status; request.get_ref().descriptors.len()],
            ..RateLimitResponse::default()
        }))
    }
}

fn listen(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

fn serve(address: SocketAddr) -> Result<(), Failure> {
    let listener = listen(address)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.and_then(|(connection, _)| {
                connection.set_nodelay(true)?;
                Ok(connection)
            });
            Some((accepted, listener))
        });
        let service = RateLimitServiceServer::new(Constant);
        Ok(Server::builder().add_service(service).serve_with_incoming(incoming).await?)
    })
}

fn main() -> Result<(), Failure> {
    let address = args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned()).parse()?;
    let n_threads = match args().nth(2) {
        Some(n_threads) => n_threads.parse()?,
        None => thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let threads: Vec<_> = (0..n_threads.get()).map(|_| thread::spawn(move || serve(address))).collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}
