//! All that takes part: what lives as long as the run, and what a case has for itself.

use std::{net::SocketAddr, path::PathBuf};

use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::{
    accounts::{self, Account},
    args::Args,
    folder::Folder,
    postgres::{self, Postgres},
    process::{self, Guard},
    role,
    server::Server,
    work::{Kind, Work},
};

const DATABASE: &str = "bench";

/// What lives as long as the run.
pub struct Stage {
    pub proxy: (Guard, SocketAddr),
    pub upstream: (Guard, SocketAddr),
    pub postgres: Postgres,
    program: PathBuf,
    folder: Folder,
}

/// What a case begins with.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub accounts: usize,
    pub servers: usize,
    /// Generations that exist before the load starts.
    pub generations: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            accounts: 1000,
            servers: 1,
            generations: 0,
        }
    }
}

/// A database, its accounts, and the servers on it.
pub struct Scene<'a> {
    pub stage: &'a Stage,
    pub database: String,
    pub accounts: Vec<Account>,
    pub servers: Vec<Server>,
    setup: Setup,
}

impl Stage {
    pub async fn set(args: &Args) -> Self {
        let folder = Folder::make("bench", args.keep);
        let upstream = role::start(&["upstream"]);
        let proxy = role::start(&["proxy", &upstream.1.to_string()]);
        let postgres = Postgres::start(&args.server, &folder.path().join("database")).await;
        Self {
            proxy,
            upstream,
            postgres,
            program: args.server.clone(),
            folder,
        }
    }

    /// Begins a case with an empty database.
    pub async fn scene(&self, setup: Setup) -> Scene<'_> {
        let database = self.postgres.database(DATABASE).await;
        self.gensvc(&database, &["migrate"]).await.unwrap();
        if setup.generations > 0 {
            let fill = include_str!("../scale/fill.sql");
            let fill = fill.replace(":rows", &setup.generations.to_string());
            let mut connection = postgres::connect(&database).await;
            let fill = sqlx::raw_sql(AssertSqlSafe(fill))
                .execute(&mut connection)
                .await;
            fill.unwrap();
        }
        let accounts = accounts::make(&database, setup.accounts).await;
        self.postgres.run("checkpoint").await;
        let mut servers = Vec::new();
        for n in 0..setup.servers {
            let (program, folder) = (&self.program, self.folder.path());
            let name = format!("server-{n}");
            servers.push(Server::start(program, folder, &name, &database, self.upstream.1).await);
        }
        Scene {
            stage: self,
            database,
            accounts,
            servers,
            setup,
        }
    }

    async fn gensvc(&self, database: &str, args: &[&str]) -> Result<String, String> {
        process::gensvc(&self.program, self.folder.path(), database, &[], args).await
    }
}

impl Scene<'_> {
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }

    /// The keys of the first so many accounts.
    pub fn keys(&self, accounts: usize) -> Vec<String> {
        let accounts = self.accounts.iter().take(accounts);
        accounts.map(|account| account.key.clone()).collect()
    }

    /// What the first so many accounts ask of gensvc.
    pub fn work(&self, kind: Kind, accounts: usize) -> Work {
        Work::gensvc(&self.addresses(), kind, &self.keys(accounts))
    }

    /// Stops the servers and audits the ledger. `false`: it does not agree.
    pub async fn end(self) -> bool {
        for server in self.servers {
            server.stop().await;
        }
        let agrees = if self.setup.generations > 0 {
            eprintln!("ledger not verified: its existing generations have no ledger entries");
            true
        } else {
            self.stage.verify(&self.database).await
        };
        self.stage.postgres.remove(DATABASE).await;
        agrees
    }
}

impl Stage {
    async fn verify(&self, database: &str) -> bool {
        match self.gensvc(database, &["ledger", "verify"]).await {
            Ok(printed) => {
                let found: Value = serde_json::from_str(&printed).unwrap_or_default();
                let entries = &found["entries"];
                eprintln!("ledger verified, {entries} entries");
                true
            }
            Err(said) => {
                eprintln!("THE LEDGER DOES NOT AGREE\n{said}");
                false
            }
        }
    }
}
