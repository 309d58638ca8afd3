//! `gensvc ledger`

use std::process::ExitCode;

use serde_json::json;

use super::{first, user, with_app};
use crate::{
    cli::{
        Failure,
        args::{Entries, LedgerCommand, Verify},
        output::{Output, table, time},
    },
    config::Config,
    store::verify::Scope,
};

pub(in crate::cli) async fn run(
    config: &Config,
    command: LedgerCommand,
    output: Output,
) -> Result<ExitCode, Failure> {
    match command {
        LedgerCommand::Show(entries) => show(config, &entries, output).await,
        LedgerCommand::Verify(asked) => verify(config, asked, output).await,
        LedgerCommand::Recount => recount(config, output).await,
    }
}

async fn show(config: &Config, asked: &Entries, output: Output) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        let account = user(&app, &asked.email).await?.account_id;
        let store = app.service.store();
        let page = async |page| Ok(store.ledger(account, None, None, &page).await?);
        let (entries, more) = first(asked.limit.get(), page).await?;
        let rows: Vec<_> = entries
            .iter()
            .map(|e| {
                [
                    e.id.to_string(),
                    time(e.created_at),
                    e.kind.clone(),
                    e.amount.to_string(),
                    e.balance.to_string(),
                    e.held.to_string(),
                    e.generation.map_or("-".to_owned(), |id| id.to_string()),
                    e.reference.clone().unwrap_or_else(|| "-".to_owned()),
                ]
            })
            .collect();
        let headings = [
            "ID",
            "CREATED",
            "KIND",
            "AMOUNT",
            "BALANCE",
            "HELD",
            "GENERATION",
            "REFERENCE",
        ];
        let people = if rows.is_empty() {
            format!("{} has no ledger entry.", asked.email)
        } else {
            table(headings, &rows)
        };
        output.result(&people, &json!({"data": entries, "more": more}))?;
        if more {
            output.note(&format!(
                "These are the newest {}; for more, give a --limit.",
                rows.len()
            ));
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn verify(config: &Config, asked: Verify, output: Output) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        let scope = if asked.since_last {
            Scope::SinceLast
        } else {
            Scope::Whole
        };
        let audit = app.service.store().verify_ledger(scope).await?;
        let clean = audit.differences.is_empty();
        let mut people = format!(
            "{} accounts, {} {}ledger entries and {} {}generations were recomputed: {}",
            audit.accounts,
            audit.entries,
            if audit.whole { "" } else { "new " },
            audit.generations,
            if audit.whole { "" } else { "new or running " },
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
            &json!({"ok": clean, "whole": audit.whole, "accounts": audit.accounts,
                "entries": audit.entries, "generations": audit.generations,
                "differences": audit.differences}),
        )?;
        Ok(if clean {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
    .await
}

async fn recount(config: &Config, output: Output) -> Result<ExitCode, Failure> {
    with_app(config, async |app| {
        app.service.store().recount().await?;
        output.result("All sums were recomputed.", &json!({"recounted": true}))?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}
