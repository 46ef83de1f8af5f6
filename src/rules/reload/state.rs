//! What was loaded last: reads, compares, parses. Knows nothing of events or threads.

use std::{path::PathBuf, sync::Arc};

use sha2::{Digest as _, Sha256};

use super::{LoadFailure, Reloaded, points::points};
use crate::{
    follow::{Followed, points::Points},
    rules::{
        LoadOptions, Loaded, RuleSet,
        source::{Reading, RulesSource, Unreadable, Watch},
    },
};

/// Stands for all that a load depends on: the files' names and bytes, and what could not be read.
type Fingerprint = [u8; 32];

#[derive(Debug)]
pub(super) struct State {
    source: RulesSource,
    options: LoadOptions<'static>,
    /// Of the last load, successful or not.
    fingerprint: Option<Fingerprint>,
    /// What the root was at the last load, where only that matters.
    root: Option<Root>,
    /// What was loaded last without a mistake: the next set goes on with its counters.
    in_force: Option<Arc<RuleSet>>,
    /// Whether that came from at least one file.
    has_files: bool,
}

/// What stands at the path of the root: another answer means that it was swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Root {
    Missing,
    Link { target: PathBuf, inode: Inode },
    Other(Inode),
}

/// Device, number, and for a link when it was made.
type Inode = (u64, u64, Option<(i64, i64)>);

impl State {
    pub fn new(source: RulesSource, options: LoadOptions<'static>) -> Self {
        Self { source, options, fingerprint: None, root: None, in_force: None, has_files: false }
    }

    fn parse(&mut self, reading: Reading) -> Result<Reloaded, LoadFailure> {
        let Reading { files, missing, problems: mut unreadable, mut warnings } = reading;
        if let Some(directory) = missing.filter(|_| self.has_files) {
            let message = "does not exist any more: the rules that were in it stay in force".to_owned();
            unreadable.push(Unreadable { name: directory.display().to_string(), message });
        }
        let options = LoadOptions { previous: self.in_force.as_deref(), ..self.options };
        match RuleSet::load(&files, &options) {
            Ok(Loaded { rules, warnings: odd }) if unreadable.is_empty() => {
                let rules = Arc::new(rules);
                self.in_force = Some(Arc::clone(&rules));
                self.has_files = !files.is_empty();
                warnings.extend(odd.iter().map(ToString::to_string));
                Ok(Reloaded { rules, warnings, n_files: files.len() })
            }
            outcome => Err(LoadFailure { unreadable, problems: outcome.err(), warnings }),
        }
    }
}

impl Followed for State {
    type Told = Result<Reloaded, LoadFailure>;

    const WHAT: &'static str = "rules";

    fn points(&self) -> Points {
        points(&self.source)
    }

    fn load(&mut self) -> Result<Reloaded, LoadFailure> {
        self.root = root(&self.source);
        let reading = self.source.read();
        self.fingerprint = Some(fingerprint(&reading));
        self.parse(reading)
    }

    fn load_if_changed(&mut self) -> Option<Result<Reloaded, LoadFailure>> {
        let root = root(&self.source);
        if root.is_some() && root == self.root {
            return None;
        }
        self.root = root;
        let reading = self.source.read();
        let fingerprint = Some(fingerprint(&reading));
        if fingerprint == self.fingerprint {
            return None;
        }
        self.fingerprint = fingerprint;
        Some(self.parse(reading))
    }
}

fn fingerprint(reading: &Reading) -> Fingerprint {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    };
    for file in &reading.files {
        add(file.name.as_bytes());
        add(&file.bytes);
    }
    add(reading.missing.as_ref().map_or(b"", |_| b"missing"));
    for Unreadable { name, message } in &reading.problems {
        add(name.as_bytes());
        add(message.as_bytes());
    }
    hash.finalize().into()
}

/// What the root is now; `None` where the files matter and not the root.
fn root(source: &RulesSource) -> Option<Root> {
    use std::{fs, os::unix::fs::MetadataExt as _};

    let runtime = match source {
        RulesSource::Runtime(runtime) if runtime.watch == Watch::RootLink => runtime,
        _ => return None,
    };
    let path = runtime.root();
    let Ok(metadata) = fs::symlink_metadata(&path) else { return Some(Root::Missing) };
    let inode = (metadata.dev(), metadata.ino());
    Some(match fs::read_link(&path) {
        Ok(target) => {
            Root::Link { target, inode: (inode.0, inode.1, Some((metadata.ctime(), metadata.ctime_nsec()))) }
        }
        Err(_) => Root::Other((inode.0, inode.1, None)),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use tempfile::TempDir;

    use super::*;
    use crate::rules::source::{DotFiles, RuntimeDirectory};

    const GOOD: &str =
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: hour, requests_per_unit: 5}\n";

    fn state(path: &Path) -> State {
        State::new(RulesSource::Path(path.to_owned()), LoadOptions::default())
    }

    /// What the next look tells: nothing, rules or a failure.
    fn told(state: &mut State) -> Option<bool> {
        state.load_if_changed().map(|outcome| outcome.is_ok())
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let temp = TempDir::new().unwrap();
        let file = temp.path().join("a.yaml");
        let mut state = state(temp.path());
        for (text, first) in [(GOOD, true), ("", false), (GOOD, true), ("domain: ''", false), ("", false)] {
            fs::write(&file, text).unwrap();
            assert_eq!(told(&mut state), Some(first), "{text}");
            fs::write(&file, text).unwrap();
            fs::write(temp.path().join("notes.txt"), "beside it").unwrap();
            assert_eq!(told(&mut state), None, "{text}");
        }
        fs::rename(&file, temp.path().join("b.yaml")).unwrap();
        assert_eq!(told(&mut state), Some(false), "another name is a change");
        assert!(state.load().is_err(), "whoever asks is answered");
    }

    #[test]
    fn counters_go_on_over_a_failure() {
        let temp = TempDir::new().unwrap();
        let file = temp.path().join("a.yaml");
        fs::write(&file, GOOD).unwrap();
        let mut state = state(&file);
        let counters = |rules: &RuleSet| Arc::clone(&rules.rules().next().unwrap().counters);
        let first = state.load().unwrap().rules;
        fs::write(&file, "").unwrap();
        assert!(state.load().is_err());
        fs::write(&file, GOOD.replace('5', "6")).unwrap();
        let second = state.load().unwrap().rules;
        assert!(Arc::ptr_eq(&counters(&first), &counters(&second)));
    }

    #[test]
    fn with_watch_root_an_edit_waits_for_the_swap() {
        let temp = TempDir::new().unwrap();
        let (file, root) = (temp.path().join("v1/config/a.yaml"), temp.path().join("current"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, GOOD).unwrap();
        symlink("v1", &root).unwrap();
        let runtime = RuntimeDirectory {
            root: root.clone(),
            subdirectory: String::new(),
            app_directory: "config".to_owned(),
            dot_files: DotFiles::Read,
            watch: Watch::RootLink,
        };
        let mut state = State::new(RulesSource::Runtime(runtime), LoadOptions::default());
        assert_eq!(told(&mut state), Some(true));
        fs::write(&file, GOOD.replace('5', "6")).unwrap();
        assert_eq!(told(&mut state), None);
        // The same target, but another link.
        symlink("v1", temp.path().join("new")).unwrap();
        fs::rename(temp.path().join("new"), &root).unwrap();
        assert_eq!(told(&mut state), Some(true));
        assert_eq!(told(&mut state), None);
    }

    /// Case 4: a mounted ConfigMap whose dot files are read too.
    #[test]
    fn a_config_map_that_is_read_twice_is_refused_with_the_way_out() {
        let temp = TempDir::new().unwrap();
        let dir = temp.path().join("config");
        fs::create_dir_all(dir.join("..2024")).unwrap();
        fs::write(dir.join("..2024/limits.yaml"), GOOD).unwrap();
        symlink("..2024", dir.join("..data")).unwrap();
        symlink("..data/limits.yaml", dir.join("limits.yaml")).unwrap();
        let runtime = |dot_files| RuntimeDirectory {
            root: temp.path().to_owned(),
            subdirectory: String::new(),
            app_directory: "config".to_owned(),
            dot_files,
            watch: Watch::Files,
        };
        let load =
            |dot_files| State::new(RulesSource::Runtime(runtime(dot_files)), LoadOptions::default()).load();
        assert_eq!(load(DotFiles::Skipped).unwrap().n_files, 1);
        let failure = load(DotFiles::Read).unwrap_err().to_string();
        assert!(
            failure.contains("limits.yaml") && failure.contains("RUNTIME_IGNOREDOTFILES=true"),
            "{failure}"
        );
    }

    #[test]
    fn one_unreadable_file_spoils_the_load_and_all_problems_are_told() {
        let temp = TempDir::new().unwrap();
        fs::write(temp.path().join("a.yaml"), GOOD).unwrap();
        symlink("nowhere", temp.path().join("b.yaml")).unwrap();
        fs::write(temp.path().join("c.yaml"), "domain: d\nunlimied: true\n").unwrap();
        let failure = state(temp.path()).load().unwrap_err().to_string();
        assert!(failure.lines().count() >= 2, "{failure}");
        assert!(failure.contains("b.yaml: does not exist") && failure.contains("unlimied"), "{failure}");
    }
}
