//! Processes of gensvc: servers and commands.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::signal::signal;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_mins(1);
/// Timeout of a command. An audit of a large ledger takes more than a minute.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(5);
/// Between two looks at a process.
const TICK: Duration = Duration::from_millis(20);

/// A process that is killed when this is dropped.
pub struct Guard(Child);

impl Guard {
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends SIGTERM and waits for the exit. `false`: it did not exit in time, and was killed.
    pub async fn stop(mut self) -> bool {
        signal(self.pid(), Signal::SIGTERM);
        let begun = Instant::now();
        while !self.has_ended() {
            if begun.elapsed() > PATIENCE {
                return false;
            }
            tokio::time::sleep(TICK).await;
        }
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SIGKILL also ends a suspended process. It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
        // With these files of libfaketime, a later process with the same pid could not start.
        for name in ["faketime_shm", "sem.faketime_sem"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}_{}", self.pid()));
        }
    }
}

/// A command of the program, with no environment but PATH.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null());
    command
}

/// Starts a server that appends its log to a file; returns it and its address once it listens.
/// `Err`: what it logged instead.
pub async fn serve(mut command: Command, log: &Path) -> Result<(Guard, SocketAddr), String> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.unwrap();
    let from = file.metadata().unwrap().len();
    command.arg("serve").stdout(Stdio::null()).stderr(file);
    let mut server = Guard::new(command.spawn().unwrap());
    let begun = Instant::now();
    while !server.has_ended() && begun.elapsed() < PATIENCE {
        let (said, _) = read_log(log, from);
        let said = said.split_once("listening on http://");
        if let Some((address, _)) = said.and_then(|(_, rest)| rest.split_once([' ', '\n'])) {
            return Ok((server, address.parse().unwrap()));
        }
        tokio::time::sleep(TICK).await;
    }
    Err(read_log(log, from).0)
}

/// The text of a log from an offset in bytes on, and the length of the log.
pub fn read_log(log: &Path, offset: u64) -> (String, u64) {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(log) {
        file.seek(SeekFrom::Start(offset)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
    }
    let length = offset + u64::try_from(bytes.len()).unwrap();
    (String::from_utf8_lossy(&bytes).into_owned(), length)
}

/// Runs `PROGRAM ARGS --json` on a database, if one is named. `Err`: its output.
pub async fn gensvc(
    program: &Path,
    folder: &Path,
    database: &str,
    env: &[(&str, &str)],
    args: &[&str],
) -> Result<String, String> {
    let mut command = tokio::process::Command::from(command(program));
    command
        .env("GENSVC_DATA_DIR", folder)
        .env("GENSVC_LOG", "warn")
        .envs(env.iter().copied())
        .args(args)
        .arg("--json")
        .kill_on_drop(true);
    if !database.is_empty() {
        command.env("DATABASE_URL", database);
    }
    let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
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
