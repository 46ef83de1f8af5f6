use std::sync::{Arc, Mutex};

use super::*;
use crate::settings::{Given, Settings};

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
        tracing::warn!(port = 8081_u16, path = "/a b", file = "x.yaml", ok = true, empty = "", "listening");
    });
    let (time, rest) = line.strip_prefix("time=\"").unwrap().split_once('"').unwrap();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00Z");
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
    let time = lines[0]["@timestamp"].as_str().unwrap();
    assert!(time.len() > "0000-00-00T00:00:00.0Z".len() && time.ends_with('Z'), "{time}");
    assert_eq!((&lines[1]["level"], &lines[1]["error"]), (&"error".into(), &NASTY.into()));
}

#[test]
fn text_is_one_line_whatever_is_in_it() {
    let lines =
        logged(LogLevel::Info, LogFormat::Text, || tracing::info!(value = NASTY, debug = ?NASTY, "{NASTY}"));
    assert_eq!(lines.chars().filter(|c| c.is_control() || *c == '\u{2028}').collect::<String>(), "\n");
    assert!(lines.contains(r#"msg="a\nb\r\"c\"\\ \u0000\u001b[31m\u0085\u2028{é}""#), "{lines}");
}

/// The names of the reference, from the least to the most severe.
#[test]
fn only_lines_that_are_severe_enough_are_written() {
    let all = || {
        tracing::trace!("1");
        tracing::debug!("2");
        tracing::info!("3");
        tracing::warn!("4");
        tracing::error!("5");
        fatal(&anyhow::anyhow!("6"));
        tracing::error!(target: PANIC, "7");
    };
    let names = ["trace", "debug", "info", "warning", "error", "fatal", "panic"];
    for (nth, name) in names.into_iter().enumerate() {
        let level = Settings::read(&Given::of([("LOG_LEVEL", name)])).unwrap().log_level;
        let lines = logged(level, LogFormat::Json, all);
        let written: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let levels: Vec<_> = written.iter().map(|line| line["level"].as_str().unwrap()).collect();
        assert_eq!(levels, names[nth..], "{name}");
    }
}

#[test]
fn libraries_are_not_heard_below_info_unless_everything_is_asked_for() {
    let theirs = || {
        tracing::info!(target: "h2::codec", "1");
        tracing::debug!(target: "h2::codec", "2");
    };
    for (level, n) in [(LogLevel::Warn, 0), (LogLevel::Debug, 1), (LogLevel::Trace, 2)] {
        assert_eq!(logged(level, LogFormat::Text, theirs).lines().count(), n, "{level:?}");
    }
}

#[test]
fn a_line_is_bounded() {
    let long = "é".repeat(1 << 20);
    let line = logged(LogLevel::Info, LogFormat::Json, || {
        tracing::info!(value = long, debug = ?long, "{long}");
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    for key in ["@message", "value", "debug"] {
        let text = line[key].as_str().unwrap();
        assert!(text.len() < MAX_TEXT + 100 && text.contains("é… (2"), "{key}: {}", text.len());
    }
}

#[test]
fn a_panic_is_a_line_too() {
    let line = logged(LogLevel::Panic, LogFormat::Json, || {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(panicked));
        let caught = std::panic::catch_unwind(|| panic!("{NASTY}"));
        std::panic::set_hook(before);
        assert!(caught.is_err());
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["level"], &line["@message"]), (&"panic".into(), &NASTY.into()));
    assert!(line["place"].as_str().unwrap().contains("logs/tests.rs:"), "{line}");
}
