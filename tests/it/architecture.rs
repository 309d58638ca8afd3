//! The module order holds: imports go one way (see the crate's documentation).

use std::{fs, path::Path};

/// What each folder or file under `src/` may import of the others.
const ALLOWED: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("offload", &["domain"]),
    ("memory", &["domain"]),
    // Named limiters, for whichever module has a resource.
    ("resource", &["domain"]),
    ("store", &["domain", "observe"]),
    ("providers", &["domain", "memory", "offload"]),
    ("media", &["domain"]),
    // Counted into by those that know what a number means.
    ("observe", &["domain"]),
    (
        "jobs",
        &[
            "domain",
            "memory",
            "offload",
            "resource",
            "store",
            "providers",
            "media",
            "observe",
        ],
    ),
    (
        "service",
        &[
            "domain",
            "memory",
            "resource",
            "store",
            "providers",
            "media",
            "jobs",
        ],
    ),
    (
        "api",
        &[
            "domain",
            "memory",
            "offload",
            "resource",
            "store",
            "providers",
            "media",
            "observe",
            "jobs",
            "service",
        ],
    ),
    // A client of the API: whatever it does, the API allows.
    ("console", &["domain", "api"]),
    ("config", &["domain"]),
    ("telemetry", &["observe"]),
    ("local_postgres", &[]),
    (
        "app",
        &[
            "domain",
            "memory",
            "resource",
            "store",
            "providers",
            "media",
            "observe",
            "jobs",
            "service",
            "api",
            "console",
            "config",
            "telemetry",
            "local_postgres",
        ],
    ),
    (
        "cli",
        &[
            "domain",
            "memory",
            "store",
            "providers",
            "media",
            "observe",
            "jobs",
            "service",
            "api",
            "console",
            "config",
            "telemetry",
            "local_postgres",
            "app",
        ],
    ),
];

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for file in files(Path::new("src")) {
        let place = file
            .strip_prefix("src")
            .unwrap()
            .iter()
            .next()
            .unwrap()
            .to_str()
            .unwrap();
        let place = place.trim_end_matches(".rs");
        if matches!(place, "lib" | "main") {
            continue;
        }
        let (_, allowed) = ALLOWED
            .iter()
            .find(|(p, _)| *p == place)
            .unwrap_or_else(|| panic!("{place} is not in this table of modules; add it"));
        let text = fs::read_to_string(&file).unwrap();
        for found in imported(&text) {
            if found != place && !allowed.contains(&found.as_str()) {
                wrong.push(format!(
                    "{}: {place} must not import {found}",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All that others may name of the database's library is where the database is.
#[test]
fn sql_is_in_the_store() {
    for file in files(Path::new("src")) {
        if file.starts_with("src/store") || file == Path::new("src/store.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices("sqlx::") {
            let named = text[at..].split([';', '(', ' ']).next().unwrap();
            assert_eq!(
                named,
                "sqlx::postgres::PgConnectOptions",
                "{}",
                file.display()
            );
        }
    }
}

/// The modules that a file names by `crate::`, alone or in a group.
fn imported(text: &str) -> Vec<String> {
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(word(rest));
            continue;
        };
        let mut depth = 1;
        let mut start = true;
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => start = true,
                c if c.is_whitespace() => {}
                _ if depth == 1 && start => {
                    found.push(word(&group[i..]));
                    start = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}
