//! All participants of a run.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use reqwest::Client;
use serde_json::{Value, json};

use crate::{
    account::{Account, command},
    args::Args,
    clocks::Clock,
    folder::Folder,
    postgres::Postgres,
    process,
    receiver::Receiver,
    seen::Seen,
    server::Server,
    tally::Tally,
    upstream::Upstream,
};

/// Initial credits: two accounts have plenty, and two run short.
const CREDITS: [&str; 4] = ["1000000", "20000", "40", "15"];

/// A webhook of an account.
pub struct Hook {
    pub id: i64,
    pub account: usize,
    pub account_id: i64,
    /// The path at the receiver.
    pub path: String,
    pub secret: String,
    events: Vec<&'static str>,
}

/// All participants, in the order in which they are dropped: servers, then the database, then the
/// folder.
pub struct Stage {
    pub servers: [Server; 2],
    pub upstream: Upstream,
    pub receiver: Receiver,
    pub postgres: Postgres,
    pub accounts: Vec<Account>,
    pub hooks: Vec<Hook>,
    /// The operator's token.
    pub admin: String,
    pub seen: Seen,
    pub tally: Arc<Tally>,
    pub args: Args,
    /// Set: clients start nothing new.
    over: AtomicBool,
    folder: Folder,
}

impl Stage {
    /// Everything up and running.
    pub async fn set(args: &Args) -> Arc<Self> {
        let folder = Folder::make("chaos", args.keep);
        let tally = Arc::new(Tally::default());
        let upstream = Upstream::start(args, &tally).await;
        let receiver = Receiver::start(args, &tally).await;
        let postgres = Postgres::start(folder.path().join("database"), &process::current()).await;
        let mut accounts = Vec::new();
        for (n, credits) in CREDITS.iter().enumerate() {
            accounts.push(Account::make(&postgres, n, credits).await);
        }
        let url = upstream.url();
        let server = |n| Server::new(n, folder.path(), &postgres, &url, Clock::of(args, n));
        let servers = [server(0).await, server(1).await];
        if let Some(previous) = &args.previous {
            servers[1].set_program(previous).await;
        }
        tokio::join!(servers[0].start(), servers[1].start());
        let hooks = equip(&servers[0].url(), &mut accounts, &receiver).await;
        let create = ["admin", "token", "create", "--name", "chaos"];
        let admin = command(&postgres, &create).await;
        Arc::new(Self {
            servers,
            upstream,
            receiver,
            postgres,
            accounts,
            hooks,
            admin: admin["token"].as_str().unwrap().to_owned(),
            seen: Seen::new(&tally),
            tally,
            args: args.clone(),
            over: AtomicBool::new(false),
            folder,
        })
    }

    /// Whether clients must start nothing new.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends or starts the load.
    pub fn set_over(&self, over: bool) {
        self.over.store(over, Ordering::Relaxed);
        self.upstream.calm(over);
        self.receiver.calm(over);
    }

    /// The webhooks of an account.
    pub fn hooks_of(&self, account_id: i64) -> impl Iterator<Item = &Hook> {
        let hooks = self.hooks.iter();
        hooks.filter(move |hook| hook.account_id == account_id)
    }

    /// Runs a command of the program on the database. `Err`: its output.
    pub async fn command(&self, args: &[&str]) -> Result<String, String> {
        let folder = self.folder.path().join("files");
        process::gensvc(&process::current(), &folder, self.postgres.url(), args).await
    }
}

impl Hook {
    /// Whether it gets that event.
    pub fn wants(&self, event: &str) -> bool {
        self.events.contains(&event)
    }
}

/// Gives each account a template and its webhooks: one for all events, and the first account one
/// more for failures.
async fn equip(url: &str, accounts: &mut [Account], receiver: &Receiver) -> Vec<Hook> {
    let client = Client::builder().no_proxy().build().unwrap();
    let mut hooks = Vec::new();
    for (n, account) in accounts.iter_mut().enumerate() {
        let ask = async |path: &str, body: &Value| -> Value {
            let request = client.post(format!("{url}{path}"));
            let request = request.bearer_auth(&account.key).json(body);
            let answer = request.send().await.unwrap().error_for_status();
            answer.unwrap().json().await.unwrap()
        };
        let made = ask("/v1/templates", &crate::clients::template("0")).await;
        let template = made["id"].as_i64().unwrap();
        let all = vec!["generation.completed", "generation.failed"];
        let failures = (n == 0).then(|| vec!["generation.failed"]);
        for (which, events) in [Some(all), failures].into_iter().flatten().enumerate() {
            let path = format!("/hook/{n}/{which}");
            let body = json!({"url": receiver.url(&path), "events": events});
            let made = ask("/v1/webhooks", &body).await;
            hooks.push(Hook {
                id: made["id"].as_i64().unwrap(),
                account: n,
                account_id: account.id,
                path,
                secret: made["secret"].as_str().unwrap().to_owned(),
                events,
            });
        }
        account.template = template;
    }
    hooks
}
