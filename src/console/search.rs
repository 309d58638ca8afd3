//! Search: finds a generation by uuid, a key by hint or name and, for operators, an account by email.

use axum::response::{IntoResponse as _, Redirect, Response};
use http::{StatusCode, Uri};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    form::Form,
    operations as op,
    parts::{self, list, text},
    problem::Problem,
    session::Session,
    shell,
};
use crate::domain::ids::GenerationId;

pub async fn page(session: Session, uri: Uri) -> Result<Response, Problem> {
    let form = Form::of_query(uri.query());
    let wanted = form.word("q");
    if let Some(id) = GenerationId::parse(wanted) {
        let id = id.to_string();
        match session.get(op::GENERATION, &[&id]).await {
            Ok(_) => return Ok(Redirect::to(&format!("/generations/{id}")).into_response()),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => {}
            Err(problem) => return Err(problem),
        }
    }
    if session.me["operator"] == true && wanted.contains('@') {
        let address = parts::link("/operator/accounts", &[("email", wanted)]);
        return Ok(Redirect::to(&address).into_response());
    }
    let keys = keys(&session, wanted).await?;
    match &keys[..] {
        [key] => Ok(Redirect::to(&format!("/keys/{}", key["id"])).into_response()),
        keys => Ok(results(&session, wanted, keys).into_response()),
    }
}

/// The keys, among the newest hundred, whose hint or name contains the text.
async fn keys(session: &Session, wanted: &str) -> Result<Vec<Value>, Problem> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let found = session.first_rows(op::KEYS).await?;
    let wanted = wanted.to_lowercase();
    let fits = |key: &&Value| {
        let contains = |name: &str| text(&key[name]).to_lowercase().contains(&wanted);
        contains("key_hint") || contains("name")
    };
    Ok(list(&found["data"]).iter().filter(fits).cloned().collect())
}

fn results(session: &Session, wanted: &str, keys: &[Value]) -> Markup {
    let what = if session.me["operator"] == true {
        "a generation's uuid, a key's hint or name, or an account's email"
    } else {
        "a generation's uuid, or a key's hint or name"
    };
    let content = html! {
        (shell::head("Search", &format!("Finds {what}."), &html! {}))
        section.card {
            @if keys.is_empty() {
                (parts::empty("Nothing found", &format!("There is nothing for “{wanted}”."), &html! {
                    a.button href=(parts::link("/generations", &[("prompt", wanted)])) { "Search in prompts" }
                }))
            } @else {
                ul.running {
                    @for key in keys {
                        li {
                            a href={ "/keys/" (key["id"].to_string()) } { (text(&key["name"])) }
                            " " code.muted { (text(&key["key_hint"])) }
                        }
                    }
                }
            }
        }
    };
    shell::page(session, "Search", &content)
}
