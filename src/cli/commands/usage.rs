//! `gensvc usage`

use super::{all, user, with_app};
use crate::{
    app::{App, AppError},
    cli::{
        Failure, Outcome,
        args::Usage,
        output::{Columns, Output, table},
    },
    config::Config,
    domain::{
        ids::AccountId,
        report::{UsageRow, UsageTotals},
    },
    local_postgres::LocalPostgresError,
    request::UsageRequest,
    service::reports::UsageReport,
    store::accounts::AccountFilter,
};

pub(super) async fn run(config: &Config, asked: Usage, output: Output) -> Outcome {
    let request = UsageRequest {
        from: asked.from,
        to: asked.to,
        group_by: asked.group_by.unwrap_or_default(),
    };
    with_app(config, async |app| {
        let mut report = UsageReport {
            data: Vec::new(),
            total: UsageTotals::default(),
        };
        for account in accounts(&app, asked.email.as_deref()).await? {
            let one = app.service.usage(account, &request).await?;
            report.data.extend(one.data);
            report.total += one.total;
        }
        report.data = merged(report.data);
        let people = people(&report);
        output.result(&people, &report)
    })
    .await
    .map_err(|error| match error.downcast_ref() {
        Some(AppError::LocalPostgres(LocalPostgresError::None { .. })) => {
            format!("{error}; for the usage of your own account, run `gensvc usage --own`, which asks a server")
                .into()
        }
        _ => error,
    })
}

async fn accounts(app: &App, email: Option<&str>) -> Result<Vec<AccountId>, Failure> {
    if let Some(email) = email {
        return Ok(vec![user(app, email).await?.account_id]);
    }
    let store = app.service.store();
    let filter = AccountFilter::default();
    let accounts = all(async |page| Ok(store.accounts(&filter, &page).await?)).await?;
    Ok(accounts.into_iter().map(|account| account.id).collect())
}

/// Merges groups of the same name from several accounts.
fn merged(mut rows: Vec<UsageRow>) -> Vec<UsageRow> {
    rows.sort_by(|a, b| a.group().cmp(&b.group()));
    let mut merged: Vec<UsageRow> = Vec::new();
    for row in rows {
        match merged.last_mut() {
            Some(last) if last.group() == row.group() => last.totals += row.totals,
            _ => merged.push(row),
        }
    }
    merged
}

fn people(report: &UsageReport) -> String {
    let name = |row: &UsageRow| {
        let key = row.api_key.map(|key| match key.0 {
            Some(id) => format!("key {id}"),
            None => "sessions".to_owned(),
        });
        let parts = [
            row.day.map(|day| day.to_string()),
            row.r#type.clone(),
            row.provider.clone(),
            row.model.clone(),
            key,
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    let mut rows: Vec<_> = report
        .data
        .iter()
        .map(|row| (name(row), row.totals))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    rows.push(("total".to_owned(), report.total));
    let columns: &Columns<(String, UsageTotals)> = &[
        ("OF", |(name, _)| name.clone()),
        ("MADE", |(_, t)| t.generations.to_string()),
        ("COMPLETED", |(_, t)| t.completed.to_string()),
        ("FAILED", |(_, t)| t.failed.to_string()),
        ("CHARGED", |(_, t)| t.charged.to_string()),
        ("INPUT TOKENS", |(_, t)| t.input_tokens.to_string()),
        ("OUTPUT TOKENS", |(_, t)| t.output_tokens.to_string()),
        ("IMAGES", |(_, t)| t.images.to_string()),
        ("SECONDS", |(_, t)| t.seconds.to_string()),
        ("CHARACTERS", |(_, t)| t.characters.to_string()),
    ];
    table(columns, &rows)
}
