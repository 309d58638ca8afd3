//! Processes: signals, the program's own commands, and a child that never outlives us.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use tokio::process::Command;

use crate::clocks;

/// Timeout of one command of the program.
const PATIENCE: Duration = Duration::from_mins(1);

/// The program under test.
pub fn current() -> PathBuf {
    env!("CARGO_BIN_EXE_gensvc").into()
}

/// A process that is killed when this is dropped.
pub struct Guard(Child);

impl Guard {
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // -9 also ends a suspended process. It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
        clocks::clean_up(self.pid());
    }
}

/// Sends a signal with the system's `kill`. A process that has exited is not an error.
pub fn signal(pid: u32, name: &str) {
    let mut kill = std::process::Command::new("kill");
    kill.args(["-s", name, &pid.to_string()]);
    kill.stderr(Stdio::null());
    assert!(kill.status().is_ok(), "there is no kill on this machine");
}

/// `PROGRAM ARGS --json` on a database. `Err`: its output.
pub async fn gensvc(
    program: &Path,
    folder: &Path,
    database: &str,
    env: &[(&str, &str)],
    args: &[&str],
) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GENSVC_DATA_DIR", folder)
        .env("GENSVC_LOG", "warn")
        .envs(env.iter().copied())
        .args(args)
        .arg("--json")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if !database.is_empty() {
        command.env("DATABASE_URL", database);
    }
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.map_err(|_| format!("{args:?} does not end"))?;
    let output = output.map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(printed)
    } else {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(printed + &said)
    }
}
