//! Finds Postgres' server programs on the machine. Nothing is downloaded.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::error::{At as _, LocalPostgresError, Result};

/// The oldest supported version.
const OLDEST: u32 = 13;
/// Where packages install the programs, in addition to `PATH`: a folder, the prefix of the names in
/// it, and the rest of the path. `make postgres` also searches there.
const PLACES: [(&str, &str, &str); 7] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/local", "pgsql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr", "bin", ""),
];

/// The folder with the programs, and their major version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) bin: PathBuf,
    pub(super) major: u32,
}

/// Finds the newest programs, for a new cluster.
pub(super) async fn newest() -> Result<Programs> {
    let found = all().await.into_iter().max_by_key(|found| found.major);
    found
        .filter(|found| found.major >= OLDEST)
        .ok_or(LocalPostgresError::NoPrograms { oldest: OLDEST })
}

/// Finds the programs of the major version that created `cluster`. Others cannot read its files.
pub(super) async fn of_cluster(cluster: &Path) -> Result<Programs> {
    let path = cluster.join("PG_VERSION");
    let version = fs::read_to_string(&path).at("read", &path)?;
    let wanted = version.trim().parse().unwrap_or_default();
    let found = all().await.into_iter().find(|found| found.major == wanted);
    found.ok_or_else(|| LocalPostgresError::MissingVersion {
        wanted,
        cluster: cluster.to_owned(),
    })
}

async fn all() -> Vec<Programs> {
    let mut found = Vec::new();
    for bin in folders().await {
        if !bin.join("initdb").is_file() || !bin.join("pg_ctl").is_file() {
            continue;
        }
        let Ok(output) = Command::new(bin.join("postgres")).arg("-V").output().await else {
            continue;
        };
        if let Some(major) = major_in(&String::from_utf8_lossy(&output.stdout)) {
            found.push(Programs { bin, major });
        }
    }
    found
}

async fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = PLACES.into_iter().flat_map(packaged).collect();
    let asked = "pg_config --bindir 2>/dev/null; command -v postgres";
    let output = Command::new("/bin/sh").args(["-c", asked]).output().await;
    let printed = output.map(|output| output.stdout).unwrap_or_default();
    let on_path = String::from_utf8_lossy(&printed);
    folders.extend(on_path.lines().filter_map(|line| {
        // `postgres` may be a link: the other programs are next to its target.
        let path = fs::canonicalize(line).ok()?;
        let folder = if path.is_dir() { &path } else { path.parent()? };
        Some(folder.to_owned())
    }));
    folders
}

fn packaged((parent, prefix, tail): (&str, &str, &str)) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().starts_with(prefix.as_bytes())
        })
        .map(|entry| entry.path().join(tail))
        .collect()
}

/// Parses the major version in `postgres (PostgreSQL) 15.7 (Debian 15.7-1)`.
fn major_in(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL)")?.1.trim_start();
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major_in;

    #[test]
    fn reads_versions() {
        let debian = "postgres (PostgreSQL) 15.7 (Debian 15.7-0)\n";
        assert_eq!(major_in(debian), Some(15));
        assert_eq!(major_in("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major_in("postgres (PostgreSQL) 17\n"), Some(17));
        assert_eq!(major_in("nonsense"), None);
    }
}
