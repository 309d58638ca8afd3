//! The receipt of a generation: result, bill, ledger entries, request, details.

use axum::{extract::Path, response::Redirect};
use chrono::DateTime;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    operations as op,
    parts::{self, amount, badge, copyable, credits, decimal, fact, kind, list, text, time},
    problem::Problem,
    session::Session,
    shell, table,
};
use crate::domain::credits::Credits;

pub fn is_unfinished(record: &Value) -> bool {
    matches!(text(&record["status"]), "pending" | "processing")
}

/// Renders the result, the progress, or the error of a generation.
pub fn result(record: &Value) -> Markup {
    if is_unfinished(record) {
        let progress = record["progress"].as_u64();
        return html! {
            p role="status" {
                @if record["status"] == "pending" { "Waiting for a free worker." }
                @else { "In progress." }
                @if let Some(percent) = progress { " " (percent) " percent done." }
            }
            progress max="100" value=[progress] aria-label="Progress" {}
            p.muted.small { (credits(&record["credits"]["held"])) " on hold." }
        };
    }
    if record["status"] == "failed" {
        let error = &record["error"];
        return html! {
            div.notice.bad {
                p { strong { (parts::sentence(text(&error["message"]))) } }
                p { code { (text(&error["code"])) } }
            }
            p.notice.good { "It cost nothing: what was on hold has been released." }
            @if error["retryable"] == true {
                p.muted.small { "The same request may succeed later." }
            }
        };
    }
    if record["type"] == "text" {
        return html! { p.prose { (text(&record["result"])) } };
    }
    html! {
        div.media { @for output in list(&record["outputs"]) { (file(output, text(&record["prompt"]))) } }
    }
}

fn file(output: &Value, prompt: &str) -> Markup {
    let url = text(&output["url"]);
    let bytes = output["bytes"].as_u64().unwrap_or(0);
    let size = match bytes {
        0..=9_999 => format!("{} bytes", parts::grouped(&bytes.to_string())),
        10_000..=9_999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    };
    html! {
        figure {
            @match text(&output["type"]) {
                "image" => {
                    a href=(url) {
                        img src=(url) alt=(prompt) width=[output["width"].as_u64()]
                            height=[output["height"].as_u64()];
                    }
                }
                "video" => {
                    video src=(url) controls preload="metadata" width=[output["width"].as_u64()]
                        height=[output["height"].as_u64()] aria-label=(prompt) {}
                }
                _ => { audio src=(url) controls preload="metadata" aria-label=(prompt) {} }
            }
            figcaption {
                span {
                    (text(&output["content_type"])) ", "
                    @if let (Some(w), Some(h)) = (output["width"].as_u64(), output["height"].as_u64()) {
                        (w) "×" (h) ", "
                    }
                    @if let Some(seconds) = output["seconds"].as_f64() { (format!("{seconds:.1} s, ")) }
                    (size)
                }
                a href=(url) download { "Download" }
            }
        }
    }
}

pub async fn page(session: Session, Path(uuid): Path<String>) -> Result<Markup, Problem> {
    let record = session.get(op::GENERATION, &[&uuid]).await?;
    let key = record["metadata"]["api_key_id"].as_i64();
    let key = async {
        match key {
            Some(id) => session.get(op::KEY, &[&id.to_string()]).await,
            None => Ok(Value::Null),
        }
    };
    let entries = session
        .call(op::LEDGER, &[])
        .query("generation", &uuid)
        .json();
    let (key, entries) = tokio::try_join!(key, entries)?;
    let uuid = text(&record["uuid"]);
    let live = is_unfinished(&record).then(|| format!("/generations/{uuid}"));
    let content = html! {
        div.stack #receipt data-live=[live.as_deref()] {
            (shell::head(&format!("{} receipt", parts::type_name(text(&record["type"]))), "", &actions(&session, &record)))
            (figures(&record))
            div.columns {
                div.stack {
                    section.card {
                        div.card-head { h2 { "Result" } (badge(text(&record["status"]))) }
                        (result(&record))
                    }
                    @if record["status"] != "failed" { (bill(&record)) }
                    (attempts(&record))
                    (ledger(&record, &entries))
                }
                div.stack {
                    (request(&session, &record))
                    (about(&record, &key))
                }
            }
        }
    };
    let title = format!("Receipt {uuid}");
    Ok(shell::reloading(
        &session,
        &title,
        &content,
        live.as_deref(),
    ))
}

fn actions(session: &Session, record: &Value) -> Markup {
    let uuid = text(&record["uuid"]);
    html! {
        @if let Some(account) = session.viewed {
            @if !matches!(record["credits"]["charged"].as_str(), None | Some("0")) {
                (super::operator::accounts::refund(account, uuid))
            }
        } @else if is_unfinished(record) {
            (parts::confirmed("Cancel",
                "Ends the work. What was on hold is released, unless a part of a text has been delivered.",
                &format!("/generations/{uuid}/cancel")))
        } @else {
            // Unlike other surfaces, the playground has no conversations, tools and schemas.
            (super::playground::pictures::uses(record))
            @if record["surface"] == "generate" {
                a.button href={ "/playground/" (text(&record["type"])) "?generation=" (uuid) } { "Use this prompt" }
            }
            (parts::confirmed("Delete",
                "Removes the prompt and the result for good. The ledger keeps its numbers.",
                &format!("/generations/{uuid}/delete")))
        }
    }
}

fn figures(record: &Value) -> Markup {
    let credits = &record["credits"];
    let released = || {
        let held: Credits = text(&credits["estimated"]).parse().ok()?;
        let charged: Credits = text(&credits["charged"]).parse().ok()?;
        Some(held.checked_sub(charged)?.to_string())
    };
    html! {
        dl.figures {
            div { dt { "Held" } dd { (amount(&credits["estimated"])) " " span.unit { "credits" } } }
            div { dt { "Charged" } dd { (amount(&credits["charged"])) } }
            div {
                dt { "Released" }
                dd { @match released() { Some(amount) => (decimal(&amount)), None => (amount(&Value::Null)) } }
            }
            div { dt { "On hold now" } dd { (amount(&credits["held"])) } }
        }
    }
}

fn bill(record: &Value) -> Markup {
    let bill = &record["bill"];
    html! {
        section.card {
            div.card-head {
                h2 { "Bill" }
                span.muted.small { (text(&record["provider"])) " · " (text(&record["model"])) }
            }
            @if is_unfinished(record) {
                p.muted {
                    "Written when the work is done. It is at most what is on hold, "
                    (credits(&record["credits"]["estimated"])) "."
                }
            } @else if bill.is_object() {
                @if let Some(note) = bill["note"].as_str() { p.muted.small { (parts::sentence(note)) } }
                (bill_lines(bill))
                (charge(bill, record))
                @if record["usage"]["estimated"] == true {
                    p.muted.small {
                        "The provider reported no usable token counts. They were estimated from "
                        "the length of the texts, at four bytes per token."
                    }
                }
            } @else {
                p.notice.bad {
                    "Charged: " (credits(&record["credits"]["charged"])) ". The record lacks "
                    "the counts and prices to show how."
                }
            }
        }
    }
}

fn bill_lines(bill: &Value) -> Markup {
    let lines = list(&bill["lines"]);
    let is_rounded = bill["sum"] != bill["total"];
    html! {
        div.table tabindex="0" {
            table.sum {
                thead { tr {
                    th { "Counted" }
                    th.right { "Quantity" }
                    th.right { "Credits per " @if let Some(line) = lines.first() { (text(&line["per"])) } }
                    th.right { "Credits" }
                } }
                tbody {
                    @for line in lines { tr {
                        th scope="row" {
                            (text(&line["label"]))
                            @if line["per"] != lines[0]["per"] { ", priced per " (text(&line["per"])) }
                        }
                        td.right { (amount(&line["quantity"])) }
                        td.right { (amount(&line["unit_price"])) }
                        td.right { (amount(&line["amount"])) }
                    } }
                    @if is_rounded { tr {
                        th scope="row" colspan="3" { "Sum, before it is rounded" }
                        td.right { (amount(&bill["sum"])) }
                    } }
                    tr.total {
                        th scope="row" colspan="3" {
                            @if is_rounded { "Rounded up to a millionth of a credit" } @else { "Sum" }
                        }
                        td.right { (amount(&bill["total"])) }
                    }
                }
            }
        }
    }
}

/// Compares the charge with the bill.
fn charge(bill: &Value, record: &Value) -> Markup {
    let amounts = &record["credits"];
    let charged = &amounts["charged"];
    let parsed = |amount: &Value| text(amount).parse::<Credits>().ok();
    // The hold is the maximum of all candidates, and the charge that of the one used.
    let is_limited =
        !list(&record["attempts"]).is_empty() && parsed(&bill["total"]) > parsed(charged);
    html! {
        @if *charged == bill["total"] {
            p.notice.good { "This is what was charged: " (credits(charged)) "." }
        } @else if *charged == amounts["estimated"] || is_limited {
            p.notice {
                "Charged: " (credits(charged)) ". The sum exceeds the hold; the excess is not "
                "charged."
            }
        } @else {
            p.notice.bad {
                "Charged: " (credits(charged)) ", which is not this sum. Ask the operator of this "
                "server."
            }
        }
    }
}

fn ledger(record: &Value, entries: &Value) -> Markup {
    // Oldest first.
    let rows = list(&entries["data"]).iter().rev();
    let rows: Vec<Value> = rows.cloned().collect();
    html! {
        section.card {
            h2 { "Ledger entries" }
            @if rows.is_empty() {
                p.muted { "None: nothing had to be held." }
            } @else {
                p.muted.small {
                    @if record["type"] == "text" {
                        "The hold is the maximum cost, with an answer of max_tokens. What is not "
                        "used is released when the generation ends."
                    } @else if list(&record["attempts"]).is_empty() {
                        "The hold is the price of everything requested."
                    } @else { "The hold is the price with the dearest of its models." }
                }
                (table::cards(&super::ledger::columns(false), &rows))
            }
        }
    }
}

fn request(session: &Session, record: &Value) -> Markup {
    let parameters = record["parameters"].as_object();
    let template = &record["metadata"]["template"];
    html! {
        section.card {
            h2 { "Request" }
            p.prose.scroll tabindex="0" { (text(&record["prompt"])) }
            dl.facts {
                (fact("Type", &kind(text(&record["type"]))))
                (fact("Provider", &html! { (text(&record["provider"])) }))
                (fact("Model", &html! { code { (text(&record["model"])) } }))
                @for (name, value) in parameters.into_iter().flatten() {
                    (fact(name, &match value {
                        Value::String(word) => html! { (word) },
                        Value::Number(_) => amount(value),
                        other => html! { code { (other.to_string()) } },
                    }))
                }
                @for input in list(&record["inputs"]) {
                    (fact(&format!("Input, {}", text(&input["role"])), &input_of(input)))
                }
                @if template.is_object() {
                    (fact("Template", &html! {
                        @let name = format!("Template {}", template["id"]);
                        @if session.viewed.is_some() { (name) }
                        @else { a href={ "/templates/" (template["id"].to_string()) } { (name) } }
                        ", version " (template["version"].to_string())
                    }))
                }
            }
        }
    }
}

/// Renders the origin of an input, and its pixels.
fn input_of(input: &Value) -> Markup {
    html! {
        (input["width"].to_string()) "×" (input["height"].to_string()) ", "
        @match text(&input["from"]) {
            "upload" => { "upload " code { (text(&input["upload"])) } }
            "generation" => {
                a href={ "/generations/" (text(&input["generation"])) } { "an earlier result" }
            }
            _ => { "sent with the request" }
        }
    }
}

/// Renders the seconds between two times.
fn seconds(from: &Value, to: &Value) -> Markup {
    let parsed = |at: &Value| DateTime::parse_from_rfc3339(at.as_str()?).ok();
    let seconds = parsed(from).zip(parsed(to));
    let seconds = seconds.map(|(from, to)| (to - from).as_seconds_f64());
    parts::seconds(&json!(seconds))
}

/// Renders the attempts of a generation that fell back or had ruled-out candidates.
fn attempts(record: &Value) -> Markup {
    let attempts = list(&record["attempts"]);
    let dropped = list(&record["metadata"]["dropped"]);
    if attempts.len() < 2 && dropped.is_empty() {
        return html! {};
    }
    let outcome = |attempt: &Value| {
        html! {
            (text(&attempt["outcome"]).replace('_', " "))
            @if let Some(status) = attempt["status"].as_i64() { " (" (status) ")" }
            @if attempt["called"] == false { ", not called" }
        }
    };
    let columns = [
        table::row("", "Model", |attempt| {
            html! { (text(&attempt["provider"])) "/" (text(&attempt["model"])) }
        }),
        table::row("", "Outcome", outcome),
        table::row("", "After", |attempt| {
            seconds(&record["created_at"], &attempt["started_at"])
        })
        .class("right")
        .unit("after the request"),
        table::row("", "Took", |attempt| {
            seconds(&attempt["started_at"], &attempt["ended_at"])
        })
        .class("right")
        .unit("taken"),
    ];
    html! {
        section.card {
            h2 { "Attempts" }
            p.muted.small {
                "The models that it was handed to, and when after the request. Only the one that "
                "served is charged."
            }
            (table::cards(&columns, attempts))
            @if !dropped.is_empty() {
                p.small { "Ruled out before the hold:" }
                ul.small {
                    @for one in dropped {
                        li {
                            (text(&one["provider"])) "/" (text(&one["model"])) ": "
                            (text(&one["message"]))
                        }
                    }
                }
            }
        }
    }
}

fn about(record: &Value, key: &Value) -> Markup {
    let metadata = &record["metadata"];
    let seconds = metadata["duration_ms"].as_f64().map(|ms| ms / 1000.0);
    let surface = match text(&record["surface"]) {
        "generate" => "gensvc",
        "openai.chat" => "Chat Completions (OpenAI)",
        "openai.responses" => "Responses (OpenAI)",
        "openai.images" => "Images (OpenAI)",
        "openai.speech" => "Speech (OpenAI)",
        "anthropic.messages" => "Messages (Anthropic)",
        other => other,
    };
    html! {
        section.card {
            h2 { "Details" }
            dl.facts {
                (fact("UUID", &copyable(text(&record["uuid"]))))
                (fact("Made by", &html! {
                    @if key.is_object() {
                        a href={ "/keys/" (key["id"].to_string()) } { (text(&key["name"])) }
                        " " code.muted { (text(&key["key_hint"])) }
                    } @else { "A logged-in user" }
                }))
                (fact("API", &html! { (surface) }))
                (fact("Attempts", &amount(&metadata["attempts"])))
                @if let Some(id) = metadata["request_id"].as_str() {
                    (fact("Request id", &copyable(id)))
                }
                @if let Some(id) = metadata["provider_request_id"].as_str() {
                    (fact("Provider's id", &copyable(id)))
                }
                @if let Some(why) = metadata["finish_reason"].as_str() {
                    (fact("Ended early", &html! { (why) }))
                }
                (fact("Created", &time(&record["created_at"])))
                (fact("Started", &time(&record["started_at"])))
                (fact("Ended", &time(&record["completed_at"])))
                @if let Some(seconds) = seconds {
                    (fact("Took", &parts::seconds(&json!(seconds))))
                }
            }
            @for (title, value) in [("Price row as it stood", &metadata["pricing"]), ("Counts", &record["usage"])] {
                @if !value.is_null() {
                    details.fold { summary { (title) } dl.facts { (values("", value)) } }
                }
            }
        }
    }
}

/// Renders the values of a part of the record, each with its path.
fn values(name: &str, value: &Value) -> Markup {
    let inside = |inner: &str| format!("{name} {}", inner.replace('_', " "));
    match value {
        Value::Null => html! {},
        Value::Object(members) => html! {
            @for (inner, value) in members { (values(&inside(inner), value)) }
        },
        Value::Array(items) => html! { @for value in items { (values(name, value)) } },
        _ => fact(name, &super::models::value(value)),
    }
}

pub async fn cancel(session: Session, Path(uuid): Path<String>) -> Result<Redirect, Problem> {
    match session.get(op::CANCEL, &[&uuid]).await {
        // It has ended; the receipt shows how.
        Err(problem) if problem.code() != "already_finished" => Err(problem),
        _ => Ok(Redirect::to(&format!("/generations/{uuid}"))),
    }
}

pub async fn delete(session: Session, Path(uuid): Path<String>) -> Result<Redirect, Problem> {
    session.get(op::DELETE_GENERATION, &[&uuid]).await?;
    Ok(Redirect::to("/generations"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sum_above_the_charge_is_explained_by_the_hold() {
        let credits = json!({"charged": "3", "estimated": "8"});
        let record = json!({"credits": credits, "attempts": [{"number": 1}]});
        for (total, notice) in [
            ("3", "This is what was charged"),
            ("5", "exceeds the hold"),
            ("2.999999", "which is not this sum"),
        ] {
            let page = charge(&json!({"total": total}), &record).into_string();
            assert!(page.contains(notice), "{page}");
        }
    }
}
