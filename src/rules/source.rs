//! Which files hold the rules: lists them, reads them. Knows nothing of what is in them.
//!
//! **Invariants:** the same tree gives the same files in the same order; what cannot be read is a problem, never silence;
//! no more is read than the bounds below.

mod walk;

use std::{
    fmt, fs,
    path::{Component, Path, PathBuf},
};

use self::walk::{Naming, Walk, Wanted};
use crate::{
    follow::file::{self, error_text},
    rules::RuleFile,
};

/// The largest file, in bytes. A Kubernetes ConfigMap holds 1 MiB.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// All files together, in bytes.
pub const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// The most files; a directory with more is not a directory of rules.
pub const MAX_FILES: usize = 10_000;

/// How deep directories may nest below the one that is read.
pub const MAX_DEPTH: usize = 32;

/// Where rules come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesSource {
    /// A file, or a directory: its `*.yaml`, `*.yml` and `*.json`, in sub-directories too, nothing that starts with a dot.
    Path(PathBuf),
    /// The reference's layout.
    Runtime(RuntimeDirectory),
}

/// `root/subdirectory/app_directory`: every file in it, whatever its name and however deep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDirectory {
    pub root: PathBuf,
    pub subdirectory: String,
    pub app_directory: String,
    pub dot_files: DotFiles,
    pub watch: Watch,
}

/// What to do with files and directories whose name starts with a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotFiles {
    Read,
    Skipped,
}

/// What makes rules to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// `root` becomes another directory: its link is swapped.
    RootLink,
    /// A file of the rules, or a directory on the way to it, changes.
    Files,
}

/// A file or directory that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unreadable {
    pub name: String,
    pub message: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

/// What there is to read, before it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their names: what messages call them, and where they are.
    pub files: Vec<(String, PathBuf)>,
    /// The directories that were looked into.
    pub directories: Vec<PathBuf>,
    /// The directory of the rules itself, when it is not there.
    pub missing: Option<PathBuf>,
    pub problems: Vec<Unreadable>,
    pub warnings: Vec<String>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In the order of their names.
    pub files: Vec<RuleFile>,
    pub missing: Option<PathBuf>,
    pub problems: Vec<Unreadable>,
    pub warnings: Vec<String>,
}

impl RulesSource {
    pub fn list(&self) -> Listing {
        match self {
            Self::Path(path) => list_path(path),
            Self::Runtime(runtime) => runtime.list(),
        }
    }

    pub fn read(&self) -> Reading {
        self.list().read()
    }

    /// What makes rules of this source to be read again.
    pub fn watch(&self) -> Watch {
        match self {
            Self::Path(_) => Watch::Files,
            Self::Runtime(runtime) => runtime.watch,
        }
    }
}

impl fmt::Display for RulesSource {
    /// The path that an operator would look at.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Runtime(runtime) => write!(f, "{}", runtime.directory().display()),
        }
    }
}

impl RuntimeDirectory {
    /// `root` without odd spellings: `/data//x/.` is `/data/x`.
    pub fn root(&self) -> PathBuf {
        self.root.components().collect()
    }

    /// Where the rules are.
    pub fn directory(&self) -> PathBuf {
        below(&below(&self.root(), &self.subdirectory), &self.app_directory)
    }

    fn list(&self) -> Listing {
        let (top, wanted) = match self.watch {
            Watch::Files => (self.directory(), Wanted::All),
            Watch::RootLink => (below(&self.root(), &self.subdirectory), Wanted::below(&self.app_directory)),
        };
        let mut walk = Walk::new(wanted, self.dot_files, Naming::Key);
        walk.run(&top);
        let mut listing = walk.listing;
        if listing.missing.is_none() && listing.files.is_empty() {
            listing.warnings.push(format!("no rules: {} holds no file", self.directory().display()));
        }
        if let Some(missing) = &listing.missing {
            listing.warnings.push(format!(
                "no rules: the directory {} does not exist (RULES or --rules name another place)",
                missing.display()
            ));
        }
        listing
    }
}

fn list_path(path: &Path) -> Listing {
    let path: PathBuf = path.components().collect();
    let name = path.display().to_string();
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => list_directory(&path, name),
        Ok(metadata) if metadata.is_file() => Listing { files: vec![(name, path)], ..Listing::default() },
        Ok(_) => refused(name, "is neither a file nor a directory"),
        Err(error) => refused(name, &error_text(&error)),
    }
}

fn list_directory(path: &Path, name: String) -> Listing {
    let mut walk = Walk::new(Wanted::Extensions, DotFiles::Skipped, Naming::Path(name));
    walk.run(path);
    let (mut listing, others) = (walk.listing, walk.others);
    if listing.files.is_empty() && listing.problems.is_empty() {
        let others = if others == 0 { String::new() } else { format!(", but {others} that end otherwise") };
        let warning =
            format!("no rules: {} holds no file that ends in .yaml, .yml or .json{others}", path.display());
        listing.warnings.push(warning);
    }
    listing
}

fn refused(name: String, message: &str) -> Listing {
    Listing { problems: vec![Unreadable { name, message: message.to_owned() }], ..Listing::default() }
}

impl Listing {
    /// Reads every file, within the bounds.
    pub fn read(self) -> Reading {
        let Self { files, missing, problems, warnings, .. } = self;
        let mut reading = Reading { files: Vec::with_capacity(files.len()), missing, problems, warnings };
        let mut left = MAX_TOTAL_BYTES;
        for (name, path) in files {
            match read_file(&path, left) {
                Ok(bytes) => {
                    left = left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                    reading.files.push(RuleFile { name, bytes });
                }
                Err(message) => reading.problems.push(Unreadable { name, message }),
            }
        }
        reading
    }
}

fn read_file(path: &Path, left: u64) -> Result<Vec<u8>, String> {
    let bound = MAX_FILE_BYTES.min(left);
    file::read(path, bound)?.ok_or_else(|| {
        if bound == MAX_FILE_BYTES {
            format!("is larger than {} MiB, the most that a file of rules may have", MAX_FILE_BYTES >> 20)
        } else {
            format!("is too much: all files together may have {} MiB", MAX_TOTAL_BYTES >> 20)
        }
    })
}

/// `directory/path`, whatever slashes `path` starts, ends or is written with.
fn below(directory: &Path, path: &str) -> PathBuf {
    let parts = Path::new(path).components();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.fold(directory.to_owned(), |path, part| path.join(part))
}

#[cfg(test)]
mod tests;
