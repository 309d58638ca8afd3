//! `gensvc generation`

use std::process::ExitCode;

use serde_json::json;

use super::with_app;
use crate::{
    api::GenerationRecord,
    app::App,
    cli::{
        Failure,
        args::GenerationCommand,
        output::{Output, maybe_time, table, time},
    },
    config::Config,
    domain::ids::GenerationId,
    service::ServiceError,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: GenerationCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    let GenerationCommand::Show(shown) = command;
    with_app(config, async |app| show(&app, shown.id, output).await).await?;
    Ok(ExitCode::SUCCESS)
}

async fn show(app: &App, id: GenerationId, output: Output) -> Result<(), Failure> {
    let found = match app.service.any_generation(id).await {
        Err(ServiceError::NotFound) => return Err(format!("there is no generation {id}").into()),
        found => found?,
    };
    let account = app.service.account(found.account_id).await?;
    let record = GenerationRecord::of(found, &app.links);
    let (g, about) = (&record.summary, &record.metadata);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let error = |e: &crate::api::RecordError| format!("{} ({})", e.message, e.code);
    let rows = [
        ("uuid", g.uuid.to_string()),
        ("account", format!("{} ({})", account.id, account.email)),
        ("key", or_none(about.api_key_id.map(|id| id.to_string()))),
        ("type", g.r#type.to_string()),
        ("provider", g.provider.clone()),
        ("model", g.model.clone()),
        ("status", g.status.to_string()),
        ("error", or_none(g.error.as_ref().map(error))),
        ("attempts", about.attempts.to_string()),
        ("provider's id", or_none(about.provider_request_id.clone())),
        ("created", time(g.created_at)),
        ("started", maybe_time(g.started_at)),
        ("completed", maybe_time(g.completed_at)),
        ("estimated", g.credits.estimated.to_string()),
        ("held", g.credits.held.to_string()),
        (
            "charged",
            or_none(g.credits.charged.map(|credits| credits.to_string())),
        ),
        ("usage", or_none(g.usage.as_ref().map(ToString::to_string))),
        ("parameters", record.parameters.to_string()),
        ("prompt", g.prompt.clone()),
        ("result", or_none(g.result.clone())),
    ];
    let rows = rows.map(|(name, value)| [name.to_owned(), value]);
    let mut script = json!(record);
    script["account_id"] = json!(account.id);
    output.result(&table(["GENERATION", ""], &rows), &script)?;
    Ok(())
}
