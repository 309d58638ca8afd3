//! Processes that end with this one.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::net::TcpListener;

/// The longest that a process may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(20);

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

    /// Asks it to end, and waits until it has.
    pub async fn stop(mut self) {
        signal(self.pid(), Signal::SIGTERM);
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may be gone: then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
}

/// This program in another role, and where it listens.
pub fn start_role(args: &[&str]) -> (Guard, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    (Guard::new(child), line.trim().parse().unwrap())
}

/// Ends this process when the one that started it is gone, which closes our input.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// A free port of this machine, told to whoever started this process.
pub async fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    listener
}

/// `gensvc ARGS --json` on a database. `Err`: what it said.
pub async fn gensvc(
    server: &Path,
    folder: &Path,
    database: Option<&str>,
    args: &[&str],
) -> Result<String, String> {
    let mut command = tokio::process::Command::new(server);
    command
        .env_clear()
        .env("PATH", path())
        .env("GENSVC_DATA_DIR", folder)
        .env("GENSVC_LOG", "warn")
        .envs(database.map(|url| ("DATABASE_URL", url)))
        .args(args)
        .arg("--json")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stdout) + &text(&output.stderr))
    }
}

/// Where programs are found.
pub fn path() -> impl AsRef<OsStr> {
    std::env::var_os("PATH").unwrap_or_default()
}
