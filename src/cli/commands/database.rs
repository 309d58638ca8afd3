//! `gensvc database`

use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{
    cli::{Outcome, args::DatabaseCommand, output::Output},
    config::Config,
    local_postgres::{LocalPostgres, Role},
};

pub(super) async fn run(config: &Config, command: DatabaseCommand, output: Output) -> Outcome {
    match command {
        DatabaseCommand::Url => url(config, output),
        DatabaseCommand::Start => start(config, output).await,
        DatabaseCommand::Stop => stop(config, output).await,
        DatabaseCommand::Remove { yes } => remove(config, yes, output).await,
    }
}

fn url(config: &Config, output: Output) -> Outcome {
    let (url, note) = match &config.database.url {
        Some(url) => (
            url.expose_secret().to_owned(),
            "This is the database of DATABASE_URL.".to_owned(),
        ),
        None => {
            let (url, runs) = LocalPostgres::find(&config.data.dir)?;
            let stopped = if runs {
                ""
            } else {
                " It is not running: start the server, or `gensvc database start`."
            };
            let folder = folder(config);
            let note = format!("This is the private database in {folder}.{stopped}");
            (url, note)
        }
    };
    output.note(&note);
    output.result(&url, &json!({"url": url}))
}

async fn start(config: &Config, output: Output) -> Outcome {
    let local = LocalPostgres::open(&config.data.dir, Role::Start).await?;
    local.keep()?;
    let done = output.result(local.url(), &json!({"url": local.url()}))?;
    local.close().await?;
    Ok(done)
}

async fn stop(config: &Config, output: Output) -> Outcome {
    let stopped = LocalPostgres::stop_kept(&config.data.dir).await?;
    let people = if stopped {
        "Stopped the private Postgres."
    } else {
        "The private Postgres was not running."
    };
    output.result(people, &json!({"stopped": stopped}))
}

async fn remove(config: &Config, agreed: bool, output: Output) -> Outcome {
    if config.database.url.is_some() {
        let folder = folder(config);
        return Err(format!(
            "DATABASE_URL is set, and only a private database can be deleted here: unset \
             DATABASE_URL to delete the one in {folder}"
        )
        .into());
    }
    if let Some(found) = LocalPostgres::removable(&config.data.dir)?
        && !agreed
    {
        let found = found.display();
        return Err(format!(
            "this would delete {found} with all accounts, credits and generations in it; add --yes \
             to delete it"
        )
        .into());
    }
    let removed = LocalPostgres::remove(&config.data.dir).await?;
    let text = match &removed {
        Some(home) => format!("Deleted {}.", home.display()),
        None => format!("There was no private database in {}.", folder(config)),
    };
    let removed: Vec<String> = removed
        .iter()
        .map(|home| home.display().to_string())
        .collect();
    let done = output.result(&text, &json!({"removed": removed}))?;
    if config.data.dir.join("media").exists() {
        let folder = folder(config);
        output.note(&format!(
            "The stored files in {folder}/media were not deleted; delete them yourself."
        ));
    }
    Ok(done)
}

/// Returns the absolute path of the data directory.
fn folder(config: &Config) -> String {
    let dir = &config.data.dir;
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    whole.display().to_string()
}
