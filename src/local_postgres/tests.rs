//! Tests with real clusters. Like the store's tests, they need the Postgres programs.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{LocalPostgres, LocalPostgresError, Role, account::Account, programs};

/// A folder that is deleted after the test, with its database.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("gensvc-test-{}", uuid::Uuid::now_v7());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A failed test must not leave a server running.
        if let Some(pid) = pid(&self.data()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        if let Ok(target) = fs::read_link(self.data().join("postgres")) {
            let _ = fs::remove_dir_all(target);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pid(data: &Path) -> Option<u32> {
    let note = fs::read_to_string(data.join("postgres/cluster/postmaster.pid")).ok()?;
    note.lines().next()?.parse().ok()
}

async fn query(url: &str, statement: &str) -> String {
    let psql = programs::newest().await.unwrap().bin.join("psql");
    let output = Command::new(psql)
        .args([url, "-XAtc", statement])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn kill(pid: u32) {
    let pid = pid.to_string();
    let status = Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(status.success());
}

/// Opens the database for the next server. A process that another test spawns keeps the last
/// server's lock until it executes its program.
async fn reopened(data: &Path) -> LocalPostgres {
    let begun = Instant::now();
    loop {
        match LocalPostgres::open(data, Role::Server).await {
            Err(LocalPostgresError::ServerRunning { .. }) => {
                assert!(begun.elapsed() < Duration::from_mins(1));
                tokio::task::yield_now().await;
            }
            opened => return opened.unwrap(),
        }
    }
}

#[tokio::test]
async fn lives_and_survives() {
    let folder = Folder::new();
    let data = folder.data();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    assert!(server.is_sole_server());
    let settings = "select current_user || ' ' || current_database() || ' ' || \
        current_setting('server_encoding') || ' ' || current_setting('data_checksums') || ' ' || \
        current_setting('fsync') || ' ' || current_setting('listen_addresses')";
    assert_eq!(
        query(server.url(), settings).await,
        "gensvc gensvc UTF8 on on"
    );
    query(server.url(), "create table t as select 42 as x").await;
    assert!(!server.supervise_step().await.unwrap());

    // Only one server; commands can use the database, and leave it running.
    let refused = LocalPostgres::open(&data, Role::Server).await.unwrap_err();
    assert!(refused.to_string().contains("already uses"), "{refused}");
    let command = LocalPostgres::open(&data, Role::Command).await.unwrap();
    assert!(!command.is_sole_server());
    assert_eq!(command.url(), server.url());
    command.close().await.unwrap();
    let refused = LocalPostgres::stop_kept(&data).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::InUse { .. }),
        "{refused}"
    );

    // A dead database is restarted, with its data.
    let first = pid(&data).unwrap();
    kill(first);
    let begun = Instant::now();
    // The first steps may still find it alive, since a kill takes a moment.
    while !server.supervise_step().await.unwrap() {
        assert!(begun.elapsed() < Duration::from_mins(1));
        tokio::task::yield_now().await;
    }
    assert_ne!(pid(&data), Some(first));
    assert_eq!(query(server.url(), "select x from t").await, "42");

    // The next server uses the database of a dropped one.
    let second = pid(&data);
    drop(server);
    let server = reopened(&data).await;
    assert_eq!(pid(&data), second);

    // A kept database outlives its users.
    server.keep().unwrap();
    server.close().await.unwrap();
    assert_eq!(pid(&data), second);
    assert!(LocalPostgres::stop_kept(&data).await.unwrap());
    assert_eq!(pid(&data), None);
    assert!(!LocalPostgres::stop_kept(&data).await.unwrap());

    // Stale lock files with the process id of another process of the same user do not prevent a
    // start.
    let account = Account::for_existing(&data.join("postgres/cluster")).unwrap();
    let mut other = account.command("sleep");
    let other = other.arg("600").kill_on_drop(true).spawn().unwrap();
    let number = other.id().unwrap();
    let note = format!("{number}\n/elsewhere\n1\n5432\n\n\n\nready\n");
    fs::write(data.join("postgres/cluster/postmaster.pid"), &note).unwrap();
    fs::write(data.join("postgres/run/.s.PGSQL.5432.lock"), &note).unwrap();
    let command = LocalPostgres::open(&data, Role::Command).await.unwrap();
    assert_eq!(query(command.url(), "select x from t").await, "42");
    command.close().await.unwrap();
    assert_eq!(pid(&data), None);
}

impl Folder {
    /// Creates a folder with this mode; `None` unless root runs the test.
    fn of_root(mode: u32) -> Option<Self> {
        let folder = Self::new();
        let meta = fs::metadata(&folder.0).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).unwrap();
        (meta.uid() == 0).then_some(folder)
    }
}

/// As in `/root/data`.
#[tokio::test]
async fn database_is_elsewhere_where_postgres_cannot_enter() {
    let Some(folder) = Folder::of_root(0o700) else {
        return;
    };
    let data = folder.data();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    let outside = fs::read_link(data.join("postgres")).unwrap();
    assert_eq!(query(server.url(), "select 1").await, "1");
    let refused = LocalPostgres::remove(&data).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::InUse { .. }),
        "{refused}"
    );

    // A copied link would give two servers one database.
    let copy = folder.0.join("copy");
    fs::create_dir(&copy).unwrap();
    symlink(&outside, copy.join("postgres")).unwrap();
    let refused = LocalPostgres::open(&copy, Role::Server).await.unwrap_err();
    let sentence = refused.to_string();
    assert!(sentence.contains(data.to_str().unwrap()), "{sentence}");
    fs::remove_dir_all(&copy).unwrap();

    server.close().await.unwrap();
    assert_eq!(pid(&data), None);
    // A moved directory keeps its database, and a new directory gets another one.
    fs::rename(&data, &copy).unwrap();
    let new = LocalPostgres::open(&data, Role::Server).await.unwrap();
    assert_ne!(fs::read_link(data.join("postgres")).unwrap(), outside);
    new.close().await.unwrap();
    LocalPostgres::remove(&data).await.unwrap().unwrap();
    let moved = LocalPostgres::open(&copy, Role::Server).await.unwrap();
    assert_eq!(query(moved.url(), "select 1").await, "1");
    // A copy is also refused after the move, because it links to the same database.
    let second = folder.0.join("second");
    fs::create_dir(&second).unwrap();
    symlink(&outside, second.join("postgres")).unwrap();
    let refused = LocalPostgres::remove(&second).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::Copied { .. }),
        "{refused}"
    );
    moved.close().await.unwrap();
    let removed = LocalPostgres::remove(&copy).await.unwrap();
    assert_eq!(removed, Some(outside.clone()));
    assert!(!outside.exists());
    assert_eq!(LocalPostgres::remove(&copy).await.unwrap(), None);
}

#[tokio::test]
async fn only_root_connects_where_root_runs_it_as_another_user() {
    let Some(folder) = Folder::of_root(0o755) else {
        return;
    };
    let data = folder.data();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    let account = Account::for_existing(&data.join("postgres/cluster")).unwrap();
    let psql = programs::newest().await.unwrap().bin.join("psql");
    let asked = account
        .command(psql)
        .args([server.url(), "-XAtc", "select 1"])
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&asked.stderr);
    assert!(
        !asked.status.success() && stderr.contains("eer authentication failed"),
        "{stderr}"
    );
    server.close().await.unwrap();

    // The owner may connect if that is another user, who may run gensvc too.
    let status = Command::new("chown")
        .arg("-R")
        .arg("12345:12345")
        .arg(&data)
        .status();
    assert!(status.unwrap().success());
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    assert_eq!(query(server.url(), "select 1").await, "1");
    let account = Account::for_existing(&data.join("postgres/cluster")).unwrap();
    let mut psql = account.command(programs::newest().await.unwrap().bin.join("psql"));
    psql.args([server.url(), "-XAtc", "select 1"]);
    assert!(psql.status().await.unwrap().success());
    server.close().await.unwrap();
}

#[tokio::test]
async fn a_command_makes_no_database_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let data = folder.data();
    for made in [false, true] {
        if made {
            fs::create_dir(&data).unwrap();
        }
        let refused = LocalPostgres::open(&data, Role::Command).await.unwrap_err();
        let sentence = refused.to_string();
        assert!(sentence.contains(data.to_str().unwrap()), "{sentence}");
        assert!(sentence.contains("GENSVC_DATA_DIR"), "{sentence}");
        assert!(LocalPostgres::find(&data).is_err());
        assert!(!LocalPostgres::stop_kept(&data).await.unwrap());
        assert_eq!(LocalPostgres::remove(&data).await.unwrap(), None);
        assert_eq!(data.exists(), made);
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);

    let server = LocalPostgres::open(&data, Role::Start).await.unwrap();
    let url = server.url().to_owned();
    assert_eq!(LocalPostgres::find(&data).unwrap(), (url.clone(), true));
    server.close().await.unwrap();
    assert_eq!(LocalPostgres::find(&data).unwrap(), (url, false));
}

/// Such as a volume of Docker Compose.
#[tokio::test]
async fn foreign_folder_is_neither_used_nor_deleted() {
    let folder = Folder::new();
    let data = folder.data();
    let theirs = data.join("postgres");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("PG_VERSION"), "17").unwrap();
    let refused = LocalPostgres::open(&data, Role::Command).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::None { .. }),
        "{refused}"
    );
    assert_eq!(LocalPostgres::remove(&data).await.unwrap(), None);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);

    let server = LocalPostgres::open(&data, Role::Server).await;
    for refused in [
        server.map(|_| ()).unwrap_err(),
        LocalPostgres::remove(&data).await.unwrap_err(),
    ] {
        let sentence = refused.to_string();
        assert!(sentence.contains("postgres/PG_VERSION"), "{sentence}");
    }
    let left: Vec<_> = fs::read_dir(&theirs).unwrap().flatten().collect();
    assert_eq!(left.len(), 1);
}

/// Such as one to a disk that is not mounted.
#[tokio::test]
async fn link_to_a_missing_folder_is_not_replaced() {
    let folder = Folder::new();
    let data = folder.data();
    fs::create_dir(&data).unwrap();
    let link = data.join("postgres");
    symlink("/mnt/gensvc-none", &link).unwrap();
    let refused = LocalPostgres::remove(&data).await.unwrap_err();
    let sentence = refused.to_string();
    assert!(sentence.contains(link.to_str().unwrap()), "{sentence}");
    assert!(link.is_symlink());
}

#[tokio::test]
async fn incomplete_cluster_is_not_replaced() {
    let folder = Folder::new();
    let data = folder.data();
    fs::create_dir_all(data.join("postgres/cluster")).unwrap();
    let refused = LocalPostgres::open(&data, Role::Server).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::Incomplete { .. }),
        "{refused}"
    );
}

/// Another process of the Postgres user can change the cluster's folder.
#[tokio::test]
async fn access_rules_are_not_written_through_links() {
    let folder = Folder::new();
    let data = folder.data();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    server.close().await.unwrap();
    let other = folder.0.join("other");
    fs::write(&other, "unchanged").unwrap();
    let rules = data.join("postgres/cluster/pg_hba.conf");
    fs::remove_file(&rules).unwrap();
    symlink(&other, &rules).unwrap();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    assert_eq!(query(server.url(), "select 1").await, "1");
    server.close().await.unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "unchanged");
}
