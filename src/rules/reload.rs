//! Rules that follow their files: loads them, and again whenever they change.
//!
//! **Invariants:** what is told differs from what was told before, unless a reload was asked for; a change that was made
//! after [`Reloader::load_once`] is told.

mod points;
mod state;

use std::{fmt, io, sync::Arc};

use self::state::State;
use super::{
    LoadOptions, Problems, RuleSet,
    source::{RulesSource, Unreadable},
};
use crate::follow::{Followed as _, follow};
pub use crate::follow::{Handle, PATIENCE, Pace};

/// Rules that were loaded.
#[derive(Debug)]
pub struct Reloaded {
    pub rules: Arc<RuleSet>,
    /// A line each.
    pub warnings: Vec<String>,
    pub n_files: usize,
}

/// Why rules were not loaded; the rules before stay in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LoadFailure {
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
    /// What is wrong with what could be read.
    pub problems: Option<Problems>,
    /// What is odd about the files, and may explain the rest. A line each.
    pub warnings: Vec<String>,
}

impl LoadFailure {
    /// One line for each problem, and for what may explain it.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let problems = self
            .problems
            .iter()
            .flat_map(|problems| problems.to_string().lines().map(str::to_owned).collect::<Vec<_>>());
        self.unreadable.iter().map(ToString::to_string).chain(problems).chain(self.warnings.iter().cloned())
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.lines().enumerate() {
            write!(f, "{}{line}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Loads rules from where they are; turned into a [`Handle`] it goes on doing so.
#[derive(Debug)]
pub struct Reloader {
    state: State,
    pace: Pace,
}

impl Reloader {
    /// `options` name no previous rules: those are the ones loaded here before.
    pub fn new(source: RulesSource, options: LoadOptions<'static>) -> Self {
        Self { state: State::new(source, options), pace: Pace::default() }
    }

    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Loads now, in this thread.
    pub fn load_once(&mut self) -> Result<Reloaded, LoadFailure> {
        self.state.load()
    }

    /// Goes on in a thread of its own: `on_event` is called there with each load that follows.
    ///
    /// Errors: the thread could not be started.
    pub fn start(
        self,
        on_event: impl FnMut(Result<Reloaded, LoadFailure>) + Send + 'static,
    ) -> io::Result<Handle> {
        follow(self.state, self.pace, on_event)
    }
}
