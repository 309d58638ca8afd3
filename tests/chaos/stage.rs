//! All that takes part in a run.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

use crate::{
    args::Args, postgres::Postgres, process, seen::Seen, server::Server, tally::Tally,
    upstream::Upstream,
};

/// Every account's password.
pub const PASSWORD: &str = "correct horse battery";
/// What the accounts begin with: two that have plenty, and two that run short.
const CREDITS: [&str; 4] = ["1000000", "20000", "40", "15"];

/// An account of a client.
pub struct Account {
    pub id: i64,
    pub email: String,
    /// A key without a rate limit that would get in the way.
    pub key: String,
}

/// All that takes part. What is dropped first is named first: servers, then the database, then
/// the folder.
pub struct Stage {
    pub servers: [Server; 2],
    pub upstream: Upstream,
    pub postgres: Postgres,
    pub accounts: Vec<Account>,
    pub seen: Seen,
    pub tally: Arc<Tally>,
    pub args: Args,
    /// Set: clients begin nothing more.
    over: AtomicBool,
    folder: Folder,
}

/// A folder that is removed with all that is in it, unless it is to be kept.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            println!("The servers' logs are in {}.", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Stage {
    /// Everything up and running.
    pub async fn set(args: &Args) -> Arc<Self> {
        let name = format!("chaos-{}", std::process::id());
        let folder = Folder {
            path: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name),
            keep: args.keep,
        };
        std::fs::create_dir_all(&folder.path).unwrap();
        let tally = Arc::new(Tally::default());
        let upstream = Upstream::start(args, &tally).await;
        let postgres = Postgres::start(folder.path.join("database")).await;
        let mut accounts = Vec::new();
        for (n, credits) in CREDITS.iter().enumerate() {
            accounts.push(Account::make(&postgres, n, credits).await);
        }
        let url = upstream.url();
        let servers = [
            Server::new(0, &folder.path, &postgres, &url).await,
            Server::new(1, &folder.path, &postgres, &url).await,
        ];
        tokio::join!(servers[0].start(), servers[1].start());
        Arc::new(Self {
            servers,
            upstream,
            postgres,
            accounts,
            seen: Seen::new(&tally),
            tally,
            args: args.clone(),
            over: AtomicBool::new(false),
            folder,
        })
    }

    /// Whether clients are to begin nothing more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the load, or lets it begin.
    pub fn set_over(&self, over: bool) {
        self.over.store(over, Ordering::Relaxed);
        self.upstream.calm(over);
    }

    /// A command of the program on the database. `Err`: what it said.
    pub async fn command(&self, args: &[&str]) -> Result<String, String> {
        process::gensvc(&self.folder.path.join("files"), self.postgres.url(), args).await
    }
}

impl Account {
    async fn make(postgres: &Postgres, n: usize, credits: &str) -> Self {
        let email = format!("client{n}@example.com");
        let folder = std::env::temp_dir();
        let command = async |args: &[&str]| {
            let printed = process::gensvc(&folder, postgres.url(), args)
                .await
                .unwrap();
            serde_json::from_str::<Value>(&printed).unwrap()
        };
        let create = [
            "account",
            "create",
            "--email",
            &email,
            "--password",
            PASSWORD,
        ];
        let account = command(&[&create[..], &["--credits", credits]].concat()).await;
        let create = ["key", "create", "--email", &email, "--name", "main"];
        let key = command(&[&create[..], &["--rate-limit", "1000000"]].concat()).await;
        Self {
            id: account["account_id"].as_i64().unwrap(),
            key: key["key"].as_str().unwrap().to_owned(),
            email,
        }
    }
}
