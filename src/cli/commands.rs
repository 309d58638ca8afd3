//! What the commands do.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::{
    Failure,
    args::{AccountCommand, CreditsCommand, DatabaseCommand, NewKey},
    output::Output,
};
use crate::{
    api::NewKeyBody,
    app::{App, database::Database},
    config::Config,
    local_postgres::{LocalPostgres, Role},
    service::{ServiceError, keys::KeyRequest, operator::AccountRequest},
    store::{
        accounts::UserRow,
        credits::{Balance, MoveKind},
    },
};

/// Opens the database, does the work, and closes it again whatever came out.
async fn with_app<T>(
    config: &Config,
    work: impl AsyncFnOnce(App) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let database = Database::open(config, Role::Command).await?;
    let result = match App::for_command(config, database.store.clone()).await {
        Ok(app) => work(app).await,
        Err(error) => Err(error.into()),
    };
    database.close().await?;
    result
}

async fn user(app: &App, email: &str) -> Result<UserRow, Failure> {
    match app.service.user(email).await {
        Err(ServiceError::NotFound) => Err(format!("there is no account of {email:?}").into()),
        found => Ok(found?),
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

fn balance_json(balance: Balance) -> Value {
    json!({"balance": balance.balance, "held": balance.held, "available": balance.available()})
}

pub(super) fn config_check(config: &Config, output: Output) -> Result<ExitCode, Failure> {
    config.check_servable()?;
    let summary = config.summary();
    output.result(&summary.to_string(), &summary)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn migrate(config: &Config, output: Output) -> Result<ExitCode, Failure> {
    // Opening it is what brings it up to date.
    Database::open(config, Role::Command).await?.close().await?;
    output.result("The schema is up to date.", &json!({"migrated": true}))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn account(
    config: &Config,
    command: AccountCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        match command {
            AccountCommand::Create(new) => {
                let request = AccountRequest {
                    email: new.email,
                    password: new.password,
                    name: new.name,
                    credits: new.credits,
                };
                let (account, user) =
                    app.service.create_account(&request).await.map_err(explained)?;
                let AccountRequest { email, credits, .. } = request;
                output.result(
                    &format!("Account {account} of {email} was made, with {credits} credits."),
                    &json!({"account_id": account, "user_id": user, "email": email, "balance": credits}),
                )?;
            }
            AccountCommand::Suspend(who) => suspend(&app, &who.email, true, output).await?,
            AccountCommand::Resume(who) => suspend(&app, &who.email, false, output).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn suspend(app: &App, email: &str, suspended: bool, output: Output) -> Result<(), Failure> {
    let user = user(app, email).await?;
    app.service
        .set_suspended(user.account_id, suspended)
        .await?;
    let done = if suspended { "is suspended" } else { "goes on" };
    output.result(
        &format!("Account {} of {} {done}.", user.account_id, user.email),
        &json!({"account_id": user.account_id, "email": user.email, "suspended": suspended}),
    )?;
    Ok(())
}

pub(super) async fn credits(
    config: &Config,
    command: CreditsCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    let (email, kind, amount, reference) = match command {
        CreditsCommand::Grant(m) => (m.email, MoveKind::Grant, m.amount, m.reference),
        CreditsCommand::Adjust(m) => (m.email, MoveKind::Adjustment, m.amount, Some(m.reference)),
    };
    with_app(config, async |app| {
        let user = user(&app, &email).await?;
        let (balance, moved) = app
            .service
            .move_credits(user.account_id, kind, amount, reference.as_deref())
            .await
            .map_err(explained)?;
        let email = &user.email;
        let done = match (moved, kind) {
            (false, _) => format!("This reference was used for {email} before; nothing was moved"),
            (true, MoveKind::Grant) => format!("{amount} credits were granted to {email}"),
            (true, MoveKind::Adjustment) => {
                format!("The balance of {email} was adjusted by {amount}")
            }
        };
        let people = format!("{done}; the balance is {}.", balance.balance);
        let mut script = balance_json(balance);
        script["moved"] = json!(moved);
        output.result(&people, &script)?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

pub(super) async fn create_key(
    config: &Config,
    new: NewKey,
    output: Output,
) -> Result<ExitCode, Failure> {
    // The same fields as POST /v1/api-keys, so that the same rules read them.
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(new.name));
    body.insert("abilities".to_owned(), json!(new.abilities));
    body.insert("rate_limit_per_minute".to_owned(), json!(new.rate_limit));
    body.insert("expires_at".to_owned(), json!(new.expires_at));
    with_app(config, async |app| {
        let request = KeyRequest::read(&body, app.service.now()).map_err(explained)?;
        let user = user(&app, &new.email).await?;
        let (key, secret) = app
            .service
            .create_key(user.account_id, &request, None)
            .await?;
        let body = NewKeyBody::new(key, &secret);
        let people = format!(
            "{}\n\nThis is the only time that the key is shown.",
            body.key
        );
        output.result(&people, &body)?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

pub(super) async fn verify_ledger(config: &Config, output: Output) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        let audit = app.service.store().verify_ledger().await?;
        let clean = audit.differences.is_empty();
        let mut people = format!(
            "{} accounts, {} ledger entries and {} generations were recomputed: {}",
            audit.accounts,
            audit.entries,
            audit.generations,
            if clean {
                "no difference."
            } else {
                "THEY DIFFER."
            }
        );
        for difference in &audit.differences {
            people.push('\n');
            people.push_str(difference);
        }
        output.result(
            &people,
            &json!({"ok": clean, "accounts": audit.accounts, "entries": audit.entries,
                "generations": audit.generations, "differences": audit.differences}),
        )?;
        Ok(if clean {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
    .await
}

pub(super) async fn database(
    config: &Config,
    command: &DatabaseCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    let folder = &config.data.dir;
    match command {
        DatabaseCommand::Url => {
            let local = LocalPostgres::open(folder, Role::Command).await?;
            output.result(local.url(), &json!({"url": local.url()}))?;
            local.close().await?;
        }
        DatabaseCommand::Start => {
            let local = LocalPostgres::open(folder, Role::Command).await?;
            local.keep()?;
            output.result(local.url(), &json!({"url": local.url()}))?;
            local.close().await?;
        }
        DatabaseCommand::Stop => {
            let stopped = LocalPostgres::stop_kept(folder).await?;
            let people = if stopped {
                "Stopped."
            } else {
                "It was not running."
            };
            output.result(people, &json!({"stopped": stopped}))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
