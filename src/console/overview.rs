//! The first page: balance, spending and latest generations.

use axum::{
    extract::{FromRequestParts as _, Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, header};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Console,
    chart::{self, Bar},
    generations, guard, operations as op,
    parts::{self, amount, list, text},
    problem::Problem,
    session::Session,
    shell, table, usage,
};
use crate::api::accepts_html;

/// GET /: the console for browsers, the API's front page for others.
pub async fn page(State(console): State<Console>, request: Request) -> Response {
    let mut response = if accepts_html(request.headers()) {
        let (mut parts, _) = request.into_parts();
        match Session::from_request_parts(&mut parts, &console).await {
            Ok(session) => render(&session).await.into_response(),
            Err(login) => login,
        }
    } else {
        guard::front(&console, request).await
    };
    let vary = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, vary);
    response
}

async fn render(session: &Session) -> Result<Markup, Problem> {
    let dates = usage::last_days(session.now.date_naive());
    let (usage, history) = tokio::try_join!(
        usage::asked(session, "day", &dates).json(),
        session.call(op::HISTORY, &[]).query("per_page", "6").json(),
    )?;
    let (rows, balance) = (list(&history["data"]), &session.balance);
    let total = &usage["total"];
    let link = |path| parts::link(path, &[("from", &dates.0), ("to", &dates.1)]);
    let content = html! {
        (shell::head("Overview", "", &html! {
            @if session.viewed.is_none() { a.button.primary href="/playground" { "Generate" } }
        }))
        dl.figures {
            div { dt { "Available" } dd { (amount(&balance["available"])) " " span.unit { "credits" } } }
            div { dt { "On hold" } dd { (amount(&balance["held"])) } }
            div { dt { "Spent in 30 days" } dd { a href=(link("/usage")) { (amount(&total["charged"])) } } }
            div { dt { "Generations in 30 days" } dd { a href=(link("/generations")) { (amount(&total["generations"])) } } }
        }
        @if rows.is_empty() { (first_steps()) } @else {
            section.card {
                div.card-head { h2 { "Credits a day" } a.small href="/usage" { "Usage" } }
                (chart::columns(&days(list(&usage["data"]), &dates)))
            }
            section.card {
                div.card-head { h2 { "Recent" } a.small href="/generations" { "History" } }
                (table::cards(&generations::columns(), rows))
            }
        }
    };
    Ok(shell::page(session, "Overview", &content))
}

/// Returns a bar for every day of the report.
fn days(rows: &[Value], dates: &(String, String)) -> Vec<Bar> {
    let days = usage::daily(rows, dates).unwrap_or_default();
    let bar = |row: &Value| {
        let day = text(&row["day"]);
        let link = parts::link("/generations", &[("from", day), ("to", day)]);
        Bar::new(day.to_owned(), text(&row["charged"]), link)
    };
    days.iter().map(bar).collect()
}

fn first_steps() -> Markup {
    html! {
        section.card {
            h2 { "First steps" }
            div.columns.halves {
                div.stack {
                    h3 { "1. See what it does" }
                    p.muted { "Generate a text, an image, a video or speech right here." }
                    p { a.button.primary href="/playground" { "Open the playground" } }
                }
                div.stack {
                    h3 { "2. Call it from your program" }
                    p.muted { "Create a key, then copy a request from the playground, or keep the SDK that you have." }
                    p { a.button href="/keys/new" { "Create a key" } " " a.button href="/connect" { "Connect" } }
                }
            }
        }
    }
}
