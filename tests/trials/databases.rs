//! The Postgres of the servers, alone or with a synchronous standby.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    postgres::Postgres,
    proxy::{Proxy, Target},
    signal::signal,
};

/// How long the standby may take to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Databases {
    primary: Postgres,
    standby: Option<Standby>,
    promoted: AtomicBool,
}

struct Standby {
    postgres: Postgres,
    /// Through which it follows the primary.
    replication: Proxy,
}

impl Databases {
    /// Creates and starts one in an empty folder.
    pub async fn one(folder: &Path, program: &Path) -> Self {
        Self {
            primary: Postgres::start(folder.join("primary"), program).await,
            standby: None,
            promoted: AtomicBool::new(false),
        }
    }

    /// Creates and starts one with a standby. A commit is acknowledged once the standby has it on
    /// disk.
    pub async fn pair(folder: &Path, program: &Path) -> Self {
        let mut pair = Self::one(folder, program).await;
        let standby = Standby {
            // Created only to have its folder with the right place and owner.
            postgres: Postgres::open(folder.join("standby"), program).await,
            replication: Proxy::start(Target::Nowhere).await,
        };
        for postgres in [&pair.primary, &standby.postgres] {
            let stopped = postgres.gensvc("", &["database", "stop"]).await;
            stopped.unwrap();
        }
        standby.copy(&pair.primary);
        pair.primary.revive().await;
        let socket = pair.primary.socket();
        standby.replication.lead_to(Target::Unix(socket));
        standby.postgres.revive().await;
        pair.standby = Some(standby);
        pair.tie().await;
        pair
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
        match &self.standby {
            Some(standby) if self.promoted.load(Ordering::Relaxed) => &standby.postgres,
            _ => &self.primary,
        }
    }

    /// A connection to the one that serves.
    pub async fn connect(&self) -> PgConnection {
        self.current().connect().await
    }

    /// Through which the standby follows the primary.
    pub fn replication(&self) -> &Proxy {
        &self.standby().replication
    }

    fn standby(&self) -> &Standby {
        self.standby.as_ref().unwrap()
    }

    /// Kills the primary and all its processes with -9.
    pub fn kill(&self) {
        let first = self.primary.cluster.pid().unwrap();
        // Otherwise it would notice that the others ended, and begin to recover.
        signal(first, Signal::SIGSTOP);
        let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        for line in listed.lines() {
            let mut ids = line.split_whitespace().filter_map(|id| id.parse().ok());
            if let (Some(id), Some(parent)) = (ids.next(), ids.next())
                && parent == first
            {
                signal(id, Signal::SIGKILL);
            }
        }
        signal(first, Signal::SIGKILL);
    }

    /// Promotes the standby.
    pub async fn promote(&self) {
        let seconds = PATIENCE.as_secs();
        let promote = format!("select pg_promote(true, {seconds})");
        let mut standby = self.standby().postgres.connect().await;
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

impl Standby {
    /// Creates its files from those of the primary, while neither runs.
    fn copy(&self, primary: &Postgres) {
        let (from, to) = (&primary.cluster.path, &self.postgres.cluster.path);
        let cp = |from: &Path, to: &Path| {
            // It keeps the owner, which is not us when we are root.
            let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
            assert!(copied.unwrap().success(), "the primary cannot be copied");
        };
        fs::remove_dir_all(to).unwrap();
        cp(from, to);
        // Only its existence matters.
        cp(&from.join("PG_VERSION"), &to.join("standby.signal"));
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
}
