//! Starting and stopping a cluster by `pg_ctl`. It is done under the start lock (see `locks`);
//! only [`Cluster::is_well`] is not.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    net::UnixStream,
    process::Command,
    time::{Instant, sleep},
};

use super::{
    access,
    error::{At, LocalPostgresError, Result},
    home::Home,
    log,
    programs::{self, Programs},
    socket,
};

/// How often a server that ends at once is started again before that is an error.
const LAUNCHES: u32 = 5;
/// How long a start, recovery from a crash included, may take before that is an error. The
/// server is left to it: the next look finds it further on.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// Between two checks of a server that starts or stops.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// What Postgres says while processes of a killed predecessor still end.
const PREDECESSOR: &str = "pre-existing shared memory";
/// The modes of a stop, and the seconds that each may take.
const STOPS: [(&str, &str); 2] = [("fast", "10"), ("immediate", "7")];

/// A cluster and where its socket is.
#[derive(Debug)]
pub(super) struct Cluster {
    home: Home,
    socket: PathBuf,
}

/// The state of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    /// It starts or stops.
    Busy,
    /// It runs, but its socket was removed.
    Unreachable,
    Ready,
}

/// The server's own note, `postmaster.pid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    pid: i32,
    ready: bool,
}

impl Cluster {
    /// The cluster of `home`; starts nothing.
    pub(super) fn of(home: Home) -> Self {
        let socket = socket::folder(&home.dir);
        Self { home, socket }
    }

    /// The folder of the socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn log(&self) -> PathBuf {
        self.home.log()
    }

    /// The server's process, if there is one.
    pub(super) fn pid(&self) -> Option<i32> {
        let pid = self.note()?.pid;
        self.is_ours(pid).then_some(pid)
    }

    /// Whether the server certainly runs. Cheap: no process, no connection.
    pub(super) fn is_well(&self) -> bool {
        self.note()
            .is_some_and(|note| note.ready && self.is_ours(note.pid))
            && socket::file(&self.socket).exists()
    }

    /// Returns when the server is ready, and whether it had to be started.
    pub(super) async fn ensure(&self) -> Result<bool> {
        let begun = Instant::now();
        let (mut started, mut failures) = (false, 0);
        while begun.elapsed() < START_PATIENCE {
            match self.look().await {
                State::Ready => return Ok(started),
                State::Busy => {}
                State::Unreachable => drop(self.stop().await?),
                State::Down => {
                    let from = self.start().await?;
                    started = from.is_none();
                    if let Some(from) = from {
                        let log = self.log();
                        let tail = log::tail(&log, from);
                        failures += u32::from(!tail.contains(PREDECESSOR));
                        if failures == LAUNCHES {
                            return Err(LocalPostgresError::StartFailed { log, tail });
                        }
                        sleep(LOOK_AGAIN * failures).await;
                    }
                }
            }
            sleep(LOOK_AGAIN / 10).await;
        }
        Err(LocalPostgresError::Slow {
            cluster: self.home.cluster(),
            log: self.log(),
            seconds: START_PATIENCE.as_secs(),
        })
    }

    /// Stops the server and returns whether there was one.
    pub(super) async fn stop(&self) -> Result<bool> {
        if self.look().await == State::Down {
            return Ok(false);
        }
        let cluster = self.home.cluster();
        let Some(note) = self.note().filter(|note| self.is_ours(note.pid)) else {
            return Err(LocalPostgresError::Elsewhere { cluster });
        };
        let programs = programs::of_version(self.home.version()?, &cluster).await?;
        for (mode, seconds) in STOPS {
            let mut stop = self.pg_ctl(&programs, seconds);
            let status = stop.args(["-m", mode, "stop"]).status().await;
            let status = status.map_err(|source| self.home.account.not_run("pg_ctl", &source))?;
            if status.success() {
                return Ok(true);
            }
        }
        if !self.is_ours(note.pid) {
            return Ok(true);
        }
        // It hangs. Killing is safe: the next start recovers from the write-ahead log.
        let killed = kill(Pid::from_raw(note.pid), Signal::SIGKILL);
        match killed {
            Ok(()) | Err(Errno::ESRCH) => Ok(true),
            Err(error) => Err(self.home.account.failed("kill", error.desc())),
        }
    }

    /// Starts a server that is down. `Some`: it ended at once, and its log tells why from there.
    async fn start(&self) -> Result<Option<u64>> {
        let (home, cluster) = (&self.home, self.home.cluster());
        let programs = programs::of_version(home.version()?, &cluster).await?;
        // Postgres removes the lock files of a dead process itself, and carefully. It gives up
        // only when the number in them still is a process: another one by now, or the dead one
        // that nobody has waited for yet. Then only the note's number is made one that no
        // process has: the shared memory that the note names keeps a second server away while
        // processes of the dead one live. The socket's lock is not needed: nobody answers there.
        if let Some(note) = self.note()
            && Path::new(&format!("/proc/{}", note.pid)).exists()
            && !self.is_ours(note.pid)
        {
            let path = home.pid_file();
            let text = fs::read_to_string(&path).at("read", &path)?;
            let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
            fs::write(&path, format!("{}\n{rest}", i32::MAX)).at("write", &path)?;
        }
        socket::unlock(&self.socket)?;
        socket::ensure(&self.socket, &home.dir, &home.account)?;
        access::write(home)?;
        let path = home.log();
        let (log, from) = log::open(&path)?;
        let second = log.try_clone().at("open", &path)?;
        // For a shell, in single quotes, which the folder's name has none of.
        let options = format!(
            "-p {} -c listen_addresses= -c 'unix_socket_directories=\"{}\"' \
             -c unix_socket_permissions=0700 -c logging_collector=off -c log_destination=stderr \
             {}",
            socket::PORT,
            self.socket.display(),
            access::OPTIONS
        );
        let seconds = START_PATIENCE.as_secs().to_string();
        let status = self
            .pg_ctl(&programs, &seconds)
            .arg("-o")
            .arg(options)
            .arg("start")
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(second))
            .status()
            .await
            .map_err(|source| home.account.not_run("pg_ctl", &source))?;
        Ok((!status.success()).then_some(from))
    }

    /// `pg_ctl` that waits. In the home and with the cluster's bare name: it hands that to a
    /// shell.
    fn pg_ctl(&self, programs: &Programs, seconds: &str) -> Command {
        let mut command = self.home.account.command(programs.bin.join("pg_ctl"));
        command
            .current_dir(&self.home.dir)
            .args(["-D", "cluster", "-s", "-w", "-t", seconds])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Looks afresh. Whoever answers in our private folder is ours, also from another
    /// container, whose processes cannot be seen: only this cluster's user can listen there.
    async fn look(&self) -> State {
        let note = self.note();
        let ready = note.is_some_and(|note| note.ready);
        match UnixStream::connect(socket::file(&self.socket)).await {
            Ok(_) if ready => State::Ready,
            // So busy that its queue of connections is full.
            Err(e) if e.kind() == ErrorKind::WouldBlock => State::Ready,
            Err(_) if !note.is_some_and(|note| self.is_ours(note.pid)) => State::Down,
            Err(_) if ready => State::Unreachable,
            Ok(_) | Err(_) => State::Busy,
        }
    }

    /// Whether a process lives and is this cluster's server: its arguments name the socket's
    /// folder. The number alone may be another's by now.
    fn is_ours(&self, pid: i32) -> bool {
        let folder = self.socket.as_os_str().as_encoded_bytes();
        is_postgres(pid)
            && match fs::read(format!("/proc/{pid}/cmdline")) {
                Ok(line) => line.windows(folder.len()).any(|part| part == folder),
                Err(_) => !Path::new("/proc/self/stat").exists(),
            }
    }

    fn note(&self) -> Option<Note> {
        parse_note(&fs::read_to_string(self.home.pid_file()).ok()?)
    }
}

/// The process is in the first line, its state in the eighth.
fn parse_note(text: &str) -> Option<Note> {
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok().filter(|&pid| pid > 0)?;
    let ready = lines.nth(6).is_some_and(|state| state.trim() == "ready");
    Some(Note { pid, ready })
}

/// Whether a process lives and is a Postgres.
fn is_postgres(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // PID (NAME) STATE ...; a zombie has ended and only waits for its parent.
        Ok(stat) => stat.contains("(postgres) ") && !stat.contains(") Z "),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        // No /proc (macOS): the name is not known.
        Err(_) => kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::{Note, is_postgres, parse_note};

    #[test]
    fn reads_the_note() {
        let pid = 4711;
        let note = "4711\n/d/cluster\n1700000000\n5432\n/d/run\n\n  1234 5\nready   \n";
        assert_eq!(parse_note(note), Some(Note { pid, ready: true }));
        let young = "4711\n/d/cluster\n1700000000\n";
        assert_eq!(parse_note(young), Some(Note { pid, ready: false }));
        assert_eq!(parse_note(""), None);
    }

    #[test]
    fn another_process_is_no_postgres() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_postgres(own));
        assert!(!is_postgres(i32::MAX));
    }
}
