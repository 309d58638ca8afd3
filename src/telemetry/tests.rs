//! Checks the written lines, in a buffer instead of stderr.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use super::*;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(filter: &str, json: bool, colours: bool, work: impl FnOnce()) -> String {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let subscriber = subscriber(filter, json, colours, move || writer.clone(), None).unwrap();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_line_as_text_and_as_json() {
    let work = || tracing::warn!(answer = 42, "a message");
    let text = logged("info", false, false, work);
    assert!(
        text.contains("WARN") && text.contains("a message answer=42"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(logged("info", false, true, work).contains('\u{1b}'));
    let json: serde_json::Value = serde_json::from_str(&logged("info", true, true, work)).unwrap();
    assert_eq!(
        (&json["level"], &json["message"]),
        (&"WARN".into(), &"a message".into())
    );
    assert_eq!(json["answer"], 42);
    assert!(json["timestamp"].as_str().unwrap().ends_with('Z'));
}

/// Text of users and upstreams cannot start a line or move the cursor, but is not lost.
#[test]
fn one_event_is_one_line() {
    let hostile = "a\nERROR forged\r\n\u{1b}[2J\u{9b}2J\u{7}\u{8}\u{85}\u{2028}b\u{2029}\0 é";
    let failed = io::Error::other(hostile);
    let work = || {
        let span = tracing::info_span!("request", id = %hostile);
        span.in_scope(|| {
            tracing::warn!(quoted = hostile, shown = %hostile, debugged = ?hostile,
                error = &failed as &dyn std::error::Error, "{hostile}");
        });
    };
    for (json, colours) in [(false, false), (false, true), (true, false)] {
        let text = logged("info", json, colours, work);
        let body = text.strip_suffix('\n').unwrap();
        let strange = |c: char| c.is_control() && !(colours && c == '\u{1b}');
        assert!(!body.contains(strange), "{text:?}");
        assert!(!body.contains(['\u{2028}', '\u{2029}']), "{text:?}");
        assert_eq!(body.contains("\u{1b}["), colours, "{text:?}");
        assert!(!body.contains("\u{1b}[2J"), "{text:?}");
        assert!(!json || serde_json::from_str::<serde_json::Value>(body).is_ok());
        assert!(body.contains("forged") && body.contains('é'), "{text:?}");
    }
}

#[test]
fn spans_of_traces_are_in_no_line() {
    let work = || {
        let log = tracing::info_span!("kept", id = 7);
        let trace = tracing::info_span!(target: TRACES, parent: &log, "secret", model = "m-1");
        assert!(trace.is_disabled());
        log.in_scope(|| trace.in_scope(|| tracing::info!("a message")));
    };
    let text = logged("trace", false, false, work);
    assert!(
        text.contains("kept{id=7}") && !text.contains("m-1"),
        "{text}"
    );
}

#[test]
fn the_filter_filters() {
    assert_eq!(logged("error", false, false, || tracing::warn!("no")), "");
    assert_eq!(logged("off", false, false, || tracing::error!("no")), "");
}

#[test]
fn a_wrong_filter_is_an_error() {
    let error = init("info,x=loud", false, None).err().unwrap().to_string();
    assert!(
        error.starts_with(r#"the log filter "info,x=loud" cannot be parsed ("#),
        "{error}"
    );
}

#[test]
fn a_panic_is_one_line_with_place_and_message() {
    let text = logged("info", true, false, || {
        let before = panic::take_hook();
        panic::set_hook(Box::new(log_panic));
        let done = panic::catch_unwind(|| panic!("it is {}", "broken"));
        panic::set_hook(before);
        assert!(done.is_err());
    });
    assert_eq!(text.lines().count(), 1, "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["level"], "ERROR");
    assert_eq!(json["message"], "panicked: it is broken");
    assert!(
        json["location"]
            .as_str()
            .unwrap()
            .contains("telemetry/tests.rs:")
    );
}
