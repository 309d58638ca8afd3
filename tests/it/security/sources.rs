//! What can be seen in the sources: where SQL is written, how secrets are compared, and what is
//! built in.

use std::{collections::BTreeSet, fs, process::Command};

use super::document::modules;

/// Files of the program with their text, without the tests in them.
fn program() -> Vec<(String, String)> {
    let files = modules("src").into_iter();
    let files = files.filter(|(_, module)| !module.split("::").any(|part| part == "tests"));
    let read = files.map(|(file, _)| {
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
        (file.display().to_string(), text)
    });
    read.collect()
}

/// sqlx takes SQL that is fixed at compile time, unless one of these says otherwise. A builder
/// takes anything, so what is pushed must be a literal; values are bound.
#[test]
fn no_sql_is_made_of_what_users_wrote() {
    let (mut wrong, mut literals) = (Vec::new(), 0);
    for (file, text) in program() {
        let in_store = file == "src/store.rs" || file.starts_with("src/store/");
        for word in ["AssertSqlSafe", "SqlStr::", "push_unseparated("] {
            if text.contains(word) {
                wrong.push(format!("{file}: {word}"));
            }
        }
        for word in [
            "sqlx::query",
            "QueryBuilder",
            "raw_sql(",
            "query!(",
            "query_as!(",
        ] {
            if !in_store && text.contains(word) {
                wrong.push(format!("{file}: SQL outside the store: {word}"));
            }
        }
        if !text.contains("QueryBuilder") {
            continue;
        }
        for call in ["QueryBuilder::new(", ".push("] {
            for (at, _) in text.match_indices(call) {
                let given = text[at + call.len()..].trim_start();
                // `after` is a parameter of a closure that is called with literals only.
                if given.starts_with('"') || given.starts_with("after)") {
                    literals += 1;
                } else {
                    let given = given.lines().next().unwrap_or_default();
                    wrong.push(format!("{file}: {call}{given}"));
                }
            }
        }
        for (at, _) in text.match_indices("next(query, ") {
            assert!(text[at + "next(query, ".len()..].starts_with('"'), "{file}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(literals > 20, "only {literals} looked at");
}

/// Keys, sessions and admin tokens are found by their digest, and a link's signature and the
/// token of the metrics are compared whole: how long an answer takes tells nothing of how much
/// of a guess was right.
#[test]
fn secrets_are_compared_in_constant_time() {
    let text = |file: &str| fs::read_to_string(file).unwrap();
    let metrics = text("src/api/metrics.rs");
    assert!(metrics.contains("Sha256::digest(token).ct_eq(expected)"));
    assert_eq!(
        metrics.matches("expose_secret()").count(),
        1,
        "only its digest"
    );
    assert!(text("src/media/sign.rs").contains(".verify_slice(&given)"));
    // What is looked up is a digest: no column holds a token.
    for file in ["keys", "sessions", "admin"] {
        let text = text(&format!("src/store/{file}.rs"));
        assert!(
            text.contains("TokenDigest") && !text.contains("expose_secret"),
            "{file}"
        );
    }
    // Nobody compares what a secret exposes.
    for (file, text) in program() {
        for line in text.lines().filter(|line| line.contains("expose_secret()")) {
            assert!(
                !line.contains("==") && !line.contains("!="),
                "{file}: {line}"
            );
        }
    }
}

/// One TLS library and one library of cryptography: one to watch for advisories.
#[test]
fn one_tls_and_one_crypto_library_is_built_in() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--edges", "normal,build", "--format", "{p}"])
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let text = String::from_utf8(tree.stdout).unwrap();
    let built: BTreeSet<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.trim_end_matches(" (*)").split_once(' '))
        .collect();
    for one in [
        "rustls",
        "aws-lc-rs",
        "tokio-rustls",
        "hyper",
        "h2",
        "http",
        "reqwest",
        "sqlx",
    ] {
        let versions: Vec<_> = built.iter().filter(|(name, _)| *name == one).collect();
        assert_eq!(versions.len(), 1, "{one}: {versions:?}");
    }
    for none in [
        "ring",
        "openssl",
        "openssl-sys",
        "native-tls",
        "boring",
        "mbedtls",
        "md5",
    ] {
        assert!(
            !built.iter().any(|(name, _)| *name == none),
            "{none} is built in"
        );
    }
}

/// Nothing is built of what its author could change afterwards.
#[test]
fn every_dependency_is_of_the_registry_and_fixed_by_its_digest() {
    let lock = fs::read_to_string("Cargo.lock").unwrap();
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    assert!(packages.len() > 100);
    for package in packages {
        if package.contains("name = \"gensvc\"") {
            continue;
        }
        let registry = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        assert!(
            package.contains(registry) && package.contains("checksum = \""),
            "{package}"
        );
    }
}

/// The compiler keeps memory safe as long as nobody asks it not to.
#[test]
fn no_code_of_ours_is_unsafe() {
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
}
