use std::os::unix::{fs::symlink, net::UnixListener};

use tempfile::TempDir;

use super::*;

/// A directory with these files; each holds its own path.
fn tree<const N: usize>(files: [&str; N]) -> TempDir {
    let temp = TempDir::new().unwrap();
    for file in files {
        let path = temp.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    temp
}

fn runtime(temp: &TempDir, watch: Watch, dot_files: DotFiles) -> RuntimeDirectory {
    RuntimeDirectory {
        root: temp.path().join("data"),
        subdirectory: "ratelimit".to_owned(),
        app_directory: "config".to_owned(),
        dot_files,
        watch,
    }
}

fn names(reading: &Reading) -> Vec<&str> {
    reading.files.iter().map(|file| file.name.as_str()).collect()
}

/// Reads without a problem and without a warning.
fn read(source: RulesSource) -> Reading {
    let reading = source.read();
    assert!(reading.problems.is_empty() && reading.warnings.is_empty(), "{reading:?}");
    reading
}

fn only_warning(reading: &Reading) -> &str {
    assert!(reading.problems.is_empty(), "{reading:?}");
    assert_eq!(reading.warnings.len(), 1, "{reading:?}");
    &reading.warnings[0]
}

fn only_problem(reading: &Reading) -> String {
    assert_eq!(reading.problems.len(), 1, "{reading:?}");
    reading.problems[0].to_string()
}

const RUNTIME: [&str; 6] = [
    "data/ratelimit/config/basic.yaml",
    "data/ratelimit/config/deep/er/any name",
    "data/ratelimit/config/.hidden",
    "data/ratelimit/config.d/more.yaml",
    "data/ratelimit/configs/other.yaml",
    "data/other/config/stray.yaml",
];

#[test]
fn with_watch_root_names_start_with_the_app_directory_and_its_namesakes_count() {
    let temp = tree(RUNTIME);
    let reading = read(RulesSource::Runtime(runtime(&temp, Watch::RootLink, DotFiles::Skipped)));
    assert_eq!(names(&reading), ["config.basic.yaml", "config.d.more.yaml", "config.deep.er.any name"]);
    let reading = read(RulesSource::Runtime(runtime(&temp, Watch::RootLink, DotFiles::Read)));
    assert_eq!(
        names(&reading),
        ["config..hidden", "config.basic.yaml", "config.d.more.yaml", "config.deep.er.any name"]
    );
    assert_eq!(reading.files[1].bytes, b"data/ratelimit/config/basic.yaml");
}

#[test]
fn without_watch_root_names_are_those_within_the_app_directory() {
    let temp = tree(RUNTIME);
    let reading = read(RulesSource::Runtime(runtime(&temp, Watch::Files, DotFiles::Skipped)));
    assert_eq!(names(&reading), ["basic.yaml", "deep.er.any name"]);
    let reading = read(RulesSource::Runtime(runtime(&temp, Watch::Files, DotFiles::Read)));
    assert_eq!(names(&reading), [".hidden", "basic.yaml", "deep.er.any name"]);
}

#[test]
fn the_spelling_of_a_path_does_not_matter() {
    let temp = tree(RUNTIME);
    for watch in [Watch::Files, Watch::RootLink] {
        let plain = runtime(&temp, watch, DotFiles::Skipped);
        let files = read(RulesSource::Runtime(plain.clone())).files;
        for (root, subdirectory, app_directory) in [
            ("data/", "ratelimit/", "config/"),
            ("data//.", "/ratelimit", "/config//"),
            ("./data", "./ratelimit", "./config"),
        ] {
            let odd = RuntimeDirectory {
                root: PathBuf::from(format!("{}/{root}", temp.path().display())),
                subdirectory: subdirectory.to_owned(),
                app_directory: app_directory.to_owned(),
                ..plain
            };
            assert_eq!(odd.directory(), plain.directory());
            assert_eq!(read(RulesSource::Runtime(odd)).files, files);
        }
        // A slash, or nothing at all, is the directory itself.
        for itself in ["/", "", "."] {
            let root = temp.path().join("data/ratelimit");
            let odd = RuntimeDirectory { root, subdirectory: itself.to_owned(), ..plain.clone() };
            assert_eq!(read(RulesSource::Runtime(odd)).files, files, "{itself:?}");
        }
    }
}

#[test]
fn an_app_directory_may_be_a_path_or_nothing() {
    let temp = tree(RUNTIME);
    let at = |app_directory: &str, watch| {
        let app_directory = app_directory.to_owned();
        let reading = read(RulesSource::Runtime(RuntimeDirectory {
            app_directory,
            ..runtime(&temp, watch, DotFiles::Skipped)
        }));
        reading.files.into_iter().map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(at("config/deep", Watch::RootLink), ["config.deep.er.any name"]);
    assert_eq!(at("config/deep", Watch::Files), ["er.any name"]);
    assert_eq!(at("", Watch::Files).len(), 4);
    assert_eq!(at("", Watch::RootLink).len(), 4);
}

/// Case 4: what the kubelet mounts is read once where dot files are skipped, and twice where they are not.
#[test]
fn a_config_map_is_read_once_without_dot_files() {
    let temp = tree(["data/ratelimit/config/..2024_01_01.1/limits.yaml"]);
    let dir = temp.path().join("data/ratelimit/config");
    symlink("..2024_01_01.1", dir.join("..data")).unwrap();
    symlink("..data/limits.yaml", dir.join("limits.yaml")).unwrap();

    for (watch, name) in [(Watch::Files, "limits.yaml"), (Watch::RootLink, "config.limits.yaml")] {
        let reading = read(RulesSource::Runtime(runtime(&temp, watch, DotFiles::Skipped)));
        assert_eq!(names(&reading), [name]);
    }
    let reading = RulesSource::Runtime(runtime(&temp, Watch::Files, DotFiles::Read)).read();
    assert_eq!(names(&reading), ["..2024_01_01.1.limits.yaml", "limits.yaml"]);
    let warning = only_warning(&reading);
    assert!(
        warning.contains("..data is a link to a directory")
            && warning.contains("RUNTIME_IGNOREDOTFILES=true")
    );

    let reading = read(RulesSource::Path(dir.clone()));
    assert_eq!(names(&reading), [dir.join("limits.yaml").to_str().unwrap()]);
    let reading = read(RulesSource::Path(dir.join("limits.yaml")));
    assert_eq!(reading.files[0].bytes, b"data/ratelimit/config/..2024_01_01.1/limits.yaml");
}

#[test]
fn of_a_plain_directory_the_files_with_known_endings_are_read() {
    let temp = tree([
        "r/b.yaml",
        "r/a.yml",
        "r/sub/c.JSON",
        "r/README.md",
        "r/d.yaml.bak",
        "r/.e.yaml",
        "r/.git/f.yaml",
    ]);
    let dir = temp.path().join("r");
    let reading = read(RulesSource::Path(dir.join("."))); // The spelling does not matter here either.
    let expected = ["a.yml", "b.yaml", "sub/c.JSON"].map(|name| format!("{}/{name}", dir.display()));
    assert_eq!(names(&reading), expected);
}

#[test]
fn a_single_file_may_have_any_name() {
    let temp = tree(["rules"]);
    let reading = read(RulesSource::Path(temp.path().join("rules")));
    assert_eq!(reading.files[0].bytes, b"rules");
}

#[test]
fn nothing_to_read_is_said() {
    let temp = tree(["data/ratelimit/other.txt", "empty/README.md"]);
    for watch in [Watch::Files, Watch::RootLink] {
        let mut runtime = runtime(&temp, watch, DotFiles::Read);
        let warning = only_warning(&RulesSource::Runtime(runtime.clone()).read()).to_owned();
        assert!(warning.contains("no rules") && warning.contains("data/ratelimit/config"), "{warning}");
        runtime.root = temp.path().join("absent");
        let reading = RulesSource::Runtime(runtime).read();
        assert!(reading.missing.is_some());
        assert!(only_warning(&reading).contains("absent"), "{reading:?}");
    }
    let reading = RulesSource::Path(temp.path().join("empty")).read();
    assert!(only_warning(&reading).contains(".yaml, .yml or .json, but 1 that"), "{reading:?}");
    let reading = RulesSource::Path(temp.path().join("absent")).read();
    assert!(only_problem(&reading).ends_with("absent: does not exist"), "{reading:?}");
}

#[test]
fn what_cannot_be_read_is_a_problem_and_the_rest_is_read() {
    let temp = tree(["r/a.yaml", "r/c.yaml"]);
    symlink("nowhere", temp.path().join("r/b.yaml")).unwrap();
    let reading = RulesSource::Path(temp.path().join("r")).read();
    assert_eq!(reading.files.len(), 2);
    assert!(only_problem(&reading).ends_with("b.yaml: does not exist"), "{reading:?}");
    // A file where a directory should be.
    let below = runtime(&temp, Watch::Files, DotFiles::Read);
    let below = RuntimeDirectory { root: temp.path().join("r"), subdirectory: "a.yaml".to_owned(), ..below };
    assert!(only_problem(&RulesSource::Runtime(below).read()).contains("a.yaml/config"));
}

/// Opening a pipe waits for its other end, and a device never ends.
#[test]
fn what_is_no_regular_file_is_left_out() {
    let temp = tree(["r/a.yaml"]);
    let _socket = UnixListener::bind(temp.path().join("r/b.yaml")).unwrap();
    symlink("/dev/zero", temp.path().join("r/c.yaml")).unwrap();
    let reading = RulesSource::Path(temp.path().join("r")).read();
    assert_eq!((reading.files.len(), reading.warnings.len()), (1, 2), "{reading:?}");
    assert!(reading.warnings.iter().all(|warning| warning.contains("no regular file")), "{reading:?}");
    let reading = RulesSource::Path(temp.path().join("r/c.yaml")).read();
    assert!(only_problem(&reading).contains("neither a file nor a directory"));
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let temp = tree(["r/a.yaml", "r/b.yaml"]);
    let set_size =
        |name: &str, size| fs::File::create(temp.path().join(name)).unwrap().set_len(size).unwrap();
    set_size("r/a.yaml", MAX_FILE_BYTES);
    set_size("r/b.yaml", MAX_FILE_BYTES + 1);
    let reading = RulesSource::Path(temp.path().join("r")).read();
    assert_eq!(reading.files.len(), 1);
    assert!(
        only_problem(&reading)
            .ends_with("b.yaml: is larger than 8 MiB, the most that a file of rules may have")
    );
}

#[test]
fn files_that_are_too_much_together_are_not_all_read() {
    let temp = TempDir::new().unwrap();
    for n in 0..9 {
        let file = fs::File::create(temp.path().join(format!("{n}.yaml"))).unwrap();
        file.set_len(MAX_FILE_BYTES).unwrap();
    }
    let reading = RulesSource::Path(temp.path().to_owned()).read();
    assert_eq!(reading.files.len(), 8);
    assert!(only_problem(&reading).ends_with("8.yaml: is too much: all files together may have 64 MiB"));
}

#[test]
fn files_that_are_too_many_are_one_problem() {
    let temp = TempDir::new().unwrap();
    for n in 0..MAX_FILES + 2 {
        fs::File::create(temp.path().join(format!("{n}.yaml"))).unwrap();
    }
    let listing = RulesSource::Path(temp.path().to_owned()).list();
    assert_eq!((listing.files.len(), listing.problems.len()), (MAX_FILES, 1));
}

#[test]
fn directories_that_nest_too_deep_are_a_problem() {
    let deep = |levels| format!("{}a.yaml", "d/".repeat(levels));
    let temp = tree([deep(MAX_DEPTH).as_str()]);
    assert_eq!(read(RulesSource::Path(temp.path().to_owned())).files.len(), 1);
    let temp = tree([deep(MAX_DEPTH + 1).as_str()]);
    let reading = RulesSource::Path(temp.path().to_owned()).read();
    assert!(only_problem(&reading).ends_with("nests deeper than 32 directories"), "{reading:?}");
}
