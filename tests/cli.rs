//! The program as an operator meets it: its output and its exit codes.

#![cfg(test)]

#[path = "support/redis/certificates.rs"]
#[allow(dead_code, reason = "each test program uses its part")]
mod certificates;
#[path = "support/tls_front.rs"]
mod tls_front;

use std::{
    fs,
    net::Ipv4Addr,
    num::NonZeroUsize,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use certificates::{Certificates, ServerName};
use serde_json::{Value, json};
use smallvec::smallvec;
use tempfile::TempDir;
use tidegate::{
    decision::{Answer, Code, CurrentLimit, Status},
    descriptor::Request,
    limit::{Algorithm, Cost, Hits, Limit, Unit, Window},
    limiter::DecideError,
    rls::{
        Decide,
        health::Health,
        listener::{Address, Listener},
        serve::{Options, Server},
    },
    store::Budget,
};

const GOOD: &str =
    "domain: shop\ndescriptors:\n- key: user\n  rate_limit: {unit: minute, requests_per_unit: 3}\n";
const BAD: &str = "domain: other\ndescriptors:\n- key: user\n  rate_limit: {unit: minutes, unlimied: true}\n";

/// What the program did.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless the code is this and the text holds all of these.
    #[track_caller]
    fn assert(&self, code: i32, out: &[&str], err: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        out.iter().for_each(|words| assert!(self.out.contains(words), "{words:?} is missing in {self:?}"));
        err.iter().for_each(|words| assert!(self.err.contains(words), "{words:?} is missing in {self:?}"));
    }
}

/// Runs the program in an empty environment but for these variables.
fn run_as(program: &Path, dir: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut command = Command::new(program);
    let Output { status, stdout, stderr } = command
        .current_dir(dir)
        .env_clear()
        .envs(variables.iter().copied())
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

fn tidegate() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_tidegate"))
}

fn run(dir: &Path, arguments: &[&str]) -> Ran {
    run_as(&tidegate(), dir, &[], arguments)
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn help_teaches_and_usage_errors_are_2() {
    let temp = TempDir::new().unwrap();
    run(temp.path(), &["--help"]).assert(0, &["Examples:", "tidegate check rules/"], &[]);
    for command in ["serve", "check", "ask", "settings"] {
        run(temp.path(), &[command, "--help"]).assert(0, &["Examples:"], &[]);
    }
    let short = run(temp.path(), &["serve", "-h"]).out;
    let long = run(temp.path(), &["serve", "--help"]).out;
    assert!(short.contains("--rules") && !short.contains("--limit-reset-header"), "{short}");
    assert!(long.contains("--limit-reset-header"), "{long}");
    run(temp.path(), &["chekc"]).assert(2, &[], &["chekc", "check"]);
    run(temp.path(), &["check"]).assert(2, &[], &["DIR|FILE"]);
    run(temp.path(), &["--grpc-prot", "1"]).assert(2, &[], &["--grpc-port"]);
    run(temp.path(), &["--rules", "--grpc-port", "1"]).assert(2, &[], &["--rules <TEXT>"]);
    run(temp.path(), &["--drain-timeout", "-1s"]).assert(2, &[], &["-1"]);
    run(temp.path(), &["--near-limit-ratio", "-1", "--port", "x"]).assert(
        1,
        &[],
        &["1 setting cannot be used"],
    );
    run(temp.path(), &["ask", "a=b"]).assert(2, &[], &["--domain"]);
}

#[test]
fn check_says_fine() {
    let temp = TempDir::new().unwrap();
    write(temp.path(), "rules/a.yaml", GOOD);
    run(temp.path(), &["check", "rules"]).assert(0, &["1 file, 1 domain, 1 rule: fine\n"], &[]);
    // Named twice is one file.
    run(temp.path(), &["check", "rules", "rules/a.yaml"]).assert(0, &["1 file, "], &[]);
    write(temp.path(), "rules/notes.txt", BAD);
    run(temp.path(), &["check", "rules"]).assert(0, &["1 file, "], &[]);
    assert_eq!(
        run(temp.path(), &["check", "--json", "rules"]).json(),
        json!({"ok": true, "files": ["rules/a.yaml"], "n_problems": 0, "problems": [], "warnings": []})
    );
}

#[test]
fn check_tells_every_problem_of_every_file() {
    let temp = TempDir::new().unwrap();
    write(temp.path(), "rules/a.yaml", GOOD);
    write(temp.path(), "rules/b.yaml", BAD);
    write(temp.path(), "rules/c.yaml", "domain: ''\n");
    symlink("nowhere", temp.path().join("rules/d.yaml")).unwrap();
    let checked = run(temp.path(), &["check", "rules", "absent.yaml"]);
    checked.assert(
        1,
        &[
            "rules/b.yaml:4:",
            "unlimied",
            "minutes",
            "rules/c.yaml:1:",
            "rules/d.yaml: does not exist",
            "absent.yaml: does not exist",
        ],
        &[],
    );
    assert!(checked.out.ends_with("problems; a server would take none of it\n"), "{checked:?}");

    let printed = run(temp.path(), &["check", "--json", "rules"]);
    assert_eq!(printed.code, 1);
    let printed = printed.json();
    assert_eq!(printed["ok"], false);
    let problems = printed["problems"].as_array().unwrap();
    assert_eq!(printed["n_problems"], problems.len());
    let in_b = problems.iter().find(|problem| problem["file"] == "rules/b.yaml").unwrap();
    assert_eq!(in_b["line"], 4);
    assert!(problems.contains(&json!({"file": "rules/d.yaml", "found": "does not exist"})), "{problems:?}");
}

#[test]
fn check_merges_domains_only_when_asked() {
    let temp = TempDir::new().unwrap();
    write(temp.path(), "a.yaml", GOOD);
    write(temp.path(), "b.yaml", &GOOD.replace("user", "plan"));
    run(temp.path(), &["check", "a.yaml", "b.yaml"]).assert(1, &["shop"], &[]);
    run(temp.path(), &["check", "--merge-domains", "a.yaml", "b.yaml"]).assert(
        0,
        &["2 files, 1 domain, 2 rules"],
        &[],
    );
}

#[test]
fn check_warns_of_what_is_odd_and_passes_it() {
    let temp = TempDir::new().unwrap();
    fs::create_dir(temp.path().join("empty")).unwrap();
    run(temp.path(), &["check", "empty"]).assert(
        0,
        &["warning: no rules: empty holds no file", "with 1 warning"],
        &[],
    );
    write(temp.path(), "a.yaml", &format!("{GOOD}---\n{BAD}"));
    run(temp.path(), &["check", "a.yaml"]).assert(
        0,
        &["warning: a.yaml:", "1 more YAML document", "with 1 warning"],
        &[],
    );
}

#[test]
fn check_warns_beside_what_it_refuses() {
    let temp = TempDir::new().unwrap();
    write(temp.path(), "a.yaml", &format!("unit: hour\n{BAD}"));
    run(temp.path(), &["check", "a.yaml"]).assert(
        1,
        &["warning: a.yaml:1:1: 'unit' does nothing", "and 1 warning; a server would take none of it"],
        &[],
    );
    let printed = run(temp.path(), &["check", "--json", "a.yaml"]).json();
    assert_eq!(printed["warnings"][0]["line"], 1, "{printed}");
}

#[test]
fn check_refuses_what_a_server_with_the_same_counter_keys_refuses() {
    let temp = TempDir::new().unwrap();
    let bucket = "domain: shop
descriptors:
  - {key: user, rate_limit: {unit: second, requests_per_unit: 5, algorithm: token_bucket}}
";
    write(temp.path(), "a.yaml", bucket);
    run(temp.path(), &["check", "a.yaml"]).assert(0, &["fine"], &[]);
    run(temp.path(), &["check", "--counter-keys", "envoyproxy", "a.yaml"]).assert(1, &["token_bucket"], &[]);
    let with = |keys, arguments: &[&str]| {
        run_as(
            &tidegate(),
            temp.path(),
            &[("COUNTER_KEYS", keys)],
            &[&["check", "a.yaml"], arguments].concat(),
        )
    };
    with("envoyproxy", &[]).assert(1, &["token_bucket", "COUNTER_KEYS=envoyproxy"], &[]);
    with("envoyproxy", &["--counter-keys", "tidegate"]).assert(0, &["fine"], &[]);
    with("mine", &[]).assert(2, &[], &["COUNTER_KEYS=\"mine\"", "tidegate or envoyproxy"]);
}

/// The checker of the reference needs the whole environment of a server; ours needs none.
#[test]
fn check_does_not_read_the_settings() {
    let temp = TempDir::new().unwrap();
    write(temp.path(), "a.yaml", GOOD);
    run_as(&tidegate(), temp.path(), &[("PORT", "x")], &["check", "a.yaml"]).assert(0, &["fine"], &[]);
}

#[test]
fn settings_show_values_and_where_they_come_from() {
    let temp = TempDir::new().unwrap();
    let variables = [("GRPC_PORT", "0x1F91"), ("PORT", "1"), ("UNKNOWN_SETTING", "secret")];
    let shown = run_as(&tidegate(), temp.path(), &variables, &["settings", "--port", "2", "--shadow-mode"]);
    shown.assert(
        0,
        &[
            "GRPC_PORT\t8081\tenvironment\n",
            "PORT\t2\tflag\n",
            "SHADOW_MODE\ttrue\tflag\n",
            "LOG_LEVEL\tWARN\tdefault\n",
        ],
        &[],
    );
    assert!(!shown.out.contains("secret"), "{shown:?}");
    let printed =
        run_as(&tidegate(), temp.path(), &variables, &["settings", "--json", "--shadow-mode=false"]).json();
    assert_eq!(printed["settings"]["GRPC_PORT"], json!({"value": "8081", "from": "environment"}));
    assert_eq!(printed["settings"]["SHADOW_MODE"], json!({"value": "false", "from": "flag"}));
}

#[test]
fn the_config_directory_here_is_used_unless_something_else_is_set() {
    let temp = TempDir::new().unwrap();
    let rules = |variables: &[(&str, &str)], arguments: &[&str]| {
        let arguments: Vec<_> = ["settings", "--json"].iter().chain(arguments).copied().collect();
        run_as(&tidegate(), temp.path(), variables, &arguments).json()["rules"].as_str().unwrap().to_owned()
    };
    assert_eq!(rules(&[], &[]), "/srv/runtime_data/current/config");
    fs::create_dir(temp.path().join("config")).unwrap();
    assert_eq!(rules(&[], &[]), "config");
    assert_eq!(rules(&[("RULES", "elsewhere")], &[]), "elsewhere");
    assert_eq!(rules(&[("RULES", "elsewhere")], &["--rules", "flagged"]), "flagged");
    assert_eq!(rules(&[("RUNTIME_ROOT", "/data")], &[]), "/data/config");
}

#[test]
fn settings_say_which_control_plane_the_rules_come_from() {
    let temp = TempDir::new().unwrap();
    let variables = [("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("CONFIG_GRPC_XDS_SERVER_URL", "plane:18001")];
    let shown = run_as(&tidegate(), temp.path(), &variables, &["settings"]);
    shown.assert(0, &["rules from the control plane at plane:18001\n"], &[]);
    let printed = run_as(&tidegate(), temp.path(), &variables, &["settings", "--json"]).json();
    assert_eq!(printed["rules"], "the control plane at plane:18001");
}

#[test]
fn a_server_does_not_start_without_the_certificate_it_was_told_to_show() {
    let temp = TempDir::new().unwrap();
    fs::write(temp.path().join("tls.key"), "no key").unwrap();
    let ports = [("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0"), ("RULES", ".")];
    let tls = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "tls.crt"),
        ("GRPC_SERVER_TLS_KEY", "tls.key"),
    ];
    let ran = run_as(&tidegate(), temp.path(), &[&ports[..], &tls[..]].concat(), &["serve"]);
    ran.assert(1, &[], &["cannot serve gRPC over TLS", "GRPC_SERVER_TLS_CERT=tls.crt: does not exist"]);
}

#[test]
fn a_server_that_cannot_start_says_everything_that_is_wrong() {
    let temp = TempDir::new().unwrap();
    let variables = [("GRPC_PORT", "eighty"), ("LOG_LEVEL", "chatty"), ("CONFIG_TYPE", "file")];
    for arguments in [&["--port", "x"][..], &["serve", "--port", "x"]] {
        run_as(&tidegate(), temp.path(), &variables, arguments).assert(
            1,
            &[],
            &[
                "error: 4 settings cannot be used\n",
                "--port=\"x\"",
                "GRPC_PORT=\"eighty\"",
                "LOG_LEVEL=\"chatty\"",
                "CONFIG_TYPE=\"file\"",
            ],
        );
    }
    let two_sinks = [("USE_STATSD", "true"), ("USE_PROMETHEUS", "true")];
    let refused = run_as(&tidegate(), temp.path(), &two_sinks, &[]);
    assert!(
        refused.err.lines().any(|line| line.contains("USE_STATSD") && line.contains("USE_PROMETHEUS")),
        "{refused:?}"
    );
}

#[test]
fn started_as_the_reference_it_ignores_arguments_and_waits_for_redis_as_long_as_it_is_told() {
    let temp = TempDir::new().unwrap();
    let program = temp.path().join("ratelimit");
    symlink(tidegate(), &program).unwrap();
    let socket = temp.path().join("nobody-is-there.sock").display().to_string();
    let variables = [
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("DEBUG_HOST", "127.0.0.1"),
        ("DEBUG_PORT", "0"),
        ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms"),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "20ms"),
    ];
    run_as(&program, temp.path(), &[&variables[..], &[("REDIS_URL", &socket)]].concat(), &["--what", "ever"])
        .assert(1, &[], &["gave up waiting for Redis after REDIS_STARTUP_MAX_ELAPSED_TIME", &socket]);
}

/// Three hits a minute for every first descriptor, nothing for the others, and an error for the domain `broken`.
#[derive(Default)]
struct ThreeAMinute(AtomicU32);

impl Decide for ThreeAMinute {
    async fn decide(&self, request: &Request, _: Budget) -> Result<Answer, DecideError> {
        if request.domain == "broken" {
            return Err(DecideError::NoRules);
        }
        let descriptor = &request.descriptors[0];
        let limit = descriptor.override_limit.unwrap_or(Limit {
            requests_per_unit: 3,
            window: Window::of(Unit::Minute),
            algorithm: Algorithm::FixedWindow,
        });
        let used = match descriptor.cost {
            Cost::Charge(hits) => {
                let hits = u32::try_from(hits.get()).unwrap();
                self.0.fetch_add(hits, Ordering::Relaxed) + hits
            }
            Cost::Refund(hits) if hits == Hits::new(1) => self.0.fetch_sub(1, Ordering::Relaxed) - 1,
            Cost::Refund(_) | Cost::Peek => self.0.load(Ordering::Relaxed),
        };
        let code = if used > limit.requests_per_unit { Code::OverLimit } else { Code::Ok };
        let name: Arc<str> = String::from_utf8_lossy(&descriptor.entries[0].value).into();
        let first = Status {
            code,
            limit: Some(CurrentLimit { limit, name: Some(name).filter(|name| !name.is_empty()) }),
            remaining: limit.requests_per_unit.saturating_sub(used),
            reset_after: Some(Duration::from_secs(90)),
        };
        let other = Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None };
        let others = request.descriptors.iter().skip(1).map(|_| other.clone());
        Ok(Answer {
            overall: code,
            statuses: std::iter::once(first).chain(others).collect(),
            headers: smallvec![("RateLimit-Limit".into(), 3)],
            dynamic_metadata: None,
        })
    }
}

/// A server, and what asks it.
struct Asked {
    _runtime: tokio::runtime::Runtime,
    _server: Server,
    address: String,
    dir: TempDir,
}

impl Asked {
    fn at(address: impl FnOnce(&Path) -> Address) -> Self {
        let dir = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(async {
            let health = Health::new().await;
            let listener = Listener::bind(&address(dir.path())).unwrap();
            let decider = Arc::new(ThreeAMinute::default());
            Server::start(listener, Options::with_workers(NonZeroUsize::MIN), &health, move |_| {
                Arc::clone(&decider)
            })
            .unwrap()
        });
        let address = match server.address() {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        };
        Self { _runtime: runtime, _server: server, address, dir }
    }

    fn new() -> Self {
        Self::at(|_| Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()))
    }

    fn ask(&self, arguments: &[&str]) -> Ran {
        // Far longer than an answer takes, so that a slow machine is no failure.
        let always = ["ask", "--server", &self.address, "--timeout", "1m"];
        run(self.dir.path(), &[&always, arguments].concat())
    }
}

#[test]
fn ask_prints_an_answer_for_each_descriptor() {
    let server = Asked::new();
    let ran = server.ask(&["--domain", "shop", r"user=a\,b,path=/x=y", "plan=gold"]);
    assert_eq!(
        ran.out,
        "descriptor\tanswer\tlimit\tremaining\tresets in\n\
         user=a\\,b,path=/x=y\tOK\t3/minute (a,b)\t2\t1m30s\n\
         plan=gold\tOK\t-\t-\t-\n\
         header RateLimit-Limit: 3\n\
         OK\n"
    );
    assert_eq!(ran.code, 0);
    let printed = server.ask(&["--domain", "shop", "user=x", "plan=gold", "--json"]).json();
    let limit = json!({"name": "x", "requests_per_unit": 3, "unit": "MINUTE", "unit_multiplier": 1});
    assert_eq!(
        printed,
        json!({
            "overall": "OK",
            "descriptors": [
                {"descriptor": "user=x", "code": "OK", "limit": limit, "remaining": 1, "reset_seconds": 90.0},
                {"descriptor": "plan=gold", "code": "OK"},
            ],
            "headers": [{"name": "RateLimit-Limit", "value": "3"}],
        })
    );
}

#[test]
fn ask_exits_with_1_when_over_the_limit() {
    let server = Asked::new();
    let ran = server.ask(&["-d", "shop", "user=x", "--times", "5"]);
    ran.assert(
        1,
        &["OVER_LIMIT\t3/minute (x)\t0\t", "5 calls: 3 OK, 2 OVER_LIMIT; the last one is shown\n"],
        &[],
    );
    assert!(ran.out.ends_with("\nOVER_LIMIT\n"), "{ran:?}");
    let lines = server.ask(&["-d", "shop", "user=x", "--times", "2", "--json"]).out;
    assert_eq!(
        lines.lines().filter(|line| line.starts_with("{\"overall\":\"OVER_LIMIT\"")).count(),
        2,
        "{lines}"
    );
}

#[test]
fn ask_charges_peeks_refunds_and_brings_limits() {
    let server = Asked::new();
    let remaining = |arguments: &[&str]| {
        let ran = server.ask(&[&["-d", "shop", "user=x", "--json"], arguments].concat());
        ran.json()["descriptors"][0]["remaining"].clone()
    };
    assert_eq!(remaining(&["--hits", "2"]), 1);
    assert_eq!(remaining(&["--peek"]), 1);
    assert_eq!(remaining(&["--refund"]), 2);
    assert_eq!(remaining(&["--peek", "--limit", "100/5minutes"]), 99);
    server.ask(&["-d", "shop", "user=x", "--peek", "--limit", "100/5minutes"]).assert(
        0,
        &["100/5 minutes (x)\t99"],
        &[],
    );
    assert_eq!(
        server.ask(&["-d", "shop", "user=x", "--limit", "7/week", "--peek", "--json"]).json()["descriptors"]
            [0]["limit"]["unit"],
        "WEEK"
    );
}

#[test]
fn ask_reaches_a_unix_socket() {
    let server = Asked::at(|dir| Address::Unix(dir.join("rl.sock")));
    server.ask(&["-d", "shop", "user=x"]).assert(0, &["3/minute"], &[]);
}

#[test]
fn ask_exits_with_2_when_there_is_no_answer() {
    let server = Asked::new();
    server.ask(&["-d", "broken", "user=x"]).assert(
        2,
        &[],
        &["error: ", "Unavailable", "no rate limit configuration loaded"],
    );
    server.ask(&["-d", "", "user=x"]).assert(2, &[], &["InvalidArgument", "domain must not be empty"]);
    let dir = server.dir.path();
    let nobody = format!("unix:{}", dir.join("nobody.sock").display());
    run(dir, &["ask", "-d", "shop", "user=x", "--server", &nobody]).assert(
        2,
        &[],
        &["nobody answers at", "tidegate serve"],
    );
    run(dir, &["ask", "-d", "shop", "user=x", "--server", "https://localhost:1"]).assert(
        2,
        &[],
        &["nobody answers at https://localhost:1"],
    );
    run(dir, &["ask", "-d", "shop", "user=x", "--server", "a b"]).assert(2, &[], &["expected host:port"]);
    run(dir, &["ask", "-d", "shop", "user"]).assert(2, &[], &["expected key=value"]);
    run(dir, &["ask", "-d", "shop", "a=b", "--limit", "5/fortnight"]).assert(2, &[], &["such as 5/minute"]);
}

/// The program under another name, in a directory of its own.
fn named(name: &str) -> (TempDir, PathBuf) {
    let temp = TempDir::new().unwrap();
    let program = temp.path().join(name);
    symlink(tidegate(), &program).unwrap();
    (temp, program)
}

#[test]
fn the_references_client_asks_once_and_shows_what_it_was_given() {
    let server = Asked::new();
    let (temp, program) = named("ratelimit_client");
    let ask = |arguments: &[&str]| {
        let at = ["--dial_string", &server.address];
        run_as(&program, temp.path(), &[], &[&at, arguments].concat())
    };
    let ran = ask(&["-domain=shop", "-descriptors", "user=x,path=/", "--descriptors=plan=gold", "ignored"]);
    let flags = format!(
        "Flag: --descriptors=\"entries:{{key:\\\"user\\\" value:\\\"x\\\"}} entries:{{key:\\\"path\\\" value:\\\"/\\\"}}\
         entries:{{key:\\\"plan\\\" value:\\\"gold\\\"}}\"\n\
         Flag: --dial_string=\"{}\"\n\
         Flag: --domain=\"shop\"\n\
         Flag: --grpc-cert-file=\"\"\n\
         Flag: --grpc-key-file=\"\"\n\
         Flag: --grpc-server-ca-file=\"\"\n\
         Flag: --grpc-use-tls=\"false\"\n\
         Flag: --oltp-protocol=\"\"\n",
        server.address
    );
    let answer = "response: overall_code:OK \
         statuses:{code:OK current_limit:{requests_per_unit:3 unit:MINUTE name:\"x\"} limit_remaining:2 \
         duration_until_reset:{seconds:90}} \
         statuses:{code:OK} \
         response_headers_to_add:{key:\"RateLimit-Limit\" value:\"3\"}\n";
    assert_eq!((ran.code, ran.out), (0, format!("{flags}{answer}")), "{}", ran.err);
    // Over the limit is an answer, too.
    for _ in 0..3 {
        assert_eq!(ask(&["-domain", "shop", "-descriptors", "user=x"]).code, 0);
    }
    ask(&["-domain", "broken", "-descriptors", "user=x"]).assert(
        1,
        &["request error: rpc error: code = Unavailable desc = no rate limit configuration loaded\n"],
        &[],
    );
    ask(&["-descriptors", "user"]).assert(
        2,
        &[],
        &[
            "invalid value \"user\" for flag -descriptors: invalid descriptor list\n",
            "Usage of ratelimit_client:\n",
        ],
    );
    ask(&["-what"]).assert(2, &[], &["flag provided but not defined: -what\n"]);
    ask(&["-help"]).assert(0, &[], &["  -dial_string string\n", "(default \"localhost:8081\")"]);
    let nobody = format!("unix:{}", temp.path().join("nobody.sock").display());
    ask(&["-dial_string", &nobody]).assert(1, &["error connecting: nobody answers at"], &[]);
}

#[test]
fn the_references_checker_reads_every_file_of_a_directory() {
    let (temp, program) = named("ratelimit_config_check");
    let check = |arguments: &[&str]| run_as(&program, temp.path(), &[("PORT", "x")], arguments);
    write(temp.path(), "rules/b.txt", GOOD);
    write(temp.path(), "rules/a.yaml", &GOOD.replace("shop", "other"));
    // As Kubernetes mounts a ConfigMap.
    fs::create_dir(temp.path().join("rules/..data")).unwrap();
    assert_eq!(
        check(&["-config_dir", "rules"]).out,
        "checking rate limit configs...\n\
         loading config directory: rules\n\
         opening config file: rules/a.yaml\n\
         opening config file: rules/b.txt\n\
         all rate limit configs ok\n"
    );
    write(temp.path(), "rules/c.yaml", &GOOD.replace("user", "plan"));
    check(&["--config_dir=rules"]).assert(
        1,
        &["error loading rate limit configs: rules/c.yaml:1:", "shop"],
        &[],
    );
    check(&["--config_dir=rules", "--merge_domain_configs"]).assert(0, &["all rate limit configs ok\n"], &[]);
    fs::create_dir(temp.path().join("rules/d")).unwrap();
    check(&["--config_dir=rules"]).assert(1, &["error opening file rules/d: is a directory\n"], &[]);
    check(&["--config_dir=absent"]).assert(1, &["error opening directory absent: "], &[]);
    check(&[]).assert(1, &["error opening directory : "], &[]);
    check(&["-merge_domain_configs=maybe"]).assert(2, &[], &["invalid boolean value \"maybe\"", "Usage of"]);
}

#[test]
fn ask_and_the_references_client_speak_tls() {
    let server = Asked::new();
    let files = Certificates::of(ServerName::Right).unwrap();
    let others = Certificates::of(ServerName::Wrong).unwrap();
    let [ca, cert, key] =
        [&files.authority, &files.client.certificate, &files.client.key].map(|path| path.to_str().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let port = runtime.block_on(tls_front::start(server.address.parse().unwrap(), &files)).unwrap();
    let dir = server.dir.path();
    let url = format!("https://localhost:{port}");
    let ask = |who: &[&str]| {
        let always = ["ask", "-d", "shop", "user=x", "--timeout", "1m", "--server", &url];
        run(dir, &[&always, who].concat())
    };
    ask(&["--ca", ca, "--cert", cert, "--key", key]).assert(0, &["3/minute"], &[]);
    let wrong = runtime.block_on(tls_front::start(server.address.parse().unwrap(), &others)).unwrap();
    let [wrong, ca_of_wrong] = [format!("https://localhost:{wrong}"), others.authority.display().to_string()];
    let misled = run(dir, &["ask", "-d", "shop", "user=x", "--server", &wrong, "--ca", &ca_of_wrong]);
    misled.assert(2, &[], &["is for another name (", "not valid for name"]);
    ask(&["--ca", ca]).assert(2, &[], &["with --cert and --key"]);
    ask(&["--cert", cert, "--key", key]).assert(
        2,
        &[],
        &["is not trusted (", "name its authority with --ca"],
    );
    let clear = format!("localhost:{port}");
    let unencrypted = run(dir, &["ask", "-d", "shop", "user=x", "--server", &clear]);
    unencrypted.assert(2, &[], &[&format!("if the port speaks TLS, use https://{clear}")]);
    let clear = format!("https://{}", server.address);
    let encrypted = run(dir, &["ask", "-d", "shop", "user=x", "--server", &clear, "--ca", ca]);
    encrypted.assert(2, &[], &["answers without TLS: leave out https://"]);
    ask(&["--cert", cert]).assert(2, &[], &["--key"]);
    ask(&["--ca", "absent.pem"]).assert(2, &[], &["cannot read absent.pem"]);

    let (temp, program) = named("ratelimit_client");
    let at = format!("localhost:{port}");
    let client = |who: &[&str]| {
        let always = ["-domain=shop", "-descriptors=user=x", "-grpc-use-tls", "-dial_string", &at];
        run_as(&program, temp.path(), &[], &[&always, who].concat())
    };
    client(&["-grpc-server-ca-file", ca, "-grpc-cert-file", cert, "-grpc-key-file", key]).assert(
        0,
        &["response: overall_code:OK "],
        &[],
    );
    client(&[]).assert(1, &["error connecting: "], &[]);
}

/// From the first line to the reason why it ends.
#[test]
fn every_line_of_a_json_log_is_json() {
    let (temp, program) = named("ratelimit");
    let socket = temp.path().join("no \"one\"\n.sock").display().to_string();
    let variables = [
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("DEBUG_HOST", "127.0.0.1"),
        ("DEBUG_PORT", "0"),
        ("LOG_FORMAT", "JSON"),
        ("LOG_LEVEL", "Debug"),
        ("REDIS_URL", &socket),
        ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms"),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "20ms"),
    ];
    let ran = run_as(&program, temp.path(), &variables, &[]);
    assert_eq!(ran.code, 1);
    let lines: Vec<Value> = ran.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines.iter().all(|line| line["@message"].is_string() && line["@timestamp"].is_string()),
        "{lines:?}"
    );
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "fatal", "{last}");
    assert!(last["@message"].as_str().unwrap().contains("REDIS_STARTUP_MAX_ELAPSED_TIME"), "{last}");
}
