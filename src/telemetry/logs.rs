//! Log lines: to standard error, one line each, as text like the reference's or as JSON.
//!
//! **Invariant:** one event is one line, whatever is in its values; in JSON it is one valid object. A line is bounded.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt, io,
    panic::PanicHookInfo,
};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    filter::Targets,
    fmt::{
        FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::{SubscriberInitExt as _, TryInitError},
};

use crate::settings::{LogFormat, LogLevel};

/// Targets of lines that are more than errors: why the process ends, and a panic. `tracing` has no levels for these.
const FATAL: &str = "tidegate::fatal";
const PANIC: &str = "tidegate::panic";

/// The most of one text that is written, in bytes.
const MAX_TEXT: usize = 16 << 10;

/// Sends the log lines of the whole process to standard error, and what is said of a panic, too.
///
/// Errors: they already go somewhere.
pub fn init(level: LogLevel, format: LogFormat) -> Result<(), TryInitError> {
    subscriber(level, format, io::stderr).try_init()?;
    std::panic::set_hook(Box::new(panicked));
    Ok(())
}

/// Says why the process ends.
pub fn fatal(error: &anyhow::Error) {
    tracing::error!(target: FATAL, "{error:#}");
}

fn panicked(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic without a message");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(target: PANIC, place, %backtrace, "{message}");
    } else {
        tracing::error!(target: PANIC, place, "{message}");
    }
}

/// The same, to anywhere and for whoever is given it.
fn subscriber<W>(level: LogLevel, format: LogFormat, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().event_format(Lines(format)).with_writer(writer);
    tracing_subscriber::registry().with(filter(level)).with(lines)
}

/// Our own events at the level asked for. Those of libraries at `info` at most, unless everything is asked for: their frames
/// and bytes would bury ours.
fn filter(level: LogLevel) -> Targets {
    let ours = level_filter(level);
    let theirs = if level == LogLevel::Trace { ours } else { ours.min(LevelFilter::INFO) };
    let fatal = if level == LogLevel::Panic { LevelFilter::OFF } else { LevelFilter::ERROR };
    Targets::new()
        .with_default(theirs)
        .with_target("tidegate", ours)
        .with_target(FATAL, fatal)
        .with_target(PANIC, LevelFilter::ERROR)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Panic | LogLevel::Fatal => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The level as the reference names it.
fn level_name(metadata: &Metadata<'_>) -> &'static str {
    match *metadata.level() {
        Level::ERROR if metadata.target() == FATAL => "fatal",
        Level::ERROR if metadata.target() == PANIC => "panic",
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

struct Lines(LogFormat);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut said = Said::default();
        event.record(&mut said);
        let level = level_name(event.metadata());
        match self.0 {
            LogFormat::Text => said.text(&mut writer, whole_seconds(&time), level),
            LogFormat::Json => said.json(&mut writer, time, level),
        }
    }
}

/// The moment without its fraction and its `Z`: the reference's text has none, and readers of times may not expect one.
fn whole_seconds(time: &str) -> &str {
    time.split(['.', 'Z']).next().unwrap_or(time)
}

/// What an event says: its message and its fields, in their order.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    fn text(&self, writer: &mut Writer<'_>, time: &str, level: &str) -> fmt::Result {
        write!(writer, "time=\"{time}Z\" level={level} msg=")?;
        quote(writer, &self.message)?;
        for (name, value) in &self.fields {
            write!(writer, " {name}=")?;
            match value {
                Value::String(text) if is_plain(text) => writer.write_str(text)?,
                Value::String(text) => quote(writer, text)?,
                number => write!(writer, "{number}")?,
            }
        }
        writer.write_char('\n')
    }

    fn json(self, writer: &mut Writer<'_>, time: String, level: &str) -> fmt::Result {
        let mut line = Map::new();
        line.insert("@message".to_owned(), self.message.into());
        line.insert("@timestamp".to_owned(), time.into());
        line.insert("level".to_owned(), level.into());
        for (name, value) in self.fields {
            // A field cannot take the place of what every line has.
            line.entry(name).or_insert(value);
        }
        writeln!(writer, "{}", Value::Object(line))
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.push((field.name(), value.into()));
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let text = cut(value);
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, text),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_str(field, &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

/// The text, or its beginning and how long it is.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_TEXT);
    format!("{}… ({} bytes)", text.get(..end).unwrap_or_default(), text.len())
}

/// Whether text can stand in a line without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._/@^+:".contains(&b))
}

/// Writes text in quotes, on one line.
fn quote(writer: &mut Writer<'_>, text: &str) -> fmt::Result {
    writer.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => writer.write_str("\\\"")?,
            '\\' => writer.write_str("\\\\")?,
            '\n' => writer.write_str("\\n")?,
            '\r' => writer.write_str("\\r")?,
            '\t' => writer.write_str("\\t")?,
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                write!(writer, "\\u{:04x}", u32::from(c))?
            }
            c => writer.write_char(c)?,
        }
    }
    writer.write_char('"')
}

#[cfg(test)]
mod tests;
