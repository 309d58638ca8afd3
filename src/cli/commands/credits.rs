//! `gensvc credits`

use std::process::ExitCode;

use serde_json::json;

use super::{explained, user, with_app};
use crate::{
    api::LedgerEntryBody,
    app::App,
    cli::{
        Failure,
        args::{CreditsCommand, Refund},
        output::Output,
    },
    config::Config,
    domain::{credits::Credits, ids::AccountId},
    service::{ServiceError, movements::Movement},
    store::credits::MoveKind,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: CreditsCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        match command {
            CreditsCommand::Grant(m) => {
                let reference = m.reference.as_deref();
                let kind = MoveKind::Grant;
                move_credits(&app, &m.email, kind, m.amount, reference, output).await?;
            }
            CreditsCommand::Adjust(m) => {
                let (kind, reference) = (MoveKind::Adjustment, Some(m.reference.as_str()));
                move_credits(&app, &m.email, kind, m.amount, reference, output).await?;
            }
            CreditsCommand::Refund(refund) => give_back(&app, &refund, output).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn move_credits(
    app: &App,
    email: &str,
    kind: MoveKind,
    amount: Credits,
    reference: Option<&str>,
    output: Output,
) -> Result<(), Failure> {
    let user = user(app, email).await?;
    let moved = app
        .service
        .move_credits(user.account_id, kind, amount, reference)
        .await
        .map_err(explained)?;
    let email = &user.email;
    let done = match (moved.moved, kind) {
        (false, _) => format!("This reference was used for {email} before; nothing was moved"),
        (true, MoveKind::Grant) => format!("{amount} credits were granted to {email}"),
        (true, MoveKind::Adjustment) => format!("The balance of {email} was adjusted by {amount}"),
    };
    tell(app, user.account_id, &done, moved, output).await
}

async fn give_back(app: &App, refund: &Refund, output: Output) -> Result<(), Failure> {
    let generation = refund.generation;
    let given_back = app
        .service
        .refund(generation, refund.amount, &refund.reference)
        .await;
    let (account, moved) = match given_back {
        Err(ServiceError::NotFound) => {
            return Err(format!("there is no generation {generation}").into());
        }
        other => other.map_err(explained)?,
    };
    let amount = moved.entry.amount;
    let done = if moved.moved {
        format!("{amount} credits of generation {generation} were given back to account {account}")
    } else {
        format!("Generation {generation} was refunded before; nothing was moved")
    };
    tell(app, account, &done, moved, output).await
}

/// Prints what was done, and how the account stands now.
async fn tell(
    app: &App,
    account: AccountId,
    done: &str,
    moved: Movement,
    output: Output,
) -> Result<(), Failure> {
    let standing = app.service.account(account).await?.balance;
    output.result(
        &format!("{done}; the balance is {}.", standing.balance),
        &json!({
            "balance": standing.balance,
            "held": standing.held,
            "available": standing.available(),
            "moved": moved.moved,
            "entry": LedgerEntryBody::from(moved.entry),
        }),
    )?;
    Ok(())
}
