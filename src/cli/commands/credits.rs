//! `gensvc credits`

use std::process::ExitCode;

use serde_json::json;

use super::{explained, named, user, valid, with_app};
use crate::{
    app::App,
    cli::{
        Failure,
        args::{Adjustment, CreditsCommand, Movement},
        output::{Output, credits},
    },
    config::Config,
    domain::{
        ids::{AccountId, GenerationId},
        request::Move,
    },
    service::operators::Movement as Moved,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: CreditsCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    let (what, reference) = match &command {
        CreditsCommand::Grant(m) => (Move::Grant(m.amount), m.reference.as_deref()),
        CreditsCommand::Adjust(m) => (Move::Adjustment(m.amount), Some(m.reference.as_str())),
        CreditsCommand::Refund(m) => {
            let (generation, amount) = (m.generation, m.amount);
            let what = Move::Refund { generation, amount };
            (what, Some(m.reference.as_str()))
        }
    };
    valid(what.violations(reference))?;
    with_app(config, async |app| match &command {
        CreditsCommand::Grant(Movement { email, .. })
        | CreditsCommand::Adjust(Adjustment { email, .. }) => {
            move_credits(&app, email, what, reference, output).await
        }
        CreditsCommand::Refund(of) => refund(&app, of.generation, what, reference, output).await,
    })
    .await
}

async fn move_credits(
    app: &App,
    email: &str,
    what: Move,
    reference: Option<&str>,
    output: Output,
) -> Result<ExitCode, Failure> {
    let user = user(app, email).await?;
    let done = app
        .service
        .move_credits(user.account_id, what, reference)
        .await
        .map_err(explained)?;
    let (email, amount) = (&user.email, done.entry.amount);
    let sentence = if !done.moved {
        format!("This reference was used for {email} before; nothing was moved")
    } else if what == Move::Grant(amount) {
        format!("Granted {} to {email}", credits(&amount.to_string()))
    } else {
        format!("The balance of {email} was adjusted by {amount}")
    };
    tell(app, user.account_id, &sentence, done, output).await
}

async fn refund(
    app: &App,
    generation: GenerationId,
    what: Move,
    reference: Option<&str>,
    output: Output,
) -> Result<ExitCode, Failure> {
    let account = app.service.account_of(generation).await;
    let account = named(account, || format!("there is no generation {generation}"))?;
    let done = app
        .service
        .move_credits(account, what, reference)
        .await
        .map_err(explained)?;
    let amount = done.entry.amount;
    let sentence = if done.moved {
        let amount = credits(&amount.to_string());
        format!("Refunded {amount} of generation {generation} to account {account}")
    } else {
        format!("Generation {generation} was refunded before; nothing was moved")
    };
    tell(app, account, &sentence, done, output).await
}

/// Prints what was done, and how the account stands now.
async fn tell(
    app: &App,
    account: AccountId,
    done: &str,
    moved: Moved,
    output: Output,
) -> Result<ExitCode, Failure> {
    let standing = app.service.account(account).await?;
    output.result(
        &format!("{done}; the balance is {}.", standing.balance),
        &json!({
            "balance": standing.balance,
            "held": standing.held,
            "available": standing.available,
            "moved": moved.moved,
            "entry": moved.entry,
        }),
    )
}
