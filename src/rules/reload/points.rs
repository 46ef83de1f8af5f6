//! Where in the file system a change of the rules would show: directories, and in each all of it or a few names.
//!
//! Directories only, never files: a watched file that is replaced is never heard of again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::rules::source::{RulesSource, RuntimeDirectory, Watch};

/// How many links a path may lead through; the kernel's own bound.
const MAX_LINKS: usize = 40;

/// Directories by their real paths, without links, and what matters in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Points(BTreeMap<PathBuf, Interest>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Interest {
    Everything,
    Names(BTreeSet<OsString>),
}

impl Points {
    pub fn of(source: &RulesSource) -> Self {
        let mut points = Self::default();
        match source {
            RulesSource::Path(path) => points.add_tree(path, 1, source),
            RulesSource::Runtime(runtime) if runtime.watch == Watch::RootLink => {
                points.add_entry(&runtime.root())
            }
            RulesSource::Runtime(runtime) => {
                points.add_tree(&runtime.directory(), own_names(runtime), source)
            }
        }
        points
    }

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

    /// All that is read, the links on the way to it, and the last `own` names of `path` itself, which may be replaced.
    fn add_tree(&mut self, path: &Path, own: usize, source: &RulesSource) {
        for part in path.ancestors().take(own) {
            self.add_entry(part);
        }
        let listing = source.list();
        for directory in &listing.directories {
            if let Some(real) = self.follow(directory) {
                self.0.insert(real, Interest::Everything);
            }
        }
        for (_, file) in &listing.files {
            if let Some(real) = self.follow(file) {
                self.add_entry(&real);
            }
        }
    }

    /// The entry that `path` names, in its directory: made, replaced, removed.
    fn add_entry(&mut self, path: &Path) {
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

/// How many of the names at the end of the runtime directory's path are the operator's own to replace: from the root on.
fn own_names(runtime: &RuntimeDirectory) -> usize {
    let all = runtime.directory().components().count();
    1 + all.saturating_sub(runtime.root().components().count())
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;
    use crate::rules::source::DotFiles;

    /// A directory by its real path, with a rules file in `v1/config`, and a link `current` to `v1`.
    fn tree() -> (TempDir, PathBuf) {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("v1/config/sub")).unwrap();
        fs::write(dir.join("v1/config/a.yaml"), "").unwrap();
        symlink("v1", dir.join("current")).unwrap();
        (temp, dir)
    }

    /// What matters, of these paths below `dir`.
    fn concerned<'p>(points: &Points, dir: &Path, paths: &[&'p str]) -> Vec<&'p str> {
        paths.iter().copied().filter(|path| points.concern(&dir.join(path))).collect()
    }

    const PATHS: [&str; 8] = [
        "current",
        "v1/config",
        "v1/config/a.yaml",
        "v1/config/b.yaml",
        "v1/config/sub/c.yaml",
        "v1/other",
        "other",
        "not",
    ];

    #[test]
    fn a_directory_matters_with_all_that_is_in_it_and_the_links_on_the_way() {
        let (_temp, dir) = tree();
        let points = Points::of(&RulesSource::Path(dir.join("current/config")));
        assert_eq!(concerned(&points, &dir, &PATHS), PATHS[..5]);
    }

    #[test]
    fn a_file_matters_and_its_neighbours_do_not() {
        let (_temp, dir) = tree();
        let points = Points::of(&RulesSource::Path(dir.join("current/config/a.yaml")));
        // The directory that holds it may go away.
        assert_eq!(concerned(&points, &dir, &PATHS), ["current", "v1/config", "v1/config/a.yaml"]);
    }

    #[test]
    fn a_file_behind_a_link_matters_where_it_is() {
        let (_temp, dir) = tree();
        symlink("v1/config/../config/a.yaml", dir.join("link.yaml")).unwrap();
        let points = Points::of(&RulesSource::Path(dir.join("link.yaml")));
        assert_eq!(
            concerned(&points, &dir, &["link.yaml", "v1/config/a.yaml"]),
            ["link.yaml", "v1/config/a.yaml"]
        );
    }

    #[test]
    fn where_something_is_missing_its_coming_matters() {
        let (_temp, dir) = tree();
        for path in ["not/yet/there", "not"] {
            let points = Points::of(&RulesSource::Path(dir.join(path)));
            assert_eq!(concerned(&points, &dir, &PATHS), ["not"]);
        }
    }

    #[test]
    fn with_watch_root_only_the_root_matters() {
        let (_temp, dir) = tree();
        let runtime = |watch| RuntimeDirectory {
            root: dir.join("current"),
            subdirectory: String::new(),
            app_directory: "config".to_owned(),
            dot_files: DotFiles::Skipped,
            watch,
        };
        let points = Points::of(&RulesSource::Runtime(runtime(Watch::RootLink)));
        assert_eq!(concerned(&points, &dir, &PATHS), ["current"]);
        let points = Points::of(&RulesSource::Runtime(runtime(Watch::Files)));
        assert_eq!(concerned(&points, &dir, &PATHS), PATHS[..5]);
    }

    #[test]
    fn links_that_lead_in_a_circle_end() {
        let (_temp, dir) = tree();
        symlink("b", dir.join("a")).unwrap();
        symlink("a", dir.join("b")).unwrap();
        let points = Points::of(&RulesSource::Path(dir.join("a/config")));
        assert_eq!(concerned(&points, &dir, &["a", "b", "v1"]), ["a", "b"]);
    }
}
