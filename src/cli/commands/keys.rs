//! `gensvc key`

use super::{all, explained, named, user, with_app};
use crate::{
    api::NewKeyBody,
    app::App,
    cli::{
        Outcome,
        args::{KeyCommand, NewKey},
        output::{Columns, Output, maybe_time},
    },
    config::Config,
    domain::{ability::Abilities, ids::ApiKeyId, rate::DEFAULT_PER_MINUTE, request::KeyRequest},
    store::keys::ApiKeyRecord,
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
    let (key, secret) = made.await.map_err(explained)?;
    let body = NewKeyBody::new(key, &secret);
    let done = output.result(&body.key, &body)?;
    output.note("This is the only time that the key is shown.");
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

/// What a key may spend.
fn limit(key: &ApiKeyRecord) -> String {
    match (key.spend_limit, key.spend_period) {
        (None, _) => "-".to_owned(),
        (Some(limit), None) => limit.to_string(),
        (Some(limit), Some(period)) => format!("{limit} a {period}"),
    }
}

async fn revoke(app: &App, email: &str, id: i64, output: Output) -> Outcome {
    let account = user(app, email).await?.account_id;
    let revoked = app.service.revoke_key(account, ApiKeyId(id)).await;
    let record = named(revoked, || format!("{email} has no API key {id}"))?;
    output.result(&format!("Key {id} of {email} is revoked."), &record)
}
