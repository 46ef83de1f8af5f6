//! The reference of settings, `docs/settings.md`, made from the table.

use std::fmt::Write as _;

use super::table::{Row, TABLE};

const INTRODUCTION: &str = "\
# Settings

This file is made by `tidegate settings --markdown`.

Settings are environment variables, read once at the start. `tidegate serve` takes each as a flag too (`GRPC_PORT` is
`--grpc-port`), and a flag beats the environment. Variables that are not listed here are ignored. `tidegate settings` prints what is in
force and where it comes from.

Names, defaults and spellings are those of `envoyproxy/ratelimit` where it has the setting:

- boolean: `1 t T TRUE true True 0 f F FALSE false False`
- integer and port: decimal, or `0x…`, `0o…` or a leading `0` for octal, `0b…`; `_` between digits
- duration: numbers with their units, `300ms`, `1.5s`, `1h30m`; only `0` needs no unit
- list: `a,b`; map: `key:value,key:value`, one colon each; spaces belong to what they stand beside
- address: `host:port`, or `:port` for all addresses
- header name: letters, digits and any of ``!#$%&'*+-.^_`|~``
- `auto`, where it is a default, may be written too
- anything: read by nothing, so that nothing it says is an error
- a variable that is set but empty is an empty text, list or map, or the default of an address or a path; for every other kind it is an error
- a variable that Kubernetes has set for a Service (`GRPC_PORT=tcp://10.0.0.1:8081` where a Service is called `grpc`) is passed over, with a warning

All that is wrong is reported at once, and the program does not start. A setting of something that is off (of Redis with counters in
memory, of tracing without `TRACING_ENABLED=true`) has no effect: what it says and cannot be read is a warning.

## Where rules come from

With `CONFIG_TYPE=GRPC_XDS_SOTW` from a control plane, as [xds.md](xds.md) says. Else from files, the first that applies:

1. `RULES` (or `--rules`) is not empty: that file, or that directory.
2. Any `RUNTIME_` setting is set, or the program was started as `ratelimit`: the runtime directory, as below.
3. There is a directory `config` in the current directory: that one.
4. The runtime directory, by its defaults.

In a directory given by 1 or 3, the files that end in `.yaml`, `.yml` or `.json` are read, in its sub-directories too. What starts with
a dot is left out, so a mounted Kubernetes ConfigMap is read once.

The runtime directory is laid out as the reference has it: every file below `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY`,
whatever its name. With `RUNTIME_WATCH_ROOT=true` (and only then) also `RUNTIME_APPDIRECTORY.anything` beside it.

Rules are read again while the program runs: with `RUNTIME_WATCH_ROOT=true` when `RUNTIME_ROOT` is replaced, else when a file changes.
SIGHUP reads them at once. Rules with a mistake are refused as a whole, and those before stay in force.
";

/// The text of `docs/settings.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut group = "";
    for row in TABLE {
        if row.group != group {
            group = row.group;
            let _ = write!(
                text,
                "\n## {group}\n\n| setting | kind | default | meaning | why this default |\n|---|---|---|---|---|\n"
            );
        }
        let _ = writeln!(text, "{}", line(row));
    }
    text
}

fn line(row: &Row) -> String {
    let default = match (row.default)() {
        default if default.is_empty() => "empty".to_owned(),
        default => format!("`{default}`"),
    };
    let bounds = match row.kind {
        "integer" | "duration" => format!(" Expected: {}.", cell(&(row.expected)())),
        _ => String::new(),
    };
    format!(
        "| `{}` | {} | {default} | {}{bounds} | {} |",
        row.name,
        row.kind,
        cell(row.help()),
        cell(row.why)
    )
}

/// Text that does not end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
