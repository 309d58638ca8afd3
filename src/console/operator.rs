//! The operator's pages: not found for everybody else.

pub mod accounts;

use axum::response::Response;
use http::Uri;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    client::Problem,
    csv::{self, Download, members},
    form::Form,
    operations as op,
    parts::{self, amount, badge, decimal, kind, list, text, time},
    session::Session,
    shell, usage,
};

/// Refuses who is no operator, as if there were no such page.
fn check(session: &Session) -> Result<(), Problem> {
    if session.me["operator"] == true {
        Ok(())
    } else {
        Err(Problem::not_found())
    }
}

/// Of so many, as a percentage with one digit.
fn share(part: &Value, whole: &Value) -> Markup {
    match (part.as_u64(), whole.as_u64()) {
        (Some(part), Some(whole)) if whole > 0 => {
            let tenths = part * 1000 / whole;
            html! { (decimal(&format!("{}.{}", tenths / 10, tenths % 10))) " %" }
        }
        _ => amount(&Value::Null),
    }
}

fn seconds(value: &Value) -> Markup {
    match value.as_f64() {
        Some(seconds) => html! { (decimal(&format!("{seconds:.2}"))) " s" },
        None => amount(&Value::Null),
    }
}

pub async fn health(session: Session) -> Result<Markup, Problem> {
    check(&session)?;
    let (providers, audit) = tokio::try_join!(
        session.call(op::PROVIDERS_HEALTH, &[]).json(),
        session.call(op::AUDIT, &[]).json(),
    )?;
    let content = html! {
        (shell::head("Health", "The ledger's self-audit, and how the providers do.",
            &parts::download("/operator/providers.csv", list(&providers["data"]))))
        (self_audit(&audit))
        @for provider in list(&providers["data"]) { (provider_card(provider)) }
    };
    Ok(shell::page(&session, "Health", &content))
}

pub async fn providers_csv(session: Session) -> Result<Response, Problem> {
    check(&session)?;
    let found = session.call(op::PROVIDERS_HEALTH, &[]).json().await?;
    let counts = [
        "model",
        "type",
        "generations",
        "failed",
        "faults",
        "account_errors",
        "median_seconds",
        "p95_seconds",
    ];
    let mut rows = Vec::new();
    for provider in list(&found["data"]) {
        for model in list(&provider["models"]) {
            let mut row = vec![&provider["provider"]];
            row.extend(counts.map(|name| &model[name]));
            rows.push(row);
        }
    }
    let headings = [&["provider"], &counts[..]].concat();
    Ok(csv::file("providers", &headings, &rows))
}

fn self_audit(audit: &Value) -> Markup {
    let checks = audit["checks"].as_object();
    html! {
        section.card {
            div.card-head {
                h2 { "Self-audit" }
                span.muted.small { (time(&audit["at"])) }
            }
            @match audit["differences"].as_u64() {
                None => { p.muted { "None was done yet. The server does one a minute after its start." } }
                Some(0) => { p.notice.good { "0 differences: every balance is what the ledger says." } }
                Some(count) => {
                    p.notice.bad role="alert" {
                        (count) " differences. Run " code { "gensvc ledger verify" } " and look at the log."
                    }
                }
            }
            @if let Some(checks) = checks {
                dl.figures { @for (name, count) in checks { div { dt { (check_name(name)) } dd { (amount(count)) } } } }
            }
        }
    }
}

/// What a check of the self-audit looks for.
fn check_name(name: &str) -> &str {
    match name {
        "balance" => "Wrong balances",
        "holds" => "Wrong holds",
        "jobs" => "Wrong job counts",
        "overdue" => "Jobs past their deadline",
        "ownerless" => "Jobs without a server",
        other => other,
    }
}

fn provider_card(provider: &Value) -> Markup {
    let models = list(&provider["models"]);
    let refused: u64 = models
        .iter()
        .filter_map(|model| model["account_errors"].as_u64())
        .sum();
    html! {
        section.card {
            div.card-head {
                h2 { (text(&provider["provider"])) }
                span.muted.small {
                    @if provider["limit"].is_null() { "No limit of calls at once" } @else {
                        (amount(&provider["in_use"])) " of " (amount(&provider["limit"])) " calls at once, from this server"
                    }
                }
            }
            @if refused > 0 {
                p.notice.bad role="alert" {
                    (refused) " of the last generations failed because the provider refuses this "
                    "server's account. Check its API key, permissions and funds; the log has the code."
                }
            }
            @if models.is_empty() { p.muted { "No generation of it ended lately." } } @else {
                div.table tabindex="0" { table {
                    thead { tr {
                        th { "Model" } th { "Type" } th.right { "Ended" } th.right { "Failed" }
                        th.right { "Provider's faults" } th.right { "Median" } th.right { "95th percentile" }
                    } }
                    tbody { @for model in models { tr {
                        td { code { (text(&model["model"])) } }
                        td { (kind(text(&model["type"]))) }
                        td.right { (amount(&model["generations"])) }
                        td.right { (share(&model["failed"], &model["generations"])) }
                        td.right { (share(&model["faults"], &model["generations"])) }
                        td.right { (seconds(&model["median_seconds"])) }
                        td.right { (seconds(&model["p95_seconds"])) }
                    } } }
                } }
            }
        }
    }
}

pub async fn jobs(session: Session) -> Result<Markup, Problem> {
    check(&session)?;
    let found = session.call(op::JOBS, &[]).json().await?;
    let rows = list(&found["data"]);
    let content = html! {
        (shell::head("Jobs", "What has not ended, of all accounts, the oldest first.",
            &parts::download("/operator/jobs.csv", rows)))
        section.card #jobs data-live="/operator/jobs" {
            div.card-head { h2 { "Unfinished" } span.muted.small { (amount(&found["total"])) " in all" } }
            @if rows.is_empty() {
                (parts::empty("Nothing is running", "New work shows here while it runs.", &html! {}))
            } @else {
                div.table tabindex="0" { table.cards {
                    thead { tr {
                        th { "Type" } th.cut { "Generation" } th { "Account" } th { "Model" } th { "Status" }
                        th.right { "Attempts" } th.right { "On hold" } th { "Created" }
                    } }
                    tbody { @for row in rows { tr {
                        td { (kind(text(&row["type"]))) }
                        td.cut { code { (text(&row["uuid"])) } }
                        td {
                            a href={ "/operator/accounts/" (row["account"].to_string()) } { "Account " (row["account"].to_string()) }
                        }
                        td.narrow-hidden { (text(&row["provider"])) " · " (text(&row["model"])) }
                        td {
                            (badge(text(&row["status"])))
                            @if let Some(percent) = row["progress"].as_u64() { " " (percent) " %" }
                        }
                        td.right.narrow-hidden { (amount(&row["attempts"])) }
                        td.right data-unit="on hold" { (amount(&row["held"])) }
                        td { (time(&row["created_at"])) }
                    } } }
                } }
            }
        }
    };
    Ok(shell::reloading(
        &session,
        "Jobs",
        &content,
        Some("/operator/jobs"),
    ))
}

pub async fn jobs_csv(session: Session) -> Result<Response, Problem> {
    check(&session)?;
    let columns = members(&[
        "uuid",
        "account",
        "type",
        "provider",
        "model",
        "status",
        "attempts",
        "progress",
        "held",
        "created_at",
    ]);
    let download = Download::new("jobs", op::JOBS, columns);
    download.answer(session).await
}

pub async fn spending(session: Session, uri: Uri) -> Result<Markup, Problem> {
    check(&session)?;
    let (from, to) = usage::chosen(&Form::of_query(uri.query()), session.now.date_naive());
    let report = |by: &str| {
        let call = session.call(op::SPENDING, &[]).query("group_by", by);
        call.query("from", &from).query("to", &to).json()
    };
    let (models, accounts) = tokio::try_join!(report("model"), report("account"))?;
    let export = |by| {
        let query = [("by", by), ("from", from.as_str()), ("to", to.as_str())];
        parts::link("/operator/spending.csv", &query)
    };
    let content = html! {
        (shell::head("Spending", "What all accounts were charged, by model and by account.", &html! {}))
        section.card {
            form.filters method="get" action="/operator/spending" {
                label.field { span.label { "From (UTC)" } input type="date" name="from" value=(from); }
                label.field { span.label { "To (UTC)" } input type="date" name="to" value=(to); }
                div.actions { button.primary type="submit" { "Show" } }
            }
        }
        (report_card("Model", &models, &export("model"), |row| html! {
            (text(&row["provider"])) " · " code { (text(&row["model"])) }
        }))
        (report_card("Account", &accounts, &export("account"), |row| html! {
            a href={ "/operator/accounts/" (row["account"].to_string()) } { (text(&row["name"])) }
        }))
    };
    Ok(shell::page(&session, "Spending", &content))
}

pub async fn spending_csv(session: Session, uri: Uri) -> Result<Response, Problem> {
    check(&session)?;
    let form = Form::of_query(uri.query());
    let of: &[_] = match form.word("by") {
        "account" => &["account", "name"],
        _ => &["provider", "model"],
    };
    let columns = members(&[of, &["charged", "completed", "failed"]].concat());
    let download = Download::new("spending", op::SPENDING, columns);
    let download = download.query("group_by", form.word("by"));
    let download = download.query("from", form.word("from"));
    download.query("to", form.word("to")).answer(session).await
}

fn report_card(
    title: &str,
    report: &Value,
    export: &str,
    name: impl Fn(&Value) -> Markup,
) -> Markup {
    let rows = list(&report["data"]);
    html! {
        section.card {
            div.card-head { h2 { "By " (title.to_lowercase()) } (parts::download(export, rows)) }
            @if rows.is_empty() { p.muted { "Nothing was charged in this time." } } @else {
                div.table tabindex="0" { table {
                    thead { tr { th { (title) } th.right { "Credits" } th.right { "Completed" } th.right { "Failed" } } }
                    tbody { @for row in rows { tr {
                        td { (name(row)) }
                        td.right { (amount(&row["charged"])) }
                        td.right { (amount(&row["completed"])) }
                        td.right { (amount(&row["failed"])) }
                    } } }
                } }
            }
        }
    }
}
