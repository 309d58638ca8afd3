//! `gensvc key`

use std::process::ExitCode;

use serde_json::json;

use super::{all, explained, user, with_app};
use crate::{
    api::NewKeyBody,
    app::App,
    cli::{
        Failure,
        args::{KeyCommand, NewKey, RevokedKey},
        output::{Output, maybe_time, table},
    },
    config::Config,
    domain::{ability::Abilities, ids::ApiKeyId, rate::DEFAULT_PER_MINUTE, request::KeyRequest},
    service::ServiceError,
    store::keys::ApiKeyRecord,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: KeyCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        match command {
            KeyCommand::Create(new) => create(&app, new, output).await?,
            KeyCommand::List(who) => list(&app, &who.email, output).await?,
            KeyCommand::Revoke(key) => revoke(&app, &key, output).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn create(app: &App, new: NewKey, output: Output) -> Result<(), Failure> {
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
    let (key, secret) = made.await.map_err(explained)?;
    let body = NewKeyBody::new(key, &secret);
    output.result(&body.key, &body)?;
    output.note("This is the only time that the key is shown.");
    Ok(())
}

async fn list(app: &App, email: &str, output: Output) -> Result<(), Failure> {
    let account = user(app, email).await?.account_id;
    let (store, now) = (app.service.store(), app.service.now());
    let keys = all(async |page| Ok(store.keys(account, &page, now).await?)).await?;
    let rows: Vec<_> = keys
        .iter()
        .map(|k| {
            [
                k.id.to_string(),
                k.name.clone(),
                k.key_hint.clone(),
                k.abilities.names().join(","),
                k.rate_limit_per_minute.to_string(),
                k.spent.to_string(),
                limit(k),
                maybe_time(k.expires_at),
                maybe_time(k.last_used_at),
                maybe_time(k.revoked_at),
            ]
        })
        .collect();
    let headings = [
        "ID",
        "NAME",
        "KEY",
        "ABILITIES",
        "PER MINUTE",
        "SPENT",
        "LIMIT",
        "EXPIRES",
        "LAST USED",
        "REVOKED",
    ];
    let people = if rows.is_empty() {
        format!("{email} has no API key.")
    } else {
        table(headings, &rows)
    };
    output.result(&people, &json!({"data": keys}))?;
    Ok(())
}

/// What a key may spend.
fn limit(key: &ApiKeyRecord) -> String {
    match (key.spend_limit, key.spend_period) {
        (None, _) => "-".to_owned(),
        (Some(limit), None) => limit.to_string(),
        (Some(limit), Some(period)) => format!("{limit} a {period}"),
    }
}

async fn revoke(app: &App, key: &RevokedKey, output: Output) -> Result<(), Failure> {
    let account = user(app, &key.email).await?.account_id;
    let revoked = app.service.revoke_key_of(account, ApiKeyId(key.id)).await;
    let record = match revoked {
        Err(ServiceError::NotFound) => {
            return Err(format!("{} has no API key {}", key.email, key.id).into());
        }
        revoked => revoked?,
    };
    let people = format!("Key {} of {} is revoked.", record.id, key.email);
    output.result(&people, &record)?;
    Ok(())
}
