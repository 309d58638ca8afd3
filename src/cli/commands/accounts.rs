//! `gensvc account`

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::{all, named, read, user, with_app};
use crate::{
    app::App,
    cli::{
        Failure, Outcome,
        args::{AccountCommand, NewAccount, UserCommand, Who},
        output::{Columns, Output, credits as in_words, maybe_time, or_dash, record, time},
        password,
    },
    config::Config,
    domain::ids::AccountId,
    request::{AccountRequest, AccountUpdate, normalized_email, password_violations},
    service::ServiceError,
    store::accounts::{AccountFilter, AccountRecord},
};

pub(super) async fn run(config: &Config, command: AccountCommand, output: Output) -> Outcome {
    // Refuses invalid arguments before the database is opened.
    let password = match &command {
        AccountCommand::Create(new) => {
            let password = match &new.password {
                Some(password) => password.clone(),
                None => password::read(&new.email).await?,
            };
            first_user(new, &password)?;
            password
        }
        AccountCommand::Password { email } => {
            let password = password::read(email).await?;
            ServiceError::any(password_violations(password.expose_secret()))?;
            password
        }
        _ => SecretString::default(),
    };
    with_app(config, async |app| match command {
        AccountCommand::Create(new) => create(&app, first_user(&new, &password)?, output).await,
        AccountCommand::Password { email } => set_password(&app, &email, password, output).await,
        AccountCommand::List { email } => list(&app, email.as_deref(), output).await,
        AccountCommand::Show(who) => show(&app, &who, output).await,
        AccountCommand::Suspend { who, reason } => {
            suspend(&app, &who, true, reason.as_deref(), output).await
        }
        AccountCommand::Resume(who) => suspend(&app, &who, false, None, output).await,
        AccountCommand::Change {
            who,
            new_email: email,
            name,
        } => {
            let change = read(&json!({"email": email, "name": name}))?;
            update(&app, &who, &change, output).await
        }
        AccountCommand::Delete { who, yes } => delete(&app, &who, yes, output).await,
    })
    .await
}

fn first_user(new: &NewAccount, password: &SecretString) -> Result<AccountRequest, Failure> {
    read(
        &json!({"email": new.email, "password": password.expose_secret(), "name": new.name,
            "credits": new.credits}),
    )
}

async fn create(app: &App, request: AccountRequest, output: Output) -> Outcome {
    let (account, user) = app.service.create_account(&request).await?;
    let AccountRequest { email, credits, .. } = request;
    output.result(
        &format!(
            "Created account {account} ({email}) with {}.",
            in_words(&credits.to_string())
        ),
        &json!({"account_id": account, "user_id": user, "email": email, "balance": credits}),
    )
}

async fn set_password(app: &App, email: &str, password: SecretString, output: Output) -> Outcome {
    let user = user(app, email).await?;
    let ended = app.service.reset_password(user.id, password).await?;
    let (store, now) = (app.service.store(), app.service.now());
    let keys = all(async |page| Ok(store.keys(user.account_id, &page, now).await?)).await?;
    let live = keys.iter().filter(|key| {
        key.revoked_at.is_none() && key.expires_at.is_none_or(|expires_at| expires_at > now)
    });
    let live = live.count();
    let sessions = if ended == 1 { "session" } else { "sessions" };
    let done = output.result(
        &format!(
            "Set the password of {} and ended {ended} {sessions}.",
            user.email
        ),
        &json!({"account_id": user.account_id, "user_id": user.id, "email": user.email,
            "sessions_ended": ended, "live_keys": live}),
    )?;
    if live > 0 {
        let email = &user.email;
        output.note(&format!(
            "API keys of this account that still work: {live}. List them with `gensvc key list \
             --email {email}`, and revoke unknown ones with `gensvc key revoke --email {email} --id ID`."
        ));
    }
    Ok(done)
}

async fn list(app: &App, email: Option<&str>, output: Output) -> Outcome {
    let store = app.service.store();
    let filter = AccountFilter {
        email: email.map(normalized_email),
        ..AccountFilter::default()
    };
    let accounts = all(async |page| Ok(store.accounts(&filter, &page).await?)).await?;
    let columns: &Columns<AccountRecord> = &[
        ("ID", |a| a.id.to_string()),
        ("EMAIL", |a| a.email.clone()),
        ("NAME", |a| a.name.clone()),
        ("BALANCE", |a| a.balance.to_string()),
        ("HELD", |a| a.held.to_string()),
        ("CREATED", |a| time(a.created_at)),
        ("SUSPENDED", |a| maybe_time(a.suspended_at)),
    ];
    let empty = match email {
        Some(email) => format!("No account has a user with the email {email:?}."),
        None => "There is no account.".to_owned(),
    };
    output.list(columns, &accounts, &empty)
}

async fn find(app: &App, who: &Who) -> Result<AccountRecord, Failure> {
    let id = match (&who.email, who.id) {
        (Some(email), _) => user(app, email).await?.account_id,
        (None, id) => AccountId(id.unwrap_or_default()),
    };
    let found = app.service.account(id).await;
    named(found, || format!("there is no account {id}"))
}

async fn show(app: &App, who: &Who, output: Output) -> Outcome {
    let account = find(app, who).await?;
    let rows = [
        ("id", account.id.to_string()),
        ("email", account.email.clone()),
        ("name", account.name.clone()),
        ("balance", account.balance.to_string()),
        ("held", account.held.to_string()),
        ("available", account.available.to_string()),
        ("spent", account.spent.to_string()),
        ("created", time(account.created_at)),
        ("suspended", maybe_time(account.suspended_at)),
        ("reason", or_dash(account.suspended_reason.as_ref())),
        ("deleted", maybe_time(account.deleted_at)),
        ("erased", maybe_time(account.erased_at)),
    ];
    output.result(&record("ACCOUNT", &rows), &account)
}

async fn suspend(
    app: &App,
    who: &Who,
    suspended: bool,
    reason: Option<&str>,
    output: Output,
) -> Outcome {
    let account = find(app, who).await?;
    let account = app
        .service
        .set_suspended(account.id, suspended, reason)
        .await?;
    let done = if suspended {
        "is suspended"
    } else {
        "is active"
    };
    let people = format!("Account {} ({}) {done}.", account.id, account.email);
    let mut script = json!(account);
    script["account_id"] = json!(account.id);
    script["suspended"] = json!(suspended);
    output.result(&people, &script)
}

async fn update(app: &App, who: &Who, change: &AccountUpdate, output: Output) -> Outcome {
    let account = find(app, who).await?;
    let account = app.service.update_account(account.id, change).await?;
    let (id, email, name) = (account.id, &account.email, &account.name);
    let people = format!("Account {id} now has the name {name:?} and the email {email}.");
    output.result(&people, &account)
}

async fn delete(app: &App, who: &Who, is_confirmed: bool, output: Output) -> Outcome {
    let account = find(app, who).await?;
    let id = account.id;
    if !is_confirmed {
        return Err(format!(
            "account {id} ({}) has {} left, {} on hold; add --yes to delete it permanently",
            account.email,
            in_words(&account.balance.to_string()),
            account.held
        )
        .into());
    }
    if let Err(error) = app.service.delete_account(id).await {
        return Err(match error {
            // The command may have identified the account by an email.
            ServiceError::Invalid(errors) if errors.len() == 1 && errors[0].param == "id" => {
                format!("account {id} {}", errors[0].message).into()
            }
            error => error.into(),
        });
    }
    while app.service.erase_deleted().await? {}
    let account = app.service.account(id).await?;
    let people = format!(
        "Deleted account {id}. A server deletes the results of running generations when they end, and \
         sets `erased_at` at least 15 minutes later."
    );
    output.result(&people, &account)
}

pub(super) async fn set_operator(config: &Config, command: UserCommand, output: Output) -> Outcome {
    let UserCommand::Operator { email, revoke } = command;
    with_app(config, async |app| {
        let user = user(&app, &email).await?;
        app.service.set_operator(user.id, !revoke).await?;
        let is = if revoke { "is no longer" } else { "is" };
        output.result(
            &format!("{} {is} an operator.", user.email),
            &json!({"user_id": user.id, "email": user.email, "operator": !revoke}),
        )
    })
    .await
}
