//! The ledger: all entries of the account.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    operations as op,
    parts::{self, amount, list, select, text},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};

/// The kinds of entries, and their effect on the account.
const KINDS: [(&str, &str, &str); 6] = [
    ("grant", "Grant", "adds to the balance"),
    ("hold", "Hold", "sets aside what running work may cost"),
    (
        "charge",
        "Charge",
        "takes the cost from the balance and ends the hold",
    ),
    ("release", "Release", "ends the hold; nothing is charged"),
    ("adjustment", "Adjustment", "a correction by the operator"),
    ("refund", "Refund", "gives back what a generation cost"),
];

pub async fn page(session: Session) -> Result<Markup, Problem> {
    let form = &session.query;
    let call = session.page_of(session.call(op::LEDGER, &[]));
    let call = call.query("kind", form.word("kind"));
    let found = call.query("per_page", "50").json().await?;
    let (rows, balance) = (list(&found["data"]), &session.balance);
    let export = parts::link("/ledger.csv", &[("kind", form.word("kind"))]);
    let actions = parts::download(&export, rows);
    let content = html! {
        (shell::head("Ledger", "Every movement of credits. A generation has two: a hold, then a charge or a release.", &actions))
        dl.figures {
            div { dt { "Available" } dd { (amount(&balance["available"])) " " span.unit { "credits" } } }
            div { dt { "On hold" } dd { (amount(&balance["held"])) } }
            div { dt { "Balance" } dd { (amount(&balance["balance"])) } }
        }
        section.card {
            form.filters method="get" action="/ledger" {
                (select("Kind", "kind", form.word("kind"), &KINDS.map(|(kind, name, _)| (kind, name))))
                div.actions { button.primary type="submit" { "Filter" } }
            }
            @if rows.is_empty() {
                (parts::empty("No entries", "Credits are granted by the operator of this server.", &html! {}))
            } @else { (table::cards(&columns(true), rows)) }
        }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "Ledger", &content))
}

/// Returns the columns of entries. `linked`: includes the generation and the credits on hold.
pub fn columns(linked: bool) -> Vec<Column<'static>> {
    let kind = |row: &Value| {
        let kind = KINDS.iter().find(|(kind, _, _)| row["kind"] == *kind);
        let (name, about) = kind.map_or(("", ""), |(_, name, about)| (*name, *about));
        html! { span title=(about) { (name) } }
    };
    let cause = |row: &Value| {
        html! {
            @if let Some(uuid) = row["generation"].as_str() {
                a href={ "/generations/" (uuid) } { code { (uuid) } }
            }
            " " (text(&row["reference"]))
        }
    };
    let (cause_heading, held_heading) = if linked {
        ("For", "On hold after")
    } else {
        ("", "")
    };
    vec![
        file("id"),
        table::row("kind", "Kind", kind),
        table::row("generation", cause_heading, cause).class("cut"),
        file("reference"),
        table::amount("amount", "Amount"),
        table::amount("balance", "Balance after").class("right narrow-hidden"),
        table::amount("held", held_heading).class("right narrow-hidden"),
        table::time("created_at", "When"),
    ]
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    table::download_list("ledger", columns(true), session, |session| {
        let call = session.long_pages(op::LEDGER);
        call.query("kind", session.query.word("kind"))
    })
    .await
}
