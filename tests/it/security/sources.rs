//! What is built in.

use std::{collections::BTreeSet, fs, process::Command};

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

/// The compiler guarantees memory safety as long as no code is unsafe.
#[test]
fn no_code_of_ours_is_unsafe() {
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
}
