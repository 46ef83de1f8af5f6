//! What the settings about a control plane mean together. Opens nothing and reads no file.
//!
//! **Invariant:** what they say is looked at only where a control plane is meant: elsewhere nothing in them is a problem that
//! can be read at all.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::{error::Problem, table::Values, value::Value, words::ConfigType};
use crate::rules::xds::{
    Address, DEFAULT_MAX_MESSAGE, Headers, Jitter, Keepalive, Node, Options, Schedule, Server, Tls,
};

/// How long a sign of life may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Names and values, `name:value,name:value`, in their order. They may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Map(Vec<(String, String)>);

impl Map {
    pub const EMPTY: Self = Self(Vec::new());
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Headers(self.0.clone()).fmt(f)
    }
}

impl Value for Map {
    const KIND: &'static str = "map";
    const SECRET: bool = true;

    /// As in the reference, an item has exactly one colon and nothing is trimmed. Names are those of headers.
    fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::EMPTY);
        }
        let item = |item: &str| {
            let (name, value) = item.split_once(':')?;
            let name = name.to_ascii_lowercase();
            let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let fits = !name.is_empty()
                && name.bytes().all(is_name)
                && !value.contains(':')
                && value.bytes().all(|b| (b' '..=b'~').contains(&b));
            fits.then(|| (name, value.to_owned()))
        };
        text.split(',').map(item).collect::<Option<_>>().map(Self)
    }

    fn expected() -> String {
        "name:value,name:value: names of letters, digits, - _ and ., values in ASCII without commas and colons"
            .to_owned()
    }

    fn show(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>().join(",")
    }
}

/// The control plane, if rules come from one.
pub(super) fn choose(
    values: &Values,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> Option<Options> {
    let cache_directory = values.rules_cache_dir.value.non_empty().map(PathBuf::from);
    if values.config_type.value == ConfigType::File {
        if cache_directory.is_some() {
            warnings.push("RULES_CACHE_DIR has no effect with CONFIG_TYPE=FILE".to_owned());
        }
        return None;
    }
    if values.rules.value.non_empty().is_some() {
        warnings.push(
            "RULES and CONFIG_TYPE=GRPC_XDS_SOTW are both set: rules come from the control plane".to_owned(),
        );
    }
    if values.config_grpc_xds_server_connect_retry_interval.is_set() {
        warnings.push(
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL is set and has no effect, as in the reference: the \
             XDS_CLIENT_BACKOFF_ settings say when to try again"
                .to_owned(),
        );
    }
    let max_message = usize::try_from(values.xds_client_max_msg_size_in_bytes.value.get());
    Some(Options {
        server: Server {
            address: address(values, problems)?,
            tls: tls(values, warnings),
            keepalive: keepalive(values.xds_client_keepalive_interval.value.get()),
        },
        node: Node {
            id: values.config_grpc_xds_node_id.value.as_str().to_owned(),
            metadata: metadata(values, warnings),
        },
        headers: Headers(values.config_grpc_xds_client_additional_headers.value.0.clone()),
        max_message: max_message.ok().filter(|max| *max > 0).unwrap_or(DEFAULT_MAX_MESSAGE),
        backoff: backoff(values, warnings),
        cache_directory,
    })
}

fn address(values: &Values, problems: &mut Vec<Problem>) -> Option<Address> {
    let url = &values.config_grpc_xds_server_url;
    let address = Address::parse(url.value.reveal());
    if address.is_none() {
        problems.push(Problem {
            name: "CONFIG_GRPC_XDS_SERVER_URL",
            origin: url.origin,
            found: Some(url.value.show()),
            expected: "host:port, dns:///host:port or unix:path".to_owned(),
            help: None,
        });
    }
    address
}

fn tls(values: &Values, warnings: &mut Vec<String>) -> Option<Tls> {
    let (cert, key) = (&values.config_grpc_xds_client_tls_cert, &values.config_grpc_xds_client_tls_key);
    let client = match (cert.value.non_empty(), key.value.non_empty()) {
        (Some(cert), Some(key)) => Some((PathBuf::from(cert), PathBuf::from(key))),
        (None, None) => None,
        (one, _) => {
            let (set, missing) = if one.is_some() { ("CERT", "KEY") } else { ("KEY", "CERT") };
            warnings.push(format!(
                "CONFIG_GRPC_XDS_CLIENT_TLS_{set} is set without CONFIG_GRPC_XDS_CLIENT_TLS_{missing}: no \
                 certificate is shown to the control plane"
            ));
            None
        }
    };
    let tls = Tls {
        authorities: values.config_grpc_xds_server_tls_cacert.value.non_empty().map(PathBuf::from),
        client,
        server_name: values.config_grpc_xds_server_tls_san.value.non_empty().map(str::to_owned),
    };
    let is_used = values.config_grpc_xds_server_use_tls.value;
    if !is_used && tls != Tls::default() {
        warnings.push(
            "CONFIG_GRPC_XDS_SERVER_USE_TLS is false: the connection is not encrypted, the other settings of TLS \
             have no effect"
                .to_owned(),
        );
    }
    is_used.then_some(tls)
}

fn keepalive(interval: Duration) -> Keepalive {
    Keepalive { interval, timeout: interval.min(KEEPALIVE_TIMEOUT) }
}

/// The first `=` of an item splits it; an item without one is left out, as in the reference, though not in silence.
fn metadata(values: &Values, warnings: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::new();
    let items = values.config_grpc_xds_node_metadata.value.as_str().split(',');
    for item in items.filter(|item| !item.is_empty()) {
        match item.split_once('=') {
            Some((key, value)) => _ = metadata.insert(key.to_owned(), value.to_owned()),
            None => warnings
                .push(format!("CONFIG_GRPC_XDS_NODE_METADATA: {item:?} is left out: expected key=value")),
        }
    }
    metadata
}

fn backoff(values: &Values, warnings: &mut Vec<String>) -> Schedule {
    let initial = values.xds_client_backoff_initial_interval.value.get();
    let max = values.xds_client_backoff_max_interval.value.get();
    if max < initial {
        warnings.push(
            "XDS_CLIENT_BACKOFF_MAX_INTERVAL is below XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: every pause is that long"
                .to_owned(),
        );
    }
    Schedule {
        initial,
        max,
        factor: values.xds_client_backoff_random_factor.value,
        jitter: if values.xds_client_backoff_jitter.value { Jitter::Random } else { Jitter::None },
    }
}

#[cfg(test)]
mod tests;
