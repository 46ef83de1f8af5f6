//! What is wrong with the settings, said to the person who set them. Never shows a secret.

use std::fmt;

use super::{given::Origin, table::flag};

/// One setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The variable.
    pub name: &'static str,
    pub origin: Origin,
    /// What it was set to; masked if it is a secret, `None` if it was not set at all.
    pub found: Option<String>,
    pub expected: String,
    /// What to do, if there is more to say than to set what is expected.
    pub help: Option<String>,
}

impl fmt::Display for Problem {
    /// One line, or two with the help: the setting as it was given, what was found and what was expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Flag => write!(f, "--{}", flag(self.name))?,
            Origin::Default | Origin::Environment => f.write_str(self.name)?,
        }
        if let Some(found) = &self.found {
            write!(f, "={found:?}")?;
        }
        write!(f, ": expected {}", self.expected)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, "\n    {help}"))
    }
}

/// Everything that is wrong with the settings; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SettingsError {
    pub problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.problems.len();
        write!(f, "{n} {} cannot be used", if n == 1 { "setting" } else { "settings" })?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}
