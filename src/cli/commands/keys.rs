//! `gensvc key` and `gensvc admin token`

use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{all, named, user, with_app};
use crate::{
    api::NewKeyBody,
    app::App,
    cli::{
        Outcome,
        args::{KeyCommand, NewKey, TokenCommand},
        output::{Columns, Output, maybe_time, time},
    },
    config::Config,
    domain::{
        ability::Abilities,
        ids::{AdminTokenId, ApiKeyId},
        rate::DEFAULT_PER_MINUTE,
    },
    request::KeyRequest,
    store::{keys::ApiKeyRecord, sessions::AdminTokenRecord},
};

pub(super) async fn run(config: &Config, command: KeyCommand, output: Output) -> Outcome {
    with_app(config, async |app| match command {
        KeyCommand::Create(new) => create(&app, new, output).await,
        KeyCommand::List { email } => list(&app, &email, output).await,
        KeyCommand::Revoke { email, id } => revoke(&app, &email, id, output).await,
    })
    .await
}

async fn create(app: &App, new: NewKey, output: Output) -> Outcome {
    let request = KeyRequest {
        name: new.name,
        abilities: new.abilities.unwrap_or_else(Abilities::all),
        rate_limit_per_minute: new.rate_limit.unwrap_or(DEFAULT_PER_MINUTE),
        expires_at: new.expires_at,
        spend_limit: new.spend_limit,
        spend_period: new.spend_period,
    };
    let user = user(app, &new.email).await?;
    let made = app.service.create_key(user.account_id, &request, None);
    let (record, secret) = made.await?;
    let key = secret.expose_secret().to_owned();
    let body = NewKeyBody { key, record };
    let done = output.result(&body.key, &body)?;
    output.note("Save the key: it cannot be shown again.");
    Ok(done)
}

async fn list(app: &App, email: &str, output: Output) -> Outcome {
    let account = user(app, email).await?.account_id;
    let (store, now) = (app.service.store(), app.service.now());
    let keys = all(async |page| Ok(store.keys(account, &page, now).await?)).await?;
    let columns: &Columns<ApiKeyRecord> = &[
        ("ID", |k| k.id.to_string()),
        ("NAME", |k| k.name.clone()),
        ("KEY", |k| k.key_hint.clone()),
        ("ABILITIES", |k| k.abilities.names().join(",")),
        ("PER MINUTE", |k| k.rate_limit_per_minute.to_string()),
        ("SPENT", |k| k.spent.to_string()),
        ("LIMIT", limit),
        ("EXPIRES", |k| maybe_time(k.expires_at)),
        ("LAST USED", |k| maybe_time(k.last_used_at)),
        ("REVOKED", |k| maybe_time(k.revoked_at)),
    ];
    output.list(columns, &keys, &format!("{email} has no API key."))
}

/// Formats the spend limit of a key.
fn limit(key: &ApiKeyRecord) -> String {
    match (key.spend_limit, key.spend_period) {
        (None, _) => "-".to_owned(),
        (Some(limit), None) => limit.to_string(),
        (Some(limit), Some(period)) => format!("{limit} per {period}"),
    }
}

async fn revoke(app: &App, email: &str, id: i64, output: Output) -> Outcome {
    let account = user(app, email).await?.account_id;
    let revoked = app.service.revoke_key(account, ApiKeyId(id)).await;
    let record = named(revoked, || format!("{email} has no API key {id}"))?;
    output.result(&format!("Revoked key {id} of {email}."), &record)
}

pub(super) async fn run_tokens(config: &Config, command: TokenCommand, output: Output) -> Outcome {
    with_app(config, async |app| match command {
        TokenCommand::Create { name } => create_token(&app, &name, output).await,
        TokenCommand::List => list_tokens(&app, output).await,
        TokenCommand::Revoke { id } => revoke_token(&app, AdminTokenId(id), output).await,
    })
    .await
}

#[derive(Serialize)]
struct NewToken<'a> {
    token: &'a str,
    #[serde(flatten)]
    record: AdminTokenRecord,
}

async fn create_token(app: &App, name: &str, output: Output) -> Outcome {
    let (record, secret) = app.service.create_admin_token(name).await?;
    let body = NewToken {
        token: secret.expose_secret(),
        record,
    };
    let done = output.result(body.token, &body)?;
    output.note("Save the token: it cannot be shown again. It authorizes requests to /v1/admin.");
    Ok(done)
}

async fn list_tokens(app: &App, output: Output) -> Outcome {
    let tokens = app.service.admin_tokens().await?;
    let columns: &Columns<AdminTokenRecord> = &[
        ("ID", |t| t.id.to_string()),
        ("NAME", |t| t.name.clone()),
        ("CREATED", |t| time(t.created_at)),
        ("LAST USED", |t| maybe_time(t.last_used_at)),
        ("REVOKED", |t| maybe_time(t.revoked_at)),
    ];
    output.list(columns, &tokens, "There is no admin token.")
}

async fn revoke_token(app: &App, id: AdminTokenId, output: Output) -> Outcome {
    let revoked = app.service.revoke_admin_token(id).await;
    let record = named(revoked, || format!("there is no admin token {id}"))?;
    let people = format!("Revoked admin token {id}.");
    output.result(&people, &record)
}
