//! Finds Postgres' server programs on the machine. Nothing is downloaded and no
//! environment is read here; `PATH` works through the shell's own look-up.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::error::{LocalPostgresError, Result};

/// The oldest version whose features our SQL may use.
const OLDEST: u32 = 13;

/// The folder with `initdb` and `postgres`, and their major version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) bin: PathBuf,
    pub(super) major: u32,
}

/// The newest programs for a new cluster.
pub(super) async fn newest() -> Result<Programs> {
    pick(|major| major >= OLDEST)
        .await
        .ok_or(LocalPostgresError::NoPrograms { oldest: OLDEST })
}

/// The programs that made `cluster`: another major version cannot read its files.
pub(super) async fn of_version(wanted: u32, cluster: &Path) -> Result<Programs> {
    pick(|major| major == wanted)
        .await
        .ok_or_else(|| LocalPostgresError::MissingVersion {
            wanted,
            cluster: cluster.to_owned(),
        })
}

/// The first place, in order of preference, whose version is wanted. Lazy: the
/// usual machine answers with its first folder and one run of `postgres -V`.
async fn pick(wanted: impl Fn(u32) -> bool) -> Option<Programs> {
    if let Some(found) = first(numbered("/usr/lib/postgresql", "", "bin"), &wanted).await {
        return Some(found);
    }
    if let Some(found) = first(on_path().await, &wanted).await {
        return Some(found);
    }
    let mut usual = numbered("/usr", "pgsql-", "bin");
    usual.extend(numbered("/opt/homebrew/opt", "postgresql", "bin"));
    usual.extend(numbered("/usr/local/opt", "postgresql", "bin"));
    usual.extend(numbered("/usr/libexec", "postgresql", ""));
    usual.extend(["/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin"].map(PathBuf::from));
    first(usual, &wanted).await
}

async fn first(folders: Vec<PathBuf>, wanted: &impl Fn(u32) -> bool) -> Option<Programs> {
    for bin in folders {
        if !bin.join("initdb").is_file() {
            continue;
        }
        let Ok(output) = Command::new(bin.join("postgres")).arg("-V").output().await else {
            continue;
        };
        match major_in(&String::from_utf8_lossy(&output.stdout)) {
            Some(major) if wanted(major) => return Some(Programs { bin, major }),
            _ => {}
        }
    }
    None
}

/// The folders that `PATH` leads to.
async fn on_path() -> Vec<PathBuf> {
    let asked = "pg_config --bindir 2>/dev/null; command -v postgres";
    let output = Command::new("/bin/sh").args(["-c", asked]).output().await;
    let printed = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&printed)
        .lines()
        .filter_map(|line| {
            // `postgres` may be a link: its neighbours are where it points.
            let path = fs::canonicalize(line).ok()?;
            if path.is_dir() {
                Some(path)
            } else {
                path.parent().map(Path::to_path_buf)
            }
        })
        .collect()
}

/// `parent/<prefix>N/tail` for every such folder, highest N first.
fn numbered(parent: &str, prefix: &str, tail: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    newest_first(names, prefix)
        .into_iter()
        .map(|name| Path::new(parent).join(name).join(tail))
        .collect()
}

/// Names that are the prefix with a number (or nothing) behind it, by number and
/// not by letter: 9 is older than 15.
fn newest_first(names: Vec<String>, prefix: &str) -> Vec<String> {
    let mut versions: Vec<(u32, String)> = names
        .into_iter()
        .filter_map(|name| {
            let rest = name.strip_prefix(prefix)?.trim_start_matches('@');
            let number = if rest.is_empty() {
                0
            } else {
                rest.split('.').next()?.parse().ok()?
            };
            Some((number, name))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, name)| name).collect()
}

/// The major version in `postgres (PostgreSQL) 15.7 (Debian 15.7-1)`.
fn major_in(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL)")?.1.trim_start();
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{major_in, newest_first};

    fn sorted(names: &[&str], prefix: &str) -> Vec<String> {
        newest_first(names.iter().map(ToString::to_string).collect(), prefix)
    }

    #[test]
    fn newest_is_by_number() {
        let names = ["9.6", "15", "common", "17", ""];
        assert_eq!(sorted(&names, ""), ["17", "15", "9.6", ""]);
    }

    #[test]
    fn names_with_a_prefix() {
        let names = ["postgresql", "postgresql@16", "postgresql@17", "pg"];
        let newest = ["postgresql@17", "postgresql@16", "postgresql"];
        assert_eq!(sorted(&names, "postgresql"), newest);
        assert_eq!(sorted(&["pgsql-9", "pgsql-13"], "pgsql-")[0], "pgsql-13");
    }

    #[test]
    fn reads_versions() {
        assert_eq!(
            major_in("postgres (PostgreSQL) 15.7 (Debian 15.7-0)\n"),
            Some(15)
        );
        assert_eq!(major_in("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major_in("postgres (PostgreSQL) 17\n"), Some(17));
        assert_eq!(major_in("nonsense"), None);
    }
}
