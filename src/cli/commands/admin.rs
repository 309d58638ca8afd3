//! `gensvc admin`

use std::process::ExitCode;

use serde_json::json;

use super::{explained, with_app};
use crate::{
    api::NewAdminTokenBody,
    app::App,
    cli::{
        Failure,
        args::TokenCommand,
        output::{Output, maybe_time, table, time},
    },
    config::Config,
    domain::ids::AdminTokenId,
    service::ServiceError,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: TokenCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        match command {
            TokenCommand::Create(new) => create(&app, &new.name, output).await?,
            TokenCommand::List => list(&app, output).await?,
            TokenCommand::Revoke(token) => revoke(&app, AdminTokenId(token.id), output).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn create(app: &App, name: &str, output: Output) -> Result<(), Failure> {
    let made = app.service.create_admin_token(name).await;
    let (record, secret) = made.map_err(explained)?;
    let body = NewAdminTokenBody::new(record, &secret);
    output.result(&body.token, &body)?;
    output.note("This is the only time that the token is shown. It is good for /v1/admin.");
    Ok(())
}

async fn list(app: &App, output: Output) -> Result<(), Failure> {
    let tokens = app.service.admin_tokens().await?;
    let rows: Vec<_> = tokens
        .iter()
        .map(|t| {
            [
                t.id.to_string(),
                t.name.clone(),
                time(t.created_at),
                maybe_time(t.last_used_at),
                maybe_time(t.revoked_at),
            ]
        })
        .collect();
    let people = if rows.is_empty() {
        "There is no admin token.".to_owned()
    } else {
        table(["ID", "NAME", "CREATED", "LAST USED", "REVOKED"], &rows)
    };
    output.result(&people, &json!({"data": tokens}))?;
    Ok(())
}

async fn revoke(app: &App, id: AdminTokenId, output: Output) -> Result<(), Failure> {
    let record = match app.service.revoke_admin_token(id).await {
        Err(ServiceError::NotFound) => return Err(format!("there is no admin token {id}").into()),
        revoked => revoked?,
    };
    let people = format!("Admin token {id} is revoked.");
    output.result(&people, &record)?;
    Ok(())
}
