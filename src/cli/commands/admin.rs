//! `gensvc admin`

use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{explained, named, with_app};
use crate::{
    app::App,
    cli::{
        Outcome,
        args::TokenCommand,
        output::{Columns, Output, maybe_time, time},
    },
    config::Config,
    domain::ids::AdminTokenId,
    store::sessions::AdminTokenRecord,
};

pub(super) async fn run(config: &Config, command: TokenCommand, output: Output) -> Outcome {
    with_app(config, async |app| match command {
        TokenCommand::Create { name } => create(&app, &name, output).await,
        TokenCommand::List => list(&app, output).await,
        TokenCommand::Revoke { id } => revoke(&app, AdminTokenId(id), output).await,
    })
    .await
}

/// A token that was just created.
#[derive(Serialize)]
struct NewToken<'a> {
    token: &'a str,
    #[serde(flatten)]
    record: AdminTokenRecord,
}

async fn create(app: &App, name: &str, output: Output) -> Outcome {
    let made = app.service.create_admin_token(name).await;
    let (record, secret) = made.map_err(explained)?;
    let body = NewToken {
        token: secret.expose_secret(),
        record,
    };
    let done = output.result(body.token, &body)?;
    output.note("This is the only time that the token is shown. It is good for /v1/admin.");
    Ok(done)
}

async fn list(app: &App, output: Output) -> Outcome {
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

async fn revoke(app: &App, id: AdminTokenId, output: Output) -> Outcome {
    let revoked = app.service.revoke_admin_token(id).await;
    let record = named(revoked, || format!("there is no admin token {id}"))?;
    let people = format!("Admin token {id} is revoked.");
    output.result(&people, &record)
}
