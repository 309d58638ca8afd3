//! A primary Postgres and its synchronous standby.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    postgres::Postgres,
    process,
    proxy::{Proxy, Target},
};

/// How long the standby may take to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Killed,
    /// It runs on, but is unreachable in both directions.
    Silenced,
}

impl Loss {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Silenced => "silenced",
        }
    }
}

/// Both.
pub struct Pair {
    primary: Postgres,
    standby: Postgres,
    /// Through which the standby follows the primary.
    replication: Proxy,
    promoted: AtomicBool,
}

impl Pair {
    /// Creates and starts both in an empty folder. A commit is acknowledged once the standby has it
    /// on disk.
    pub async fn start(folder: &Path, program: &Path) -> Self {
        let (primary, standby) = (folder.join("primary"), folder.join("standby"));
        let pair = Self {
            primary: Postgres::start(primary, program).await,
            // Created only to have its folder with the right place and owner.
            standby: Postgres::open(standby, program).await,
            replication: Proxy::start(Target::Nowhere).await,
            promoted: AtomicBool::new(false),
        };
        for postgres in [&pair.primary, &pair.standby] {
            let stopped = postgres.gensvc("", &["database", "stop"]).await;
            stopped.unwrap();
        }
        pair.copy();
        pair.primary.revive().await;
        pair.replication
            .lead_to(Target::Unix(pair.primary.socket()));
        pair.standby.revive().await;
        pair.tie().await;
        pair
    }

    /// Creates the standby's files from those of the primary, while neither runs.
    fn copy(&self) {
        let (from, to) = (self.primary.cluster(), self.standby.cluster());
        let cp = |from: PathBuf, to: PathBuf| {
            // It keeps the owner, which is not us when we are root.
            let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
            assert!(copied.unwrap().success(), "the primary cannot be copied");
        };
        fs::remove_dir_all(&to).unwrap();
        cp(from.clone(), to.clone());
        // Only its existence matters.
        cp(from.join("PG_VERSION"), to.join("standby.signal"));
        let settings = to.join("postgresql.auto.conf");
        let mut settings = File::options().append(true).open(settings).unwrap();
        let address = self.replication.address();
        writeln!(
            settings,
            "primary_conninfo = 'host={} port={} user=gensvc sslmode=disable'",
            address.ip(),
            address.port(),
        )
        .unwrap();
    }

    /// Makes the primary wait for the standby at each commit.
    async fn tie(&self) {
        let mut primary = self.primary.connect().await;
        for sql in [
            "alter system set synchronous_standby_names = '*'",
            "select pg_reload_conf()",
        ] {
            sqlx::raw_sql(sql).execute(&mut primary).await.unwrap();
        }
        let begun = Instant::now();
        loop {
            let tied = "select exists (select from pg_stat_replication
                                       where state = 'streaming' and sync_state = 'sync')";
            if sqlx::query_scalar(tied)
                .fetch_one(&mut primary)
                .await
                .unwrap()
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the standby does not follow");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The one that serves.
    pub fn current(&self) -> &Postgres {
        if self.promoted.load(Ordering::Relaxed) {
            &self.standby
        } else {
            &self.primary
        }
    }

    /// A connection to the one that serves.
    pub async fn connect(&self) -> PgConnection {
        self.current().connect().await
    }

    /// Through which the standby follows the primary.
    pub fn replication(&self) -> &Proxy {
        &self.replication
    }

    /// Kills the primary and all its processes with -9.
    pub fn kill(&self) {
        let first = self.primary.pid().unwrap();
        // Otherwise it would notice that the others ended, and begin to recover.
        process::signal(first, "STOP");
        let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        for line in listed.lines() {
            let mut ids = line.split_whitespace().filter_map(|id| id.parse().ok());
            if let (Some(id), Some(parent)) = (ids.next(), ids.next())
                && parent == first
            {
                process::signal(id, "KILL");
            }
        }
        process::signal(first, "KILL");
    }

    /// Promotes the standby.
    pub async fn promote(&self) {
        let seconds = PATIENCE.as_secs();
        let promote = format!("select pg_promote(true, {seconds})");
        let mut standby = self.standby.connect().await;
        let promoted = sqlx::query_scalar::<_, bool>(AssertSqlSafe(promote));
        let promoted = promoted.fetch_one(&mut standby).await;
        assert!(promoted.unwrap(), "the standby is not promoted");
        self.promoted.store(true, Ordering::Relaxed);
    }

    /// Starts the lost one, unused: a killed one leaves shared memory behind, which only its next
    /// exit frees.
    pub async fn revive_lost(&self) {
        self.primary.revive().await;
    }
}
