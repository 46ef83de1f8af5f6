//! `tidegate ask`: puts to a running server the question that Envoy would put.

mod answer;
mod question;

use std::{error::Error, io, path::PathBuf, process::ExitCode, time::Duration};

use rustls::CertificateError;
use tokio::runtime;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use self::question::{Asked, Override};
use super::{NO, Trouble, output::Output};
use crate::{
    dial::{Dial, Speaks},
    pb::{RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient},
    settings::{TlsFiles, duration},
};

/// Asks a running server what Envoy would ask, and prints what it answers for each descriptor.
///
/// Asking counts, unless it peeks: it is a real call. Exit code: 0 if the answer is OK, 1 if anything is over its limit, 2 if there is no
/// answer.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A descriptor: its entries in order. `\,` `\=` and `\\` stand for the characters themselves.
    #[arg(required = true, value_name = "KEY=VALUE[,KEY=VALUE…]")]
    descriptors: Vec<Asked>,
    /// The domain of the rules.
    #[arg(long, short)]
    domain: String,
    /// Where the server listens for gRPC: host:port, https://host:port for TLS, or unix:/path of a socket.
    #[arg(long, short, value_name = "ADDRESS", default_value = "localhost:8081")]
    server: String,
    /// How many hits each descriptor costs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "peek")]
    hits: Option<u64>,
    /// Looks without counting.
    #[arg(long, conflicts_with = "refund")]
    peek: bool,
    /// Gives the hits back instead of charging them.
    #[arg(long)]
    refund: bool,
    /// A limit that the call brings along, in place of the server's rules: 5/minute, or 100/5minutes.
    #[arg(long, value_name = "N/UNIT")]
    limit: Option<Override>,
    /// How often to ask.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// How long to wait for each answer.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive)]
    timeout: Duration,
    #[command(flatten)]
    tls: Tls,
    /// Prints each answer as one JSON object on a line.
    #[arg(long)]
    json: bool,
}

/// What TLS takes, for a server that is named with https://.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Tls {
    /// The authorities that the server's certificate is trusted from, PEM; else the system's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to the server, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The key of that certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

impl Tls {
    fn files(&self) -> TlsFiles {
        TlsFiles { authorities: self.ca.clone(), client: self.cert.clone().zip(self.key.clone()) }
    }
}

const EXAMPLES: &str = "\
Examples:
  tidegate ask --domain shop user=42,path=/login    one descriptor, two entries
  tidegate ask --domain shop user=42 plan=gold      two descriptors
  tidegate ask --domain shop user=42 --peek         what is left, using none of it
  tidegate ask --domain shop user=42 --times 20     and see when it is refused
  tidegate ask --domain shop 'query=a\\,b'           a value with a comma

In the answer, - stands for no limit: no rule matches, there is no such domain, or the rule is unlimited.";

fn positive(text: &str) -> Result<Duration, String> {
    let nanos = duration(text).and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0);
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| "expected a duration with its unit, such as 500ms or 2s".to_owned())
}

pub(super) fn run(arguments: &Arguments, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
    let request = question::request(arguments);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Arguments { server, timeout, tls, .. } = arguments;
        let mut client = connect(server, tls, *timeout).await?;
        let mut tally = answer::Tally::default();
        for nth in 1..=arguments.times {
            let response =
                ask(&mut client, &request, *timeout).await.map_err(|status| no_answer(server, &status))?;
            tally.add(&response);
            if arguments.json {
                out.json(&answer::printed(&arguments.descriptors, &response))?;
            } else if nth == arguments.times {
                answer::print(&arguments.descriptors, &response, tally, out)?;
            }
        }
        Ok(if tally.n_over == 0 { ExitCode::SUCCESS } else { ExitCode::from(NO) })
    })
}

/// Connects to a server that is named as `--server` names it.
pub(super) async fn connect(
    server: &str,
    tls: &Tls,
    patience: Duration,
) -> Result<RateLimitServiceClient<Channel>, Trouble> {
    let uri = if server.contains("://") || server.starts_with("unix:") {
        server.to_owned()
    } else {
        format!("http://{server}")
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|_| {
        Trouble(format!(
            "{server}: expected host:port, https://host:port or unix:/path, such as localhost:8081"
        ))
    })?;
    let endpoint = endpoint.connect_timeout(patience);
    let channel = if endpoint.uri().scheme_str() == Some("https") {
        let dial = Dial::to(endpoint.uri(), &tls.files(), Speaks::Http2, patience);
        let dial = dial.map_err(|error| Trouble(format!("cannot speak TLS to {server}: {error}")))?;
        endpoint.connect_with_connector(dial).await
    } else {
        endpoint.connect().await
    };
    let channel = channel.map_err(|error| Trouble(no_connection(server, &error)))?;
    Ok(RateLimitServiceClient::new(channel))
}

/// One question. Errors: whatever the server, or the way to it, says instead of an answer.
pub(super) async fn ask(
    client: &mut RateLimitServiceClient<Channel>,
    request: &RateLimitRequest,
    patience: Duration,
) -> Result<RateLimitResponse, Status> {
    let mut call = tonic::Request::new(request.clone());
    call.set_timeout(patience);
    client.should_rate_limit(call).await.map(tonic::Response::into_inner)
}

fn no_connection(server: &str, error: &tonic::transport::Error) -> String {
    let cause = root_cause(error);
    tls_trouble(server, error).unwrap_or_else(|| {
        format!("nobody answers at {server} ({cause}): start a server there with `tidegate serve`, or name another")
    })
}

/// What TLS did not like, and what may help.
fn tls_trouble(server: &str, error: &(dyn Error + 'static)) -> Option<String> {
    Some(match tls_error(error)? {
        rustls::Error::InvalidMessage(_) => {
            format!("{server} answers without TLS: leave out https://")
        }
        rustls::Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!("the certificate of {server} is for another name ({why}): name the server as it does"),
        rustls::Error::InvalidCertificate(why) => {
            format!("the certificate of {server} is not trusted ({why}): name its authority with --ca")
        }
        rustls::Error::AlertReceived(alert) => format!(
            "{server} refused the TLS handshake ({alert:?}): name a certificate that it takes with --cert and --key"
        ),
        _ => return None,
    })
}

/// An I/O error hides what it holds from those who ask for its source.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(cause) = next {
        let held = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let held = held.and_then(|held| held.downcast_ref()).or_else(|| cause.downcast_ref());
        if held.is_some() {
            return held;
        }
        next = cause.source();
    }
    None
}

/// Why the connection broke off, and what may help; `None` when the server has answered, or is gone.
fn broken_off(server: &str, status: &Status) -> Option<String> {
    // Cancelled: the connection was gone before the call was on it.
    let codes = [Code::Internal, Code::Unknown, Code::Cancelled];
    let error = status.source().filter(|_| codes.contains(&status.code()))?;
    let cause = root_cause(error);
    Some(tls_trouble(server, error).unwrap_or_else(|| match server {
        _ if server.starts_with("https://") => format!(
            "{server} broke the connection off ({cause}): if it wants a certificate, name one with --cert and --key"
        ),
        _ if server.starts_with("unix:") => format!("{server} broke the connection off ({cause})"),
        _ => {
            let host = server.trim_start_matches("http://");
            format!("{server} broke the connection off ({cause}): if the port speaks TLS, use https://{host}")
        }
    }))
}

fn no_answer(server: &str, status: &Status) -> Trouble {
    if let Some(why) = broken_off(server, status) {
        return Trouble(why);
    }
    let what = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    Trouble(format!("{server} answered with an error, {:?}: {what}", status.code()))
}

/// The innermost error, which says what happened: "connection refused" rather than "transport error".
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}
