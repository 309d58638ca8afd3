//! What the commands do: those about the house here, those about customers in a file each.

mod accounts;
mod catalogue;
mod credits;
mod database;
mod generations;
mod keys;
mod ledger;
pub(super) mod manual;
mod media;
mod usage;

use std::process::ExitCode;

use serde_json::json;

use tracing::{Level, enabled};

use super::{
    Failure, Outcome,
    args::{AdminCommand, Command, ConfigCommand, MediaCommand},
    failed_in_json,
    output::Output,
};
use crate::{
    app::{
        App,
        database::{Database, Schema},
        serve,
    },
    config::{Config, LogFormat},
    domain::{
        page::{MAX_PER_PAGE, Page, PageRequest},
        validate::FieldError,
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
        Command::Config(ConfigCommand::Check) => config_check(config, output),
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
        Command::Media(MediaCommand::Verify) => media::verify(config, output).await,
        Command::Generation(command) => generations::run(config, command, output).await,
    }
}

/// Opens the database, does the work, and closes it again whatever came out.
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
    named(found, || format!("there is no account of {email:?}"))
}

/// Names what was not found.
fn named<T>(
    found: Result<T, ServiceError>,
    missing: impl FnOnce() -> String,
) -> Result<T, Failure> {
    match found {
        Err(ServiceError::NotFound) => Err(missing().into()),
        found => found.map_err(explained),
    }
}

/// The exit code of a check.
fn checked(is_clean: bool) -> ExitCode {
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The result of a comparison, in words.
fn verdict(is_clean: bool) -> &'static str {
    if is_clean {
        "no difference."
    } else {
        "THEY DIFFER."
    }
}

/// All rows of a list, page by page.
async fn all<T>(
    page: impl AsyncFnMut(PageRequest) -> Result<Page<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    Ok(first(usize::MAX, page).await?.0)
}

/// The first `most` rows of a list, and whether there are more.
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

/// A refusal of the rules, with every failing field.
fn explained(error: ServiceError) -> Failure {
    match error {
        ServiceError::Invalid(errors) => {
            let sentences: Vec<String> = errors
                .iter()
                .map(|e| format!("{} {}", e.param, e.message))
                .collect();
            sentences.join("; ").into()
        }
        other => other.into(),
    }
}

/// Refuses what can be refused without the database, before that is opened.
fn valid(errors: Vec<FieldError>) -> Result<(), Failure> {
    ServiceError::any(errors).map_err(explained)
}

fn config_check(config: &Config, output: Output) -> Outcome {
    config.check_servable()?;
    let summary = config.summary();
    output.result(&summary.to_string(), &summary)
}

async fn migrate(config: &Config, output: Output) -> Outcome {
    // Opening it is what brings it up to date.
    let database = Database::open(config, Role::Command, Schema::Migrate).await?;
    database.close().await?;
    output.result("The schema is up to date.", &json!({"migrated": true}))
}
