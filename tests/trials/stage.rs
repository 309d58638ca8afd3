//! The participants that every trial has.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;

use crate::{
    account::Account, args::Args, clocks::Clock, databases::Databases, folder::Folder, process,
    proxy::Target, s3::S3, seen::Seen, server::Server, tally::Tally, upstream::Upstream,
};

/// What a trial begins with.
pub struct Plan<'a> {
    /// How the name of its folder begins.
    pub name: &'a str,
    /// The program of each server; that of the first starts the databases.
    pub programs: Vec<PathBuf>,
    /// Settings of the servers, in addition to those that all have.
    pub settings: &'a [(&'a str, &'a str)],
    pub standby: bool,
    /// Of each account.
    pub credits: &'a [&'a str],
}

/// All participants, in the order in which they are dropped: servers, then the databases, then the
/// folder.
pub struct Stage {
    pub servers: Vec<Server>,
    pub upstream: Upstream,
    pub postgres: Databases,
    /// Where files are stored, unless in a folder.
    pub s3: Option<S3>,
    pub accounts: Vec<Account>,
    /// The key that each account's clients use now.
    tokens: Mutex<Vec<String>>,
    /// Servers that the balancer sends requests to, in turn.
    serving: Mutex<Vec<usize>>,
    turn: AtomicUsize,
    pub seen: Seen,
    pub tally: Arc<Tally>,
    pub args: Args,
    /// Set: clients start nothing new.
    over: AtomicBool,
    folder: Folder,
}

impl Stage {
    /// Everything up and running.
    pub async fn set(args: &Args, plan: &Plan<'_>) -> Self {
        let folder = Folder::make(plan.name, args.keep);
        let tally = Arc::new(Tally::default());
        let upstream = Upstream::start(args, &tally).await;
        let s3 = match &args.s3 {
            Some(program) => Some(S3::start(program).await),
            None => None,
        };
        let first = &plan.programs[0];
        let postgres = if plan.standby {
            Databases::pair(folder.path(), first).await
        } else {
            Databases::one(folder.path(), first).await
        };
        let primary = postgres.current();
        let mut accounts = Vec::new();
        for (n, credits) in plan.credits.iter().enumerate() {
            accounts.push(Account::make(primary, n, credits).await);
        }
        let url = upstream.url();
        let mut servers = Vec::new();
        for (n, program) in plan.programs.iter().enumerate() {
            let server = Server::new(n, folder.path(), primary, &url, Clock::of(args, n)).await;
            server.set_program(program).await;
            let storage = s3.as_ref().map(S3::env);
            for (name, value) in plan.settings.iter().chain(storage.iter().flatten()) {
                server.set(name, value).await;
            }
            servers.push(server);
        }
        join_all(servers.iter().map(Server::start)).await;
        Self {
            tokens: Mutex::new(accounts.iter().map(|a| a.key.clone()).collect()),
            serving: Mutex::new((0..servers.len()).collect()),
            turn: AtomicUsize::new(0),
            servers,
            upstream,
            postgres,
            s3,
            accounts,
            seen: Seen::new(&tally),
            tally,
            args: args.clone(),
            over: AtomicBool::new(false),
            folder,
        }
    }

    /// The server that the balancer sends the next request to.
    pub fn pick(&self) -> usize {
        let serving = self.serving.lock().unwrap();
        serving[self.turn.fetch_add(1, Ordering::Relaxed) % serving.len()]
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
        self.tokens.lock().unwrap()[account].clone()
    }

    /// Gives an account's clients another key.
    pub fn set_token(&self, account: usize, token: &str) {
        token.clone_into(&mut self.tokens.lock().unwrap()[account]);
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

    /// Ends or starts the load.
    pub fn set_over(&self, over: bool) {
        self.over.store(over, Ordering::Relaxed);
    }

    /// Runs a command of this version on the database that serves. `Err`: its output.
    pub async fn command(&self, args: &[&str]) -> Result<String, String> {
        let url = self.postgres.current().url();
        let folder = self.folder.path().join("files");
        let storage = self.s3.as_ref().map(S3::env);
        let env = storage.as_ref().map_or(&[][..], |env| env);
        process::gensvc(&crate::server::current(), &folder, url, env, args).await
    }
}
