//! API keys: create, list, show, revoke.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::{
    form::Form,
    key_form, once, operations as op,
    operator::Operator,
    parts::{self, amount, badge, copyable, fact, text, time},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};
use crate::domain::form_token::api_key_of_form;

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

pub async fn list(session: Session) -> Result<Markup, Problem> {
    let found = session.list(op::KEYS).await?;
    let rows = parts::list(&found["data"]);
    let new = html! {
        @if session.viewed.is_none() { a.button.primary href="/keys/new" { "Create a key" } }
    };
    let actions = html! { (parts::download("/keys.csv", rows)) (new) };
    let about = "A key is what your program sends as its bearer token.";
    let none = parts::empty("No keys yet", about, &new);
    let content = html! {
        (shell::head("API keys", "Programs call the API with a key. Each can be limited, and revoked by itself.", &actions))
        section.card { (table::list_or(&none, &columns(session.now), rows)) }
        (parts::pager(&session.path, &found["next_cursor"]))
    };
    Ok(shell::page(&session, "API keys", &content))
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    table::download_list("keys", columns(session.now), session, |session| {
        session.long_pages(op::KEYS)
    })
    .await
}

fn columns(now: DateTime<Utc>) -> Vec<Column<'static>> {
    let name = |key: &Value| html! { a href={ "/keys/" (key["id"].to_string()) } { (text(&key["name"])) } };
    vec![
        file("id"),
        table::row("name", "Name", name),
        table::code("key_hint", "Key").class("narrow-hidden"),
        table::row("", "State", move |key| badge(state(key, now))),
        file("abilities"),
        file("rate_limit_per_minute"),
        table::amount("spent", "Spent").unit("spent"),
        table::row("spend_limit", "Spend limit", limit).class("right narrow-hidden"),
        file("spend_period"),
        file("expires_at"),
        table::row("last_used_at", "Last used", |key| {
            time_or(&key["last_used_at"], "Never")
        })
        .class("narrow-hidden"),
        file("revoked_at"),
        file("created_at"),
    ]
}

fn time_or(at: &Value, none: &str) -> Markup {
    html! { @if at.is_null() { span.muted { (none) } } @else { (time(at)) } }
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
    let content = html! {
        (shell::head("Create a key", "It is shown once, right after it was created.", &html! {}))
        form.card method="post" action="/keys" {
            (once::field())
            (key_form::inputs(form, problem))
            div.actions {
                button.primary type="submit" { "Create the key" }
                a.button href="/keys" { "Back" }
            }
        }
    };
    shell::page(session, "Create a key", &content)
}

pub async fn create(session: Session, form: Form) -> Result<Response, Problem> {
    let call = session.call(op::CREATE_KEY, &[]);
    let call = call.body(key_form::body(&form));
    match once::create(call, &form).await {
        Ok(made) => Ok(made.redirect_to_secret(&session, "/keys")),
        Err(problem) => Ok(problem.on(form_page(&session, &form, Some(&problem)))),
    }
}

/// Returns the secret of the key that the browser's form just created, unless it was already shown.
fn unshown(session: &Session, key: &Value) -> Option<SecretString> {
    let token = api_key_of_form(&once::unshown(session)?, once::account(session));
    (key["key_hint"] == token.hint && state(key, session.now) == "active").then_some(token.secret)
}

fn secret_card(session: &Session, secret: &SecretString) -> Markup {
    let secret = secret.expose_secret();
    let curl = format!(
        "curl {}/v1/generate/text \\\n  -H 'Authorization: Bearer {secret}' \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{{\"prompt\": \"Name three rivers\"}}'",
        session.public_url()
    );
    html! {
        section.card {
            h2 { "Your new key" }
            p.notice { "Copy it now: it is not shown again." }
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
            (fact("Expires", &time_or(&key["expires_at"], "Never")))
            (fact("Spend limit", &limit(key)))
        }
    }
}

pub async fn page(session: Session, Path(id): Path<String>) -> Result<Response, Problem> {
    let key = session.get(op::KEY, &[&id]).await?;
    let id = key["id"].to_string();
    let secret = unshown(&session, &key);
    let is_revoked = key["revoked_at"].is_string();
    let actions = html! {
        a.button href={ "/generations?api_key=" (id) } { "Its generations" }
        @if !is_revoked && session.viewed.is_none() {
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
                (fact("Last used", &time_or(&key["last_used_at"], "Never")))
                @if is_revoked { (fact("Revoked", &time(&key["revoked_at"]))) }
            }
        }
        @if let (Some(account), "active") = (session.viewed, state(&key, session.now)) { (key_form::operator_forms(account, &key)) }
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

pub async fn change_for_customer(
    Path((account, key)): Path<(String, String)>,
    Operator(session): Operator,
    form: Form,
) -> Result<Response, Problem> {
    let ids = [account.as_str(), key.as_str()];
    let replaced = session.send(op::REPLACE_KEY, &ids, key_form::body(&form));
    match replaced.await {
        Ok(_) => Ok(Redirect::to(&format!("/keys/{key}")).into_response()),
        Err(problem) if problem.code() != "validation_failed" => Err(problem),
        Err(problem) => {
            let action = format!("/operator/accounts/{account}/keys/{key}");
            let content = html! {
                (shell::head("Change a key", "", &html! {}))
                (key_form::editor(&action, &form, Some(&problem)))
            };
            Ok(problem.on(shell::page(&session, "Change a key", &content)))
        }
    }
}

pub async fn revoke_for_customer(
    Path((account, key)): Path<(String, String)>,
    Operator(session): Operator,
) -> Result<Redirect, Problem> {
    let ids = [account.as_str(), key.as_str()];
    session.get(op::REVOKE_CUSTOMERS_KEY, &ids).await?;
    Ok(Redirect::to(&format!("/keys/{key}")))
}
