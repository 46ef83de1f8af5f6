//! Walks through a directory for the files that are wanted. Does not read them.
//!
//! **Invariant:** it ends: directories behind links are not entered, and what is met is bounded.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{DotFiles, Listing, MAX_DEPTH, MAX_FILES, Unreadable};
use crate::follow::file::error_text;

/// How the files in a directory end. The runtime directory takes any name, as the reference.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The link that a Kubernetes ConfigMap is swapped by. Who meets it reads what is behind it a second time.
const CONFIG_MAP_LINK: &str = "..data";
const CONFIG_MAP_HINT: &str = " (this is how Kubernetes mounts a ConfigMap: set RUNTIME_IGNOREDOTFILES=true, or its files are read twice)";

/// Which files of a tree are wanted.
pub(super) enum Wanted {
    All,
    Extensions,
    /// Those whose key starts so.
    Prefix(String),
}

impl Wanted {
    /// Files in `directory`, as the reference finds them: by what their key starts with.
    pub fn below(directory: &str) -> Self {
        let parts: Vec<_> = directory.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.is_empty() { Self::All } else { Self::Prefix(parts.join(".") + ".") }
    }

    fn file(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Extensions => Path::new(key)
                .extension()
                .is_some_and(|ending| EXTENSIONS.iter().any(|known| ending.eq_ignore_ascii_case(known))),
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }

    /// Whether a directory may hold such files.
    fn directory(&self, key: &str) -> bool {
        match self {
            Self::All | Self::Extensions => true,
            Self::Prefix(prefix) => {
                let start = format!("{key}.");
                start.starts_with(prefix) || prefix.starts_with(&start)
            }
        }
    }
}

/// What messages call a file.
pub(super) enum Naming {
    /// As the reference: the path within the directory, dots for slashes.
    Key,
    /// As an operator would find it: below this directory.
    Path(String),
}

/// A walk through a tree. Directories behind links are not entered, so it ends.
pub(super) struct Walk {
    wanted: Wanted,
    dot_files: DotFiles,
    naming: Naming,
    pub listing: Listing,
    /// Files that were not wanted.
    pub others: usize,
}

/// A directory to be looked into; `within` is its path below the top, with slashes.
struct Directory {
    path: PathBuf,
    within: String,
    depth: usize,
}

impl Walk {
    pub fn new(wanted: Wanted, dot_files: DotFiles, naming: Naming) -> Self {
        Self { wanted, dot_files, naming, listing: Listing::default(), others: 0 }
    }

    pub fn run(&mut self, top: &Path) {
        let mut todo = vec![Directory { path: top.to_owned(), within: String::new(), depth: 0 }];
        while let Some(directory) = todo.pop() {
            if let Err(error) = self.enter(&directory, &mut todo) {
                match error.kind() {
                    io::ErrorKind::NotFound if directory.depth == 0 => {
                        self.listing.missing = Some(directory.path)
                    }
                    // Gone since it was listed: then there is nothing in it.
                    io::ErrorKind::NotFound => {}
                    _ => self.problem(directory.path.display().to_string(), error_text(&error)),
                }
            }
        }
        self.listing.files.sort();
        self.listing.directories.sort();
        self.listing.warnings.sort();
        self.listing.problems.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn enter(&mut self, directory: &Directory, todo: &mut Vec<Directory>) -> io::Result<()> {
        if directory.depth > MAX_DEPTH {
            return Err(io::Error::other(format!("nests deeper than {MAX_DEPTH} directories")));
        }
        if self.listing.directories.len() >= MAX_FILES {
            return Err(io::Error::other(format!(
                "is one directory too many: at most {MAX_FILES} are looked into"
            )));
        }
        let entries = fs::read_dir(&directory.path)?;
        self.listing.directories.push(directory.path.clone());
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.dot_files == DotFiles::Skipped && name.starts_with('.') {
                continue;
            }
            let within =
                if directory.within.is_empty() { name } else { format!("{}/{name}", directory.within) };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if self.wanted.directory(&key(&within)) {
                    todo.push(Directory { path: entry.path(), within, depth: directory.depth + 1 });
                }
            } else {
                self.meet(&within, entry.path(), kind);
            }
        }
        Ok(())
    }

    /// Takes in what is no directory.
    fn meet(&mut self, within: &str, path: PathBuf, kind: fs::FileType) {
        let key = key(within);
        let name = match &self.naming {
            Naming::Key => key.clone(),
            Naming::Path(top) => format!("{top}/{within}"),
        };
        let is =
            if kind.is_symlink() { fs::metadata(&path).map(|behind| behind.file_type()) } else { Ok(kind) };
        let may_be_wanted = self.wanted.file(&key);
        match is {
            Ok(is) if is.is_dir() && self.wanted.directory(&key) => {
                let hint = if within.ends_with(CONFIG_MAP_LINK) { CONFIG_MAP_HINT } else { "" };
                self.listing.warnings.push(format!("{name} is a link to a directory: it is left out{hint}"));
            }
            _ if !may_be_wanted => self.others += 1,
            Ok(is) if is.is_file() => self.add(name, path),
            Ok(_) => self.listing.warnings.push(format!("{name} is no regular file: it is left out")),
            Err(error) => self.problem(name, error_text(&error)),
        }
    }

    fn add(&mut self, name: String, path: PathBuf) {
        if self.listing.files.len() < MAX_FILES {
            self.listing.files.push((name, path));
        } else {
            self.problem(name, format!("is one file too many: at most {MAX_FILES} are read"));
        }
    }

    /// Keeps a problem, but not one for each file of a directory that is too large.
    fn problem(&mut self, name: String, message: String) {
        if self.listing.problems.last().is_none_or(|last| last.message != message) {
            self.listing.problems.push(Unreadable { name, message });
        }
    }
}

/// The reference's name for a file: its path with dots for slashes.
fn key(within: &str) -> String {
    within.replace('/', ".")
}
