//! Search: finds generations by uuid, request id or provider's id, keys by hint or name and, for
//! operators, accounts by email, generation or key.

use axum::response::{IntoResponse as _, Redirect, Response};
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    operations as op,
    operations::Operation,
    parts::{self, list, text},
    problem::Problem,
    session::Session,
    shell,
};
use crate::domain::ids::GenerationId;

/// Maximum characters of an id, and of the search field.
const MAX_ID: usize = 200;

pub async fn page(session: Session) -> Result<Response, Problem> {
    let wanted = session.query.word("q");
    let is_operator = session.me["operator"] == true;
    if let Some(id) = GenerationId::parse(wanted) {
        let id = id.to_string();
        match session.get(op::GENERATION, &[&id]).await {
            Ok(_) => return Ok(redirect(&format!("/generations/{id}"))),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => {}
            Err(problem) => return Err(problem),
        }
        if is_operator {
            let accounts = first_two(&session, op::ACCOUNTS, "generation", &id).await?;
            if let Some(account) = accounts.first() {
                let address = format!("/operator/accounts/{}", account["id"]);
                let filter = [("generation", id.as_str())];
                return Ok(redirect(&parts::link(&address, &filter)));
            }
        }
    }
    if is_operator && wanted.contains('@') {
        let address = parts::link("/operator/accounts", &[("email", wanted)]);
        return Ok(redirect(&address));
    }
    let keys = keys(&session, wanted).await?;
    let is_exact = |key: &Value| key["key_hint"] == wanted || key["name"] == wanted;
    if !keys.iter().any(is_exact)
        && let Some(place) = by_id(&session, wanted, is_operator).await?
    {
        return Ok(redirect(&place));
    }
    Ok(match &keys[..] {
        [key] => redirect(&format!("/keys/{}", key["id"])),
        keys => results(&session, wanted, keys).into_response(),
    })
}

fn redirect(address: &str) -> Response {
    Redirect::to(address).into_response()
}

/// Returns the URL of the only match of a hint, request id or provider's id.
async fn by_id(
    session: &Session,
    wanted: &str,
    is_operator: bool,
) -> Result<Option<String>, Problem> {
    let is_id = (1..=MAX_ID).contains(&wanted.len());
    if !is_id || !wanted.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(None);
    }
    let mut lists = vec![
        (op::HISTORY, "/generations", "request_id"),
        (op::HISTORY, "/generations", "provider_request_id"),
    ];
    if is_operator {
        lists.insert(0, (op::ACCOUNTS, "/operator/accounts", "key_hint"));
    }
    for (operation, page, filter) in lists {
        let found = first_two(session, operation, filter, wanted).await?;
        let address = match (&found[..], page) {
            ([], _) => continue,
            ([one], "/generations") => format!("{page}/{}", text(&one["uuid"])),
            ([one], _) => format!("{page}/{}", one["id"]),
            _ => parts::link(page, &[(filter, wanted)]),
        };
        return Ok(Some(address));
    }
    Ok(None)
}

/// Returns the first two rows of a filtered list: one match is opened, several are listed.
async fn first_two(
    session: &Session,
    operation: Operation,
    filter: &str,
    wanted: &str,
) -> Result<Vec<Value>, Problem> {
    let call = session.call(operation, &[]).query(filter, wanted);
    let found = call.query("per_page", "2").json().await?;
    Ok(list(&found["data"]).to_vec())
}

/// Returns the keys, among the newest hundred, whose hint or name contains the text.
async fn keys(session: &Session, wanted: &str) -> Result<Vec<Value>, Problem> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let found = session.long_pages(op::KEYS).json().await?;
    let wanted = wanted.to_lowercase();
    let fits = |key: &&Value| {
        let contains = |name: &str| text(&key[name]).to_lowercase().contains(&wanted);
        contains("key_hint") || contains("name")
    };
    Ok(list(&found["data"]).iter().filter(fits).cloned().collect())
}

fn results(session: &Session, wanted: &str, keys: &[Value]) -> Markup {
    let own = "generations by UUID, the newest 10,000 also by request id and provider's id, and \
               the newest 100 keys by hint or name";
    let searched = if session.me["operator"] == true {
        format!("{own}; accounts by email, by the UUID of a generation and by the hint of a key")
    } else {
        own.to_owned()
    };
    let content = html! {
        (shell::head("Search", &format!("Searches {searched}."), &html! {}))
        section.card {
            @if keys.is_empty() {
                (parts::empty("Nothing found", &format!("Nothing matches “{wanted}”."), &html! {
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
