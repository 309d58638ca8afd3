//! The running server of one cluster: starting it and ending it. What is done here
//! is done under the start lock (see `locks`); only `is_well` is not.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    process::Child,
    time::{Instant, sleep},
};

use super::{
    error::{At, LocalPostgresError, Result},
    home::Home,
    log,
    look::{State, Status, look, note},
    process::{self, TICK},
    programs, socket,
};

/// How often a server that ends at once is started again before that is an error.
const LAUNCHES: u32 = 5;
/// How long recovery from a crash may take before that is an error. The server is
/// left to it: the next look finds it further on.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// How long somebody else's shutdown, or a server without its socket, is watched
/// before it is helped along.
const LIMBO: Duration = Duration::from_secs(2);
/// Fast shutdown, then immediate (in which Postgres gives its children 5 s), then
/// by force, and how long each may take.
const ENDINGS: [(&str, Duration); 3] = [
    ("INT", Duration::from_secs(10)),
    ("QUIT", Duration::from_secs(7)),
    ("KILL", Duration::from_secs(2)),
];

/// A cluster and what is known of its server.
#[derive(Debug)]
pub(super) struct Postmaster {
    home: Home,
    socket: PathBuf,
    /// Ours if we started it: kept to be reaped, since as a zombie it would look
    /// alive to the next server.
    child: Option<Child>,
    /// The process and its start when it was last found ready.
    seen: Option<(u32, u64)>,
}

impl Postmaster {
    /// Decides where the socket lies; starts nothing.
    pub(super) fn new(home: Home) -> Result<Self> {
        let socket = socket::choose(&home.dir, &home.account)?;
        Ok(Self {
            home,
            socket,
            child: None,
            seen: None,
        })
    }

    /// Stops the server of `home`, if any runs.
    pub(super) async fn stop_in(home: Home) -> Result<bool> {
        Self::new(home)?.stop().await
    }

    /// The folder of the socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The log's file.
    pub(super) fn log(&self) -> PathBuf {
        self.home.log()
    }

    /// Whether the server last seen is certainly as it was. Cheap: no process, no
    /// connection.
    pub(super) fn is_well(&self) -> bool {
        self.seen
            .is_some_and(|(pid, start)| process::started_at(pid) == Some(start))
            && note(&self.home).is_some_and(|(_, status)| status == Status::Ready)
            && socket::file(&self.socket).exists()
    }

    /// Returns when the server is ready, and whether it had to be started.
    pub(super) async fn ensure(&mut self) -> Result<bool> {
        let begun = Instant::now();
        let (mut launches, mut log_from) = (0, 0);
        let mut limbo = None;
        loop {
            match look(&self.home, &self.socket).await {
                State::Up(pid, Status::Ready) => {
                    self.seen = pid.and_then(|pid| Some((pid, process::started_at(pid)?)));
                    return Ok(launches > 0);
                }
                State::Up(_, Status::Starting) => limbo = None,
                // Too young to have left a note, or to listen.
                State::Down | State::Deaf(_) if launches > 0 && self.child_runs() => {}
                State::Down if launches == LAUNCHES => {
                    let log = self.home.log();
                    let tail = log::tail(&log, log_from);
                    return Err(LocalPostgresError::StartFailed { log, tail });
                }
                State::Down => {
                    sleep(TICK * 10 * launches).await;
                    log_from = self.launch().await?;
                    launches += 1;
                    limbo = None;
                }
                State::Deaf(pid) | State::Up(Some(pid), Status::Stopping) => {
                    if limbo.get_or_insert_with(Instant::now).elapsed() > LIMBO {
                        self.end(pid).await?;
                    }
                }
                State::Up(None, Status::Stopping) => {}
            }
            if begun.elapsed() > START_PATIENCE {
                return Err(LocalPostgresError::Slow {
                    cluster: self.home.cluster(),
                    log: self.home.log(),
                    seconds: START_PATIENCE.as_secs(),
                });
            }
            sleep(TICK).await;
        }
    }

    /// Stops the server and returns whether there was one.
    pub(super) async fn stop(&mut self) -> Result<bool> {
        match look(&self.home, &self.socket).await {
            State::Down => match self.known() {
                Some(pid) => self.end(pid).await.map(|()| true),
                None => {
                    if note(&self.home).is_some() {
                        let cluster = self.home.cluster();
                        process::end_orphans(&self.home.account, &cluster).await?;
                    }
                    Ok(false)
                }
            },
            State::Deaf(pid) | State::Up(Some(pid), _) => {
                self.end(pid).await?;
                Ok(true)
            }
            State::Up(None, _) => Err(LocalPostgresError::Elsewhere {
                cluster: self.home.cluster(),
            }),
        }
    }

    /// Starts a server and returns where its lines in the log begin. Nobody else
    /// runs on the cluster, as far as one can see.
    async fn launch(&mut self) -> Result<u64> {
        if let Some(pid) = self.known() {
            // It lost its note and its socket, and would end by itself too late.
            self.end(pid).await?;
        }
        let home = &self.home;
        let cluster = home.cluster();
        let programs = programs::of_version(home.version()?, &cluster).await?;
        self.clear_the_dead().await?;
        socket::ensure(&self.socket, &home.dir, &home.account)?;
        let log_path = home.log();
        let (log, log_from) = log::open(&log_path)?;
        let second = log.try_clone().at("open", &log_path)?;
        let folders = format!("unix_socket_directories=\"{}\"", self.socket.display());
        let mut postgres = home.account.command(programs.bin.join("postgres"));
        postgres.arg("-D").arg(&cluster).args(["-p", socket::PORT]);
        for setting in [
            "listen_addresses=",
            &folders,
            "unix_socket_permissions=0700",
            // The log is the stderr below.
            "logging_collector=off",
            "log_destination=stderr",
        ] {
            postgres.args(["-c", setting]);
        }
        // Not `pg_ctl start`: that looks every 100 ms and hides the process.
        let child = postgres
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(second))
            .spawn()
            .map_err(|source| home.account.not_run("postgres", &source))?;
        self.child = Some(child);
        Ok(log_from)
    }

    /// Removes what a killed server leaves behind and the next would stumble over.
    async fn clear_the_dead(&self) -> Result<()> {
        let home = &self.home;
        if let Some((pid, _)) = note(home) {
            process::end_orphans(&home.account, &home.cluster()).await?;
            // Postgres deals with a note of a dead process itself, and carefully.
            // It gives up only when the number lives on as another process.
            if process::exists(pid).await {
                remove(&home.pid_file())?;
            }
        }
        // The same holds for the socket's note, which has no other safeguard to
        // lose: the folder is of this cluster alone.
        let socket = socket::file(&self.socket);
        remove(&socket.with_added_extension("lock"))?;
        remove(&socket)
    }

    /// Ends the server: gently, then firmly.
    async fn end(&mut self, pid: u32) -> Result<()> {
        self.seen = None;
        for (name, patience) in ENDINGS {
            process::signal(&self.home.account, pid, name).await?;
            let begun = Instant::now();
            while begun.elapsed() < patience {
                self.child_runs();
                if !process::is_alive(pid).await {
                    if name == "KILL" {
                        let cluster = self.home.cluster();
                        process::end_orphans(&self.home.account, &cluster).await?;
                    }
                    // Once more, to reap it: nothing may look alive that is not.
                    self.child_runs();
                    return Ok(());
                }
                sleep(TICK).await;
            }
        }
        Err(LocalPostgresError::StopFailed {
            cluster: self.home.cluster(),
            pid,
        })
    }

    /// The server that we started or last saw, if it lives: also known when its
    /// files were removed.
    fn known(&mut self) -> Option<u32> {
        if self.child_runs() {
            return self.child.as_ref().and_then(Child::id);
        }
        let (pid, start) = self.seen?;
        (process::started_at(pid) == Some(start)).then_some(pid)
    }

    /// Whether the server that we started lives; reaps it if not.
    fn child_runs(&mut self) -> bool {
        let runs = self
            .child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !runs {
            self.child = None;
        }
        runs
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).at("remove", path),
        _ => Ok(()),
    }
}
