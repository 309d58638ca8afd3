//! The API's caller: one operation within this process, with the token of the session.

use std::net::SocketAddr;

use axum::{
    body::{Body, Bytes},
    extract::ConnectInfo,
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header, request::Parts};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use url::form_urlencoded::Serializer;

use super::{Console, operations::Operation, shell};
use crate::{
    api::{Page, RequestId},
    domain::form_token::FormToken,
};

/// Answers of the API are read whole; the longest is a page of 100 records.
const MAX_ANSWER: usize = 16 << 20;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub struct Client {
    console: Console,
    token: Option<SecretString>,
    /// What of a browser's request the API has to know: who asks, and under which id it is logged.
    peer: Option<ConnectInfo<SocketAddr>>,
    headers: HeaderMap,
    /// All that a page asks for is one request of its caller.
    page: Page,
}

/// One call that is being put together.
pub struct Call<'a> {
    client: &'a Client,
    operation: Operation,
    path: Option<String>,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Option<Value>,
    file: Option<(String, Bytes)>,
    form: Option<FormToken>,
}

impl Client {
    /// For what came in with `parts`, with `token` or without.
    pub fn new(console: &Console, parts: &Parts, token: Option<SecretString>) -> Self {
        let mut headers = HeaderMap::new();
        for value in parts.headers.get_all(&FORWARDED_FOR) {
            headers.append(FORWARDED_FOR, value.clone());
        }
        let id = parts.extensions.get::<RequestId>();
        if let Some(Ok(id)) = id.map(|RequestId(id)| HeaderValue::from_str(id)) {
            headers.insert(REQUEST_ID, id);
        }
        Self {
            console: console.clone(),
            token,
            peer: parts.extensions.get().copied(),
            headers,
            page: parts.extensions.get().cloned().unwrap_or_default(),
        }
    }

    /// The same, which is not refused for having asked too much.
    pub fn unlimited(self) -> Self {
        Self {
            page: Page::uncounted(),
            ..self
        }
    }

    /// A call of `operation`; `ids` take the places of its path's parameters.
    pub fn call(&self, operation: Operation, ids: &[&str]) -> Call<'_> {
        // Nothing but an id can stand in a path: the API has no other.
        let good = |id: &&str| {
            !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let path = ids.iter().all(good).then(|| {
            let mut ids = ids.iter();
            let part = |part: &'static str| match part.strip_prefix('{') {
                Some(_) => (*ids.next().unwrap_or(&"")).to_owned(),
                None => part.to_owned(),
            };
            let parts: Vec<String> = operation.path.split('/').map(part).collect();
            parts.join("/")
        });
        Call {
            client: self,
            operation,
            path,
            query: Vec::new(),
            headers: self.headers.clone(),
            body: None,
            file: None,
            form: None,
        }
    }
}

impl Call<'_> {
    pub fn query(mut self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            self.query.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets a file as the body.
    pub fn file(mut self, media_type: &str, bytes: Bytes) -> Self {
        self.file = Some((media_type.to_owned(), bytes));
        self
    }

    /// Sets the token of the form that the call stands for.
    pub fn form(mut self, form: FormToken) -> Self {
        self.form = Some(form);
        self
    }

    /// The answer as it is, a stream perhaps.
    pub async fn response(mut self) -> Result<Response, Problem> {
        let client = self.client;
        let mut uri = self.path.ok_or_else(Problem::not_found)?;
        if !self.query.is_empty() {
            let query = Serializer::new(String::new())
                .extend_pairs(&self.query)
                .finish();
            uri = format!("{uri}?{query}");
        }
        let uri: Uri = uri.parse().map_err(|_| Problem::not_found())?;
        let mut request = Request::new(match &self.body {
            Some(body) => Body::from(body.to_string()),
            None => Body::empty(),
        });
        if let Some((media_type, bytes)) = self.file {
            *request.body_mut() = Body::from(bytes);
            let media_type = HeaderValue::from_str(&media_type);
            let media_type = media_type.map_err(|_| Problem::bad_form("the file has no type"))?;
            self.headers.insert(header::CONTENT_TYPE, media_type);
        }
        *request.method_mut() = self.operation.method.clone();
        *request.uri_mut() = uri;
        if let Some(token) = &client.token {
            let bearer = format!("Bearer {}", token.expose_secret());
            let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| Problem::logged_out())?;
            bearer.set_sensitive(true);
            self.headers.insert(header::AUTHORIZATION, bearer);
        }
        if self.body.is_some() {
            let json = HeaderValue::from_static("application/json");
            self.headers.insert(header::CONTENT_TYPE, json);
        }
        *request.headers_mut() = self.headers;
        if let Some(peer) = client.peer {
            request.extensions_mut().insert(peer);
        }
        request.extensions_mut().insert(client.page.clone());
        if let Some(form) = self.form {
            request.extensions_mut().insert(form);
        }
        let Ok(response) = client.console.0.api.clone().oneshot(request).await;
        if response.status().is_client_error() || response.status().is_server_error() {
            let status = response.status();
            let body = read(response).await;
            return Err(Problem { status, body });
        }
        Ok(response)
    }

    /// The answer's body; null where it has none.
    pub async fn json(self) -> Result<Value, Problem> {
        Ok(self.answer().await?.1)
    }

    /// Whether the call's form was processed before, and the answer's body.
    pub async fn created(self) -> Result<(bool, Value), Problem> {
        let response = self.response().await?;
        let is_repeated = response.headers().contains_key("idempotent-replayed");
        Ok((is_repeated, read(response).await))
    }

    /// The answer's status and body.
    pub async fn answer(self) -> Result<(StatusCode, Value), Problem> {
        let response = self.response().await?;
        Ok((response.status(), read(response).await))
    }
}

async fn read(response: Response) -> Value {
    let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER).await;
    let value = bytes.ok().and_then(|b| serde_json::from_slice(&b).ok());
    value.unwrap_or_default()
}

/// What the API refused, and why.
#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// The error's envelope.
    pub body: Value,
}

impl Problem {
    pub fn new(status: StatusCode, code: &str, message: &str) -> Self {
        let body = json!({"error": {"code": code, "message": message}});
        Self { status, body }
    }

    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "not found")
    }

    pub fn logged_out() -> Self {
        let message = "log in to go on";
        Self::new(StatusCode::UNAUTHORIZED, "missing_token", message)
    }

    pub fn internal() -> Self {
        let message = "something went wrong on our side";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    pub fn bad_form(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_form", message)
    }

    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        let message = self.body["error"]["message"].as_str();
        message.unwrap_or("something went wrong on our side")
    }

    /// The failed generation of a refusal that has one.
    pub fn generation(&self) -> Option<&Value> {
        self.body.get("generation")
    }

    /// What is wrong with one field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let errors = self.body["error"]["errors"].as_array()?;
        let error = errors.iter().find(|error| error["param"] == name)?;
        error["message"].as_str()
    }

    /// What is wrong with fields that a form does not show.
    pub fn others<'a>(&'a self, shown: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        let errors = self.body["error"]["errors"].as_array();
        let errors = errors.into_iter().flatten();
        errors.filter_map(move |error| {
            let param = error["param"].as_str()?;
            let message = error["message"].as_str()?;
            (!shown.contains(&param)).then(|| format!("{param} {message}"))
        })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self.status {
            StatusCode::UNAUTHORIZED => Redirect::to("/login").into_response(),
            status => (status, shell::problem(&self)).into_response(),
        }
    }
}
