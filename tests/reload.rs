//! Rules that follow their files, on real directories: one test for each way of writing files.

#![cfg(test)]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use tempfile::TempDir;
use tidegate::rules::{
    LoadOptions, RuleSet,
    reload::{Handle, LoadFailure, Pace, Reloaded, Reloader},
    source::{DotFiles, RulesSource, RuntimeDirectory, Watch},
};

/// Far longer than any of this takes: reached only by a failure.
const FAILED: Duration = Duration::from_secs(20);

/// Quick, and without the poll, so that what is seen was heard of.
const PACE: Pace = Pace {
    quiet: Duration::from_millis(30),
    longest_wait: Duration::from_secs(1),
    poll: Duration::from_secs(3600),
    poll_unwatched: Duration::from_secs(3600),
};

type Outcome = Result<Vec<String>, String>;

/// Rules that are followed, and what was told of them.
struct Followed {
    told: Receiver<Outcome>,
    handle: Handle,
}

impl Followed {
    /// Loads once, which must give these domains, and follows from then on.
    fn new(source: RulesSource, domains: &[&str]) -> Self {
        Self::at_pace(source, domains, PACE)
    }

    fn at_pace(source: RulesSource, domains: &[&str], pace: Pace) -> Self {
        let mut reloader = Reloader::new(source, LoadOptions::default()).with_pace(pace);
        assert_eq!(outcome(reloader.load_once()), Ok(names(domains)));
        let (tell, told) = channel();
        let handle = reloader.start(move |event| tell.send(outcome(event)).unwrap()).unwrap();
        let followed = Self { told, handle };
        followed.settle(domains);
        followed
    }

    fn next(&self) -> Outcome {
        self.told.recv_timeout(FAILED).expect("the change was not noticed")
    }

    fn expect(&self, domains: &[&str]) {
        assert_eq!(self.next(), Ok(names(domains)));
    }

    /// Waits until these domains are loaded: what takes several steps may be seen half done.
    fn expect_in_the_end(&self, domains: &[&str]) {
        while self.next() != Ok(names(domains)) {}
    }

    fn expect_failure(&self) -> String {
        self.next().expect_err("this should not load")
    }

    /// Returns when what was written before has been seen, and is watched.
    fn settle(&self, domains: &[&str]) {
        self.handle.reload_now();
        self.expect(domains);
    }
}

fn outcome(event: Result<Reloaded, LoadFailure>) -> Outcome {
    event.map(|reloaded| domains(&reloaded.rules)).map_err(|failure| failure.to_string())
}

/// The domains that have rules, in the order of their files.
fn domains(rules: &RuleSet) -> Vec<String> {
    rules.rules().filter_map(|rule| Some(rule.full_key.split_once('.')?.0.to_owned())).collect()
}

fn names(domains: &[&str]) -> Vec<String> {
    domains.iter().map(ToString::to_string).collect()
}

fn rules(domain: &str) -> String {
    format!("domain: {domain}\ndescriptors:\n- key: a\n  rate_limit: {{unit: hour, requests_per_unit: 5}}\n")
}

fn write(path: impl AsRef<Path>, domain: &str) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, rules(domain)).unwrap();
}

/// A directory with `a.yaml`, which holds the domain `one`, followed.
fn directory() -> (TempDir, PathBuf, Followed) {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("config");
    write(dir.join("a.yaml"), "one");
    let followed = Followed::new(RulesSource::Path(dir.clone()), &["one"]);
    (temp, dir, followed)
}

/// The reference's layout below `root`, as Istio sets it.
fn runtime(root: &Path, watch: Watch) -> RulesSource {
    RulesSource::Runtime(RuntimeDirectory {
        root: root.to_owned(),
        subdirectory: "ratelimit".to_owned(),
        app_directory: "config".to_owned(),
        dot_files: DotFiles::Skipped,
        watch,
    })
}

/// Swaps a link as `ln -sfn` and the kubelet do: made beside it, renamed over it.
fn swap_link(target: &str, link: &Path) {
    let new = link.with_file_name("..new_link");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[test]
fn a_file_is_edited_in_place() {
    let (_temp, dir, followed) = directory();
    write(dir.join("a.yaml"), "two");
    followed.expect_in_the_end(&["two"]);
}

#[test]
fn a_file_is_renamed_over_another() {
    let (temp, dir, followed) = directory();
    let new = temp.path().join("new");
    write(&new, "two");
    fs::rename(new, dir.join("a.yaml")).unwrap();
    followed.expect(&["two"]);
}

#[test]
fn files_come_and_go() {
    let (temp, dir, followed) = directory();
    let outside = temp.path().join("outside.yaml");
    write(&outside, "two");
    fs::rename(&outside, dir.join("b.yaml")).unwrap();
    followed.expect(&["one", "two"]);
    fs::remove_file(dir.join("a.yaml")).unwrap();
    followed.expect(&["two"]);
    fs::rename(dir.join("b.yaml"), &outside).unwrap();
    followed.expect(&[]);
    fs::rename(&outside, dir.join("c.yaml")).unwrap();
    followed.expect(&["two"]);
}

#[test]
fn a_directory_comes_changes_and_goes() {
    let (temp, dir, followed) = directory();
    let outside = temp.path().join("outside");
    write(outside.join("deep/b.yaml"), "two");
    fs::rename(&outside, dir.join("sub")).unwrap();
    followed.expect(&["one", "two"]);
    write(dir.join("sub/deep/b.yaml"), "three");
    followed.expect_in_the_end(&["one", "three"]);
    fs::remove_dir_all(dir.join("sub")).unwrap();
    followed.expect_in_the_end(&["one"]);
}

#[test]
fn a_directory_is_made_and_filled_afterwards() {
    let (_temp, dir, followed) = directory();
    fs::create_dir(dir.join("sub")).unwrap();
    followed.settle(&["one"]);
    write(dir.join("sub/b.yaml"), "two");
    followed.expect_in_the_end(&["one", "two"]);
}

#[test]
fn the_directory_is_replaced_again_and_again() {
    let (temp, dir, followed) = directory();
    for round in 0..5 {
        let domain = format!("round-{round}");
        write(temp.path().join("next/a.yaml"), &domain);
        fs::rename(&dir, temp.path().join(format!("old-{round}"))).unwrap();
        fs::rename(temp.path().join("next"), &dir).unwrap();
        followed.expect_in_the_end(&[&domain]);
    }
    write(dir.join("a.yaml"), "edited");
    followed.expect_in_the_end(&["edited"]);
}

#[test]
fn the_directory_goes_and_its_rules_stay_until_it_is_made_again() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("ratelimit/config");
    for source in [RulesSource::Path(dir.clone()), runtime(temp.path(), Watch::Files)] {
        write(dir.join("a.yaml"), "one");
        let followed = Followed::new(source, &["one"]);
        fs::rename(temp.path().join("ratelimit"), temp.path().join("away")).unwrap();
        let failure = followed.expect_failure();
        assert!(failure.contains("ratelimit/config") && failure.contains("does not exist"), "{failure}");
        write(dir.join("a.yaml"), "two");
        followed.expect_in_the_end(&["two"]);
        write(dir.join("a.yaml"), "three");
        followed.expect_in_the_end(&["three"]);
        drop(followed);
        fs::remove_dir_all(temp.path().join("away")).unwrap();
    }
}

#[test]
fn a_directory_that_is_not_there_yet_is_waited_for() {
    let temp = TempDir::new().unwrap();
    let followed = Followed::new(runtime(&temp.path().join("not/yet/data"), Watch::Files), &[]);
    write(temp.path().join("not/yet/data/ratelimit/config/a.yaml"), "one");
    followed.expect(&["one"]);
}

#[test]
fn a_link_to_the_directory_is_swapped() {
    let temp = TempDir::new().unwrap();
    write(temp.path().join("v1/a.yaml"), "one");
    write(temp.path().join("v2/a.yaml"), "two");
    let link = temp.path().join("config");
    symlink("v1", &link).unwrap();
    let followed = Followed::new(RulesSource::Path(link.clone()), &["one"]);
    for (target, domain) in [("v2", "two"), ("v1", "one"), ("v2", "two")] {
        swap_link(target, &link);
        followed.expect(&[domain]);
    }
    write(temp.path().join("v2/a.yaml"), "three");
    followed.expect_in_the_end(&["three"]);
}

#[test]
fn a_link_on_the_way_is_swapped() {
    let temp = TempDir::new().unwrap();
    write(temp.path().join("v1/config/a.yaml"), "one");
    write(temp.path().join("v2/config/a.yaml"), "two");
    let link = temp.path().join("current");
    symlink("v1", &link).unwrap();
    let sources = [link.join("config"), link.join("config/a.yaml")].map(RulesSource::Path);
    let followed = sources.map(|source| Followed::new(source, &["one"]));
    swap_link("v2", &link);
    followed.iter().for_each(|followed| followed.expect(&["two"]));
}

/// What the kubelet does to a mounted ConfigMap: the files are links into `..data`, itself a link, which is swapped.
fn swap_config_map(dir: &Path, version: u32, domain: &str) {
    write(dir.join(format!("..{version}/limits.yaml")), domain);
    swap_link(&format!("..{version}"), &dir.join("..data"));
    let _ = fs::remove_dir_all(dir.join(format!("..{}", version.wrapping_sub(1))));
}

fn config_map(dir: &Path) {
    swap_config_map(dir, 0, "version-0");
    symlink("..data/limits.yaml", dir.join("limits.yaml")).unwrap();
}

#[test]
fn a_config_map_is_swapped_ten_times() {
    let temp = TempDir::new().unwrap();
    let dir = temp.path().join("ratelimit/config");
    config_map(&dir);
    let sources = [
        RulesSource::Path(dir.clone()),
        RulesSource::Path(dir.join("limits.yaml")),
        runtime(temp.path(), Watch::Files),
    ];
    let followed = sources.map(|source| Followed::new(source, &["version-0"]));
    for version in 1..=10 {
        let domain = format!("version-{version}");
        swap_config_map(&dir, version, &domain);
        for followed in &followed {
            followed.expect(&[&domain]);
        }
    }
}

#[test]
fn a_single_file_is_edited_replaced_removed_and_made_again() {
    let temp = TempDir::new().unwrap();
    let (file, other) = (temp.path().join("rules"), temp.path().join("other"));
    write(&file, "one");
    let followed = Followed::new(RulesSource::Path(file.clone()), &["one"]);
    write(&file, "two");
    followed.expect_in_the_end(&["two"]);
    write(&other, "three");
    fs::rename(&other, &file).unwrap();
    followed.expect(&["three"]);
    fs::remove_file(&file).unwrap();
    assert!(followed.expect_failure().contains("does not exist"));
    write(&file, "four");
    followed.expect_in_the_end(&["four"]);
}

#[test]
fn a_file_behind_a_link_is_edited_where_it_is() {
    let temp = TempDir::new().unwrap();
    let real = temp.path().join("elsewhere/real.yaml");
    write(&real, "one");
    fs::create_dir(temp.path().join("config")).unwrap();
    symlink("../elsewhere/real.yaml", temp.path().join("config/a.yaml")).unwrap();
    let followed = Followed::new(RulesSource::Path(temp.path().join("config")), &["one"]);
    write(&real, "two");
    followed.expect_in_the_end(&["two"]);
}

#[test]
fn with_watch_root_only_the_swap_of_the_root_counts() {
    let temp = TempDir::new().unwrap();
    write(temp.path().join("v1/ratelimit/config/a.yaml"), "one");
    write(temp.path().join("v2/ratelimit/config/a.yaml"), "two");
    let link = temp.path().join("current");
    symlink("v1", &link).unwrap();
    // Spelled oddly: that changes nothing.
    let root = PathBuf::from(format!("{}//./current/", temp.path().display()));
    let followed = Followed::new(runtime(&root, Watch::RootLink), &["one"]);
    write(temp.path().join("v1/ratelimit/config/a.yaml"), "edited");
    swap_link("v2", &link);
    followed.expect(&["two"]);
    swap_link("v1", &link);
    followed.expect(&["edited"]);
}

#[test]
fn a_bad_file_is_told_once_and_the_next_good_one_is_loaded() {
    let (_temp, dir, followed) = directory();
    fs::write(dir.join("a.yaml"), "").unwrap();
    let failure = followed.expect_failure();
    assert!(failure.contains("a.yaml"), "{failure}");
    // Written again, and something beside it: the failure is the same, so there is nothing to tell.
    fs::write(dir.join("a.yaml"), "").unwrap();
    fs::write(dir.join("notes.txt"), "nothing to do with it").unwrap();
    let mut file = fs::File::options().append(true).open(dir.join("a.yaml")).unwrap();
    file.write_all(rules("two").as_bytes()).unwrap();
    followed.expect_in_the_end(&["two"]);
}

#[test]
fn many_files_swapped_at_once_are_one_reload() {
    let temp = TempDir::new().unwrap();
    let domain = |version: u32, n: u32| format!("v{version}-{n:03}");
    let set = |version: u32| (0..200).map(|n| domain(version, n)).collect::<Vec<_>>();
    for version in [1, 2] {
        for n in 0..200 {
            write(temp.path().join(format!("v{version}/{n:03}.yaml")), &domain(version, n));
        }
    }
    let link = temp.path().join("config");
    symlink("v1", &link).unwrap();
    let [first, second] = [set(1), set(2)];
    let followed =
        Followed::new(RulesSource::Path(link.clone()), &first.iter().map(String::as_str).collect::<Vec<_>>());
    swap_link("v2", &link);
    assert_eq!(followed.next(), Ok(second));
}

#[test]
fn what_the_file_system_does_not_tell_is_polled() {
    let temp = TempDir::new().unwrap();
    let (dir, elsewhere) = (temp.path().join("config"), temp.path().join("elsewhere.yaml"));
    write(dir.join("a.yaml"), "one");
    fs::hard_link(dir.join("a.yaml"), &elsewhere).unwrap();
    let pace = Pace { poll: Duration::from_millis(20), ..PACE };
    let followed = Followed::at_pace(RulesSource::Path(dir), &["one"], pace);
    // A write through another name of the file: a watch on its directory hears nothing of it.
    fs::write(elsewhere, rules("two")).unwrap();
    followed.expect_in_the_end(&["two"]);
}

#[test]
fn a_change_between_the_first_load_and_the_start_is_told() {
    let temp = TempDir::new().unwrap();
    write(temp.path().join("a.yaml"), "one");
    let mut reloader =
        Reloader::new(RulesSource::Path(temp.path().to_owned()), LoadOptions::default()).with_pace(PACE);
    assert_eq!(outcome(reloader.load_once()), Ok(names(&["one"])));
    write(temp.path().join("a.yaml"), "two");
    let (tell, told) = channel();
    let handle = reloader.start(move |event| tell.send(outcome(event)).unwrap()).unwrap();
    assert_eq!(told.recv_timeout(FAILED), Ok(Ok(names(&["two"]))));
    handle.stop();
    assert_eq!(told.recv_timeout(FAILED), Err(RecvTimeoutError::Disconnected));
}
