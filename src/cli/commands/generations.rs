//! `gensvc generation`

use serde_json::json;

use super::{named, with_app};
use crate::{
    api::GenerationRecord,
    app::App,
    cli::{
        Outcome,
        args::GenerationCommand,
        output::{Output, maybe_time, or_dash, record, time},
    },
    config::Config,
    domain::ids::GenerationId,
};

pub(super) async fn run(config: &Config, command: GenerationCommand, output: Output) -> Outcome {
    let GenerationCommand::Show { id } = command;
    with_app(config, async |app| show(&app, id, output).await).await
}

async fn show(app: &App, id: GenerationId, output: Output) -> Outcome {
    let found = app.service.any_generation(id).await;
    let found = named(found, || format!("there is no generation {id}"))?;
    let account = app.service.account(found.account_id).await?;
    let found = GenerationRecord::of(found, &app.links);
    let (g, about) = (&found.summary, &found.metadata);
    let error = |e: &crate::api::RecordError| format!("{} ({})", e.message, e.code);
    let rows = [
        ("uuid", g.uuid.to_string()),
        ("account", format!("{} ({})", account.id, account.email)),
        ("key", or_dash(about.api_key_id)),
        ("type", g.r#type.to_string()),
        ("provider", g.provider.clone()),
        ("model", g.model.clone()),
        ("status", g.status.to_string()),
        ("error", or_dash(g.error.as_ref().map(error))),
        ("attempts", about.attempts.to_string()),
        ("request id", or_dash(about.request_id.as_ref())),
        ("provider's id", or_dash(about.provider_request_id.as_ref())),
        ("created", time(g.created_at)),
        ("started", maybe_time(g.started_at)),
        ("completed", maybe_time(g.completed_at)),
        ("estimated", g.credits.estimated.to_string()),
        ("held", g.credits.held.to_string()),
        ("charged", or_dash(g.credits.charged)),
        ("usage", or_dash(g.usage.as_ref())),
        ("parameters", found.parameters.to_string()),
        ("prompt", g.prompt.clone()),
        ("result", or_dash(g.result.as_ref())),
    ];
    let mut script = json!(found);
    script["account_id"] = json!(account.id);
    output.result(&record("GENERATION", &rows), &script)
}
