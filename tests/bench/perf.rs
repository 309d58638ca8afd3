//! System calls, which the kernel does not count by itself: `perf` does where it is installed
//! and permitted. It slows a call a little, so it counts in a slice that is not measured.

use std::process::Stdio;

use nix::sys::signal::Signal;
use tokio::process::{Child, Command};

use crate::signal::signal;

const EVENT: &str = "raw_syscalls:sys_enter";

/// A count under way.
pub struct Count(Option<Child>);

impl Count {
    /// Of those processes, from now on.
    pub async fn start(pids: &[u32]) -> Self {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let child = Command::new("perf")
            .args(["stat", "-x", ",", "-e", EVENT, "-p", &pids.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        // It says nothing when it has begun.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        Self(child.ok())
    }

    /// How many there were; `None` where they cannot be counted.
    pub async fn end(self) -> Option<f64> {
        let child = self.0?;
        signal(child.id()?, Signal::SIGINT);
        let output = child.wait_with_output().await.ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| line.contains(EVENT))?;
        line.split(',').next()?.parse().ok()
    }
}
