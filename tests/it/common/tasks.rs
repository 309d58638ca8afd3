//! Requests in tasks of their own, so that a test continues while they wait.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt as _, stream};
use http::{Method, Request};
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle};

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

    /// A text whose body is sent later, as [`Self::spawn_slow_post`].
    pub async fn spawn_slow_text(
        self: &Arc<Self>,
        token: &str,
    ) -> (oneshot::Sender<Bytes>, JoinHandle<Answer>) {
        self.spawn_slow_post(token, "/v1/generate/text").await
    }

    /// A POST whose body is sent later. Returns once the handler reads it, so its token is checked.
    pub async fn spawn_slow_post(
        self: &Arc<Self>,
        token: &str,
        path: &str,
    ) -> (oneshot::Sender<Bytes>, JoinHandle<Answer>) {
        let (reads, is_read) = oneshot::channel::<()>();
        let (rest, arrives) = oneshot::channel::<Bytes>();
        let reads = Mutex::new(Some(reads));
        let body = stream::once(async move {
            let reads = reads.lock().unwrap().take();
            let _ = reads.unwrap().send(());
            arrives.await.map_err(std::io::Error::other)
        });
        let request = Request::post(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from_stream(body.boxed()))
            .unwrap();
        let app = Arc::clone(self);
        let answer = tokio::spawn(async move { app.send(request).await });
        is_read.await.unwrap();
        (rest, answer)
    }
}
