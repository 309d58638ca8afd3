//! The history of generations, and the gallery of their images and videos. The URL has the filters
//! and the page.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    client::Call,
    form::Form,
    operations as op,
    parts::{self, TYPES, amount, list, select, text, time},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};

/// Text filters: label, name and maximum length.
const SEARCHES: [(&str, &str, Option<usize>); 3] = [
    ("Prompt contains", "prompt", Some(200)),
    ("Request id", "request_id", None),
    ("Provider's id", "provider_request_id", None),
];
const STATUSES: [(&str, &str); 4] = [
    ("pending", "Waiting"),
    ("processing", "Processing"),
    ("completed", "Completed"),
    ("failed", "Failed"),
];

/// Begins a call of the history with the filters of the page's URL.
fn history(session: &Session) -> Call<'_> {
    let form = &session.query;
    let names = [
        "prompt",
        "type",
        "status",
        "provider",
        "model",
        "api_key",
        "request_id",
        "provider_request_id",
    ];
    let call = session.call(op::HISTORY, &[]);
    let call = names
        .iter()
        .fold(call, |call, name| call.query(name, form.word(name)));
    let time = |field, later| {
        let day = form.word(field);
        // The API refuses texts that are not days.
        parts::start_of(day, later).unwrap_or_else(|| day.to_owned())
    };
    call.query("created_after", &time("from", 0))
        .query("created_before", &time("to", 1))
}

pub async fn page(session: Session) -> Result<Markup, Problem> {
    let call = session.page_of(history(&session));
    let keys = session.long_pages(op::KEYS).json();
    let (found, models, keys) = tokio::join!(call.json(), session.get(op::MODELS, &[]), keys);
    let (models, keys) = (models?, keys?);
    let (found, problem) = match found {
        Ok(found) => (found, None),
        Err(problem) if problem.code() == "validation_failed" => (Value::Null, Some(problem)),
        Err(problem) => return Err(problem),
    };
    let rows = list(&found["data"]);
    let export = format!("/generations.csv?{}", session.query_text());
    let actions = parts::download(&export, rows);
    let content = html! {
        (shell::head("History", "Everything this account has generated, newest first. Each row has a receipt.", &actions))
        (filters(&session.query, &models, &keys, problem.as_ref()))
        section.card {
            @if rows.is_empty() && session.query_text().is_empty() {
                (parts::empty("Nothing was generated yet", "What the playground and your keys make shows here.",
                    &html! { a.button.primary href="/playground" { "Open the playground" } }))
            } @else if rows.is_empty() && found["next_cursor"].is_string() {
                (parts::empty("Nothing found among the last 10,000", "Press \"Older\" to search further back.", &html! {}))
            } @else if rows.is_empty() {
                (parts::empty("No generation fits these filters", "Remove a filter.",
                    &html! { a.button href="/generations" { "Show everything" } }))
            } @else { (table::cards(&columns(), rows)) }
        }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "History", &content))
}

fn filters(form: &Form, models: &Value, keys: &Value, problem: Option<&Problem>) -> Markup {
    let keys = list(&keys["data"]).iter();
    let keys: Vec<_> = keys
        .map(|key| (key["id"].to_string(), text(&key["name"])))
        .collect();
    let mut callers = vec![("none", "Logged-in people")];
    callers.extend(keys.iter().map(|(id, name)| (id.as_str(), *name)));
    let models = list(&models["data"]);
    let mut providers: Vec<&str> = models.iter().map(|m| text(&m["provider"])).collect();
    providers.dedup();
    let mut names: Vec<&str> = models.iter().map(|m| text(&m["id"])).collect();
    // Links of the usage report may name former models and keys.
    let chosen = form.word("api_key");
    if !chosen.is_empty() && !callers.iter().any(|(id, _)| *id == chosen) {
        callers.push((chosen, "Another key"));
    }
    for (list, chosen) in [
        (&mut providers, form.word("provider")),
        (&mut names, form.word("model")),
    ] {
        if !chosen.is_empty() && !list.contains(&chosen) {
            list.push(chosen);
        }
    }
    html! {
        section.card {
            @if let Some(problem) = problem { p.notice.bad role="alert" { (parts::sentence(problem.message())) } }
            form.filters method="get" action="/generations" {
                @for (label, name, longest) in SEARCHES {
                    label.field {
                        span.label { (label) }
                        input type="search" name=(name) maxlength=[longest] value=(form.word(name));
                    }
                }
                (select("Type", "type", form.word("type"), &TYPES))
                (select("Status", "status", form.word("status"), &STATUSES))
                (select("Provider", "provider", form.word("provider"), &same(&providers)))
                (select("Model", "model", form.word("model"), &same(&names)))
                (select("Made by", "api_key", form.word("api_key"), &callers))
                label.field { span.label { "From (UTC)" } input type="date" name="from" value=(form.word("from")); }
                label.field { span.label { "To (UTC)" } input type="date" name="to" value=(form.word("to")); }
                div.actions {
                    button.primary type="submit" { "Filter" }
                    a.button href="/generations" { "Clear" }
                }
            }
        }
    }
}

/// Returns options whose labels are their values.
fn same<'a>(names: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    names.iter().map(|name| (*name, *name)).collect()
}

/// Returns the columns of the history. Each prompt links to its receipt.
pub fn columns() -> Vec<Column<'static>> {
    let prompt = |row: &Value| {
        html! { a href={ "/generations/" (text(&row["uuid"])) } { (text(&row["prompt"])) } }
    };
    let charged = table::amount("charged", "Credits").at("/credits/charged");
    vec![
        file("uuid"),
        table::kind("type", "Type"),
        table::row("prompt", "Prompt", prompt).class("cut"),
        file("provider"),
        table::words("model", "Model").class("narrow-hidden"),
        table::badge("status", "Status"),
        table::row("", "Used", |row| used(&row["usage"])).class("right narrow-hidden"),
        file("input_tokens").at("/usage/input_tokens"),
        file("output_tokens").at("/usage/output_tokens"),
        file("images").at("/usage/images"),
        file("seconds").at("/usage/seconds"),
        file("characters").at("/usage/characters"),
        file("estimated").at("/credits/estimated"),
        charged.unit("credits"),
        file("error").at("/error/code"),
        table::time("created_at", "Created"),
        file("completed_at"),
    ]
}

/// Renders the counts by which a generation is charged.
fn used(usage: &Value) -> Markup {
    let units = [
        ("input_tokens", "in"),
        ("output_tokens", "out"),
        ("images", "img"),
        ("seconds", "s"),
        ("characters", "chars"),
    ];
    let counts = units.iter().filter(|(name, _)| !usage[name].is_null());
    html! {
        @for (name, unit) in counts { span.count { (amount(&usage[name])) span.muted { " " (unit) } } }
    }
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    table::download_list("generations", columns(), session, |session| {
        history(session).query("per_page", "100")
    })
    .await
}

/// The types of files that the gallery shows.
const MEDIA: [(&str, &str); 2] = [("image", "Images"), ("video", "Videos")];

pub async fn gallery(session: Session) -> Result<Markup, Problem> {
    let kind = match session.query.word("type") {
        "video" => "video",
        _ => "image",
    };
    let call = session.call(op::HISTORY, &[]).query("type", kind);
    let call = call.query("status", "completed").query("per_page", "48");
    let found = session.page_of(call).json().await?;
    let rows = list(&found["data"]);
    let content = html! {
        (shell::head("Gallery", "The first file of each generation, newest first.", &html! {}))
        nav.tabs aria-label="Type" {
            @for (name, label) in MEDIA {
                a href={ "/gallery?type=" (name) } aria-current=[(name == kind).then_some("page")] {
                    (parts::icon(name)) (label)
                }
            }
        }
        section.card {
            @if rows.is_empty() {
                (parts::empty("Nothing here yet", "Completed generations of this type appear here.", &html! {}))
            } @else { ul.gallery { @for row in rows { li { (tile(kind, row)) } } } }
        }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "Gallery", &content))
}

/// Renders a link to a receipt. Images load when they scroll into view; of a video only the first
/// frame loads.
fn tile(kind: &str, row: &Value) -> Markup {
    let (url, prompt) = (text(&row["result"]), text(&row["prompt"]));
    let count = row["usage"]["images"].as_u64().filter(|count| *count > 1);
    html! {
        a href={ "/generations/" (text(&row["uuid"])) } title=(prompt) {
            @if kind == "video" { video src={ (url) "#t=0.1" } preload="metadata" muted aria-label=(prompt) {} }
            @else { img src=(url) alt=(prompt) loading="lazy" decoding="async"; }
        }
        p.small.muted {
            (time(&row["created_at"]))
            @if let Some(count) = count { " · " (count) " images" }
        }
    }
}
