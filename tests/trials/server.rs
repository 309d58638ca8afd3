//! One of the servers: a process behind two proxies, one for its clients and one for the
//! database.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::{
    clocks::Clock,
    postgres::{Postgres, ROLES},
    process::{self, Guard},
    proxy::{Proxy, Target},
};

/// How long startup or shutdown may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two polls of the log.
const TICK: Duration = Duration::from_millis(20);
/// Lease in seconds.
pub const LEASE_SECONDS: u64 = 2;

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
            ("PATH", &*std::env::var("PATH").unwrap_or_default()),
            ("DATABASE_URL", &database),
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
                program: process::current(),
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
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.log) {
            file.seek(SeekFrom::Start(offset)).unwrap();
            file.read_to_end(&mut bytes).unwrap();
        }
        let length = offset + u64::try_from(bytes.len()).unwrap();
        (String::from_utf8_lossy(&bytes).into_owned(), length)
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
            let (_, from) = self.log_from(0);
            let log = File::options()
                .create(true)
                .append(true)
                .open(&self.log)
                .unwrap();
            let child = Command::new(&machine.program)
                .arg("serve")
                .env_clear()
                .envs(machine.env.iter().cloned())
                .envs(machine.clock.env())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            let mut child = Guard::new(child);
            while !child.has_ended() && begun.elapsed() < PATIENCE {
                let (log, _) = self.log_from(from);
                let said = log.split_once("listening on http://");
                if let Some((address, _)) = said.and_then(|(_, rest)| rest.split_once([' ', '\n']))
                {
                    self.front.lead_to(Target::Tcp(address.parse().unwrap()));
                    machine.process = Some(child);
                    return;
                }
                tokio::time::sleep(TICK).await;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not start: {}",
                self.log_from(from).0
            );
            tokio::time::sleep(TICK * 5).await;
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
        let begun = Instant::now();
        let mut ended = true;
        if let Some(process) = machine.process.as_mut() {
            process::signal(process.pid(), "TERM");
            while !process.has_ended() && ended {
                tokio::time::sleep(TICK).await;
                ended = begun.elapsed() < PATIENCE;
            }
        }
        drop(machine.process.take());
        self.start_on(&mut machine).await;
        ended
    }

    /// Suspends it for a while, like a frozen machine.
    pub async fn pause(&self, length: Duration) {
        let mut machine = self.machine.lock().await;
        if let Some(process) = machine.process.as_mut() {
            process::signal(process.pid(), "STOP");
            tokio::time::sleep(length).await;
            process::signal(process.pid(), "CONT");
        }
    }
}
