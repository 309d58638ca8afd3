//! `gensvc credits`

use serde_json::json;

use super::{named, user, with_app};
use crate::{
    cli::{
        Outcome,
        args::{Adjustment, CreditsCommand, Movement, Refund},
        output::{Output, credits},
    },
    config::Config,
    request::Move,
    service::ServiceError,
};

pub(super) async fn run(config: &Config, command: CreditsCommand, output: Output) -> Outcome {
    let (what, reference) = match &command {
        CreditsCommand::Grant(m) => (Move::Grant(m.amount), m.reference.as_deref()),
        CreditsCommand::Adjust(m) => (Move::Adjustment(m.amount), Some(m.reference.as_str())),
        CreditsCommand::Refund(m) => {
            let (generation, amount) = (m.generation, m.amount);
            let what = Move::Refund { generation, amount };
            (what, Some(m.reference.as_str()))
        }
    };
    // Before the database is opened.
    ServiceError::any(what.violations(reference))?;
    with_app(config, async |app| {
        let (account, email) = match &command {
            CreditsCommand::Grant(Movement { email, .. })
            | CreditsCommand::Adjust(Adjustment { email, .. }) => {
                let user = user(&app, email).await?;
                (user.account_id, user.email)
            }
            CreditsCommand::Refund(Refund { generation, .. }) => {
                let account = app.service.account_of(*generation).await;
                let missing = || format!("there is no generation {generation}");
                (named(account, missing)?, String::new())
            }
        };
        let (entry, moved) = app.service.move_credits(account, what, reference).await?;
        let amount = entry.amount;
        let in_words = credits(&amount.to_string());
        let sentence = match &command {
            CreditsCommand::Refund(Refund { generation, .. }) if moved => {
                format!("Refunded {in_words} of generation {generation} to account {account}")
            }
            CreditsCommand::Refund(Refund { generation, .. }) => {
                format!("Generation {generation} was refunded before; nothing was changed")
            }
            _ if !moved => {
                format!("This reference was used for {email} before; nothing was changed")
            }
            CreditsCommand::Grant(_) => format!("Granted {in_words} to {email}"),
            CreditsCommand::Adjust(_) => {
                format!("The balance of {email} was adjusted by {amount}")
            }
        };
        let standing = app.service.account(account).await?;
        output.result(
            &format!("{sentence}; the balance is {}.", standing.balance),
            &json!({
                "balance": standing.balance,
                "held": standing.held,
                "available": standing.available,
                "moved": moved,
                "entry": entry,
            }),
        )
    })
    .await
}
