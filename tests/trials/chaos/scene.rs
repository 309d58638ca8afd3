//! All participants of a run.

use std::{ops::Deref, sync::Arc};

use reqwest::Client;
use serde_json::{Value, json};

use super::{clients::template, receiver::Receiver};
use crate::{
    account::{Account, command},
    args::Args,
    server,
    stage::{Plan, Stage},
};

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

/// The stage, and what only these clients use.
pub struct Scene {
    pub stage: Arc<Stage>,
    pub receiver: Receiver,
    pub hooks: Vec<Hook>,
    /// The template of each account.
    pub templates: Vec<i64>,
    /// The operator's token.
    pub admin: String,
}

impl Deref for Scene {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl Scene {
    /// Everything up and running.
    pub async fn set(args: &Args) -> Arc<Self> {
        let current = server::current();
        let previous = args.previous.as_ref().unwrap_or(&current);
        let searches = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/trials/chaos/searches.toml"
        );
        let searches = [("GENSVC_CONFIG", searches)];
        let plan = Plan {
            name: "chaos",
            programs: vec![current.clone(), previous.clone()],
            // The previous release may not have these settings.
            settings: if args.previous.is_none() {
                &searches
            } else {
                &[]
            },
            standby: false,
            // Two accounts have plenty, and two run short.
            credits: &["1000000", "20000", "40", "15"],
        };
        let stage = Arc::new(Stage::set(args, &plan).await);
        let receiver = Receiver::start(args, &stage.tally).await;
        let url = stage.servers[0].url();
        let (mut hooks, mut templates) = (Vec::new(), Vec::new());
        for (n, account) in stage.accounts.iter().enumerate() {
            templates.push(equip(&url, n, account, &receiver, &mut hooks).await);
        }
        let create = ["admin", "token", "create", "--name", "chaos"];
        let admin = command(stage.postgres.current(), &create).await;
        Arc::new(Self {
            stage,
            receiver,
            hooks,
            templates,
            admin: admin["token"].as_str().unwrap().to_owned(),
        })
    }

    /// Ends or starts the load, and the faults of what it meets.
    pub fn set_over(&self, over: bool) {
        self.stage.set_over(over);
        self.upstream.calm(over);
        self.receiver.calm(over);
    }

    /// The webhooks of an account.
    pub fn hooks_of(&self, account_id: i64) -> impl Iterator<Item = &Hook> {
        let hooks = self.hooks.iter();
        hooks.filter(move |hook| hook.account_id == account_id)
    }
}

impl Hook {
    /// Whether it gets that event.
    pub fn wants(&self, event: &str) -> bool {
        self.events.contains(&event)
    }
}

/// Gives an account its webhooks, one for all events and the first account one more for failures,
/// and a template, whose id it returns.
async fn equip(
    url: &str,
    n: usize,
    account: &Account,
    receiver: &Receiver,
    hooks: &mut Vec<Hook>,
) -> i64 {
    let client = Client::builder().no_proxy().build().unwrap();
    let ask = async |path: &str, body: &Value| -> Value {
        let request = client.post(format!("{url}{path}"));
        let request = request.bearer_auth(&account.key).json(body);
        let answer = request.send().await.unwrap().error_for_status();
        answer.unwrap().json().await.unwrap()
    };
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
    let made = ask("/v1/templates", &template("0")).await;
    made["id"].as_i64().unwrap()
}
