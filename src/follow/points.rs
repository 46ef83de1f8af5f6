//! Where in the file system a change would show: directories, and in each all of it or a few names.
//!
//! Directories only, never files: a watched file that is replaced is never heard of again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    fs,
    path::{Component, Path, PathBuf},
};

/// How many links a path may lead through; the kernel's own bound.
const MAX_LINKS: usize = 40;

/// Directories by their real paths, without links, and what matters in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Points(BTreeMap<PathBuf, Interest>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Interest {
    Everything,
    Names(BTreeSet<OsString>),
}

impl Points {
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Whether something that happened to `path` matters.
    pub fn concern(&self, path: &Path) -> bool {
        let inside = path.parent().and_then(|directory| self.0.get(directory));
        let named = match (inside, path.file_name()) {
            (Some(Interest::Everything), _) => true,
            (Some(Interest::Names(names)), Some(name)) => names.contains(name),
            _ => false,
        };
        named || self.0.contains_key(path)
    }

    /// What a path leads to: the entry where it really is, and the links on the way.
    pub fn add_target(&mut self, path: &Path) {
        if let Some(real) = self.follow(path) {
            self.add_entry(&real);
        }
    }

    /// A directory, with all that is directly in it.
    pub fn add_directory(&mut self, path: &Path) {
        if let Some(real) = self.follow(path) {
            self.0.insert(real, Interest::Everything);
        }
    }

    /// The entry that `path` names, in its directory: made, replaced, removed.
    pub fn add_entry(&mut self, path: &Path) {
        let path = absolute(path);
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Some(real) = self.follow(parent)
        {
            self.add_name(real, name);
        }
    }

    /// Where `path` really is; the links on the way become points. `None` if something on the way is missing: then the
    /// place where it would appear becomes a point.
    fn follow(&mut self, path: &Path) -> Option<PathBuf> {
        let mut real = PathBuf::from("/");
        let mut left: VecDeque<OsString> = parts(&absolute(path)).collect();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&name);
            let Ok(metadata) = fs::symlink_metadata(&next) else {
                self.add_name(real, &name);
                return None;
            };
            if !metadata.is_symlink() {
                real = next;
                continue;
            }
            self.add_name(real.clone(), &name);
            links += 1;
            let target = fs::read_link(&next).ok().filter(|_| links <= MAX_LINKS)?;
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                left.push_front(part);
            }
        }
        Some(real)
    }

    fn add_name(&mut self, directory: PathBuf, name: &OsStr) {
        let interest = self.0.entry(directory).or_insert_with(|| Interest::Names(BTreeSet::new()));
        if let Interest::Names(names) = interest {
            names.insert(name.to_owned());
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The names of a path, `..` among them.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    })
}
