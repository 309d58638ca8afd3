//! The history: what was generated, with filters and pages that lie in the address.

use axum::response::Response;
use http::Uri;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    client::Problem,
    csv::{Download, members},
    form::Form,
    operations as op,
    parts::{self, TYPES, amount, badge, kind, list, option, text, time},
    session::Session,
    shell,
};

const STATUSES: [(&str, &str); 4] = [
    ("pending", "Waiting"),
    ("processing", "Processing"),
    ("completed", "Completed"),
    ("failed", "Failed"),
];

/// The filters of a form, as the API takes them.
fn asked(form: &Form) -> Vec<(&'static str, String)> {
    let names = ["type", "status", "provider", "model", "api_key"];
    let mut query: Vec<_> = names.map(|name| (name, form.word(name).to_owned())).into();
    for (name, field, later) in [("created_after", "from", 0), ("created_before", "to", 1)] {
        let day = form.word(field);
        // What is no day goes to the API as it is, for it to say so.
        let time = parts::start_of(day, later).unwrap_or_else(|| day.to_owned());
        query.push((name, time));
    }
    query
}

pub async fn page(session: Session, uri: Uri) -> Result<Markup, Problem> {
    let form = Form::of_query(uri.query());
    let call = session.call(op::HISTORY, &[]);
    let call = asked(&form).iter().fold(call, |c, (n, v)| c.query(n, v));
    let call = call.query("cursor", form.get("cursor"));
    let keys = session.call(op::KEYS, &[]).query("per_page", "100").json();
    let (found, models, keys) = tokio::join!(call.json(), session.get(op::MODELS, &[]), keys);
    let (models, keys) = (models?, keys?);
    let (found, problem) = match found {
        Ok(found) => (found, None),
        Err(problem) if problem.code() == "validation_failed" => (Value::Null, Some(problem)),
        Err(problem) => return Err(problem),
    };
    let rows = list(&found["data"]);
    let export = format!("/generations.csv?{}", uri.query().unwrap_or_default());
    let actions = parts::download(&export, rows);
    let content = html! {
        (shell::head("History", "Everything this account has generated, newest first. Each row has a receipt.", &actions))
        (filters(&form, &models, &keys, problem.as_ref()))
        section.card {
            @if rows.is_empty() && uri.query().unwrap_or_default().is_empty() {
                (parts::empty("Nothing was generated yet", "What the playground and your keys make shows here.",
                    &html! { a.button.primary href="/playground" { "Open the playground" } }))
            } @else if rows.is_empty() {
                (parts::empty("Nothing fits these filters", "Take one of them away.",
                    &html! { a.button href="/generations" { "Show everything" } }))
            } @else { (table(rows)) }
        }
        (parts::pager(&uri, &found["next_cursor"]))
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
    // A model of the past, by a link of the usage.
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
    let select = |label: &str, name: &str, options: &[(&str, &str)]| {
        html! {
            label.field {
                span.label { (label) }
                select name=(name) {
                    (option("", form.word(name), "All"))
                    @for (value, word) in options { (option(value, form.word(name), word)) }
                }
            }
        }
    };
    html! {
        section.card {
            @if let Some(problem) = problem { p.notice.bad role="alert" { (parts::sentence(problem.message())) } }
            form.filters method="get" action="/generations" {
                (select("Type", "type", &TYPES))
                (select("Status", "status", &STATUSES))
                (select("Provider", "provider", &same(&providers)))
                (select("Model", "model", &same(&names)))
                (select("Made by", "api_key", &callers))
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

/// Options that are called as they are.
fn same<'a>(names: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    names.iter().map(|name| (*name, *name)).collect()
}

/// Rows of the history, each a link to its receipt.
pub fn table(rows: &[Value]) -> Markup {
    html! {
        div.table tabindex="0" {
            table.cards {
                thead { tr {
                    th { "Type" } th.cut { "Prompt" } th { "Model" } th { "Status" } th.right { "Used" }
                    th.right { "Credits" } th { "Created" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (kind(text(&row["type"]))) }
                            td.cut { a href={ "/generations/" (text(&row["uuid"])) } { (text(&row["prompt"])) } }
                            td.narrow-hidden { (text(&row["model"])) }
                            td { (badge(text(&row["status"]))) }
                            td.right.narrow-hidden { (used(&row["usage"])) }
                            td.right data-unit="credits" { (amount(&row["credits"]["charged"])) }
                            td { (time(&row["created_at"])) }
                        }
                    }
                }
            }
        }
    }
}

/// What a generation is billed for.
fn used(usage: &Value) -> Markup {
    let units = [
        ("input_tokens", "in"),
        ("output_tokens", "out"),
        ("images", "img"),
        ("seconds", "s"),
        ("characters", "chars"),
    ];
    let told = units.iter().filter(|(name, _)| !usage[name].is_null());
    html! {
        @for (name, unit) in told { span.count { (amount(&usage[name])) span.muted { " " (unit) } } }
    }
}

pub async fn csv(session: Session, uri: Uri) -> Result<Response, Problem> {
    let mut columns = members(&["uuid", "type", "status", "provider", "model", "prompt"]);
    columns.extend([
        ("estimated", "/credits/estimated"),
        ("charged", "/credits/charged"),
        ("input_tokens", "/usage/input_tokens"),
        ("output_tokens", "/usage/output_tokens"),
        ("images", "/usage/images"),
        ("seconds", "/usage/seconds"),
        ("characters", "/usage/characters"),
        ("error", "/error/code"),
        ("created_at", ""),
        ("completed_at", ""),
    ]);
    let download = Download::new("generations", op::HISTORY, columns).paged();
    let form = Form::of_query(uri.query());
    let asked = asked(&form).into_iter();
    let download = asked.fold(download, |d, (name, value)| d.query(name, &value));
    download.answer(session).await
}
