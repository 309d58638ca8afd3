//! The session of a page: its token in a cookie, login, logout, and the account that an operator
//! views.

use axum::{
    body::Body,
    extract::{FromRequestParts, State},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    Console,
    client::{Call, Client},
    form::Form,
    guard, layout, operations as op,
    operations::Operation,
    parts,
    problem::Problem,
};
use crate::{
    api::Page,
    domain::{
        ids::AccountId,
        limiter::{Limiter, Permit},
    },
};

/// The cookie's name with https: browsers accept it only over https and from this host.
const SECURE_NAME: &str = "__Host-gensvc";
const NAME: &str = "gensvc";
/// Maximum bytes of a login form.
const MAX_LOGIN_BYTES: usize = 16 << 10;

/// The cookie with the id of the account that an operator views.
pub const VIEW: &str = "gensvc-view";
/// Pages that can show the viewed account. `/keys/new` and changes are refused.
const VIEWABLE: [&str; 8] = [
    "",
    "generations",
    "gallery",
    "usage",
    "ledger",
    "keys",
    "webhooks",
    "search",
];

/// A logged-in user. Extracting it checks that changes come from a page of this server.
pub struct Session {
    pub console: Console,
    client: Client,
    pub now: DateTime<Utc>,
    pub path: String,
    pub query: Form,
    /// The headers of the browser's request.
    pub headers: HeaderMap,
    /// The caller; its account is the viewed one.
    pub me: Value,
    pub balance: Value,
    /// The account that an operator views on this page, read-only.
    pub viewed: Option<AccountId>,
}

impl Session {
    pub fn call(&self, operation: Operation, ids: &[&str]) -> Call<'_> {
        self.client.call(operation, ids)
    }

    /// Calls an operation without a body or a query.
    pub async fn get(&self, operation: Operation, ids: &[&str]) -> Result<Value, Problem> {
        self.call(operation, ids).json().await
    }

    /// Sends a request's body.
    pub async fn send(
        &self,
        operation: Operation,
        ids: &[&str],
        body: impl Into<Value>,
    ) -> Result<Value, Problem> {
        self.call(operation, ids).body(body).json().await
    }

    /// Reads the page of a list that the browser's URL selects.
    pub async fn list(&self, operation: Operation) -> Result<Value, Problem> {
        self.page_of(self.call(operation, &[])).json().await
    }

    /// Adds the cursor of the page's URL to a list call.
    pub fn page_of<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.query("cursor", self.query.get("cursor"))
    }

    /// Returns the unparsed query of the page.
    pub fn query_text(&self) -> &str {
        self.path.split_once('?').map_or("", |(_, query)| query)
    }

    /// Begins a call of a list with a hundred rows per page.
    pub fn long_pages(&self, operation: Operation) -> Call<'_> {
        self.call(operation, &[]).query("per_page", "100")
    }

    /// Takes a permit for a download or an upload. `what`: its name in the error.
    pub fn permit(&self, limiter: &Limiter<i64>, what: &str) -> Result<Permit<i64>, Problem> {
        // An operator who views an account uses none of its permits.
        let user = self.me["user"]["id"].as_i64().unwrap_or_default();
        limiter.try_acquire(user).ok_or_else(|| {
            let message = format!("other {what} are running; try again when they have ended");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", &message)
        })
    }

    pub fn public_url(&self) -> &str {
        &self.console.0.public_url
    }
}

fn cookie_name(console: &Console) -> &'static str {
    if console.0.is_https {
        SECURE_NAME
    } else {
        NAME
    }
}

/// Returns the value of a cookie, unless it is empty.
pub fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| {
        let value = pair.trim().strip_prefix(name)?.strip_prefix('=')?;
        (!value.is_empty()).then_some(value)
    })
}

/// Builds the header that sets a cookie, `name=value` in ASCII. `lifetime`: its `; Max-Age=` or `;
/// Expires=`; if empty, the cookie lasts until the browser closes.
pub fn cookie(console: &Console, pair: &str, path: &str, lifetime: &str) -> HeaderValue {
    let secure = if console.0.is_https { "; Secure" } else { "" };
    let text = format!("{pair}; Path={path}; HttpOnly; SameSite=Strict{lifetime}{secure}");
    let mut value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// Builds the header that sets the session's cookie until `expires`, or removes it.
fn token_cookie(console: &Console, token: &str, expires: &str) -> HeaderValue {
    let lifetime = match DateTime::parse_from_rfc3339(expires) {
        Ok(at) => at
            .to_utc()
            .format("; Expires=%a, %d %b %Y %H:%M:%S GMT")
            .to_string(),
        Err(_) => "; Max-Age=0".to_owned(),
    };
    let pair = format!("{}={token}", cookie_name(console));
    cookie(console, &pair, "/", &lifetime)
}

impl FromRequestParts<Console> for Session {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        guard::check_origin(&parts.method, &parts.headers, console)
            .map_err(IntoResponse::into_response)?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let to_login = || to_login(&parts.method, path);
        let token = cookie_value(&parts.headers, cookie_name(console)).ok_or_else(to_login)?;
        let mut client = Client::new(console, parts, Some(token));
        let refused = |problem: Problem| match problem.status {
            StatusCode::UNAUTHORIZED => to_login(),
            _ => problem.into_response(),
        };
        view(&mut client, parts).await.map_err(refused)?;
        let viewed = client.viewed;
        let known = tokio::try_join!(
            client.call(op::ME, &[]).json(),
            client.call(op::BALANCE, &[]).json(),
        );
        let (me, balance) = known.map_err(|problem| {
            if viewed.is_some() && problem.status == StatusCode::NOT_FOUND {
                let cookie = view_cookie(console, "");
                let accounts = Redirect::to("/operator/accounts");
                return ([(header::SET_COOKIE, cookie)], accounts).into_response();
            }
            refused(problem)
        })?;
        Ok(Self {
            console: console.clone(),
            client,
            now: console.0.clock.now(),
            path: path.to_owned(),
            query: Form::of_query(parts.uri.query()),
            headers: parts.headers.clone(),
            me,
            balance,
            viewed,
        })
    }
}

/// Applies the cookie of a viewed account to a page that can show it, if the user is an operator.
async fn view(client: &mut Client, parts: &Parts) -> Result<(), Problem> {
    let path = parts.uri.path().strip_prefix('/').unwrap_or_default();
    let place = path.split(['/', '.']).next().unwrap_or_default();
    let id = cookie_value(&parts.headers, VIEW).and_then(|id| id.parse().ok());
    let Some(id) = id.filter(|_| VIEWABLE.contains(&place)) else {
        return Ok(());
    };
    if client.call(op::ME, &[]).json().await?["operator"] != true {
        return Ok(());
    }
    if parts.method != Method::GET && parts.method != Method::HEAD || path == "keys/new" {
        let message = "you are viewing another account, read-only; press Stop viewing first";
        return Err(Problem::new(StatusCode::FORBIDDEN, "viewing", message));
    }
    client.viewed = Some(AccountId(id));
    Ok(())
}

/// Sets or removes the cookie of the viewed account.
pub fn view_cookie(console: &Console, account: &str) -> HeaderValue {
    let lifetime = if account.is_empty() {
        "; Max-Age=0"
    } else {
        ""
    };
    cookie(console, &format!("{VIEW}={account}"), "/", lifetime)
}

/// Redirects to the login, which returns to `path`. A change is not repeated, because its form is
/// lost.
fn to_login(method: &Method, path: &str) -> Response {
    let pair = match *method {
        Method::GET | Method::HEAD if path == "/" => ("next", ""),
        Method::GET | Method::HEAD => ("next", path),
        _ => ("undone", "1"),
    };
    Redirect::to(&parts::link("/login", &[pair])).into_response()
}

/// Returns the page of this server to open after the login; the overview for other URLs.
fn next(form: &Form) -> &str {
    let next = form.get("next");
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.contains('\\');
    if is_own && next.bytes().all(|b| b.is_ascii_graphic()) {
        next
    } else {
        "/"
    }
}

pub async fn form(uri: http::Uri) -> Markup {
    let query = Form::of_query(uri.query());
    let undone = "you were logged out, so this was not done; log in and repeat it";
    let notice = (!query.get("undone").is_empty()).then_some(undone);
    login_page("", next(&query), notice)
}

fn login_page(email: &str, next: &str, notice: Option<&str>) -> Markup {
    // After a wrong password, only the password is entered again.
    let has_email = !email.is_empty();
    layout::bare(
        "Log in",
        &html! {
            form.card.login method="post" action="/login" {
                h1 { "Log in" }
                @if let Some(notice) = notice {
                    p.notice.bad role="alert" { (parts::sentence(notice)) }
                }
                input type="hidden" name="next" value=(next);
                label.field {
                    span.label { "Email" }
                    input type="email" name="email" value=(email) required
                        autocomplete="username" autofocus[!has_email];
                }
                label.field {
                    span.label { "Password" }
                    input type="password" name="password" required
                        autocomplete="current-password" autofocus[has_email];
                }
                button.primary.wide type="submit" { "Log in" }
            }
            p.muted.small.centered {
                "Programs use the " a href="/docs" { "API" } " with a key. The operator of this "
                "server makes accounts."
            }
        },
    )
}

pub async fn log_in(
    State(console): State<Console>,
    parts: Parts,
    body: Body,
) -> Result<Response, Problem> {
    let form = Form::read(&parts, body, &console, MAX_LOGIN_BYTES).await?;
    let body = json!({"email": form.word("email"), "password": form.get("password")});
    let client = Client::new(&console, &parts, None);
    match client.call(op::LOG_IN, &[]).body(body).json().await {
        Ok(made) => {
            let token = made["token"].as_str().unwrap_or_default();
            let expires = made["expires_at"].as_str().unwrap_or_default();
            let cookies = AppendHeaders([
                (header::SET_COOKIE, token_cookie(&console, token, expires)),
                (header::SET_COOKIE, view_cookie(&console, "")),
            ]);
            Ok((cookies, Redirect::to(next(&form))).into_response())
        }
        Err(problem) => {
            let page = login_page(form.word("email"), next(&form), Some(problem.message()));
            Ok(problem.on(page))
        }
    }
}

/// Ends the session. Removes the cookie even if the API fails: for a suspended account, above the
/// rate limit, or while the database is unavailable.
pub async fn log_out(State(console): State<Console>, parts: Parts) -> Result<Response, Problem> {
    guard::check_origin(&parts.method, &parts.headers, &console)?;
    if let Some(token) = cookie_value(&parts.headers, cookie_name(&console)) {
        let mut client = Client::new(&console, &parts, Some(token));
        // Logging out is exempt from the rate limit.
        client.page = Page::uncounted();
        let _ended = client.call(op::LOG_OUT, &[]).json().await;
    }
    let cookie = token_cookie(&console, "", "");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
}
