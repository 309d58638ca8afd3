//! The module order holds: imports go one way (see the crate's documentation).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// What each folder or file under `src/` may import of the others.
const ALLOWED: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("request", &["domain"]),
    ("dialect", &["domain", "request"]),
    ("catalogue", &["domain", "request", "dialect"]),
    ("offload", &["domain"]),
    ("memory", &["domain"]),
    // Named limiters, for whichever module has a resource.
    ("resource", &["domain"]),
    ("store", &["domain", "request", "dialect", "observe"]),
    ("media", &["domain", "request"]),
    // Pictures are read by the rules by which they are accepted.
    (
        "providers",
        &[
            "domain",
            "request",
            "dialect",
            "catalogue",
            "memory",
            "offload",
            "media",
        ],
    ),
    // Counted into by those that know what a number means.
    ("observe", &["domain"]),
    (
        "jobs",
        &[
            "domain",
            "request",
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
            "request",
            "dialect",
            "catalogue",
            "memory",
            "offload",
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
            "request",
            "dialect",
            "catalogue",
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
    ("console", &["domain", "request", "api"]),
    ("config", &["domain", "request", "catalogue"]),
    ("telemetry", &["observe"]),
    ("local_postgres", &[]),
    (
        "app",
        &[
            "domain",
            "request",
            "catalogue",
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
            "request",
            "catalogue",
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

/// Import cycles that are accepted: their files, and the reason.
const CYCLES: &[(&[&str], &str)] = &[(
    &[
        "store/generations/hold",
        "store/generations/refusal",
        "store/generations/settle",
        "store/generations/writer",
    ],
    "holds and settlements are items of the writer, which decides about refused ones",
)];

#[test]
fn files_do_not_import_each_other_in_circles() {
    let files: BTreeMap<String, PathBuf> = files(Path::new("src"))
        .into_iter()
        .filter(|file| {
            !file
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
        })
        .map(|file| {
            let name = file.strip_prefix("src").unwrap().with_extension("");
            (name.to_str().unwrap().to_owned(), file)
        })
        .collect();
    let imports: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|(name, file)| (name.as_str(), imported_files(name, file, &files)))
        .collect();
    // Every file that can be reached from another, along imports.
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|&from| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(at) = next.pop() {
                next.extend(imports[at].iter().filter(|&&to| reached.insert(to)));
            }
            (from, reached)
        })
        .collect();
    let cycles: BTreeSet<Vec<&str>> = reached
        .iter()
        .map(|(from, to)| to.iter().filter(|to| reached[*to].contains(from)))
        .map(|cycle| cycle.copied().collect())
        .filter(|cycle: &Vec<&str>| !cycle.is_empty())
        .collect();
    let accepted = CYCLES.iter().map(|(cycle, _)| cycle.to_vec()).collect();
    assert_eq!(
        cycles, accepted,
        "import cycles, and those that are accepted"
    );
}

/// The other files that a file imports. A module and its submodules are one unit, so imports
/// between them do not count.
fn imported_files<'a>(
    name: &str,
    file: &Path,
    files: &'a BTreeMap<String, PathBuf>,
) -> BTreeSet<&'a str> {
    let text = fs::read_to_string(file).unwrap();
    // Inline tests are at the end.
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: Vec<&str> = text
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect();
    let code = code.join(" ");
    let own: Vec<&str> = name.split('/').collect();
    let mut found = BTreeSet::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            // The first of `super::super::` is the path; a name that ends so is none.
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before == ':' || before.is_alphanumeric() || before == '_' {
                continue;
            }
            for path in expanded(&code[at..]) {
                let mut base = own.clone();
                for part in path.split("::") {
                    match part {
                        "crate" => base.clear(),
                        "super" => {
                            base.pop();
                        }
                        name => base.push(name),
                    }
                }
                while !base.is_empty() && !files.contains_key(&base.join("/")) {
                    base.pop();
                }
                let target = base.join("/");
                let is_unit = |inner: &str, outer: &str| {
                    inner == outer || inner.starts_with(&format!("{outer}/"))
                };
                if let Some((target, _)) = files.get_key_value(&target)
                    && !is_unit(target, name)
                    && !is_unit(name, target)
                {
                    found.insert(target.as_str());
                }
            }
        }
    }
    found
}

/// The paths of an import, which may be a tree in braces: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expanded(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && !"_:{".contains(c));
    let head = &text[..end.unwrap_or(text.len())];
    let Some((head, _)) = head.split_once('{') else {
        return vec![head.trim_end_matches(':').to_owned()];
    };
    let (mut depth, mut from, mut paths) = (0, head.len() + 1, Vec::new());
    for (at, c) in text.char_indices().skip(head.chars().count()) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            let item = text[from..at].trim();
            if !item.is_empty() {
                paths.extend(expanded(item).iter().map(|path| format!("{head}{path}")));
            }
            from = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    paths
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

fn files(folder: &Path) -> Vec<PathBuf> {
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
