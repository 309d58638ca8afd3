//! File locks on a data directory. The kernel releases them when a process ends.
//!
//! - `server.lock`, exclusive: the only server.
//! - `postgres.lock`, shared: each user of the database. A process that can lock it exclusively is
//!   the last user and may stop the database.
//! - `postgres.start.lock`, exclusive and short: held to create, start or stop the database, and to
//!   take one of the other locks.

use std::{
    fs::{File, TryLockError},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::error::{At, LocalPostgresError, Result};

/// Longer than it takes to create or stop a cluster on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(90);

pub(super) const START: &str = "postgres.start.lock";
const SERVER: &str = "server.lock";
const USERS: &str = "postgres.lock";

/// Takes the lock of the only server. Needs the start lock.
pub(super) fn server(data: &Path) -> Result<File> {
    let path = data.join(SERVER);
    let mut file = open(&path)?;
    if !try_exclusive(&file, &path)? {
        return Err(LocalPostgresError::ServerRunning {
            data: data.to_owned(),
            holder: holder(&path),
        });
    }
    file.set_len(0).at("write", &path)?;
    write!(file, "{}", std::process::id()).at("write", &path)?;
    Ok(file)
}

/// Adds the URL of the server to its lock file.
pub(super) fn announce(mut server: &File, data: &Path, url: &str) -> Result<()> {
    write!(server, "\n{url}").at("write", &data.join(SERVER))
}

/// Returns process and URL of the running server. Needs the start lock, because it takes the
/// server's lock for a moment, which would make a starting server fail.
pub(super) fn running_server(data: &Path) -> Result<Option<String>> {
    let path = data.join(SERVER);
    let is_free = try_exclusive(&open(&path)?, &path)?;
    Ok((!is_free).then(|| holder(&path)))
}

/// Takes the start lock, waiting without blocking a thread.
pub(super) async fn start(data: &Path) -> Result<File> {
    let path = data.join(START);
    let file = open(&path)?;
    let begun = Instant::now();
    while !try_exclusive(&file, &path)? {
        if begun.elapsed() > TIMEOUT {
            let seconds = TIMEOUT.as_secs();
            return Err(LocalPostgresError::Busy { path, seconds });
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(file)
}

/// Takes a user's lock. Needs the start lock.
pub(super) fn shared(data: &Path) -> Result<File> {
    let file = unlocked(data)?;
    // Does not block: an exclusive holder would have the start lock.
    file.lock_shared().at("lock", &data.join(USERS))?;
    Ok(file)
}

/// Whether there is no other user. Needs the start lock. May release a shared lock in `file`.
pub(super) fn is_last(file: &File, data: &Path) -> Result<bool> {
    try_exclusive(file, &data.join(USERS))
}

/// Opens the users' lock file without locking it.
pub(super) fn unlocked(data: &Path) -> Result<File> {
    open(&data.join(USERS))
}

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    // Other users could lock a file that they can open.
    options.mode(0o600).open(path).at("open", path)
}

fn try_exclusive(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(source).at("lock", path),
    }
}

fn holder(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match text.split_once('\n') {
        Some((pid, url)) => format!("pid {pid}, {url}"),
        None => format!("pid {text}, starting"),
    }
}
