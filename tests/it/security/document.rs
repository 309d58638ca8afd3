//! The threat model and the sources agree: renaming a test or adding a threat without one fails.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const DOCUMENT: &str = "docs/security.md";
/// Of a table of threats.
const HEADER: &str = "| Threat | Mitigation | Test |";

/// Rust files below a folder, each with the path of its module.
pub fn modules(root: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(Path::new(root), &mut found);
    let name = |file: &PathBuf| {
        let inside = file.strip_prefix(root).unwrap().with_extension("");
        let mut parts: Vec<_> = inside.iter().map(|p| p.to_str().unwrap()).collect();
        if ["mod", "main", "lib"].contains(parts.last().unwrap()) {
            parts.pop();
        }
        parts.join("::")
    };
    found
        .into_iter()
        .map(|file| (file.clone(), name(&file)))
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The tests of a file, as `cargo test` names them.
fn tests_of(module: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut inner, mut marked) = (None, false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("mod ").and_then(|l| l.strip_suffix(" {")) {
            inner = Some(name.to_owned());
        }
        if line == "}" {
            inner = None;
        }
        let line = line.trim_start();
        if line.starts_with("#[test]") || line.contains("::test]") || line.contains("::test(") {
            marked = true;
        }
        let declared = line.trim_start_matches("pub ").trim_start_matches("async ");
        if let Some(rest) = declared.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap();
            if marked {
                let parts = [Some(module), inner.as_deref(), Some(name)];
                let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
                found.push(parts.collect::<Vec<_>>().join("::"));
            }
            marked = false;
        }
    }
    found
}

fn all_tests() -> BTreeSet<String> {
    let files = modules("src").into_iter().chain(modules("tests/it"));
    let tests =
        files.flat_map(|(file, module)| tests_of(&module, &fs::read_to_string(file).unwrap()));
    tests.collect()
}

/// The errors of a document's tables of threats: rows without a test, and tests that do not exist.
fn mistakes(document: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rows = document
        .lines()
        .filter(|line| line.starts_with('|'))
        .peekable();
    let mut has_threats = false;
    while let Some(row) = rows.next() {
        // A table's header and the line below it.
        if rows.next_if(|next| next.starts_with("|--")).is_some() {
            has_threats = row == HEADER;
            continue;
        }
        if !has_threats {
            continue;
        }
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [who, stops, shown] = cells[..] else {
            wrong.push(format!("not three cells: {row}"));
            continue;
        };
        let named: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        if who.trim().is_empty() || stops.trim().is_empty() || named.is_empty() {
            wrong.push(format!("a threat without an answer or a test: {row}"));
        }
        let missing = named.into_iter().filter(|name| !tests.contains(*name));
        wrong.extend(missing.map(|name| format!("there is no test {name}")));
    }
    wrong
}

#[test]
fn every_threat_has_its_test_and_every_test_is_there() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| "))
        .count();
    assert!(rows > 50, "only {rows} rows");
    let wrong = mistakes(&document, &all_tests());
    assert!(wrong.is_empty(), "{DOCUMENT}:\n{}", wrong.join("\n"));
}

#[test]
fn a_document_that_rots_is_found() {
    let tests = all_tests();
    for there in [
        "security::document::a_document_that_rots_is_found",
        "media::sign::tests::nothing_can_be_changed",
        "telemetry::tests::one_event_is_one_line",
        "v1::media::a_link_cannot_be_made_up",
        "domain::credits::tests::text_round_trips",
    ] {
        assert!(tests.contains(there), "{there}");
    }
    assert!(!tests.contains("security::document::modules"));
    let head = format!("{HEADER}\n|---|---|---|\n");
    let good = "| a | b | `security::document::a_document_that_rots_is_found` |\n";
    assert_eq!(
        mistakes(&format!("{head}{good}"), &tests),
        Vec::<String>::new()
    );
    for bad in [
        "| a | b | none |",
        "| a | b | `x::y` |",
        "| a | b |",
        "| a |  | `x` |",
    ] {
        assert!(
            !mistakes(&format!("{head}{good}{bad}\n"), &tests).is_empty(),
            "{bad}"
        );
    }
}
