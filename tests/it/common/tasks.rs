//! Requests in tasks of their own, so that a test continues while they wait.

use std::sync::Arc;

use http::Method;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{Answer, TestApp};

impl TestApp {
    /// As [`Self::text`].
    pub fn spawn_text(self: &Arc<Self>, token: &str, body: Value) -> JoinHandle<Answer> {
        self.spawn_post(token, "/v1/generate/text", &[], body)
    }

    /// As [`Self::post_with`].
    pub fn spawn_post(
        self: &Arc<Self>,
        token: &str,
        path: &str,
        headers: &[(&'static str, &'static str)],
        body: Value,
    ) -> JoinHandle<Answer> {
        let (app, token, path) = (Arc::clone(self), token.to_owned(), path.to_owned());
        let headers = headers.to_vec();
        tokio::spawn(async move { app.post_with(&token, &path, &headers, &body).await })
    }

    /// As [`Self::get`], with a preference.
    pub fn spawn_get(
        self: &Arc<Self>,
        token: &str,
        path: &str,
        prefer: &'static str,
    ) -> JoinHandle<Answer> {
        let (app, token, path) = (Arc::clone(self), token.to_owned(), path.to_owned());
        let headers = [("prefer", prefer)];
        tokio::spawn(async move { app.call(Method::GET, &token, &path, &headers, None).await })
    }
}
