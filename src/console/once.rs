//! Forms that create something. Each is processed once, and a secret that it creates is shown once.
//!
//! Such a form has a random token. From it the API derives the secret of the created object, and
//! the digest by which any server recognizes the form. The token is then passed to the object's
//! page in a cookie for that page, and the page derives the secret again. So the secret is neither
//! in the database nor in a URL, and servers share no state for it.

use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, TimeDelta};
use http::header;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    client::Call,
    form::Form,
    parts::text,
    problem::Problem,
    session::{Session, cookie, cookie_value},
};
use crate::domain::{form_token::FormToken, ids::AccountId};

const FIELD: &str = "form";
/// The cookie with the token, for the page of the created object.
const SECRET: &str = "gensvc-secret";
/// The cookie that marks the secret as shown.
const SHOWN: &str = "gensvc-shown";
/// How long a secret can be shown.
const SHOW_WITHIN: TimeDelta = TimeDelta::minutes(10);
/// How long the browser keeps that mark; longer than [`SHOW_WITHIN`].
const REMEMBERED: TimeDelta = TimeDelta::minutes(20);
/// Marks the URL of a page after a form that was already processed.
const BEFORE: &str = "?sent=before";

/// Renders the hidden field that makes a form's submission idempotent.
pub fn field() -> Markup {
    // Without random bits there is no token, and each submission is processed.
    let token = FormToken::new().map(|token| token.encode()).ok();
    html! {
        @if let Some(token) = token { input type="hidden" name=(FIELD) value=(token) autocomplete="off"; }
    }
}

/// The object that a form created, with this submission or an earlier one.
pub struct Created {
    pub object: Value,
    pub is_repeated: bool,
    token: FormToken,
}

/// Sends the request of a form that creates something.
pub async fn create(call: Call<'_>, form: &Form) -> Result<Created, Problem> {
    let token = FormToken::parse(form.get(FIELD));
    let token = match token {
        Some(token) => token,
        None => FormToken::new().map_err(|_| Problem::internal())?,
    };
    let (parts, object) = call.form(token.clone()).answer().await?;
    Ok(Created {
        object,
        is_repeated: parts.headers.contains_key("idempotent-replayed"),
        token,
    })
}

impl Created {
    /// Redirects to the object's page, below that of its `list`.
    pub fn redirect(&self, list: &str) -> Response {
        let query = if self.is_repeated { BEFORE } else { "" };
        Redirect::to(&format!("{list}/{}{query}", self.object["id"])).into_response()
    }

    /// Redirects to the object's page, which shows its secret unless it was already shown.
    pub fn redirect_to_secret(&self, session: &Session, list: &str) -> Response {
        let made = DateTime::parse_from_rfc3339(text(&self.object["created_at"]));
        let is_new = made.is_ok_and(|made| session.now - made.to_utc() < SHOW_WITHIN);
        let mut response = self.redirect(list);
        if is_new {
            let (path, token) = (format!("{list}/{}", self.object["id"]), self.token.encode());
            set_cookie(&mut response, session, &path, SECRET, &token, SHOW_WITHIN);
        }
        response
    }
}

/// Returns the token whose secret the page must show: once, to the browser that sent the form.
pub fn unshown(session: &Session) -> Option<FormToken> {
    if cookie_value(&session.headers, SHOWN).is_some() {
        return None;
    }
    FormToken::parse(cookie_value(&session.headers, SECRET)?)
}

/// Marks the secret of a page as shown, so that the browser does not get it again.
pub fn shown(page: Markup, session: &Session, path: &str) -> Response {
    let mut response = page.into_response();
    set_cookie(&mut response, session, path, SECRET, "", TimeDelta::zero());
    set_cookie(&mut response, session, path, SHOWN, "1", REMEMBERED);
    response
}

fn set_cookie(
    response: &mut Response,
    session: &Session,
    path: &str,
    name: &str,
    value: &str,
    lifetime: TimeDelta,
) {
    let (pair, seconds) = (format!("{name}={value}"), lifetime.num_seconds());
    let lifetime = format!("; Max-Age={seconds}");
    let cookie = cookie(&session.console, &pair, path, &lifetime);
    response.headers_mut().append(header::SET_COOKIE, cookie);
}

/// Returns the account of a session, from which a secret is also derived.
pub fn account(session: &Session) -> AccountId {
    AccountId(session.me["account"]["id"].as_i64().unwrap_or_default())
}

/// Renders a notice that the form was already processed.
pub fn notice(session: &Session) -> Markup {
    html! {
        @if session.path.ends_with(BEFORE) {
            p.notice role="status" { "This form was sent before: nothing was created or changed again." }
        }
    }
}
