//! All participants of a round.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    account::Account,
    args::Args,
    clocks::Clock,
    folder::Folder,
    pair::Pair,
    process,
    proxy::{Proxy, Target},
    seen::Seen,
    server::Server,
    tally::Tally,
    upstream::Upstream,
};

/// All participants, in the order in which they are dropped: servers, then the databases, then the
/// folder.
pub struct Stage {
    pub servers: [Server; 2],
    pub upstream: Upstream,
    pub postgres: Pair,
    /// For each server one of its clients, and one of the beat: the requests that wait must
    /// not fill an account's share of those that come.
    pub accounts: Vec<Account>,
    pub seen: Seen,
    pub tally: Arc<Tally>,
    pub args: Args,
    /// Set: clients start nothing new.
    over: AtomicBool,
    folder: Folder,
}

impl Stage {
    /// Everything up and running, in a folder whose name begins like that.
    pub async fn set(args: &Args, name: &str) -> Arc<Self> {
        let folder = Folder::make(name, args.keep);
        let tally = Arc::new(Tally::default());
        let upstream = Upstream::start(args, &tally).await;
        // Failures here are due to the missing database.
        upstream.calm(true);
        let postgres = Pair::start(folder.path(), &process::current()).await;
        let primary = postgres.current();
        let mut accounts = Vec::new();
        for n in 0..4 {
            accounts.push(Account::make(primary, n, "1000000").await);
        }
        let url = upstream.url();
        let server = |n| Server::new(n, folder.path(), primary, &url, Clock::of(args, n));
        let servers = [server(0).await, server(1).await];
        if let Some(previous) = &args.previous {
            servers[1].set_program(previous).await;
        }
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

    /// All proxies to the database.
    pub fn proxies(&self) -> [&Proxy; 3] {
        let [a, b] = &self.servers;
        [a.back(), b.back(), self.postgres.replication()]
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

    /// Runs a command of the program on the database that serves. `Err`: its output.
    pub async fn command(&self, args: &[&str]) -> Result<String, String> {
        let url = self.postgres.current().url();
        let folder = self.folder.path().join("files");
        process::gensvc(&process::current(), &folder, url, args).await
    }
}
