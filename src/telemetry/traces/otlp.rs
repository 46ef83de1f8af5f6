//! The exporter: OTLP over HTTP or gRPC, as whom the settings say.

use std::collections::HashMap;

use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    trace::{IdGenerator as _, RandomIdGenerator, SpanExporter as _},
};
use tonic::{metadata::MetadataMap, transport::Channel};

use crate::{
    dial::{Dial, Speaks, TlsError},
    settings::{OtlpProtocol, TracingSettings},
};

/// The version of the names that the resource's attributes have; the reference's.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.7.0";

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot send traces: {0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("cannot send traces over TLS: {0}")]
    Tls(#[from] TlsError),
}

/// To be called on the runtime that it is to work on.
pub(super) fn exporter(settings: &TracingSettings) -> Result<SpanExporter, StartError> {
    let headers = settings.headers.0.iter();
    let endpoint = settings.endpoint.to_string();
    let dial = |speaks| Dial::to(&settings.endpoint, &settings.tls_files, speaks, settings.timeout);
    let mut exporter = match settings.protocol {
        OtlpProtocol::Http => {
            let text = |value: &http::HeaderValue| value.to_str().map(escaped).ok();
            let headers: HashMap<_, _> =
                headers.filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect();
            SpanExporter::builder()
                .with_http()
                .with_http_client(HyperClient::new(dial(Speaks::Http1)?, settings.timeout, None))
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(endpoint)
                .with_timeout(settings.timeout)
                .with_headers(headers)
                .build()?
        }
        OtlpProtocol::Grpc => {
            let channel = Channel::builder(settings.endpoint.clone()).timeout(settings.timeout);
            SpanExporter::builder()
                .with_tonic()
                .with_channel(channel.connect_with_connector_lazy(dial(Speaks::Http2)?))
                .with_timeout(settings.timeout)
                .with_metadata(MetadataMap::from_headers(headers.cloned().collect()))
                .build()?
        }
    };
    exporter.set_resource(&resource(&settings.resource));
    Ok(exporter)
}

/// The library takes escapes out of a header's value; there are none in it any more.
fn escaped(text: &str) -> String {
    text.replace('%', "%25")
}

fn resource(attributes: &[(String, String)]) -> Resource {
    const INSTANCE: &str = "service.instance.id";
    let given = attributes.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let is_named = attributes.iter().any(|(key, _)| key == INSTANCE);
    let ours = (!is_named).then(|| KeyValue::new(INSTANCE, random_uuid()));
    Resource::builder_empty().with_schema_url(given.chain(ours), SCHEMA).build()
}

/// RFC 9562, version 4.
fn random_uuid() -> String {
    let random = u128::from_be_bytes(RandomIdGenerator::default().new_trace_id().to_bytes());
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let (time, rest) = hex.split_at(8);
    let (mid, rest) = rest.split_at(4);
    let (version, rest) = rest.split_at(4);
    let (variant, node) = rest.split_at(4);
    format!("{time}-{mid}-{version}-{variant}-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_without_a_name_gets_a_uuid() {
        let id = random_uuid();
        let lengths: Vec<_> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        assert_ne!(id, random_uuid());
    }
}
