//! The private Postgres of a data folder.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::signal::signal;

/// How long Postgres may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// The cluster of a data folder, running or not. It is stopped when this is dropped.
pub struct Cluster {
    /// Its data directory.
    pub path: PathBuf,
}

impl Cluster {
    pub fn new(folder: &Path) -> Self {
        Self {
            path: folder.join("postgres/cluster"),
        }
    }

    /// The pid of the postmaster, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.path.join("postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // Also ends its children, which SIGKILL would leave behind.
            signal(pid, Signal::SIGQUIT);
            let begun = Instant::now();
            while self.pid().is_some() && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
