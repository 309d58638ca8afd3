//! All participants.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::{
    Options,
    account::{Account, command},
    args::Args,
    clocks::Clock,
    folder::Folder,
    pair::Pair,
    process,
    proxy::Target,
    samples::Samples,
    seen::Seen,
    server::Server,
    tally::Tally,
    upstream::Upstream,
};

/// How many accounts there are.
const ACCOUNTS: usize = 4;
/// A limit that is never reached: what a key with one spends is counted.
const LIMIT: &str = "900000";

/// All participants, in the order in which they are dropped: servers, then the databases, then the
/// folder.
pub struct Stage {
    pub servers: Vec<Server>,
    pub upstream: Upstream,
    pub postgres: Pair,
    pub accounts: Vec<Account>,
    /// The key that each account's clients use now.
    keys: Mutex<Vec<Key>>,
    /// Servers that the balancer sends requests to.
    serving: Mutex<Vec<usize>>,
    pub samples: Samples,
    pub seen: Seen,
    pub tally: Arc<Tally>,
    pub args: Args,
    pub began: Instant,
    /// Set: clients start nothing new.
    over: AtomicBool,
    folder: Folder,
}

/// A key that may be replaced.
#[derive(Clone)]
pub struct Key {
    pub id: i64,
    pub token: String,
}

impl Stage {
    /// Everything up and running: two servers of the previous release, or three of this one.
    pub async fn set(options: &Options) -> Arc<Self> {
        let args = &options.args;
        let current = process::current();
        let program = args.previous.as_ref().unwrap_or(&current);
        let folder = Folder::make("day", args.keep);
        let tally = Arc::new(Tally::default());
        let upstream = Upstream::start(args, &tally).await;
        upstream.calm(true);
        let postgres = Pair::start(folder.path(), program).await;
        let primary = postgres.current();
        let (mut accounts, mut keys) = (Vec::new(), Vec::new());
        for n in 0..ACCOUNTS {
            let account = Account::make(primary, n, "1000000").await;
            let made = command(primary, &new_key(&account.email)).await;
            keys.push(Key::of(&made));
            accounts.push(account);
        }
        let url = upstream.url();
        let mut servers = Vec::new();
        for n in 0..if args.previous.is_some() { 2 } else { 3 } {
            let server = Server::new(n, folder.path(), primary, &url, Clock::of(args, n)).await;
            server.set_program(program).await;
            // As much as what runs may need.
            server.set("GENSVC__SERVER__SHUTDOWN_SECONDS", "10").await;
            server.set("GENSVC__JOBS__DEADLINE_SECONDS", "60").await;
            server.start().await;
            servers.push(server);
        }
        Arc::new(Self {
            serving: Mutex::new((0..servers.len()).collect()),
            servers,
            upstream,
            postgres,
            accounts,
            keys: Mutex::new(keys),
            samples: Samples::default(),
            seen: Seen::new(&tally),
            tally,
            args: args.clone(),
            began: Instant::now(),
            over: AtomicBool::new(false),
            folder,
        })
    }

    /// The server that the balancer sends the next request to.
    pub fn pick(&self, rng: &mut fastrand::Rng) -> usize {
        let serving = self.serving.lock().unwrap();
        serving[rng.usize(0..serving.len())]
    }

    /// Whether the balancer sends requests to a server.
    pub fn set_serving(&self, server: usize, is_in: bool) {
        let mut serving = self.serving.lock().unwrap();
        serving.retain(|&n| n != server);
        if is_in {
            serving.push(server);
        }
    }

    /// The key that an account's clients use.
    pub fn token(&self, account: usize) -> String {
        self.keys.lock().unwrap()[account].token.clone()
    }

    /// Gives an account's clients another key; returns the one that they had.
    pub async fn change_key(&self, account: usize) -> Key {
        let made = self.command(&new_key(&self.accounts[account].email)).await;
        let made = serde_json::from_str(&made.unwrap()).unwrap();
        std::mem::replace(&mut self.keys.lock().unwrap()[account], Key::of(&made))
    }

    /// Directs the servers' new connections to the database that serves now.
    pub fn switch(&self) {
        for server in &self.servers {
            let socket = self.postgres.current().socket();
            server.back().lead_to(Target::Unix(socket));
        }
    }

    /// Whether clients must start nothing new.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn end_load(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Runs a command of this version on the database that serves. `Err`: its output.
    pub async fn command(&self, args: &[&str]) -> Result<String, String> {
        let url = self.postgres.current().url();
        let folder = self.folder.path().join("files");
        process::gensvc(&process::current(), &folder, url, args).await
    }
}

fn new_key(email: &str) -> [&str; 10] {
    let [rate, limit] = ["--rate-limit", "--spend-limit"];
    [
        "key", "create", "--email", email, "--name", "load", rate, "1000000", limit, LIMIT,
    ]
}

impl Key {
    fn of(made: &serde_json::Value) -> Self {
        Self {
            id: made["id"].as_i64().unwrap(),
            token: made["key"].as_str().unwrap().to_owned(),
        }
    }
}
