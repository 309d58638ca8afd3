//! Calls operations of the API within this process, with the token of the session.

use std::net::SocketAddr;

use axum::{body::Body, extract::ConnectInfo, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header, request::Parts, response};
use serde_json::Value;
use tower::ServiceExt as _;
use url::form_urlencoded::Serializer;

use super::{Console, operations::Operation, problem::Problem};
use crate::{
    api::{Page, RequestId, VIEWED_ACCOUNT},
    domain::{form_token::FormToken, ids::AccountId},
};

/// Maximum bytes of a response; a page of 100 records is smaller.
const MAX_ANSWER: usize = 16 << 20;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub struct Client {
    console: Console,
    /// Address and headers of the browser's request, for the API's limits and log, and the token.
    peer: Option<ConnectInfo<SocketAddr>>,
    headers: HeaderMap,
    /// All calls of a page count as one request.
    pub page: Page,
    /// The account that an operator views. Only read operations use it.
    pub viewed: Option<AccountId>,
}

pub struct Call<'a> {
    client: &'a Client,
    /// `None` if an id in the path is invalid.
    path: Option<String>,
    query: Vec<(String, String)>,
    request: Request<Body>,
}

impl Client {
    /// Creates a client for the browser's request `parts`.
    pub fn new(console: &Console, parts: &Parts, token: Option<&str>) -> Self {
        let mut headers = HeaderMap::new();
        for value in parts.headers.get_all(&FORWARDED_FOR) {
            headers.append(FORWARDED_FOR, value.clone());
        }
        let id = parts.extensions.get::<RequestId>();
        if let Some(Ok(id)) = id.map(|RequestId(id)| HeaderValue::from_str(id)) {
            headers.insert(REQUEST_ID, id);
        }
        let bearer = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        if let Some(Ok(mut bearer)) = bearer {
            bearer.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, bearer);
        }
        Self {
            console: console.clone(),
            peer: parts.extensions.get().copied(),
            headers,
            page: parts.extensions.get().cloned().unwrap_or_default(),
            viewed: None,
        }
    }

    /// Begins a call of `operation`. `ids`: the values of its path's parameters.
    pub fn call(&self, operation: Operation, ids: &[&str]) -> Call<'_> {
        // All parameters of paths are ids.
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
        let mut request = Request::new(Body::empty());
        *request.method_mut() = operation.method.clone();
        *request.headers_mut() = self.headers.clone();
        let reads = operation.method == Method::GET && !operation.path.starts_with("/v1/admin/");
        if let Some(account) = self.viewed.filter(|_| reads) {
            request
                .headers_mut()
                .insert(VIEWED_ACCOUNT, account.0.into());
        }
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        request.extensions_mut().insert(self.page.clone());
        Call {
            client: self,
            path,
            query: Vec::new(),
            request,
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
            self.request.headers_mut().insert(name, value);
        }
        self
    }

    pub fn body(self, body: impl Into<Value>) -> Self {
        let body: Value = body.into();
        self.file("application/json", body.to_string())
    }

    pub fn file(mut self, media_type: &str, content: impl Into<Body>) -> Self {
        *self.request.body_mut() = content.into();
        self.header(header::CONTENT_TYPE, media_type)
    }

    pub fn form(mut self, form: FormToken) -> Self {
        self.request.extensions_mut().insert(form);
        self
    }

    /// Sends the call. The body of the response may be a stream.
    pub async fn response(self) -> Result<Response, Problem> {
        let (client, mut request) = (self.client, self.request);
        let mut uri = self.path.ok_or_else(Problem::not_found)?;
        if !self.query.is_empty() {
            let query = Serializer::new(String::new())
                .extend_pairs(&self.query)
                .finish();
            uri = format!("{uri}?{query}");
        }
        *request.uri_mut() = uri.parse().map_err(|_| Problem::not_found())?;
        let Ok(response) = client.console.0.api.clone().oneshot(request).await;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            let body = read(response.into_body()).await;
            return Err(Problem { status, body });
        }
        Ok(response)
    }

    /// Sends the call and reads the response's body; null if it is empty.
    pub async fn json(self) -> Result<Value, Problem> {
        Ok(self.answer().await?.1)
    }

    /// Sends the call. Returns the response's status and headers, and its body.
    pub async fn answer(self) -> Result<(response::Parts, Value), Problem> {
        let (parts, body) = self.response().await?.into_parts();
        Ok((parts, read(body).await))
    }
}

async fn read(body: Body) -> Value {
    let bytes = axum::body::to_bytes(body, MAX_ANSWER).await;
    let value = bytes.ok().and_then(|b| serde_json::from_slice(&b).ok());
    value.unwrap_or_default()
}
