//! API keys: create, list, show, revoke.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, Uri};
use maud::{Markup, html};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use super::{
    client::Problem,
    csv::{Download, members},
    form::Form,
    once, operations as op,
    parts::{self, amount, badge, copyable, fact, field, option, text, time},
    session::Session,
    shell,
};
use crate::domain::{ability::Ability, form_token::api_key_of_form};

fn state(key: &Value, now: DateTime<Utc>) -> &'static str {
    let end = key["expires_at"].as_str();
    let end = end.and_then(|end| DateTime::parse_from_rfc3339(end).ok());
    if key["revoked_at"].is_string() {
        "revoked"
    } else if end.is_some_and(|end| end <= now) {
        "expired"
    } else {
        "active"
    }
}

pub async fn list(session: Session, uri: Uri) -> Result<Markup, Problem> {
    let query = Form::of_query(uri.query());
    let call = session
        .call(op::KEYS, &[])
        .query("cursor", query.get("cursor"));
    let found = call.json().await?;
    let rows = parts::list(&found["data"]);
    let new = html! { a.button.primary href="/keys/new" { "Create a key" } };
    let actions = html! { (parts::download("/keys.csv", rows)) (new) };
    let content = html! {
        (shell::head("API keys", "Programs call the API with a key. Each can be limited, and revoked by itself.", &actions))
        section.card {
            @if rows.is_empty() {
                (parts::empty("No keys yet", "A key is what your program sends as its bearer token.", &new))
            } @else { (table(rows, session.now)) }
        }
        (parts::pager(&uri, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "API keys", &content))
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    let columns = members(&[
        "id",
        "name",
        "key_hint",
        "abilities",
        "rate_limit_per_minute",
        "spend_limit",
        "spend_period",
        "spent",
        "expires_at",
        "last_used_at",
        "revoked_at",
        "created_at",
    ]);
    let download = Download::new("keys", op::KEYS, columns).paged();
    download.answer(session).await
}

fn table(rows: &[Value], now: DateTime<Utc>) -> Markup {
    html! {
        div.table tabindex="0" {
            table.cards {
                thead { tr {
                    th { "Name" } th { "Key" } th { "State" } th.right { "Spent" }
                    th.right { "Spend limit" } th { "Last used" }
                } }
                tbody {
                    @for key in rows {
                        tr {
                            td { a href={ "/keys/" (key["id"].to_string()) } { (text(&key["name"])) } }
                            td.narrow-hidden { code { (text(&key["key_hint"])) } }
                            td { (badge(state(key, now))) }
                            td.right data-unit="spent" { (amount(&key["spent"])) }
                            td.right.narrow-hidden { (limit(key)) }
                            td.narrow-hidden { @if key["last_used_at"].is_null() { span.muted { "Never" } } @else { (time(&key["last_used_at"])) } }
                        }
                    }
                }
            }
        }
    }
}

fn limit(key: &Value) -> Markup {
    html! {
        @if key["spend_limit"].is_null() { span.muted { "None" } }
        @else {
            (amount(&key["spend_limit"]))
            @if let Some(period) = key["spend_period"].as_str() { span.muted { " a " (period) } }
        }
    }
}

pub async fn new(session: Session) -> Markup {
    form_page(&session, &Form::default(), None)
}

fn form_page(session: &Session, form: &Form, problem: Option<&Problem>) -> Markup {
    let shown = [
        "name",
        "abilities",
        "rate_limit_per_minute",
        "expires_at",
        "spend_limit",
        "spend_period",
    ];
    let content = html! {
        (shell::head("Create a key", "It is shown once, right after it was created.", &html! {}))
        form.card method="post" action="/keys" {
            (once::field())
            @if problem.is_some() { (parts::refusal(problem, &shown)) }
            (field(problem, "Name", "name", "Where it is used, such as backend.", &html! {
                input type="text" name="name" value=(form.get("name")) required maxlength="100" autofocus;
            }))
            (abilities(form, problem))
            div.fields {
                (field(problem, "Requests per minute", "rate_limit_per_minute", "600 by default.", &html! {
                    input type="number" name="rate_limit_per_minute" min="1" max="1000000"
                        value=(form.get("rate_limit_per_minute")) placeholder="600";
                }))
                (field(problem, "Last day (UTC)", "expires_at", "It never expires by default.", &html! {
                    input type="date" name="expires" value=(form.get("expires"));
                }))
                (field(problem, "Spend limit", "spend_limit", "Credits; without one it can spend the whole balance.", &html! {
                    input type="text" inputmode="decimal" name="spend_limit" value=(form.get("spend_limit")) placeholder="None";
                }))
                (field(problem, "Limit resets", "spend_period", "In UTC.", &html! {
                    select name="spend_period" {
                        (option("", form.get("spend_period"), "Never"))
                        (option("day", form.get("spend_period"), "Every day"))
                        (option("month", form.get("spend_period"), "Every month"))
                    }
                }))
            }
            div.actions {
                button.primary type="submit" { "Create the key" }
                a.button href="/keys" { "Back" }
            }
        }
    };
    shell::page(session, "Create a key", &content)
}

fn abilities(form: &Form, problem: Option<&Problem>) -> Markup {
    let ticked = form.all("ability");
    let is_limited = form.word("scope") == "some";
    let about = |ability: Ability| match ability {
        Ability::GenerateText => "Generate texts",
        Ability::GenerateImage => "Generate images",
        Ability::GenerateVideo => "Generate videos",
        Ability::GenerateAudio => "Generate speech",
        Ability::ReadHistory => "Read generations and their results",
        Ability::ReadCredits => "Read balance, usage and estimates",
        Ability::All => "Everything",
    };
    html! {
        fieldset {
            legend { "What it may call" }
            label.check {
                input type="radio" name="scope" value="all" checked[!is_limited];
                span { "Everything" }
            }
            label.check {
                input type="radio" name="scope" value="some" checked[is_limited];
                span { "Only these:" }
            }
            div.checks.below {
                @for ability in Ability::ALL.into_iter().filter(|ability| *ability != Ability::All) {
                    label.check {
                        input type="checkbox" name="ability" value=(ability.as_str())
                            checked[ticked.contains(&ability.as_str())];
                        span { (about(ability)) " " code.muted { (ability.as_str()) } }
                    }
                }
            }
            @if let Some(wrong) = problem.and_then(|p| p.field("abilities")) { p.error { (parts::sentence(wrong)) } }
        }
    }
}

pub async fn create(session: Session, form: Form) -> Result<Response, Problem> {
    let mut body = Map::new();
    form.put_text(&mut body, "name");
    // Without a tick the list is empty, which the API refuses.
    if form.word("scope") == "some" {
        body.insert("abilities".to_owned(), json!(form.all("ability")));
    }
    form.put_number(&mut body, "rate_limit_per_minute", "rate_limit_per_minute");
    let last = form.word("expires");
    if !last.is_empty() {
        // What is no day goes to the API as it is, for it to say so.
        let end = parts::start_of(last, 1).unwrap_or_else(|| last.to_owned());
        body.insert("expires_at".to_owned(), json!(end));
    }
    for name in ["spend_limit", "spend_period"] {
        if !form.word(name).is_empty() {
            body.insert(name.to_owned(), json!(form.word(name)));
        }
    }
    let call = session.call(op::CREATE_KEY, &[]).body(Value::Object(body));
    match once::create(call, &form).await {
        Ok(made) => {
            let path = format!("/keys/{}", made.object["id"]);
            Ok(made.redirect_to_secret(&session, &path))
        }
        Err(problem) => {
            let page = form_page(&session, &form, Some(&problem));
            Ok((problem.status, page).into_response())
        }
    }
}

/// The secret of the key that the browser's form just created, unless it was shown.
fn unshown(session: &Session, key: &Value, headers: &HeaderMap) -> Option<SecretString> {
    let token = api_key_of_form(&once::unshown(headers)?, once::account(session));
    (key["key_hint"] == token.hint && state(key, session.now) == "active").then_some(token.secret)
}

fn secret_card(session: &Session, secret: &SecretString) -> Markup {
    let secret = secret.expose_secret();
    let curl = format!(
        "curl {}/v1/generate/text \\\n  -H 'Authorization: Bearer {secret}' \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{{\"prompt\": \"Name three rivers\"}}'",
        session.public_url
    );
    html! {
        section.card {
            h2 { "Your new key" }
            p.notice { "Copy it now: it is shown this once only, and nobody can read it again." }
            div.secret { (copyable(secret)) }
        }
        section.card { h2 { "A first call" } (parts::code_block("curl", &curl)) }
    }
}

fn facts(key: &Value) -> Markup {
    let abilities: Vec<&str> = parts::list(&key["abilities"]).iter().map(text).collect();
    html! {
        dl.facts {
            (fact("Name", &html! { (text(&key["name"])) }))
            (fact("Abilities", &html! {
                @if abilities == ["*"] { "Everything" } @else { (abilities.join(", ")) }
            }))
            (fact("Requests per minute", &amount(&key["rate_limit_per_minute"])))
            (fact("Expires", &html! {
                @if key["expires_at"].is_null() { "Never" } @else { (time(&key["expires_at"])) }
            }))
            (fact("Spend limit", &limit(key)))
        }
    }
}

pub async fn page(
    session: Session,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let key = session.get(op::KEY, &[&id]).await?;
    let id = key["id"].to_string();
    let secret = unshown(&session, &key, &headers);
    let is_revoked = key["revoked_at"].is_string();
    let actions = html! {
        a.button href={ "/generations?api_key=" (id) } { "Its generations" }
        @if !is_revoked {
            (parts::confirmed("Revoke", "Requests with this key are refused from then on. It cannot be undone.",
                &format!("/keys/{id}/revoke")))
        }
    };
    let content = html! {
        (shell::head(text(&key["name"]), "", &actions))
        @match &secret {
            Some(secret) => (secret_card(&session, secret)),
            None => (once::notice(&session)),
        }
        dl.figures {
            div { dt { "State" } dd { (badge(state(&key, session.now))) } }
            div {
                dt {
                    @match key["spend_period"].as_str() {
                        None => "Spent",
                        Some("day") => "Spent today, UTC",
                        Some(period) => { "Spent this " (period) ", UTC" }
                    }
                }
                dd { (amount(&key["spent"])) }
            }
            div { dt { "Spend limit" } dd { (limit(&key)) } }
        }
        section.card {
            h2 { "Details" }
            (facts(&key))
            dl.facts {
                (fact("Key", &html! { code { (text(&key["key_hint"])) } }))
                (fact("Created", &time(&key["created_at"])))
                (fact("Last used", &html! {
                    @if key["last_used_at"].is_null() { "Never" } @else { (time(&key["last_used_at"])) }
                }))
                @if is_revoked { (fact("Revoked", &time(&key["revoked_at"]))) }
            }
        }
    };
    let page = shell::page(&session, text(&key["name"]), &content);
    Ok(match secret {
        Some(_) => once::shown(page, &session, &format!("/keys/{id}")),
        None => page.into_response(),
    })
}

pub async fn revoke(session: Session, Path(id): Path<String>) -> Result<Redirect, Problem> {
    session.get(op::REVOKE_KEY, &[&id]).await?;
    Ok(Redirect::to(&format!("/keys/{id}")))
}
