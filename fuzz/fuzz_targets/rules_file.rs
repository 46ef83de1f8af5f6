//! `cargo +nightly fuzz run rules_file fuzz/corpus/rules_file tests/real-configs`

#![no_main]

#[path = "../invariants/rules_file.rs"]
mod rules_file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rules_file::check(bytes));
