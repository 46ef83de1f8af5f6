//! The health service with the part of its protocol that the library leaves out: a watch of a service that is not known goes on.

use futures_util::{FutureExt as _, StreamExt, future, stream, stream::BoxStream};
use tonic::{Code, Request, Response, Status};
use tonic_health::{
    pb::{
        HealthCheckRequest, HealthCheckResponse,
        health_check_response::ServingStatus,
        health_server::{Health, HealthServer},
    },
    server::{HealthReporter, HealthService},
};

pub(in crate::rls) struct Protocol(HealthService);

impl Protocol {
    pub(in crate::rls) fn serve(reporter: HealthReporter) -> HealthServer<Self> {
        HealthServer::new(Self(HealthService::from_health_reporter(reporter)))
    }
}

#[tonic::async_trait]
impl Health for Protocol {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.check(request).await
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        match self.0.watch(request).await {
            Ok(watched) => Ok(watched.map(StreamExt::boxed)),
            Err(status) if status.code() == Code::NotFound => Ok(Response::new(unknown())),
            Err(status) => Err(status),
        }
    }
}

/// Says so once: no service comes to be known later.
fn unknown() -> BoxStream<'static, Result<HealthCheckResponse, Status>> {
    let answer = HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
    stream::iter([Ok(answer)]).chain(future::pending().into_stream()).boxed()
}
