//! Pages for operators; not found for other users.

pub mod accounts;
pub mod spending;

use axum::{
    extract::FromRequestParts,
    response::{IntoResponse as _, Response},
};
use http::request::Parts;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Console, operations as op,
    parts::{self, amount, badge, decimal, list, seconds, text, time},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};

/// An operator's session. Other users get the error of a page that does not exist.
pub struct Operator(pub Session);

impl FromRequestParts<Console> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let session = Session::from_request_parts(parts, console).await?;
        if session.me["operator"] == true {
            Ok(Self(session))
        } else {
            Err(Problem::not_found().into_response())
        }
    }
}

/// Formats a percentage with one decimal.
fn percentage(part: &Value, whole: &Value) -> Markup {
    match (part.as_u64(), whole.as_u64()) {
        (Some(part), Some(whole)) if whole > 0 => {
            let tenths = part * 1000 / whole;
            html! { (decimal(&format!("{}.{}", tenths / 10, tenths % 10))) " %" }
        }
        _ => amount(&Value::Null),
    }
}

pub async fn providers(Operator(session): Operator) -> Result<Markup, Problem> {
    let providers = session.get(op::PROVIDERS_HEALTH, &[]).await?;
    let about = "Outcomes of the last 5,000 generations of all servers, by provider.";
    let content = html! {
        (shell::head("Providers", about, &parts::download("/operator/providers.csv", list(&providers["data"]))))
        @for provider in list(&providers["data"]) { (provider_card(provider)) }
    };
    Ok(shell::page(&session, "Providers", &content))
}

pub async fn health(Operator(session): Operator) -> Result<Markup, Problem> {
    let (providers, audit) = tokio::try_join!(
        session.get(op::PROVIDERS_HEALTH, &[]),
        session.get(op::AUDIT, &[]),
    )?;
    let states = [
        table::words("provider", "Provider"),
        table::badge("state", "State"),
        table::row("in_use", "Calls from this server", calls).class("right"),
        table::time("last_completed_at", "Last completion"),
    ];
    let content = html! {
        (shell::head("Health", "The self-audit of the ledger, and the state of the providers.", &html! {}))
        (self_audit(&audit))
        section.card {
            div.card-head { h2 { "Providers" } a.small href="/operator/providers" { "Models and errors" } }
            (table::cards(&states, list(&providers["data"])))
        }
    };
    Ok(shell::page(&session, "Health", &content))
}

pub async fn providers_csv(Operator(session): Operator) -> Result<Response, Problem> {
    let found = session.get(op::PROVIDERS_HEALTH, &[]).await?;
    let mut rows = Vec::new();
    for provider in list(&found["data"]) {
        for model in list(&provider["models"]) {
            let mut row = model.clone();
            row["provider"] = provider["provider"].clone();
            rows.push(row);
        }
    }
    Ok(table::download("providers", &model_columns(), &rows))
}

fn model_columns() -> Vec<Column<'static>> {
    let part = |name: &'static str| move |row: &Value| percentage(&row[name], &row["generations"]);
    vec![
        file("provider"),
        table::code("model", "Model"),
        table::kind("type", "Type"),
        table::amount("generations", "Ended"),
        table::row("failed", "Failed", part("failed")).class("right"),
        table::row("faults", "Provider's faults", part("faults")).class("right"),
        file("account_errors"),
        table::seconds("median_seconds", "Median"),
        table::seconds("p95_seconds", "95th percentile"),
    ]
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
                None => { p.muted { "There is no result yet. The first audit runs within a minute of the start." } }
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

/// Returns the name of a check of the self-audit.
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

fn calls(provider: &Value) -> Markup {
    html! {
        @if provider["limit"].is_null() { span.muted { "No limit" } }
        @else { (amount(&provider["in_use"])) " of " (amount(&provider["limit"])) }
    }
}

fn provider_card(provider: &Value) -> Markup {
    let (models, errors) = (list(&provider["models"]), list(&provider["errors"]));
    // Includes calls of generations that then fell back.
    let refusals = errors
        .iter()
        .filter(|error| error["account_refused"] == true);
    let refusals: u64 = refusals.filter_map(|error| error["count"].as_u64()).sum();
    let kind = |row: &Value| {
        html! {
            code { (text(&row["code"])) }
            @if row["account_refused"] == true { " (refuses this server's key or account)" }
        }
    };
    let errors_by_kind = [
        table::row("code", "Recent errors", kind),
        table::amount("count", "Count"),
        table::time("last_at", "Last seen"),
    ];
    html! {
        section.card {
            div.card-head {
                h2 { (text(&provider["provider"])) " " (badge(text(&provider["state"]))) }
                span.muted.small { "Concurrent calls from this server: " (calls(provider)) }
            }
            @if refusals > 0 {
                p class={ "notice" @if provider["state"] == "account_refused" { " bad" } } role="alert" {
                    (refusals) " of the last calls were refused because of this server's account. "
                    "Check its API key, permissions and funds; the log has the code."
                    @if provider["state"] != "account_refused" { " It has completed generations since then." }
                }
            }
            @for circuit in list(&provider["open_circuits"]) {
                p.notice.bad {
                    code { (text(&circuit["model"])) } " was not started five times within 30 s: this "
                    "server skips it for requests with several candidates, for "
                    (seconds(&circuit["retry_seconds"])) " from now."
                }
            }
            @if models.is_empty() { p.muted { "It has no recent generations." } }
            @else { (table::plain(&model_columns(), models)) }
            @if !errors.is_empty() { (table::plain(&errors_by_kind, errors)) }
        }
    }
}

pub async fn jobs(Operator(session): Operator) -> Result<Markup, Problem> {
    let found = session.get(op::JOBS, &[]).await?;
    let rows = list(&found["data"]);
    let about = "New work shows here while it runs.";
    let none = parts::empty("Nothing is running", about, &html! {});
    let content = html! {
        (shell::head("Jobs", "Unfinished generations of all accounts, oldest first. The page and the file have at most 100.",
            &parts::download("/operator/jobs.csv", rows)))
        section.card #jobs data-live="/operator/jobs" {
            div.card-head { h2 { "Unfinished" } span.muted.small { (amount(&found["total"])) " in all" } }
            (table::list_or(&none, &job_columns(), rows))
        }
    };
    let reload = Some("/operator/jobs");
    Ok(shell::reloading(&session, "Jobs", &content, reload))
}

pub async fn jobs_csv(Operator(session): Operator) -> Result<Response, Problem> {
    table::download_list("jobs", job_columns(), session, |session| {
        session.call(op::JOBS, &[])
    })
    .await
}

fn job_columns() -> Vec<Column<'static>> {
    let account = |row: &Value| html! { a href={ "/operator/accounts/" (row["account"].to_string()) } { "Account " (row["account"].to_string()) } };
    let model = |row: &Value| html! { (text(&row["provider"])) " · " (text(&row["model"])) };
    let status = |row: &Value| {
        html! {
            (badge(text(&row["status"])))
            @if let Some(percent) = row["progress"].as_u64() { " " (percent) " %" }
        }
    };
    vec![
        table::kind("type", "Type"),
        table::code("uuid", "Generation").class("cut"),
        table::row("account", "Account", account),
        file("provider"),
        table::row("model", "Model", model).class("narrow-hidden"),
        table::row("status", "Status", status),
        file("progress"),
        table::amount("attempts", "Attempts").class("right narrow-hidden"),
        table::amount("held", "On hold").unit("on hold"),
        table::time("created_at", "Created"),
    ]
}
