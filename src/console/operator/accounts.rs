//! Accounts: how they stand; grants, corrections, refunds, suspension.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{StatusCode, Uri};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::check;
use crate::console::{
    client::Problem,
    csv::{Download, members},
    form::Form,
    operations as op,
    parts::{self, amount, badge, fact, field, list as rows_of, option, text, time},
    session::Session,
    shell,
};

pub async fn list(session: Session, uri: Uri) -> Result<Markup, Problem> {
    check(&session)?;
    let form = Form::of_query(uri.query());
    let call = session
        .call(op::ACCOUNTS, &[])
        .query("email", form.word("email"));
    let found = call
        .query("cursor", form.get("cursor"))
        .query("per_page", "50")
        .json()
        .await?;
    let rows = rows_of(&found["data"]);
    let content = html! {
        (shell::head("Accounts", "Of everybody, newest first.", &parts::download("/operator/accounts.csv", rows)))
        section.card {
            form.filters method="get" action="/operator/accounts" {
                label.field { span.label { "Email" } input type="email" name="email" value=(form.word("email")); }
                div.actions { button.primary type="submit" { "Find" } }
            }
            @if rows.is_empty() { (parts::empty("No such account", "The email is compared as a whole.", &html! {})) } @else {
                div.table tabindex="0" { table.cards {
                    thead { tr {
                        th.cut { "Account" } th.cut { "Email" } th.right { "Balance" } th.right { "On hold" } th.right { "Spent" } th { "State" } th { "Created" }
                    } }
                    tbody { @for row in rows { tr {
                        td.cut { a href={ "/operator/accounts/" (row["id"].to_string()) } { (text(&row["name"])) } }
                        td.cut { (text(&row["email"])) }
                        td.right data-unit="credits" { (amount(&row["balance"])) }
                        td.right.narrow-hidden { (amount(&row["held"])) }
                        td.right.narrow-hidden { (amount(&row["spent"])) }
                        td { (badge(state(row))) }
                        td { (time(&row["created_at"])) }
                    } } }
                } }
            }
        }
        (parts::pager(&uri, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "Accounts", &content))
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    check(&session)?;
    let columns = members(&[
        "id",
        "name",
        "email",
        "balance",
        "held",
        "available",
        "spent",
        "suspended_at",
        "suspended_reason",
        "created_at",
    ]);
    let download = Download::new("accounts", op::ACCOUNTS, columns).paged();
    download.answer(session).await
}

fn state(account: &Value) -> &'static str {
    if account["suspended_at"].is_string() {
        "suspended"
    } else {
        "active"
    }
}

pub async fn page(session: Session, Path(id): Path<String>) -> Result<Markup, Problem> {
    check(&session)?;
    render(&session, &id, &Form::default(), None).await
}

async fn render(
    session: &Session,
    id: &str,
    form: &Form,
    outcome: Option<Result<(StatusCode, Value), Problem>>,
) -> Result<Markup, Problem> {
    let account = session.get(op::ADMIN_ACCOUNT, &[id]).await?;
    let (done, problem) = match outcome {
        Some(Ok(done)) => (Some(done), None),
        Some(Err(problem)) => (None, Some(problem)),
        None => (None, None),
    };
    let content = html! {
        (shell::head(text(&account["name"]), text(&account["email"]), &html! { (badge(state(&account))) }))
        @if let Some((status, entry)) = done {
            @let moved = html! { (text(&entry["kind"])) " of " (parts::credits(&entry["amount"])) };
            @if status == StatusCode::CREATED {
                p.notice.good role="status" {
                    "Done: " (moved) ". The balance is " (amount(&account["balance"])) "."
                }
            } @else {
                p.notice role="status" {
                    "This reference moved these credits before (" (moved) ", " (time(&entry["created_at"]))
                    "); nothing was moved again. The balance is " (amount(&account["balance"])) "."
                }
            }
        }
        dl.figures {
            div { dt { "Available" } dd { (amount(&account["available"])) } }
            div { dt { "On hold" } dd { (amount(&account["held"])) } }
            div { dt { "Balance" } dd { (amount(&account["balance"])) } }
            div { dt { "Spent" } dd { (amount(&account["spent"])) } }
        }
        div.columns.halves {
            (movement(&account, form, problem.as_ref()))
            (suspension(&account))
        }
    };
    Ok(shell::page(session, text(&account["name"]), &content))
}

fn movement(account: &Value, form: &Form, problem: Option<&Problem>) -> Markup {
    let kinds = [
        ("grant", "Grant: adds credits"),
        ("adjustment", "Adjustment: may take credits back"),
        ("refund", "Refund of one generation"),
    ];
    html! {
        form.card method="post" action={ "/operator/accounts/" (account["id"].to_string()) "/credits" } {
            h2 { "Move credits" }
            @if problem.is_some() { (parts::refusal(problem, &["kind", "amount", "reference", "generation"])) }
            (field(problem, "Kind", "kind", "", &html! {
                select name="kind" { @for (kind, name) in kinds { (option(kind, form.word("kind"), name)) } }
            }))
            (field(problem, "Credits", "amount", "An adjustment may be negative. A refund without them is of all that was charged.", &html! {
                input type="text" inputmode="decimal" name="amount" value=(form.get("amount"));
            }))
            (field(problem, "Reference", "reference", "Why, such as an invoice's number. The customer sees it. The same one again moves nothing twice.", &html! {
                input type="text" name="reference" value=(form.get("reference")) required maxlength="255";
            }))
            (field(problem, "Generation", "generation", "Its UUID, for a refund.", &html! {
                input type="text" name="generation" value=(form.get("generation"));
            }))
            div.actions { button.primary type="submit" { "Move the credits" } }
        }
    }
}

fn suspension(account: &Value) -> Markup {
    let action = format!("/operator/accounts/{}", account["id"]);
    html! {
        section.card {
            h2 { "State" }
            dl.facts {
                (fact("Id", &html! { (account["id"].to_string()) }))
                (fact("Created", &time(&account["created_at"])))
                @if account["suspended_at"].is_string() {
                    (fact("Suspended", &time(&account["suspended_at"])))
                    (fact("Because", &html! { (text(&account["suspended_reason"])) }))
                }
            }
            @if account["suspended_at"].is_string() {
                form method="post" action={ (action) "/resume" } { button type="submit" { "Resume the account" } }
            } @else {
                form.stack method="post" action={ (action) "/suspend" } {
                    label.field {
                        span.label { "Reason" }
                        input type="text" name="reason" required maxlength="255";
                        span.hint { "Its keys and sessions are refused from then on; running work finishes." }
                    }
                    div.actions { button.danger type="submit" { "Suspend the account" } }
                }
            }
        }
    }
}

pub async fn move_credits(
    Path(id): Path<String>,
    session: Session,
    form: Form,
) -> Result<Response, Problem> {
    check(&session)?;
    let mut body = Map::new();
    for name in ["kind", "amount", "reference", "generation"] {
        if !form.word(name).is_empty() {
            body.insert(name.to_owned(), json!(form.word(name)));
        }
    }
    let call = session
        .call(op::MOVE_CREDITS, &[&id])
        .body(Value::Object(body));
    let moved = call.answer().await;
    let status = moved
        .as_ref()
        .map_or_else(|problem| problem.status, |_| StatusCode::OK);
    let kept = if moved.is_ok() { Form::default() } else { form };
    Ok((status, render(&session, &id, &kept, Some(moved)).await?).into_response())
}

pub async fn suspend(
    Path(id): Path<String>,
    session: Session,
    form: Form,
) -> Result<Redirect, Problem> {
    check(&session)?;
    let body = json!({"reason": form.word("reason")});
    session.call(op::SUSPEND, &[&id]).body(body).json().await?;
    Ok(Redirect::to(&format!("/operator/accounts/{id}")))
}

pub async fn resume(session: Session, Path(id): Path<String>) -> Result<Redirect, Problem> {
    check(&session)?;
    session.get(op::RESUME, &[&id]).await?;
    Ok(Redirect::to(&format!("/operator/accounts/{id}")))
}
