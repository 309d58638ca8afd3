//! Both text formats, parsed strictly by their specifications.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Answer, TestApp};

const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Prometheus,
    OpenMetrics,
}

/// Series with their values, and families with their types.
struct Exposition {
    series: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || "_:".contains(c))
        && letters.all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
}

/// Name and labels of a series, without the label `le`.
fn series(text: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, labels)) = text.split_once('{') else {
        return (text, Vec::new());
    };
    let mut rest = labels.strip_suffix('}').unwrap();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (label, value) = rest.split_once("=\"").unwrap();
        assert!(is_name(label) && !label.contains(':'), "{text}");
        let mut escaped = false;
        let end = value
            .bytes()
            .position(|b| {
                let end = b == b'"' && !escaped;
                assert!(!escaped || b"\\\"n".contains(&b), "a bad escape in {text}");
                escaped = b == b'\\' && !escaped;
                end
            })
            .unwrap();
        found.push((label, &value[..end]));
        rest = &value[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) => {
                assert!(!more.is_empty(), "a comma at the end of {text}");
                more
            }
            None => {
                assert_eq!(rest, "", "{text}");
                rest
            }
        };
    }
    let names: BTreeSet<_> = found.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), found.len(), "a label twice in {text}");
    (name, found)
}

fn value(text: &str) -> f64 {
    let number = text.parse().unwrap();
    let plain = text.bytes().all(|b| b"0123456789.eE+-".contains(&b));
    assert!(plain || ["+Inf", "-Inf", "NaN"].contains(&text), "{text}");
    number
}

/// Suffixes that a sample's name may add to its family's.
fn endings(kind: &str, format: Format) -> &'static [&'static str] {
    match (format, kind) {
        (Format::Prometheus, "counter" | "gauge" | "untyped") | (_, "gauge") => &[""],
        (Format::OpenMetrics, "counter") => &["_total"],
        (Format::OpenMetrics, "info") => &["_info"],
        (_, "histogram") => &["_bucket", "_sum", "_count"],
        _ => panic!("{format:?} has no type {kind} here"),
    }
}

fn read(text: &str, format: Format) -> Exposition {
    let (mut all, mut types) = (BTreeMap::new(), BTreeMap::<String, String>::new());
    let (mut helped, mut family) = (BTreeSet::new(), String::new());
    let body = text.strip_suffix('\n').unwrap();
    let body = match format {
        Format::Prometheus => body,
        Format::OpenMetrics => body.strip_suffix("\n# EOF").unwrap(),
    };
    for line in body.split('\n') {
        if let Some(comment) = line.strip_prefix("# ") {
            let (word, rest) = comment.split_once(' ').unwrap();
            let (name, rest) = rest.split_once(' ').unwrap();
            assert!(is_name(name), "{line}");
            match word {
                "HELP" => {
                    assert!(helped.insert(name.to_owned()), "again: {line}");
                    assert!(!types.contains_key(name), "after its type: {line}");
                }
                "TYPE" => {
                    endings(rest, format);
                    let before = types.insert(name.to_owned(), rest.to_owned());
                    assert_eq!(before, None, "again: {line}");
                    assert!(helped.contains(name), "without help: {line}");
                    name.clone_into(&mut family);
                }
                _ => panic!("{line}"),
            }
            continue;
        }
        let (sample, number) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series(sample);
        let ending = name.strip_prefix(family.as_str()).unwrap();
        let endings = endings(&types[&family], format);
        assert!(endings.contains(&ending), "not of {family}: {line}");
        let has_le = labels.iter().any(|(label, _)| *label == "le");
        assert_eq!(has_le, ending == "_bucket", "{line}");
        let before = all.insert(sample.to_owned(), value(number));
        assert_eq!(before, None, "again: {line}");
    }
    Exposition { series: all, types }
}

impl Exposition {
    /// Buckets are cumulative, and the last one counts all.
    fn assert_histograms(&self) {
        let mut highest: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (name, count) in &self.series {
            let (family, labels) = series(name);
            let Some(family) = family.strip_suffix("_bucket") else {
                continue;
            };
            let (le, others): (Vec<_>, Vec<_>) = labels.iter().partition(|(l, _)| *l == "le");
            let others: Vec<_> = others.iter().map(|(l, v)| format!("{l}=\"{v}\"")).collect();
            let total = match others.join(",") {
                none if none.is_empty() => format!("{family}_count"),
                labels => format!("{family}_count{{{labels}}}"),
            };
            assert!(*count <= self.series[&total], "{name}");
            let bound = value(le[0].1);
            let entry = highest.entry(total).or_insert((bound, *count));
            if bound >= entry.0 {
                *entry = (bound, *count);
            }
        }
        assert!(!highest.is_empty());
        for (total, (bound, count)) in highest {
            assert_eq!(
                (bound, count),
                (f64::INFINITY, self.series[&total]),
                "{total}"
            );
        }
    }
}

async fn scraped(app: &TestApp, accept: &str) -> Answer {
    let answer = app
        .metrics(&[("host", "localhost"), ("accept", accept)])
        .await;
    assert_eq!(answer.status, 200);
    answer
}

#[sqlx::test]
async fn both_formats_tell_the_same(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    for prompt in ["x", "[[reject]]"] {
        app.text(&account.key, json!({"prompt": prompt})).await;
    }
    app.app.auditor.step().await.unwrap();
    app.advance(TimeDelta::seconds(1));
    let plain = read(&scraped(&app, "").await.text, Format::Prometheus);
    let open = scraped(&app, "application/openmetrics-text").await;
    let open = read(&open.text, Format::OpenMetrics);
    plain.assert_histograms();
    open.assert_histograms();
    // The same families: there a counter's name includes the suffix of its samples, and an info is
    // a gauge.
    let renamed = open.types.iter().map(|(name, kind)| match kind.as_str() {
        "counter" => (format!("{name}_total"), kind.clone()),
        "info" => (format!("{name}_info"), "gauge".to_owned()),
        _ => (name.clone(), kind.clone()),
    });
    assert_eq!(plain.types, renamed.collect());
    assert!(plain.types.values().any(|kind| kind == "counter"));
    // And the same series, except those that the first scrape itself created.
    let names = |exposition: &Exposition| -> BTreeSet<String> {
        let names = exposition.series.keys();
        names
            .filter(|name| !name.contains("/metrics"))
            .cloned()
            .collect()
    };
    assert_eq!(names(&plain), names(&open));
}

#[sqlx::test]
async fn open_metrics_is_told_to_those_who_ask_for_it(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    // What Prometheus 2 and 3 send, with either format first.
    let prefers_open = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let prefers_plain =
        "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2";
    for (accept, expected) in [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("text/html, */*;q=0.1", PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        (prefers_plain, PLAIN),
        ("application/openmetrics-text", OPEN),
        ("Application/OpenMetrics-Text; version=1.0.0", OPEN),
        (prefers_open, OPEN),
    ] {
        let answer = scraped(&app, accept).await;
        assert_eq!(answer.header("content-type"), expected, "{accept}");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(
            answer.text.ends_with("# EOF\n"),
            expected == OPEN,
            "{accept}"
        );
    }
}
