//! `gensvc ledger`

use std::num::NonZeroUsize;

use serde_json::json;

use super::{checked, first, user, verdict, with_app};
use crate::{
    app::App,
    cli::{
        Outcome,
        args::LedgerCommand,
        output::{Columns, Output, or_dash, table, time},
    },
    config::Config,
    store::{credits::LedgerEntry, verify::Scope},
};

pub(super) async fn run(config: &Config, command: LedgerCommand, output: Output) -> Outcome {
    with_app(config, async |app| match command {
        LedgerCommand::Show { email, limit } => show(&app, &email, limit, output).await,
        LedgerCommand::Verify { since_last } => verify(&app, since_last, output).await,
        LedgerCommand::Recount => {
            app.service.store().recount().await?;
            output.result("Recomputed all sums.", &json!({"recounted": true}))
        }
    })
    .await
}

async fn show(app: &App, email: &str, limit: NonZeroUsize, output: Output) -> Outcome {
    let account = user(app, email).await?.account_id;
    let store = app.service.store();
    let page = async |page| Ok(store.ledger(account, None, None, &page).await?);
    let (entries, more) = first(limit.get(), page).await?;
    let columns: &Columns<LedgerEntry> = &[
        ("ID", |e| e.id.to_string()),
        ("CREATED", |e| time(e.created_at)),
        ("KIND", |e| e.kind.clone()),
        ("AMOUNT", |e| e.amount.to_string()),
        ("BALANCE", |e| e.balance.to_string()),
        ("HELD", |e| e.held.to_string()),
        ("GENERATION", |e| or_dash(e.generation)),
        ("REFERENCE", |e| or_dash(e.reference.as_ref())),
    ];
    let people = match &entries[..] {
        [] => format!("{email} has no ledger entry."),
        entries => table(columns, entries),
    };
    let done = output.result(&people, &json!({"data": entries, "more": more}))?;
    if more {
        let count = entries.len();
        output.note(&format!(
            "These are the newest {count} entries; set --limit to list more."
        ));
    }
    Ok(done)
}

async fn verify(app: &App, since_last: bool, output: Output) -> Outcome {
    let scope = if since_last {
        Scope::SinceLast
    } else {
        Scope::Whole
    };
    let audit = app.service.store().verify_ledger(scope).await?;
    let clean = audit.differences.is_empty();
    let mut people = format!(
        "Recomputed {} accounts, {} {}ledger entries and {} {}generations: {}",
        audit.accounts,
        audit.entries,
        if audit.whole { "" } else { "new " },
        audit.generations,
        if audit.whole { "" } else { "new or running " },
        verdict(clean),
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
    Ok(checked(clean))
}
