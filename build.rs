//! Generates `src/pb.rs`'s code from `proto/`, without protoc.
//!
//! The `.proto` files say `string`, and so does the descriptor set that reflection serves. The code is generated with
//! `bytes` in the three fields that carry a client's data: Envoy passes invalid UTF-8 on, and a decoder that refused it
//! would let such a request through unlimited. On the wire the two are the same.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

/// What is served.
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

/// What is asked of a control plane, and kept of its answers.
const CLIENT: [&str; 3] = [
    "envoy/service/discovery/v3/ads.proto",
    "ratelimit/config/ratelimit/v3/rls_conf.proto",
    "tidegate/xds_cache.proto",
];

/// Message, as its file's package and its own name, and field.
const BYTES: [(&str, &str); 3] = [
    ("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry", "key"),
    ("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry", "value"),
    ("envoy.service.ratelimit.v3.RateLimitRequest", "domain"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    write_descriptor_set(protox::compile([SERVICE], ["proto"])?)?;

    let mut files = protox::compile([SERVICE].into_iter().chain(CLIENT), ["proto"])?;
    let n_changed = turn_strings_into_bytes(&mut files);
    if n_changed != BYTES.len() {
        return Err(format!("{n_changed} of {} fields were turned into bytes: {BYTES:?}", BYTES.len()).into());
    }
    let builder = BYTES.iter().fold(tonic_prost_build::configure(), |builder, (message, field)| {
        builder.bytes(format!(".{message}.{field}"))
    });
    builder.compile_fds(files)?;
    Ok(())
}

/// For reflection and JSON: text stays text, comments are left out.
#[expect(clippy::disallowed_methods, reason = "this is how cargo tells a build script where to write")]
fn write_descriptor_set(mut files: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    for file in &mut files.file {
        file.source_code_info = None;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    Ok(fs::write(out.join("descriptors.bin"), files.encode_to_vec())?)
}

/// How many fields were changed.
fn turn_strings_into_bytes(files: &mut FileDescriptorSet) -> usize {
    let mut n_changed = 0;
    for file in &mut files.file {
        let package = file.package().to_owned();
        n_changed +=
            file.message_type.iter_mut().map(|message| turn_in_message(message, &package)).sum::<usize>();
    }
    n_changed
}

fn turn_in_message(message: &mut DescriptorProto, parent: &str) -> usize {
    let name = format!("{parent}.{}", message.name());
    let mut n_changed = message.nested_type.iter_mut().map(|nested| turn_in_message(nested, &name)).sum();
    for field in &mut message.field {
        if BYTES.contains(&(name.as_str(), field.name())) && field.r#type() == Type::String {
            field.set_type(Type::Bytes);
            n_changed += 1;
        }
    }
    n_changed
}
