//! What this process was given: variables, flags, its name, its machine. The only place that reads the environment.
//!
//! Knows no setting; a test hands in a map instead.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    Environment,
    Flag,
}

impl Origin {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Environment => "environment",
            Self::Flag => "flag",
        }
    }
}

/// All that settings are made of.
#[derive(Clone, Debug)]
pub struct Given {
    variables: BTreeMap<String, OsString>,
    flags: BTreeMap<&'static str, OsString>,
    /// The name that the program was started under, without its directory.
    program: String,
    /// Processor cores that this process may use.
    cores: NonZeroUsize,
    /// The directory `config` in the current directory, if there is one.
    config_here: Option<PathBuf>,
}

impl Given {
    /// The directory that is looked for in the current directory.
    pub const CONFIG_HERE: &'static str = "config";

    /// What this process has been given. `flags` holds values by the name of the variable that they stand for.
    pub fn process(flags: BTreeMap<&'static str, OsString>) -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let program = std::env::args_os().next().unwrap_or_default();
        Self {
            variables: variables.collect(),
            flags,
            program: Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            cores: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            config_here: Some(PathBuf::from(Self::CONFIG_HERE)).filter(|dir| dir.is_dir()),
        }
    }

    /// What a test gives: variables only, as `tidegate` on a machine with two cores.
    pub fn of<const N: usize>(variables: [(&str, &str); N]) -> Self {
        Self {
            variables: variables.map(|(name, value)| (name.to_owned(), value.into())).into(),
            flags: BTreeMap::new(),
            program: "tidegate".to_owned(),
            cores: NonZeroUsize::MIN.saturating_add(1),
            config_here: None,
        }
    }

    #[must_use]
    pub fn with_flag(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.flags.insert(name, value.into());
        self
    }

    #[must_use]
    pub fn with_program(mut self, name: &str) -> Self {
        name.clone_into(&mut self.program);
        self
    }

    #[must_use]
    pub fn with_config_here(mut self, dir: &Path) -> Self {
        self.config_here = Some(dir.to_owned());
        self
    }

    /// What a setting was set to, and by what: a flag beats the environment.
    pub fn value(&self, name: &str) -> Option<(&OsStr, Origin)> {
        let flag = self.flags.get(name).map(|value| (value.as_os_str(), Origin::Flag));
        flag.or_else(|| self.variables.get(name).map(|value| (value.as_os_str(), Origin::Environment)))
    }

    pub fn program(&self) -> &str {
        &self.program
    }

    pub fn cores(&self) -> NonZeroUsize {
        self.cores
    }

    pub fn config_here(&self) -> Option<&Path> {
        self.config_here.as_deref()
    }
}
