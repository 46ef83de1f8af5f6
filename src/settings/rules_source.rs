//! Where files with rules are.

use std::path::PathBuf;

use super::{given::Given, store::REFERENCE_PROGRAM, table::Values};
use crate::rules::source::{DotFiles, RulesSource, RuntimeDirectory, Watch};

/// Chooses where files with rules are, the first that applies:
///
/// 1. `RULES` (or `--rules`) is not empty: that directory or file.
/// 2. Any `RUNTIME_` setting is set, or the program was started as `ratelimit`: the runtime directory, as the reference.
/// 3. There is a directory `config` in the current directory: that one.
/// 4. The runtime directory, by its defaults.
pub(super) fn choose(values: &Values, given: &Given) -> RulesSource {
    if let Some(path) = values.rules.value.non_empty() {
        return RulesSource::Path(PathBuf::from(path));
    }
    let runtime_is_meant = values.runtime_root.is_set()
        || values.runtime_subdirectory.is_set()
        || values.runtime_appdirectory.is_set()
        || values.runtime_ignoredotfiles.is_set()
        || values.runtime_watch_root.is_set()
        || given.program() == REFERENCE_PROGRAM;
    match given.config_here() {
        Some(dir) if !runtime_is_meant => RulesSource::Path(dir.to_owned()),
        _ => RulesSource::Runtime(runtime_directory(values)),
    }
}

fn runtime_directory(values: &Values) -> RuntimeDirectory {
    RuntimeDirectory {
        root: PathBuf::from(values.runtime_root.value.as_str()),
        subdirectory: values.runtime_subdirectory.value.as_str().to_owned(),
        app_directory: values.runtime_appdirectory.value.as_str().to_owned(),
        dot_files: if values.runtime_ignoredotfiles.value { DotFiles::Skipped } else { DotFiles::Read },
        watch: if values.runtime_watch_root.value { Watch::RootLink } else { Watch::Files },
    }
}
