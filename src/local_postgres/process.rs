//! Looking at processes and signalling them. Signals go through the shell's own
//! `kill`, as the user Postgres runs as: that needs no unsafe code, and it cannot
//! hit a process of anybody else whatever number a stale file names.

use std::{ffi::OsStr, fs, path::Path, time::Duration};

use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{account::Account, error::Result};

/// How often a process is looked at while we wait for it.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// When a process was started, in ticks since boot; `None` if it is gone or only
/// waits to be reaped. Together with the number this names a process for good.
pub(super) fn started_at(pid: u32) -> Option<u64> {
    started_at_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn started_at_in(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything, blanks and parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// Whether the process still runs.
pub(super) async fn is_alive(pid: u32) -> bool {
    if Path::new("/proc/self/stat").exists() {
        return started_at(pid).is_some();
    }
    !arguments(pid).await.is_empty()
}

/// Whether the number is taken, if only by a process that waits to be reaped.
pub(super) async fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists() || is_alive(pid).await
}

/// Whether the process is a postmaster of this cluster, by its command line:
/// anybody may read that, while its open files need rights that root lacks in a
/// container.
pub(super) async fn is_postmaster(pid: u32, cluster: &Path) -> bool {
    let arguments = arguments(pid).await;
    started_with(&arguments, cluster)
}

fn started_with(arguments: &[Vec<u8>], cluster: &Path) -> bool {
    let Some((program, rest)) = arguments.split_first() else {
        return false;
    };
    let name = program.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let cluster = cluster.as_os_str().as_encoded_bytes();
    matches!(name, b"postgres" | b"postmaster") && rest.iter().any(|arg| arg == cluster)
}

async fn arguments(pid: u32) -> Vec<Vec<u8>> {
    let path = format!("/proc/{pid}/cmdline");
    let (line, blank) = match fs::read(path) {
        Ok(line) => (line, 0),
        Err(_) if Path::new("/proc/self/stat").exists() => return Vec::new(),
        Err(_) => {
            let mut ps = Command::new("ps");
            ps.args(["-ww", "-o", "command=", "-p", &pid.to_string()]);
            let printed = ps.output().await.map(|output| output.stdout);
            (printed.unwrap_or_default(), b' ')
        }
    };
    line.split(|&b| b == blank || b == b'\n')
        .filter(|arg| !arg.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Sends a signal. A process that is gone already is no error.
pub(super) async fn signal(account: &Account, pid: u32, name: &str) -> Result<()> {
    let pid = pid.to_string();
    let args = [OsStr::new(name), OsStr::new(&pid)];
    account
        .shell("kill -s \"$0\" \"$1\" 2>/dev/null", &args)
        .await?;
    Ok(())
}

/// Signals every process of Postgres whose working folder is the cluster, and
/// tells whether there was any. The look-up runs as Postgres' user as well:
/// it may look at its own processes even where root may not.
const SWEEP: &str = r#"
for p in /proc/[0-9]*; do
    [ "$p/cwd" -ef "$0" ] || continue
    read -r name < "$p/comm" || continue
    [ "$name" = postgres ] && kill -s "$1" "${p#/proc/}" && echo "${p#/proc/}"
done 2>/dev/null
true"#;

/// Ends the backends that outlived their postmaster. They end by themselves as
/// soon as they notice, but one in the middle of a long computation does not, and
/// no new postmaster starts while one of them holds the shared memory. Killing is
/// safe here: that memory is thrown away, and the write-ahead log is on disk.
pub(super) async fn end_orphans(account: &Account, cluster: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        let waited = begun.elapsed();
        let name = if waited < Duration::from_millis(500) {
            "QUIT"
        } else {
            "KILL"
        };
        let args = [cluster.as_os_str(), OsStr::new(name)];
        let (_, printed) = account.shell(SWEEP, &args).await?;
        if printed.is_empty() || waited > Duration::from_secs(5) {
            return Ok(());
        }
        let pids: Vec<&str> = printed.lines().collect();
        tracing::debug!(?pids, signal = name, "ended backends without a postmaster");
        sleep(TICK * 3).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{started_at, started_at_in, started_with};

    #[test]
    fn reads_the_start_of_a_process() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2\n";
        assert_eq!(started_at_in(stat), Some(4711));
        assert_eq!(started_at_in(&stat.replace(" S ", " Z ")), None);
        assert_eq!(started_at(u32::MAX), None);
    }

    #[test]
    fn only_a_postmaster_of_this_cluster_counts() {
        let line = |text: &str| -> Vec<Vec<u8>> {
            text.split(' ').map(|arg| arg.as_bytes().to_vec()).collect()
        };
        let cluster = Path::new("/d/cluster");
        assert!(started_with(
            &line("/usr/bin/postgres -D /d/cluster"),
            cluster
        ));
        assert!(!started_with(
            &line("/usr/bin/postgres -D /d/cluster2"),
            cluster
        ));
        assert!(!started_with(&line("vi /d/cluster"), cluster));
        assert!(!started_with(&[], cluster));
    }
}
