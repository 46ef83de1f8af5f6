//! `ratelimit_client`: one question to a running server.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use bytes::Bytes;

use super::{
    flags::{Flag, Flags, Given, Kind},
    text,
};
use crate::{
    cli::{
        NO, ask,
        output::{Output, Style},
    },
    pb::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor},
};

const EMPTY: Kind = Kind::Text { default: "" };

const DESCRIPTORS: Flag = Flag {
    name: "descriptors",
    kind: Kind::List { check: |text| pairs(text).map(drop) },
    help: "descriptor list to ask for, as key=value,key=value; once for each descriptor",
};
const DIAL_STRING: Flag = Flag {
    name: "dial_string",
    kind: Kind::Text { default: "localhost:8081" },
    help: "host:port of the server",
};
const DOMAIN: Flag = Flag { name: "domain", kind: EMPTY, help: "domain to ask in" };
const CERTIFICATE: Flag =
    Flag { name: "grpc-cert-file", kind: EMPTY, help: "file with the client's certificate" };
const KEY: Flag = Flag { name: "grpc-key-file", kind: EMPTY, help: "file with the key of that certificate" };
const AUTHORITY: Flag =
    Flag { name: "grpc-server-ca-file", kind: EMPTY, help: "file with the authorities that are trusted" };
const TLS: Flag = Flag { name: "grpc-use-tls", kind: Kind::Switch, help: "use TLS" };
const TRACES: Flag =
    Flag { name: "oltp-protocol", kind: EMPTY, help: "taken and ignored: this client sends no traces" };

/// By name: that is how they are printed.
pub(super) const FLAGS: Flags =
    Flags(&[DESCRIPTORS, DIAL_STRING, DOMAIN, CERTIFICATE, KEY, AUTHORITY, TLS, TRACES]);

/// The reference waits for ever.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(given: &Given, out: &mut Output<'_>) -> anyhow::Result<ExitCode> {
    let descriptors: Vec<_> = given.all(&DESCRIPTORS).filter_map(|text| descriptor(text).ok()).collect();
    for flag in FLAGS.0 {
        let value =
            if flag.name == DESCRIPTORS.name { shown(&descriptors) } else { given.last(flag).to_owned() };
        out.line(&[(Style::Plain, &format!("Flag: --{}={value:?}", flag.name))])?;
    }
    let domain = Bytes::from(given.last(&DOMAIN).to_owned());
    let request = RateLimitRequest { domain, descriptors, hits_addend: 1 };
    let scheme = if given.is_on(&TLS) { "https://" } else { "" };
    let server = format!("{scheme}{}", given.last(&DIAL_STRING));
    let file = |flag| Some(given.last(flag)).filter(|path| !path.is_empty()).map(PathBuf::from);
    let tls = ask::Tls { ca: file(&AUTHORITY), cert: file(&CERTIFICATE), key: file(&KEY) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let said = runtime.block_on(async {
        let mut client = ask::connect(&server, &tls, PATIENCE)
            .await
            .map_err(|error| format!("error connecting: {error}"))?;
        ask::ask(&mut client, &request, PATIENCE).await.map_err(|status| {
            format!("request error: rpc error: code = {:?} desc = {}", status.code(), status.message())
        })
    });
    let (code, line) = match said {
        Ok(answer) => {
            let answer = text::of(&answer, "envoy.service.ratelimit.v3.RateLimitResponse");
            (ExitCode::SUCCESS, format!("response: {answer}"))
        }
        Err(why) => (ExitCode::from(NO), why),
    };
    out.line(&[(Style::Plain, &line)])?;
    Ok(code)
}

fn descriptor(text: &str) -> Result<RateLimitDescriptor, String> {
    let entry = |(key, value): (&str, &str)| rate_limit_descriptor::Entry {
        key: Bytes::from(key.to_owned()),
        value: Bytes::from(value.to_owned()),
    };
    let entries = pairs(text)?.into_iter().map(entry).collect();
    Ok(RateLimitDescriptor { entries, ..RateLimitDescriptor::default() })
}

/// `key=value,key=value`, with neither of the two signs in them.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let pair = text.split(',').map(|pair| pair.split_once('=').filter(|(_, value)| !value.contains('=')));
    pair.collect::<Option<_>>().ok_or_else(|| "invalid descriptor list".to_owned())
}

fn shown(descriptors: &[RateLimitDescriptor]) -> String {
    let name = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    descriptors.iter().map(|descriptor| text::of(descriptor, name)).collect()
}
