//! The life of a real cluster, from nothing to stopped. They need the Postgres
//! programs, like every test of the store.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{LocalPostgres, LocalPostgresError, Role, account::Account, programs};

/// A folder that goes away with the test, and the database behind it too.
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
        // A test that failed half-way must not leave a server behind.
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

/// The next server's. A process that another test begins has the lock of the last one, until it
/// executes its program.
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

    // One server only; commands join, and leave it running.
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

    // Its death is mended, with the data as they were.
    let first = pid(&data).unwrap();
    kill(first);
    let begun = Instant::now();
    // The first steps may still see it, since a kill takes a moment.
    while !server.supervise_step().await.unwrap() {
        assert!(begun.elapsed() < Duration::from_mins(1));
        tokio::task::yield_now().await;
    }
    assert_ne!(pid(&data), Some(first));
    assert_eq!(query(server.url(), "select x from t").await, "42");

    // A server that ends without a word leaves it to the next.
    let second = pid(&data);
    drop(server);
    let server = reopened(&data).await;
    assert_eq!(pid(&data), second);

    // Kept, it outlives its users; stopped, it is gone.
    server.keep().unwrap();
    server.close().await.unwrap();
    assert_eq!(pid(&data), second);
    assert!(LocalPostgres::stop_kept(&data).await.unwrap());
    assert_eq!(pid(&data), None);
    assert!(!LocalPostgres::stop_kept(&data).await.unwrap());

    // Stale lock files whose number lives on as somebody else, whom Postgres may signal, deceive
    // nobody.
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
    /// One of root's, who can give files to others; `None` for anybody else.
    fn of_root(mode: u32) -> Option<Self> {
        let folder = Self::new();
        let meta = fs::metadata(&folder.0).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).unwrap();
        (meta.uid() == 0).then_some(folder)
    }
}

/// As with `/root/data`: Postgres' user cannot get there, so its files are not.
#[tokio::test]
async fn root_may_keep_its_folder_to_itself() {
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
    server.close().await.unwrap();
    assert_eq!(pid(&data), None);

    // What is left of it when the folder goes is neither taken up nor joined by another.
    fs::remove_dir_all(&data).unwrap();
    for _ in 0..2 {
        let refused = LocalPostgres::open(&data, Role::Server).await.unwrap_err();
        let sentence = refused.to_string();
        assert!(sentence.contains("gensvc database remove"), "{sentence}");
        assert!(sentence.contains(outside.to_str().unwrap()), "{sentence}");
    }
    // Not under a Postgres that runs, for whom the locks in the folder are gone.
    fs::create_dir_all(&data).unwrap();
    symlink(&outside, data.join("postgres")).unwrap();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    fs::rename(&data, folder.0.join("moved")).unwrap();
    let refused = LocalPostgres::remove(&data).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::StillRuns { .. }),
        "{refused}"
    );
    assert_eq!(query(server.url(), "select 1").await, "1");
    server.close().await.unwrap();
    // Nor does a database of its own take it along.
    fs::create_dir_all(data.join("postgres/cluster")).unwrap();
    let removed = LocalPostgres::remove(&data).await.unwrap();
    assert_eq!(removed, [data.join("postgres")]);
    fs::remove_dir_all(&data).unwrap();

    let removed = LocalPostgres::remove(&data).await.unwrap();
    assert_eq!(removed, std::slice::from_ref(&outside));
    assert!(!outside.exists());
    let none = LocalPostgres::remove(&data).await.unwrap();
    assert_eq!(none, [] as [PathBuf; 0]);
}

/// The data directory alone being closed, its database lies in it all the same.
#[tokio::test]
async fn a_closed_data_folder_of_root_holds_its_database() {
    let Some(folder) = Folder::of_root(0o755) else {
        return;
    };
    let data = folder.data();
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    assert!(!data.join("postgres").is_symlink());
    server.close().await.unwrap();
    let removed = LocalPostgres::remove(&data).await.unwrap();
    assert_eq!(removed, [data.join("postgres")]);
    assert!(!data.join("postgres").exists());
}

/// Opening it up is undone where that does not help.
#[tokio::test]
async fn a_data_folder_of_root_is_not_opened_up_in_vain() {
    let Some(folder) = Folder::of_root(0o755) else {
        return;
    };
    let (data, closed) = (folder.data(), folder.0.join("closed"));
    fs::create_dir_all(closed.join("home")).unwrap();
    fs::create_dir(&data).unwrap();
    for folder in [&data, &closed] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    symlink(closed.join("home"), data.join("postgres")).unwrap();
    let server = LocalPostgres::open(&data, Role::Server).await.unwrap();
    assert_eq!(query(server.url(), "select 1").await, "1");
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o777, 0o700);
    server.close().await.unwrap();
    LocalPostgres::remove(&data).await.unwrap();
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

    // Given to a user of their own, who runs gensvc as well.
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
        assert!(LocalPostgres::remove(&data).await.unwrap().is_empty());
        assert_eq!(data.exists(), made);
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);

    let server = LocalPostgres::open(&data, Role::Start).await.unwrap();
    let url = server.url().to_owned();
    assert_eq!(LocalPostgres::find(&data).unwrap(), (url.clone(), true));
    server.close().await.unwrap();
    assert_eq!(LocalPostgres::find(&data).unwrap(), (url, false));
}

/// As of a docker-compose file beside it, whose database may run.
#[tokio::test]
async fn a_folder_of_somebody_else_is_neither_used_nor_deleted() {
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
    assert!(LocalPostgres::remove(&data).await.unwrap().is_empty());
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

/// As of a disk that is not mounted.
#[tokio::test]
async fn a_link_that_leads_nowhere_is_not_forgotten() {
    let folder = Folder::new();
    let data = folder.data();
    fs::create_dir(&data).unwrap();
    let link = data.join("postgres");
    symlink("/mnt/gensvc-none", &link).unwrap();
    let refused = LocalPostgres::remove(&data).await.unwrap_err();
    assert!(
        matches!(refused, LocalPostgresError::BrokenLink { .. }),
        "{refused}"
    );
    assert!(link.is_symlink());
}
