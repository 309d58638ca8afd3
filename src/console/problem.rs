//! An error of the API, or of the console itself.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use maud::Markup;
use serde_json::{Value, json};

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

    pub fn internal() -> Self {
        let message = "something went wrong on our side";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    pub fn bad_form(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_form", message)
    }

    pub fn large_form() -> Self {
        let message = "the form is too large, or ended too early";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
    }

    pub fn slow_form() -> Self {
        let message = "the form did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    /// Responds with a page that shows the error.
    pub fn on(&self, page: Markup) -> Response {
        (self.status, page).into_response()
    }

    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        let message = self.body["error"]["message"].as_str();
        message.unwrap_or("something went wrong on our side")
    }

    pub fn generation(&self) -> Option<&Value> {
        self.body.get("generation")
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let errors = self.body["error"]["errors"].as_array()?;
        let error = errors.iter().find(|error| error["param"] == name)?;
        error["message"].as_str()
    }

    /// Returns the errors of fields that a form does not show.
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
