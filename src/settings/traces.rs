//! What the settings about tracing mean together: where spans go, as what, and how many of them. Opens nothing.
//!
//! OpenTelemetry's own variables are often set for every program of a cluster. One that is spelt wrong is a warning, and none
//! of them matters while tracing is off.

use std::{fmt, path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri};

use super::{
    error::Problem,
    given::{Given, Origin},
    redis::TlsFiles,
    table::{Read, Values},
    value::{Addresses, Password, Text, Value},
    words::OtlpProtocol,
};
use crate::store::redis::config::{masked, unescaped};

/// Where spans go, as what, and how many of them.
#[derive(Clone, Debug)]
pub struct TracingSettings {
    pub protocol: OtlpProtocol,
    /// For HTTP with its path.
    pub endpoint: Uri,
    pub headers: Headers,
    /// For an https collector.
    pub tls_files: TlsFiles,
    /// For one attempt to send a batch.
    pub timeout: Duration,
    /// Attributes of the resource, each key once. `service.instance.id` is missing where nobody chose one.
    pub resource: Vec<(String, String)>,
    /// The share of calls that are traced where the caller has not decided, from 0 to 1.
    pub sampling_rate: f64,
    pub queue: Queue,
}

impl TracingSettings {
    /// Where spans go, for people: without the values of a query.
    pub fn collector(&self) -> String {
        masked(&self.endpoint.to_string())
    }
}

/// How spans wait and leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Spans that may wait; at least 1.
    pub size: usize,
    /// Spans that are sent at once; at least 1.
    pub batch: usize,
    /// How long the first span of a batch waits for the others.
    pub delay: Duration,
    /// For sending one batch, with all attempts.
    pub timeout: Duration,
}

/// Headers for the collector; their values are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(HeaderName, HeaderValue)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The most spans that may wait: a span has some kilobytes.
const MAX_QUEUE: u64 = 1 << 20;

/// An hour, in milliseconds.
const HOUR: u64 = 3_600_000;

pub(super) fn choose(
    values: &Values,
    given: &Given,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> Option<TracingSettings> {
    if !values.tracing_enabled.value {
        return None;
    }
    for name in ["OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"] {
        if given.value(name).is_some_and(|(value, _)| !value.is_empty() && value != "none") {
            warnings.push(format!("{name} has no effect: spans are sent as they are"));
        }
    }
    let protocol = values.tracing_exporter_protocol.value;
    let endpoint = endpoint(values, protocol, problems);
    let headers = headers(values, warnings);
    let tls_files = tls_files(values, problems);
    let mut number = |name, text: &Read<Text>, default, (least, most)| {
        number((name, text), default, (least, most), warnings)
    };
    let timeout = number("OTEL_EXPORTER_OTLP_TIMEOUT", &values.otel_exporter_otlp_timeout, 10_000, (1, HOUR));
    let timeout = number(
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        &values.otel_exporter_otlp_traces_timeout,
        timeout,
        (1, HOUR),
    );
    let size = number("OTEL_BSP_MAX_QUEUE_SIZE", &values.otel_bsp_max_queue_size, 2_048, (1, MAX_QUEUE));
    let batch =
        number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &values.otel_bsp_max_export_batch_size, 512, (1, MAX_QUEUE));
    let delay = number("OTEL_BSP_SCHEDULE_DELAY", &values.otel_bsp_schedule_delay, 5_000, (0, HOUR));
    let whole = number("OTEL_BSP_EXPORT_TIMEOUT", &values.otel_bsp_export_timeout, 30_000, (1, HOUR));
    let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let resource = resource(values, warnings);
    let rate = values.tracing_sampling_rate.value;
    let sampling_rate = rate.clamp(0.0, 1.0);
    if !(0.0..=1.0).contains(&rate) {
        warnings.push(format!(
            "TRACING_SAMPLING_RATE={}: expected a number from 0 to 1, {sampling_rate} is used",
            rate.show()
        ));
    }
    Some(TracingSettings {
        protocol,
        endpoint: endpoint?,
        headers,
        tls_files,
        timeout: Duration::from_millis(timeout),
        resource,
        sampling_rate,
        queue: Queue {
            size: to_usize(size),
            batch: to_usize(batch.min(size)),
            delay: Duration::from_millis(delay),
            timeout: Duration::from_millis(whole),
        },
    })
}

/// The address of the collector; `None` after a problem was told.
fn endpoint(values: &Values, protocol: OtlpProtocol, problems: &mut Vec<Problem>) -> Option<Uri> {
    let for_traces = &values.otel_exporter_otlp_traces_endpoint;
    let for_all = &values.otel_exporter_otlp_endpoint;
    let (name, given, path) = match (for_traces.value.non_empty(), protocol) {
        (Some(_), _) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", for_traces, ""),
        (None, OtlpProtocol::Http) => ("OTEL_EXPORTER_OTLP_ENDPOINT", for_all, "/v1/traces"),
        (None, OtlpProtocol::Grpc) => ("OTEL_EXPORTER_OTLP_ENDPOINT", for_all, ""),
    };
    let text = given.value.non_empty().unwrap_or(match protocol {
        OtlpProtocol::Http => "http://localhost:4318",
        OtlpProtocol::Grpc => "http://localhost:4317",
    });
    let uri = url(text, path);
    if uri.is_none() {
        problems.push(problem(name, given, text));
    }
    uri
}

/// `http://host:port/path`, or https; without a scheme it is http. A password has no place in it: it would be in every message
/// about the collector, and is not sent.
fn url(text: &str, path: &str) -> Option<Uri> {
    let text = text.trim();
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let text = if path.is_empty() { text } else { format!("{}{path}", text.trim_end_matches('/')) };
    let uri: Uri = text.parse().ok()?;
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_bare = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    (is_known && is_bare && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
}

fn problem(name: &'static str, given: &Read<Addresses>, text: &str) -> Problem {
    let expected = "the URL of a collector, such as http://collector:4318".to_owned();
    let help = text.contains('@').then(|| "set OTEL_EXPORTER_OTLP_HEADERS for what it asks for".to_owned());
    Problem { name, origin: given.origin, found: Some(masked(text)), expected, help }
}

/// A certificate without its key, or a key without its certificate, is a problem.
fn tls_files(values: &Values, problems: &mut Vec<Problem>) -> TlsFiles {
    let first = |traces: &Read<Text>, all: &Read<Text>| {
        traces.value.non_empty().or(all.value.non_empty()).map(PathBuf::from)
    };
    let authorities =
        first(&values.otel_exporter_otlp_traces_certificate, &values.otel_exporter_otlp_certificate);
    let certificate = first(
        &values.otel_exporter_otlp_traces_client_certificate,
        &values.otel_exporter_otlp_client_certificate,
    );
    let key = first(&values.otel_exporter_otlp_traces_client_key, &values.otel_exporter_otlp_client_key);
    if certificate.is_some() != key.is_some() {
        let (name, other, found) = if key.is_none() {
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY", &certificate)
        } else {
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &key)
        };
        problems.push(Problem {
            name,
            origin: Origin::Environment,
            found: found.as_ref().map(|path| path.display().to_string()),
            expected: format!("{other} beside it"),
            help: None,
        });
    }
    TlsFiles { authorities, client: certificate.zip(key) }
}

/// What goes along with every batch. What is no header is warned of, without its value.
fn headers(values: &Values, warnings: &mut Vec<String>) -> Headers {
    let for_traces = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", &values.otel_exporter_otlp_traces_headers);
    let for_all = ("OTEL_EXPORTER_OTLP_HEADERS", &values.otel_exporter_otlp_headers);
    let is_set = |(_, read): &(&str, &Read<Password>)| read.value.non_empty().is_some();
    let (name, read) = if is_set(&for_traces) { for_traces } else { for_all };
    let mut headers = Headers::default();
    for (nth, item) in items(read.value.reveal()).enumerate() {
        match item.and_then(|(name, value)| Some((name.parse().ok()?, secret(&value)?))) {
            Some(header) => headers.0.push(header),
            None => warnings.push(format!(
                "{name}: item {} is left out: expected name=value with the name of an HTTP header",
                nth + 1
            )),
        }
    }
    headers
}

fn secret(value: &str) -> Option<HeaderValue> {
    let mut value: HeaderValue = value.parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The resource's attributes; of one key the last that is given.
fn resource(values: &Values, warnings: &mut Vec<String>) -> Vec<(String, String)> {
    let mut resource: Vec<(String, String)> = Vec::new();
    let mut set = |key: &str, value: &str| {
        resource.retain(|(known, _)| known != key);
        resource.push((key.to_owned(), value.to_owned()));
    };
    for item in items(values.otel_resource_attributes.value.as_str()) {
        match item {
            Some((key, value)) => set(&key, &value),
            None => warnings.push(
                "OTEL_RESOURCE_ATTRIBUTES: an item is left out: expected key=value,key=value".to_owned(),
            ),
        }
    }
    let name = match (values.otel_service_name.value.non_empty(), values.tracing_service_name.is_set()) {
        (Some(name), false) => name,
        _ => values.tracing_service_name.value.as_str(),
    };
    set("service.name", name);
    for (key, text) in [
        ("service.namespace", &values.tracing_service_namespace),
        ("service.instance.id", &values.tracing_service_instance_id),
    ] {
        if let Some(value) = text.value.non_empty() {
            set(key, value);
        }
    }
    resource
}

/// `key=value,key=value`, the values with `%XX`. `None` for what is no such pair.
fn items(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| {
        let (key, value) = item.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| (unescaped(key), unescaped(value.trim())))
    })
}

/// A whole number within bounds; nothing, and what is none, with a warning, is the default.
fn number(
    (name, read): (&str, &Read<Text>),
    default: u64,
    (least, most): (u64, u64),
    warnings: &mut Vec<String>,
) -> u64 {
    let Some(text) = read.value.non_empty() else { return default };
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => number,
        _ => {
            warnings.push(format!(
                "{name}={}: expected a whole number from {least} to {most}, {default} is used",
                read.value.show()
            ));
            default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn read<const N: usize>(variables: [(&str, &str); N]) -> Settings {
        let given = Given::of(variables).with_flag("TRACING_ENABLED", "true");
        Settings::read(&given).unwrap_or_else(|error| panic!("{error}"))
    }

    fn tracing<const N: usize>(variables: [(&str, &str); N]) -> TracingSettings {
        read(variables).tracing.unwrap()
    }

    fn resource<const N: usize>(variables: [(&str, &str); N]) -> Vec<(String, String)> {
        tracing(variables).resource
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn off_unless_it_is_asked_for_and_then_nothing_else_matters() {
        let given = Given::of([("OTEL_EXPORTER_OTLP_ENDPOINT", "?"), ("OTEL_BSP_SCHEDULE_DELAY", "soon")]);
        let settings = Settings::read(&given).unwrap();
        assert!(settings.tracing.is_none() && settings.warnings.is_empty());
    }

    #[test]
    fn the_defaults_are_the_references() {
        let tracing = tracing([]);
        assert_eq!(tracing.protocol, OtlpProtocol::Http);
        assert_eq!(tracing.endpoint, "http://localhost:4318/v1/traces");
        assert_eq!(tracing.resource, pairs([("service.name", "RateLimit")]));
        assert!((tracing.sampling_rate - 1.0).abs() < f64::EPSILON);
        assert_eq!(tracing.timeout, Duration::from_secs(10));
        let Queue { size, batch, delay, timeout } = tracing.queue;
        assert_eq!((size, batch), (2_048, 512));
        assert_eq!((delay, timeout), (Duration::from_secs(5), Duration::from_secs(30)));
    }

    #[test]
    fn the_endpoint_for_traces_goes_first_and_as_it_is() {
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let grpc = ("TRACING_EXPORTER_PROTOCOL", "grpc");
        assert_eq!(tracing([(all, "http://c:1/x/")]).endpoint, "http://c:1/x/v1/traces");
        assert_eq!(tracing([(all, "http://c:1"), (traces, "http://d:2/y")]).endpoint, "http://d:2/y");
        assert_eq!(tracing([grpc]).endpoint, "http://localhost:4317/");
        assert_eq!(tracing([grpc, (all, "c:4317")]).endpoint, "http://c:4317/");
        assert_eq!(tracing([(all, "")]).endpoint, "http://localhost:4318/v1/traces");
    }

    #[test]
    fn what_is_no_endpoint_is_a_problem_that_shows_no_password() {
        for endpoint in
            ["ftp://far.away", "http://", "http://me:hunter2@far.away", "me:hunter2@far.away", "a b"]
        {
            let given = Given::of([("TRACING_ENABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
            let told = Settings::read(&given).unwrap_err().to_string();
            assert!(told.contains("OTEL_EXPORTER_OTLP_ENDPOINT=\""), "{told}");
            assert!(told.contains("expected the URL of a collector"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
            assert_eq!(told.contains("OTEL_EXPORTER_OTLP_HEADERS"), endpoint.contains('@'), "{told}");
        }
        let given = Given::of([("TRACING_ENABLED", "true"), ("TRACING_EXPORTER_PROTOCOL", "http/json")]);
        let told = Settings::read(&given).unwrap_err().to_string();
        assert!(told.contains("TRACING_EXPORTER_PROTOCOL=\"http/json\": expected http or grpc"), "{told}");
    }

    #[test]
    fn what_is_said_of_the_collector_shows_no_key() {
        let tracing = tracing([("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/v1?api-key=hunter2")]);
        assert_eq!(tracing.collector(), "https://c/v1?api-key=*****");
        assert_eq!(tracing.endpoint, "https://c/v1?api-key=hunter2");
    }

    #[test]
    fn a_certificate_needs_its_key_and_the_files_for_traces_go_first() {
        let (chain, key) = ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY");
        for (alone, missing) in [(chain, "OTLP_CLIENT_KEY"), (key, "OTLP_CLIENT_CERTIFICATE")] {
            let given = Given::of([("TRACING_ENABLED", "true"), (alone, "x.pem")]);
            let told = Settings::read(&given).unwrap_err().to_string();
            assert!(told.contains("x.pem") && told.contains(&format!("{missing} beside it")), "{told}");
        }
        let tracing = tracing([
            (chain, "c.pem"),
            (key, "k.pem"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "all.pem"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "a.pem"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://far.away"),
        ]);
        assert_eq!(tracing.endpoint, "https://far.away/v1/traces");
        let TlsFiles { authorities, client } = tracing.tls_files;
        assert_eq!((authorities, client), (Some("a.pem".into()), Some(("c.pem".into(), "k.pem".into()))));
    }

    #[test]
    fn headers_are_pairs_and_their_values_are_secrets() {
        let settings = read([("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter2%2C, b = c ,,no pair,é=1")]);
        let headers = settings.tracing.as_ref().unwrap().headers.0.clone();
        let shown: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(shown, [("x-key", "hunter2,"), ("b", "c")]);
        assert_eq!(settings.warnings.len(), 2, "{:?}", settings.warnings);
        assert!(!format!("{settings:?}").contains("hunter2"));
        let both =
            tracing([("OTEL_EXPORTER_OTLP_HEADERS", "a=1"), ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2")]);
        assert_eq!(format!("{:?}", both.headers), "[\"b\"]");
    }

    #[test]
    fn the_service_is_what_was_set_for_us_then_what_was_set_for_all() {
        let otel = [
            ("OTEL_SERVICE_NAME", "all"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,service.instance.id=7,team=a%20b,bad"),
        ];
        assert_eq!(
            resource(otel),
            pairs([("service.instance.id", "7"), ("team", "a b"), ("service.name", "all")])
        );
        let [name, attributes] = otel;
        let ours = [
            name,
            attributes,
            ("TRACING_SERVICE_NAME", "ours"),
            ("TRACING_SERVICE_NAMESPACE", "shop"),
            ("TRACING_SERVICE_INSTANCE_ID", "8"),
        ];
        assert_eq!(
            resource(ours),
            pairs([
                ("team", "a b"),
                ("service.name", "ours"),
                ("service.namespace", "shop"),
                ("service.instance.id", "8")
            ])
        );
    }

    #[test]
    fn numbers_out_of_bounds_are_warned_of_and_not_used() {
        let settings = read([
            ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "50"),
            ("TRACING_SAMPLING_RATE", "7"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
        ]);
        let tracing = settings.tracing.unwrap();
        assert_eq!((tracing.queue.size, tracing.queue.batch), (4, 4), "a batch is no larger than the queue");
        assert_eq!(tracing.queue.delay, Duration::from_secs(5));
        assert_eq!(tracing.timeout, Duration::from_millis(50));
        assert!((tracing.sampling_rate - 1.0).abs() < f64::EPSILON);
        assert_eq!(settings.warnings.len(), 4, "{:?}", settings.warnings);
        let rate = "TRACING_SAMPLING_RATE=7: expected a number from 0 to 1, 1 is used";
        assert!(settings.warnings.iter().any(|warning| warning == rate), "{:?}", settings.warnings);
    }
}
