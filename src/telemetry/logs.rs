//! Log lines: to standard error, one line each, as text like the reference's or as JSON.
//!
//! **Invariant:** one event is one line, whatever is in its values; in JSON it is one valid object.

use std::{fmt, io};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
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

/// Sends the log lines of the whole process to standard error.
///
/// Errors: they already go somewhere.
pub fn init(level: LogLevel, format: LogFormat) -> Result<(), TryInitError> {
    subscriber(level, format, io::stderr).try_init()
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
    Targets::new().with_default(theirs).with_target("tidegate", ours)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The level as the reference names it.
fn level_name(level: Level) -> &'static str {
    match level {
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
        let level = level_name(*event.metadata().level());
        match self.0 {
            LogFormat::Text => said.text(&mut writer, &time, level),
            LogFormat::Json => said.json(&mut writer, time, level),
        }
    }
}

/// What an event says: its message and its fields, in their order.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    fn text(&self, writer: &mut Writer<'_>, time: &str, level: &str) -> fmt::Result {
        write!(writer, "time=\"{time}\" level={level} msg=")?;
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
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, value.to_string());
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
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is logged while `act` runs.
    fn logged(level: LogLevel, format: LogFormat, act: impl FnOnce()) -> String {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let subscriber = subscriber(level, format, move || Sink(Arc::clone(&sink)));
        tracing::subscriber::with_default(subscriber, act);
        String::from_utf8(lines.lock().unwrap().clone()).unwrap()
    }

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Every character that could end a line or a string before its time.
    const NASTY: &str = "a\nb\r\"c\"\\ \u{0}\u{1b}[31m\u{85}\u{2028}{é}";

    #[test]
    fn text_has_the_shape_of_the_reference() {
        let line = logged(LogLevel::Info, LogFormat::Text, || {
            tracing::warn!(
                port = 8081_u16,
                path = "/a b",
                file = "x.yaml",
                ok = true,
                empty = "",
                "listening"
            );
        });
        let (time, rest) = line.strip_prefix("time=\"").unwrap().split_once('"').unwrap();
        assert!(time.len() >= 20 && time.ends_with('Z') && time.contains('T'), "{time}");
        assert_eq!(
            rest,
            " level=warning msg=\"listening\" port=8081 path=\"/a b\" file=x.yaml ok=true empty=\"\"\n"
        );
    }

    #[test]
    fn json_is_one_object_a_line_whatever_is_in_it() {
        let lines = logged(LogLevel::Debug, LogFormat::Json, || {
            tracing::debug!(value = NASTY, level = "mine", n = -5, ratio = f64::NAN, "{NASTY}");
            tracing::error!(error = &io::Error::other(NASTY) as &dyn std::error::Error, "second");
        });
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["@message"], NASTY);
        assert_eq!(lines[0]["value"], NASTY);
        assert_eq!((&lines[0]["level"], &lines[0]["n"]), (&"debug".into(), &(-5).into()));
        assert!(lines[0]["@timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!((&lines[1]["level"], &lines[1]["error"]), (&"error".into(), &NASTY.into()));
    }

    #[test]
    fn text_is_one_line_whatever_is_in_it() {
        let lines = logged(
            LogLevel::Info,
            LogFormat::Text,
            || tracing::info!(value = NASTY, debug = ?NASTY, "{NASTY}"),
        );
        assert_eq!(lines.chars().filter(|c| c.is_control() || *c == '\u{2028}').collect::<String>(), "\n");
        assert!(lines.contains(r#"msg="a\nb\r\"c\"\\ \u0000\u001b[31m\u0085\u2028{é}""#), "{lines}");
    }

    #[test]
    fn only_lines_that_are_severe_enough_are_written() {
        let all = || {
            tracing::error!("1");
            tracing::warn!("2");
            tracing::info!("3");
            tracing::debug!("4");
            tracing::trace!("5");
        };
        for (n, level) in [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace]
            .into_iter()
            .enumerate()
        {
            assert_eq!(logged(level, LogFormat::Text, all).lines().count(), n + 1, "{level:?}");
        }
    }
}
