//! A Postgres of this run's own with durable defaults, started by the program.

use std::{path::Path, str::FromStr as _};

use serde_json::Value;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Row as _, postgres::PgConnectOptions,
};

use crate::{cluster::Cluster, counters::Usage, process};

/// The server, which is stopped when this is dropped.
pub struct Postgres {
    pub cluster: Cluster,
    url: String,
    admin: PgPool,
}

/// What it had written at one time.
#[derive(Debug, Default)]
pub struct Written {
    /// Transactions that changed something, those that were rolled back included.
    pub transactions: u64,
    pub wal_bytes: u64,
    pub usage: Usage,
}

impl Postgres {
    /// Makes and starts one in an empty folder.
    pub async fn start(server: &Path, folder: &Path) -> Self {
        let start = ["database", "start"];
        let printed = process::gensvc(server, folder, "", &[], &start).await;
        let printed: Value = serde_json::from_str(&printed.unwrap()).unwrap();
        let url = printed["url"].as_str().unwrap().to_owned();
        let admin = PgPool::connect_lazy(&url).unwrap();
        let postgres = Self {
            cluster: Cluster::new(folder),
            url,
            admin,
        };
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            let value = postgres.show(setting).await;
            assert_eq!(
                value, "on",
                "{setting}: nothing but durable commits is measured"
            );
        }
        postgres
    }

    pub async fn show(&self, setting: &str) -> String {
        let row = sqlx::query(AssertSqlSafe(format!("show {setting}")));
        row.fetch_one(&self.admin).await.unwrap().get(0)
    }

    /// Runs a statement outside the databases of the cases.
    pub async fn run(&self, statement: &str) {
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(statement).execute(&self.admin).await.unwrap();
    }

    /// An empty database of that name; its URL.
    pub async fn database(&self, name: &str) -> String {
        self.remove(name).await;
        self.run(&format!("create database {name}")).await;
        self.url.replacen("///gensvc?", &format!("///{name}?"), 1)
    }

    pub async fn remove(&self, name: &str) {
        self.run(&format!("drop database if exists {name} with (force)"))
            .await;
    }

    /// Makes each commit that long, as a slow disk would; 0 as it is. Microseconds.
    pub async fn delay_commits(&self, delay: u32) {
        self.run(&format!("alter system set commit_delay = {delay}"))
            .await;
        self.run("alter system set commit_siblings = 0").await;
        self.run("select pg_reload_conf()").await;
    }

    /// What it has written and used so far.
    pub async fn written(&self) -> Written {
        // Exact and at once, which the statistics of commits are not.
        let row = sqlx::query(
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                    (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint",
        );
        let row = row.fetch_one(&self.admin).await.unwrap();
        Written {
            transactions: row.get::<i64, _>(0).unsigned_abs(),
            wal_bytes: row.get::<i64, _>(1).unsigned_abs(),
            usage: Usage::of_family(self.cluster.pid().unwrap()),
        }
    }
}

/// A connection of our own to a database.
pub async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).unwrap();
    options.connect().await.unwrap()
}

/// Gives the planner statistics, as autovacuum does after a minute.
pub async fn analyze(url: &str) {
    let mut connection = connect(url).await;
    let analyzing = sqlx::raw_sql("vacuum analyze").execute(&mut connection);
    analyzing.await.unwrap();
}
