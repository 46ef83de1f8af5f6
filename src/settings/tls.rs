//! What the settings about TLS on the gRPC port mean together. Reads no file.

use std::path::PathBuf;

use rustls::pki_types::ServerName;

use super::{
    error::Problem,
    table::{Read, Values},
    value::Text,
};
use crate::tls::{Clients, Files};

/// The files, or `None` for a port in the clear.
pub(super) fn choose(
    values: &Values,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) -> Option<Files> {
    let (authorities, name) = (&values.grpc_client_tls_cacert, &values.grpc_client_tls_san);
    if !values.grpc_server_use_tls.value {
        for (setting, read) in [("GRPC_CLIENT_TLS_CACERT", authorities), ("GRPC_CLIENT_TLS_SAN", name)] {
            if read.value.non_empty().is_some() {
                warnings.push(format!(
                    "{setting} is set and has no effect: without GRPC_SERVER_USE_TLS=true the gRPC port is in the \
                     clear, and open to whoever reaches it"
                ));
            }
        }
        return None;
    }
    let certificate = file("GRPC_SERVER_TLS_CERT", &values.grpc_server_tls_cert, problems);
    let key = file("GRPC_SERVER_TLS_KEY", &values.grpc_server_tls_key, problems);
    let name = server_name(name, problems);
    let clients = match authorities.value.non_empty() {
        Some(authorities) => Some(Clients { authorities: PathBuf::from(authorities), name }),
        None if name.is_some() => {
            warnings.push(
                "GRPC_CLIENT_TLS_SAN is set and has no effect: clients are asked for a certificate only if \
                 GRPC_CLIENT_TLS_CACERT says whose are trusted"
                    .to_owned(),
            );
            None
        }
        None => None,
    };
    Some(Files { certificate: certificate?, key: key?, clients })
}

fn file(name: &'static str, read: &Read<Text>, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let path = read.value.non_empty().map(PathBuf::from);
    if path.is_none() {
        problems.push(Problem {
            name,
            origin: read.origin,
            found: read.is_set().then(String::new),
            expected: "a file, since GRPC_SERVER_USE_TLS is true".to_owned(),
            help: None,
        });
    }
    path
}

/// An address may stand in brackets, as in Go.
fn server_name(read: &Read<Text>, problems: &mut Vec<Problem>) -> Option<ServerName<'static>> {
    let text = read.value.non_empty()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let name = ServerName::try_from(bare.to_owned()).ok();
    if name.is_none() {
        problems.push(Problem {
            name: "GRPC_CLIENT_TLS_SAN",
            origin: read.origin,
            found: Some(text.to_owned()),
            expected: "a DNS name or an IP address, as it stands in the clients' certificates".to_owned(),
            help: None,
        });
    }
    name
}
