//! One of the servers: a process behind two proxies, one for its clients and one for the
//! database.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tokio::sync::Mutex;

use crate::{
    clocks::Clock,
    postgres::{Postgres, ROLES},
    process::{self, Guard},
    proxy::{Proxy, Target},
    signal::signal,
};

/// How long starts may fail, as while the database is unavailable.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two of them.
const RETRY: Duration = Duration::from_millis(100);
/// Lease in seconds.
pub const LEASE_SECONDS: u64 = 2;

/// The program under test.
pub fn current() -> PathBuf {
    env!("CARGO_BIN_EXE_gensvc").into()
}

/// A server, running or not.
pub struct Server {
    log: PathBuf,
    /// The proxy for clients.
    front: Proxy,
    /// The proxy for the database.
    back: Proxy,
    machine: Mutex<Machine>,
}

/// What the server needs to run.
struct Machine {
    process: Option<Guard>,
    program: PathBuf,
    env: Vec<(String, String)>,
    clock: Clock,
}

impl Server {
    /// The server with that index, not started yet.
    pub async fn new(
        index: usize,
        folder: &Path,
        postgres: &Postgres,
        upstream: &str,
        clock: Clock,
    ) -> Self {
        let back = Proxy::start(Target::Unix(postgres.socket())).await;
        let database = format!(
            "postgres://{}@{}/gensvc?sslmode=disable",
            ROLES[index],
            back.address()
        );
        let seconds = LEASE_SECONDS.to_string();
        let env = [
            ("DATABASE_URL", &*database),
            // Both store their files in one place, as replicas on one machine do.
            (
                "GENSVC_DATA_DIR",
                &folder.join("files").display().to_string(),
            ),
            ("GENSVC_BIND", "127.0.0.1:0"),
            ("GENSVC__METRICS__PORT", "0"),
            ("GENSVC_LOG", "info,sqlx=warn"),
            ("GENSVC__DATABASE__MAX_CONNECTIONS", "16"),
            ("GENSVC__JOBS__LEASE_SECONDS", &seconds),
            ("GENSVC__JOBS__POLL_INTERVAL_MS", "200"),
            ("GENSVC__JOBS__DEADLINE_SECONDS", "8"),
            ("GENSVC__JOBS__MAX_PER_ACCOUNT", "25"),
            ("GENSVC__SERVER__SHUTDOWN_SECONDS", "1"),
            ("GENSVC__SUBMISSIONS__RETRY_BASE_MS", "50"),
            ("GENSVC__IDEMPOTENCY__WAIT_SECONDS", "3"),
            ("GENSVC__WEBHOOKS__ALLOW_PRIVATE", "true"),
            ("GENSVC__WEBHOOKS__TIMEOUT_MS", "1000"),
            ("GENSVC__PROVIDERS__OPENAI__TIMEOUT_SECONDS", "2"),
            ("GENSVC__PROVIDERS__ANTHROPIC__TIMEOUT_SECONDS", "2"),
            ("GENSVC__PROVIDERS__RUNWAY__TIMEOUT_SECONDS", "2"),
            ("GENSVC__PROVIDERS__ELEVENLABS__TIMEOUT_SECONDS", "2"),
            ("OPENAI_API_KEY", "sk-chaos"),
            ("OPENAI_BASE_URL", &format!("{upstream}/openai/v1")),
            ("ANTHROPIC_API_KEY", "sk-chaos"),
            ("ANTHROPIC_BASE_URL", &format!("{upstream}/anthropic")),
            ("RUNWAYML_API_SECRET", "chaos"),
            ("RUNWAYML_BASE_URL", &format!("{upstream}/runway")),
            ("ELEVENLABS_API_KEY", "chaos"),
            ("ELEVENLABS_BASE_URL", &format!("{upstream}/elevenlabs")),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            log: folder.join(format!("server-{}.log", ROLES[index])),
            front: Proxy::start(Target::Nowhere).await,
            back,
            machine: Mutex::new(Machine {
                process: None,
                program: current(),
                env: env.to_vec(),
                clock,
            }),
        }
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.front.address())
    }

    /// Its own address, while it runs.
    pub fn address(&self) -> Option<SocketAddr> {
        self.front.target()
    }

    /// Towards its clients.
    pub fn front(&self) -> &Proxy {
        &self.front
    }

    /// Towards the database.
    pub fn back(&self) -> &Proxy {
        &self.back
    }

    /// What it has logged since the log had that length, and its current length.
    pub fn log_from(&self, offset: u64) -> (String, u64) {
        process::read_log(&self.log, offset)
    }

    /// Starts it, with retries while the database is unavailable.
    pub async fn start(&self) {
        self.start_on(&mut *self.machine.lock().await).await;
    }

    async fn start_on(&self, machine: &mut Machine) {
        let begun = Instant::now();
        if machine
            .process
            .as_mut()
            .is_some_and(|process| !process.has_ended())
        {
            return;
        }
        loop {
            let mut command = process::command(&machine.program);
            command
                .envs(machine.env.iter().cloned())
                .envs(machine.clock.env());
            match process::serve(command, &self.log).await {
                Ok((process, address)) => {
                    self.front.lead_to(Target::Tcp(address));
                    machine.process = Some(process);
                    return;
                }
                Err(log) => assert!(begun.elapsed() < PATIENCE, "it does not start: {log}"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// The program of its next start.
    pub async fn set_program(&self, program: &Path) {
        program.clone_into(&mut self.machine.lock().await.program);
    }

    /// A setting of its next start.
    pub async fn set(&self, name: &str, value: &str) {
        let mut machine = self.machine.lock().await;
        machine.env.push((name.to_owned(), value.to_owned()));
    }

    /// Its memory in MB, while it runs, where the system has `/proc`.
    pub async fn memory(&self) -> Option<u64> {
        let pid = self.machine.lock().await.process.as_ref()?.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes >> 10)
    }

    /// Whether it has exited unexpectedly.
    pub async fn has_died(&self) -> bool {
        let mut machine = self.machine.lock().await;
        machine.process.as_mut().is_none_or(Guard::has_ended)
    }

    /// Kills it with -9, leaves it dead for a while, and starts it again.
    pub async fn kill(&self, down: Duration) {
        let mut machine = self.machine.lock().await;
        drop(machine.process.take());
        tokio::time::sleep(down).await;
        self.start_on(&mut machine).await;
    }

    /// Stops it gracefully, as for an update, and restarts it. `false`: it did not exit.
    pub async fn restart(&self) -> bool {
        let mut machine = self.machine.lock().await;
        let ended = match machine.process.take() {
            Some(process) => process.stop().await,
            None => true,
        };
        self.start_on(&mut machine).await;
        ended
    }

    /// Suspends it for a while, like a frozen machine.
    pub async fn pause(&self, length: Duration) {
        let mut machine = self.machine.lock().await;
        if let Some(process) = machine.process.as_mut() {
            signal(process.pid(), Signal::SIGSTOP);
            tokio::time::sleep(length).await;
            signal(process.pid(), Signal::SIGCONT);
        }
    }
}
