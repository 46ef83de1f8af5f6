//! Where a change of the rules would show.

use std::path::Path;

use crate::{
    follow::points::Points,
    rules::source::{RulesSource, RuntimeDirectory, Watch},
};

pub(super) fn points(source: &RulesSource) -> Points {
    let mut points = Points::default();
    match source {
        RulesSource::Path(path) => add_tree(&mut points, path, 1, source),
        RulesSource::Runtime(runtime) if runtime.watch == Watch::RootLink => {
            points.add_entry(&runtime.root());
        }
        RulesSource::Runtime(runtime) => {
            add_tree(&mut points, &runtime.directory(), own_names(runtime), source);
        }
    }
    points
}

/// All that is read, the links on the way to it, and the last `own` names of `path` itself, which may be replaced.
fn add_tree(points: &mut Points, path: &Path, own: usize, source: &RulesSource) {
    path.ancestors().take(own).for_each(|part| points.add_entry(part));
    let listing = source.list();
    listing.directories.iter().for_each(|directory| points.add_directory(directory));
    listing.files.iter().for_each(|(_, file)| points.add_target(file));
}

/// How many of the names at the end of the runtime directory's path are the operator's own to replace: from the root on.
fn own_names(runtime: &RuntimeDirectory) -> usize {
    let all = runtime.directory().components().count();
    1 + all.saturating_sub(runtime.root().components().count())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

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
        let points = points(&RulesSource::Path(dir.join("current/config")));
        assert_eq!(concerned(&points, &dir, &PATHS), PATHS[..5]);
    }

    #[test]
    fn a_file_matters_and_its_neighbours_do_not() {
        let (_temp, dir) = tree();
        let points = points(&RulesSource::Path(dir.join("current/config/a.yaml")));
        // The directory that holds it may go away.
        assert_eq!(concerned(&points, &dir, &PATHS), ["current", "v1/config", "v1/config/a.yaml"]);
    }

    #[test]
    fn a_file_behind_a_link_matters_where_it_is() {
        let (_temp, dir) = tree();
        symlink("v1/config/../config/a.yaml", dir.join("link.yaml")).unwrap();
        let points = points(&RulesSource::Path(dir.join("link.yaml")));
        assert_eq!(
            concerned(&points, &dir, &["link.yaml", "v1/config/a.yaml"]),
            ["link.yaml", "v1/config/a.yaml"]
        );
    }

    #[test]
    fn where_something_is_missing_its_coming_matters() {
        let (_temp, dir) = tree();
        for path in ["not/yet/there", "not"] {
            let points = points(&RulesSource::Path(dir.join(path)));
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
        let points = super::points(&RulesSource::Runtime(runtime(Watch::RootLink)));
        assert_eq!(concerned(&points, &dir, &PATHS), ["current"]);
        let points = super::points(&RulesSource::Runtime(runtime(Watch::Files)));
        assert_eq!(concerned(&points, &dir, &PATHS), PATHS[..5]);
    }

    #[test]
    fn links_that_lead_in_a_circle_end() {
        let (_temp, dir) = tree();
        symlink("b", dir.join("a")).unwrap();
        symlink("a", dir.join("b")).unwrap();
        let points = points(&RulesSource::Path(dir.join("a/config")));
        assert_eq!(concerned(&points, &dir, &["a", "b", "v1"]), ["a", "b"]);
    }
}
