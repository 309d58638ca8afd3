//! `gensvc account`

use std::process::ExitCode;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::{all, explained, user, valid, with_app};
use crate::{
    app::App,
    cli::{
        Failure,
        args::{AccountChange, AccountCommand, Deletion, NewOperator, Who},
        output::{Output, credits as in_words, maybe_time, table, time},
        password,
    },
    config::Config,
    domain::{
        ids::AccountId,
        request::{AccountRequest, AccountUpdate, password_violations},
    },
    service::ServiceError,
    store::accounts::AccountRecord,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: AccountCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    match command {
        AccountCommand::Create(new) => {
            let password = match new.password {
                Some(password) => password,
                None => password::read(&new.email).await?,
            };
            let request = AccountRequest {
                email: new.email,
                password: password.expose_secret().to_owned(),
                name: new.name,
                credits: new.credits,
            };
            valid(request.violations())?;
            with_app(config, async |app| create(&app, request, output).await).await
        }
        AccountCommand::Password(of) => {
            let password = password::read(&of.email).await?;
            valid(password_violations(password.expose_secret()))?;
            with_app(config, async |app| {
                set_password(&app, &of.email, password, output).await
            })
            .await
        }
        AccountCommand::List(filter) => {
            let email = filter.email.as_deref();
            with_app(config, async |app| list(&app, email, output).await).await
        }
        AccountCommand::Show(who) => {
            with_app(config, async |app| show(&app, &who, output).await).await
        }
        AccountCommand::Suspend(args) => {
            let reason = args.reason.as_deref();
            with_app(config, async |app| {
                suspend(&app, &args.who, true, reason, output).await
            })
            .await
        }
        AccountCommand::Change(args) => {
            with_app(config, async |app| change(&app, args, output).await).await
        }
        AccountCommand::Delete(args) => {
            with_app(config, async |app| delete(&app, &args, output).await).await
        }
        AccountCommand::Resume(who) => {
            with_app(config, async |app| {
                suspend(&app, &who, false, None, output).await
            })
            .await
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn create(app: &App, request: AccountRequest, output: Output) -> Result<(), Failure> {
    let made = app.service.create_account(&request).await;
    let (account, user) = made.map_err(explained)?;
    let AccountRequest { email, credits, .. } = request;
    output.result(
        &format!(
            "Account {account} of {email} was made, with {}.",
            in_words(&credits.to_string())
        ),
        &json!({"account_id": account, "user_id": user, "email": email, "balance": credits}),
    )?;
    Ok(())
}

async fn set_password(
    app: &App,
    email: &str,
    password: SecretString,
    output: Output,
) -> Result<(), Failure> {
    let user = user(app, email).await?;
    let ended = app.service.reset_password(user.id, password).await?;
    let (store, now) = (app.service.store(), app.service.now());
    let keys = all(async |page| Ok(store.keys(user.account_id, &page, now).await?)).await?;
    let live = keys.iter().filter(|key| {
        key.revoked_at.is_none() && key.expires_at.is_none_or(|expires_at| expires_at > now)
    });
    let live = live.count();
    let sessions = if ended == 1 { "session" } else { "sessions" };
    output.result(
        &format!(
            "The password of {} was set; {ended} {sessions} ended.",
            user.email
        ),
        &json!({"account_id": user.account_id, "user_id": user.id, "email": user.email,
            "sessions_ended": ended, "live_keys": live}),
    )?;
    if live > 0 {
        let email = &user.email;
        output.note(&format!(
            "API keys still work: {live} of this account. Look at them with `gensvc key list --email \
             {email}`, and revoke what you do not know with `gensvc key revoke --email {email} --id ID`."
        ));
    }
    Ok(())
}

async fn list(app: &App, email: Option<&str>, output: Output) -> Result<(), Failure> {
    let accounts = all(async |page| Ok(app.service.accounts(email, &page).await?)).await?;
    let rows: Vec<_> = accounts
        .iter()
        .map(|a| {
            [
                a.id.to_string(),
                a.email.clone(),
                a.name.clone(),
                a.balance.to_string(),
                a.held.to_string(),
                time(a.created_at),
                maybe_time(a.suspended_at),
            ]
        })
        .collect();
    let headings = [
        "ID",
        "EMAIL",
        "NAME",
        "BALANCE",
        "HELD",
        "CREATED",
        "SUSPENDED",
    ];
    let people = match (rows.is_empty(), email) {
        (true, Some(email)) => format!("There is no account of {email:?}."),
        (true, None) => "There is no account.".to_owned(),
        _ => table(headings, &rows),
    };
    output.result(&people, &json!({"data": accounts}))?;
    Ok(())
}

/// The account that is meant.
async fn find(app: &App, who: &Who) -> Result<AccountRecord, Failure> {
    let id = match (&who.email, who.id) {
        (Some(email), _) => user(app, email).await?.account_id,
        (None, id) => AccountId(id.unwrap_or_default()),
    };
    match app.service.account(id).await {
        Err(ServiceError::NotFound) => Err(format!("there is no account {id}").into()),
        found => Ok(found?),
    }
}

async fn show(app: &App, who: &Who, output: Output) -> Result<(), Failure> {
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
        (
            "because",
            account.suspended_reason.clone().unwrap_or("-".to_owned()),
        ),
        ("deleted", maybe_time(account.deleted_at)),
        ("erased", maybe_time(account.erased_at)),
    ];
    let rows = rows.map(|(name, value)| [name.to_owned(), value]);
    output.result(&table(["ACCOUNT", ""], &rows), &account)?;
    Ok(())
}

async fn suspend(
    app: &App,
    who: &Who,
    suspended: bool,
    reason: Option<&str>,
    output: Output,
) -> Result<(), Failure> {
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
    let people = format!("Account {} of {} {done}.", account.id, account.email);
    let mut script = json!(account);
    script["account_id"] = json!(account.id);
    script["suspended"] = json!(suspended);
    output.result(&people, &script)?;
    Ok(())
}

async fn change(app: &App, args: AccountChange, output: Output) -> Result<(), Failure> {
    let account = find(app, &args.who).await?;
    let change = AccountUpdate {
        email: args.new_email,
        name: args.name,
    };
    let changed = app.service.update_account(account.id, &change).await;
    let account = changed.map_err(explained)?;
    let (id, email, name) = (account.id, &account.email, &account.name);
    let people = format!("Account {id} has the name {name:?} and the email {email}.");
    output.result(&people, &account)?;
    Ok(())
}

async fn delete(app: &App, args: &Deletion, output: Output) -> Result<(), Failure> {
    let account = find(app, &args.who).await?;
    let id = account.id;
    if !args.yes {
        return Err(format!(
            "account {id} of {} has {} left, {} on hold; add --yes to delete it permanently",
            account.email,
            in_words(&account.balance.to_string()),
            account.held
        )
        .into());
    }
    let deleted = app.service.delete_account(id).await;
    deleted.map_err(explained)?;
    while app.service.erase_deleted().await? {}
    let account = app.service.account(id).await?;
    let people = format!(
        "Account {id} was deleted. A server removes the results of running work when it ends, and \
         sets `erased_at` 15 minutes later at the earliest."
    );
    output.result(&people, &account)?;
    Ok(())
}

pub(in crate::cli) async fn operator(
    config: &Config,
    new: &NewOperator,
    output: Output,
) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        let user = user(&app, &new.email).await?;
        let operator = !new.revoke;
        app.service.set_operator(user.id, operator).await?;
        let is = if operator { "is" } else { "is no longer" };
        output.result(
            &format!("{} {is} an operator.", user.email),
            &json!({"user_id": user.id, "email": user.email, "operator": operator}),
        )?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}
