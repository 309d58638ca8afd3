//! The commands: those for the server here, those for accounts in a file each.

mod accounts;
mod catalogue;
mod credits;
mod database;
mod keys;
mod ledger;
pub(super) mod manual;
mod usage;

use std::process::ExitCode;

use serde_json::{Value, json};

use tracing::{Level, enabled};

use super::{
    Failure, Outcome,
    args::{AdminCommand, Command, ConfigCommand, GenerationCommand, MediaCommand},
    failed_in_json,
    output::{Output, maybe_time, or_dash, record, time},
};
use crate::{
    api::{GenerationRecord, RecordError},
    app::{
        App,
        database::{Database, Schema},
        serve,
    },
    config::{Config, LogFormat},
    domain::{
        ids::GenerationId,
        page::{MAX_PER_PAGE, Page, PageRequest},
        validate::Body,
    },
    local_postgres::Role,
    service::ServiceError,
    store::accounts::UserRow,
};

pub(super) async fn run(command: Command, config: &Config, output: Output) -> Outcome {
    match command {
        Command::Serve(_) => match serve::serve(config).await {
            Err(error) if config.log.format == LogFormat::Json && enabled!(Level::ERROR) => {
                Ok(failed_in_json(&error))
            }
            ended => Ok(ended.map(|()| ExitCode::SUCCESS)?),
        },
        Command::Config(ConfigCommand::Check) => {
            config.check_servable()?;
            let summary = config.summary();
            output.result(&summary.to_string(), &summary)
        }
        Command::Catalogue(command) => catalogue::run(config, command, output).await,
        Command::Database(command) => database::run(config, command, output).await,
        Command::Migrate => migrate(config, output).await,
        Command::Account(command) => accounts::run(config, command, output).await,
        Command::User(command) => accounts::set_operator(config, command, output).await,
        Command::Credits(command) => credits::run(config, command, output).await,
        Command::Key(command) => keys::run(config, command, output).await,
        Command::Usage(asked) => usage::run(config, asked, output).await,
        Command::Admin(AdminCommand::Token(command)) => {
            keys::run_tokens(config, command, output).await
        }
        Command::Ledger(command) => ledger::run(config, command, output).await,
        Command::Media(MediaCommand::Verify) => verify_files(config, output).await,
        Command::Generation(GenerationCommand::Show { id }) => {
            with_app(config, async |app| show_generation(&app, id, output).await).await
        }
    }
}

/// Opens the database, runs the work, and always closes the database.
async fn with_database<T>(
    config: &Config,
    work: impl AsyncFnOnce(&Database) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let database = Database::open(config, Role::Command, Schema::Expect).await?;
    let result = work(&database).await;
    database.close().await?;
    result
}

async fn with_app<T>(
    config: &Config,
    work: impl AsyncFnOnce(App) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_database(config, async |database| {
        work(App::for_command(config, database).await?).await
    })
    .await
}

async fn user(app: &App, email: &str) -> Result<UserRow, Failure> {
    let found = app.service.user(email).await;
    named(found, || {
        format!("no account has a user with the email {email:?}")
    })
}

/// Adds the name of a missing object to the error.
fn named<T>(
    found: Result<T, ServiceError>,
    missing: impl FnOnce() -> String,
) -> Result<T, Failure> {
    match found {
        Err(ServiceError::NotFound) => Err(missing().into()),
        found => Ok(found?),
    }
}

fn checked(is_clean: bool) -> ExitCode {
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns the result of a comparison in words.
fn verdict(is_clean: bool) -> &'static str {
    if is_clean {
        "no difference."
    } else {
        "THEY DIFFER."
    }
}

/// Reads all rows of a list, page by page.
async fn all<T>(
    page: impl AsyncFnMut(PageRequest) -> Result<Page<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    Ok(first(usize::MAX, page).await?.0)
}

/// Reads the first `most` rows of a list. Returns whether there are more.
async fn first<T>(
    most: usize,
    mut page: impl AsyncFnMut(PageRequest) -> Result<Page<T>, Failure>,
) -> Result<(Vec<T>, bool), Failure> {
    let mut request = PageRequest {
        per_page: MAX_PER_PAGE,
        after: None,
    };
    let mut rows = Vec::new();
    loop {
        let found = page(request).await?;
        rows.extend(found.rows);
        if found.next.is_none() || rows.len() > most {
            let more = found.next.is_some() || rows.len() > most;
            rows.truncate(most);
            return Ok((rows, more));
        }
        request.after = found.next;
    }
}

/// Validates a request as the API does.
fn read<T: Body>(members: &Value) -> Result<T, Failure> {
    let members = members.as_object().cloned().unwrap_or_default();
    let (request, errors) = T::parse(&members);
    ServiceError::any(errors)?;
    request.ok_or_else(|| format!("{} cannot be read", T::NAME).into())
}

async fn migrate(config: &Config, output: Output) -> Outcome {
    // Opening the database migrates it.
    let database = Database::open(config, Role::Command, Schema::Migrate).await?;
    database.close().await?;
    output.result("The schema is up to date.", &json!({"migrated": true}))
}

/// `gensvc media verify`
async fn verify_files(config: &Config, output: Output) -> Outcome {
    let audit = with_database(config, async |database| {
        let app = App::with_files(config, database).await?;
        Ok(app.runner.verify_files().await?)
    })
    .await?;
    let lists = [
        ("missing", &audit.missing),
        ("of the wrong size", &audit.damaged),
        ("unknown", &audit.unknown),
    ];
    let clean = lists.iter().all(|(_, names)| names.is_empty());
    let (files, found) = (audit.files, verdict(clean));
    let mut lines = vec![format!("Checked {files} files: {found}")];
    for (what, names) in lists {
        for name in names {
            // Files of other programs may have any name.
            let name = name.replace(char::is_control, "\u{fffd}");
            lines.push(format!("{what}: {name}"));
        }
    }
    output.result(
        &lines.join("\n"),
        &json!({"ok": clean, "files": files, "missing": audit.missing,
            "damaged": audit.damaged, "unknown": audit.unknown}),
    )?;
    Ok(checked(clean))
}

/// `gensvc generation show`
async fn show_generation(app: &App, id: GenerationId, output: Output) -> Outcome {
    let found = app.service.any_generation(id).await;
    let found = named(found, || format!("there is no generation {id}"))?;
    let account = app.service.account(found.account_id).await?;
    let found = GenerationRecord::of(found, &app.links);
    let (g, about) = (&found.summary, &found.metadata);
    let error = |e: &RecordError| format!("{} ({})", e.message, e.code);
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
