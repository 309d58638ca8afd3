//! Who may do what to a data directory at the same time, told by file locks
//! because the kernel releases those however a process ends.
//!
//! - `server.lock`, exclusive: the one server.
//! - `postgres.lock`, shared: everyone who uses the database. Whoever can have it
//!   exclusively is the last one and may stop it.
//! - `postgres.start.lock`, exclusive and short: whoever makes, starts or stops it,
//!   and whoever takes one of the other two, so that these never race.

use std::{
    fs::{File, TryLockError},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::error::{At, LocalPostgresError, Result};

/// Longer than making a cluster or stopping one takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// There from the first that made something.
pub(super) const START: &str = "postgres.start.lock";

/// Held by the one server of a data directory. Take it under the start lock.
pub(super) fn server(data: &Path) -> Result<File> {
    let path = data.join("server.lock");
    let mut file = open(&path)?;
    if !try_exclusive(&file, &path)? {
        return Err(LocalPostgresError::ServerRunning {
            data: data.to_owned(),
            holder: holder(&path),
        });
    }
    // Only for the sentence above; the lock is what counts.
    file.set_len(0).at("write", &path)?;
    write!(file, "{}", std::process::id()).at("write", &path)?;
    Ok(file)
}

/// Adds the URL that the server listens on, for the same sentence.
pub(super) fn announce(mut server: &File, data: &Path, url: &str) -> Result<()> {
    write!(server, "\n{url}").at("write", &data.join("server.lock"))
}

/// The server's process if one holds the lock now. Ask under the start lock: the
/// question takes the lock for a moment, and would refuse a server that starts.
pub(super) fn running_server(data: &Path) -> Result<Option<String>> {
    let path = data.join("server.lock");
    let free = try_exclusive(&open(&path)?, &path)?;
    Ok((!free).then(|| holder(&path)))
}

/// Held while making, starting or stopping. Waits without blocking a thread.
pub(super) async fn start(data: &Path) -> Result<File> {
    let path = data.join(START);
    let file = open(&path)?;
    let begun = Instant::now();
    while !try_exclusive(&file, &path)? {
        if begun.elapsed() > PATIENCE {
            return Err(LocalPostgresError::Busy {
                path,
                seconds: PATIENCE.as_secs(),
            });
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(file)
}

/// Held by everyone who uses the database. Take it under the start lock.
pub(super) fn shared(data: &Path) -> Result<File> {
    let path = data.join("postgres.lock");
    let file = open(&path)?;
    // Exclusive holders have the start lock, as we do: nobody makes us wait here.
    file.lock_shared().at("lock", &path)?;
    Ok(file)
}

/// Whether nobody else uses the database. Ask under the start lock; the shared
/// lock in `file` may be lost by asking.
pub(super) fn is_last(file: &File, data: &Path) -> Result<bool> {
    try_exclusive(file, &data.join("postgres.lock"))
}

/// Opens the users' lock without taking it.
pub(super) fn unlocked(data: &Path) -> Result<File> {
    open(&data.join("postgres.lock"))
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // Who may open it may lock us out.
        .mode(0o600)
        .open(path)
        .at("open", path)
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
        None if text.is_empty() => "which is just starting".to_owned(),
        None => format!("pid {text}"),
    }
}
