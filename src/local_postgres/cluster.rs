//! Starts and stops a cluster by `pg_ctl`, under the start lock (see `locks`).

use std::{
    fs::{self, Permissions},
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
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
    account::Account,
    error::{At, LocalPostgresError, Result},
    home, log,
    programs::{self, Programs},
    remove_file, socket,
};

/// Failed starts after which starting fails.
const MAX_STARTS: u32 = 5;
/// Maximum time of a start, including crash recovery. The server continues to start afterwards.
const START_TIMEOUT: Duration = Duration::from_mins(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Postgres logs this while processes of a killed predecessor are ending.
const PREDECESSOR: &str = "pre-existing shared memory";
/// Modes of `pg_ctl stop`, each with its timeout in seconds.
const STOP_MODES: [(&str, &str); 2] = [("fast", "10"), ("immediate", "7")];
/// Everyone who can enter the socket's folder may connect.
const TRUST: &str = "local all,replication all trust\n";
/// Only root may connect: other processes of Postgres' user can enter the socket's folder too.
const ROOT_ONLY: &str = "local all,replication all peer map=root\n";
const ROOT_MAP: &str = "root root gensvc\n";

#[derive(Debug)]
pub(super) struct Cluster {
    data: PathBuf,
    home: PathBuf,
    socket: PathBuf,
    account: Account,
}

impl Cluster {
    /// Returns the cluster of a data directory, if there is one.
    pub(super) fn find(data: &Path) -> Result<Option<Self>> {
        let Some(home) = home::find(data)? else {
            return Ok(None);
        };
        let (cluster, version) = (home.join("cluster"), home.join("cluster/PG_VERSION"));
        if !version.try_exists().at("read", &cluster)? {
            return Ok(None);
        }
        let account = Account::for_existing(&cluster)?;
        Ok(Some(Self::new(data, &home, account)))
    }

    pub(super) fn new(data: &Path, home: &Path, account: Account) -> Self {
        Self {
            data: data.to_owned(),
            home: home.to_owned(),
            socket: socket::folder(home),
            account,
        }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn log(&self) -> PathBuf {
        home::log(&self.data)
    }

    /// Whether the server is certainly running. Needs no process and no connection.
    pub(super) fn is_well(&self) -> bool {
        let (pid, is_ready) = self.pid_file().unwrap_or_default();
        is_ready && self.is_server(pid) && socket::file(&self.socket).exists()
    }

    /// Starts the server unless it is running, and waits until it is ready. Returns whether it did.
    pub(super) async fn start(&self) -> Result<bool> {
        let begun = Instant::now();
        let (mut started, mut failures) = (false, 0);
        while begun.elapsed() < START_TIMEOUT {
            let (pid, is_ready) = self.pid_file().unwrap_or_default();
            let answers = self.answers().await;
            if answers && is_ready {
                return Ok(started);
            }
            if is_ready && self.is_server(pid) && !socket::file(&self.socket).exists() {
                // Its socket was deleted.
                self.stop().await?;
            } else if !answers && !self.is_server(pid) {
                let log_start = self.launch(pid).await?;
                started = log_start.is_none();
                if let Some(log_start) = log_start {
                    let log = self.log();
                    let tail = log::tail(&log, log_start);
                    failures += u32::from(!tail.contains(PREDECESSOR));
                    if failures == MAX_STARTS {
                        return Err(LocalPostgresError::StartFailed { log, tail });
                    }
                    sleep(5 * CHECK_INTERVAL * failures).await;
                }
            }
            sleep(CHECK_INTERVAL).await;
        }
        Err(LocalPostgresError::Slow {
            cluster: self.home.join("cluster"),
            log: self.log(),
            seconds: START_TIMEOUT.as_secs(),
        })
    }

    /// Returns whether a server accepts connections, including one in another container, whose
    /// process is not visible here.
    async fn answers(&self) -> bool {
        match UnixStream::connect(socket::file(&self.socket)).await {
            Ok(_) => true,
            // The server's connection queue is full.
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Stops the server and returns whether it was running.
    pub(super) async fn stop(&self) -> Result<bool> {
        let (pid, _) = self.pid_file().unwrap_or_default();
        if !self.is_server(pid) {
            if self.answers().await {
                return Err(LocalPostgresError::InUse {
                    data: self.data.clone(),
                    user: "a Postgres server in another container".to_owned(),
                });
            }
            return Ok(false);
        }
        let programs = programs::of_cluster(&self.home.join("cluster")).await?;
        for (mode, seconds) in STOP_MODES {
            let mut stop = self.pg_ctl(&programs, seconds);
            let status = stop.args(["-m", mode, "stop"]).status().await;
            if status.is_ok_and(|status| status.success()) || !self.is_server(pid) {
                return Ok(true);
            }
        }
        // The next start recovers from the write-ahead log.
        match kill(Pid::from_raw(pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => Ok(true),
            Err(error) => Err(self.account.failed("kill", error.desc())),
        }
    }

    /// Starts a stopped server. `old`: the process in its pid file. If the start failed, returns
    /// the position in the log where the reason begins.
    async fn launch(&self, old: i32) -> Result<Option<u64>> {
        let programs = programs::of_cluster(&self.home.join("cluster")).await?;
        self.forget_process(old)?;
        socket::create(&self.socket, &self.home, &self.account)?;
        self.write_access_rules()?;
        let log_path = self.log();
        let (log, log_start) = log::open(&log_path)?;
        let second = log.try_clone().at("open", &log_path)?;
        // For a shell; the folder's name contains no quotes.
        let options = format!(
            "-p {} -c listen_addresses= -c 'unix_socket_directories=\"{}\"' \
             -c unix_socket_permissions=0700 -c logging_collector=off -c log_destination=stderr",
            socket::PORT,
            self.socket.display(),
        );
        let status = self
            .pg_ctl(&programs, &START_TIMEOUT.as_secs().to_string())
            .args(["-o", &options, "start"])
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(second))
            .status()
            .await
            .map_err(|source| self.account.failed("pg_ctl", &source.to_string()))?;
        Ok((!status.success()).then_some(log_start))
    }

    /// Replaces a dead server's process id in its lock files if another process has that id now,
    /// since Postgres would not start then. The rest of the files stays: it names the shared memory
    /// that excludes a second server while processes of the dead one live.
    fn forget_process(&self, old: i32) -> Result<()> {
        let _ = fs::remove_file(socket::lock_file(&self.socket));
        if old == 0 || kill(Pid::from_raw(old), None) == Err(Errno::ESRCH) {
            return Ok(());
        }
        let path = self.home.join("cluster/postmaster.pid");
        let text = fs::read_to_string(&path).at("read", &path)?;
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        fs::write(&path, format!("{}\n{rest}", i32::MAX)).at("write", &path)
    }

    /// Writes the access rules at each start, because another user may run gensvc now.
    fn write_access_rules(&self) -> Result<()> {
        let is_lent = self.account.is_other()
            && Account::for_new().is_ok_and(|lent| lent.uid == self.account.uid);
        let rules = if is_lent { ROOT_ONLY } else { TRUST };
        for (name, text) in [("pg_hba.conf", rules), ("pg_ident.conf", ROOT_MAP)] {
            // Writes to a new file and renames it, because a write would follow a symlink that the
            // Postgres user can create.
            let (aside, path) = (self.home.join(name), self.home.join("cluster").join(name));
            remove_file(&aside)?;
            fs::write(&aside, text).at("write", &aside)?;
            self.account.own(&aside)?;
            fs::set_permissions(&aside, Permissions::from_mode(0o600)).at("write", &aside)?;
            fs::rename(&aside, &path).at("rename", &aside)?;
        }
        Ok(())
    }

    /// Builds a `pg_ctl` command that waits. It runs in the home, since it passes the cluster's
    /// name to a shell.
    fn pg_ctl(&self, programs: &Programs, seconds: &str) -> Command {
        let mut command = self.account.command(programs.bin.join("pg_ctl"));
        command
            .current_dir(&self.home)
            .args(["-D", "cluster", "-s", "-w", "-t", seconds])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Whether a process is this server: its arguments contain the socket's folder.
    fn is_server(&self, pid: i32) -> bool {
        let folder = self.socket.as_os_str().as_encoded_bytes();
        is_postgres(pid)
            && match fs::read(format!("/proc/{pid}/cmdline")) {
                Ok(line) => line.windows(folder.len()).any(|part| part == folder),
                Err(_) => !Path::new("/proc/self/stat").exists(),
            }
    }

    /// Returns the process in `postmaster.pid`, and whether the server is ready.
    fn pid_file(&self) -> Option<(i32, bool)> {
        parse_pid_file(&fs::read_to_string(self.home.join("cluster/postmaster.pid")).ok()?)
    }
}

/// Parses `postmaster.pid`: its first line is the process, the eighth its state.
fn parse_pid_file(text: &str) -> Option<(i32, bool)> {
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok().filter(|&pid| pid > 0)?;
    let is_ready = lines.nth(6).is_some_and(|state| state.trim() == "ready");
    Some((pid, is_ready))
}

/// Whether a process is running and is a Postgres.
fn is_postgres(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // PID (NAME) STATE ...; Z is a zombie.
        Ok(stat) => stat.contains("(postgres) ") && !stat.contains(") Z "),
        Err(_) if pid == 0 || Path::new("/proc/self/stat").exists() => false,
        // Without /proc (macOS) the name is unknown.
        Err(_) => kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_postgres, parse_pid_file};

    #[test]
    fn pid_file_is_parsed() {
        let file = "4711\n/d/cluster\n1700000000\n5432\n/d/run\n\n  1234 5\nready   \n";
        assert_eq!(parse_pid_file(file), Some((4711, true)));
        let young = "4711\n/d/cluster\n1700000000\n";
        assert_eq!(parse_pid_file(young), Some((4711, false)));
        assert_eq!(parse_pid_file(""), None);
    }

    #[test]
    fn another_process_is_no_postgres() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_postgres(own));
        assert!(!is_postgres(i32::MAX));
    }
}
