//! The bare proxy, in a process of its own: what axum and reqwest cost without any accounting.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse, Response},
    serve::ListenerExt as _,
};
use http::{HeaderMap, StatusCode, Uri, header::CONTENT_TYPE};
use reqwest::{Client, redirect::Policy};

use crate::role;

struct Upstream {
    client: Client,
    url: String,
}

pub async fn serve(upstream: &str) {
    // As gensvc's own client.
    let client = Client::builder()
        .connect_timeout(Duration::from_secs(5))
        .redirect(Policy::none())
        .referer(false)
        .gzip(true)
        .build()
        .unwrap();
    let url = format!("http://{upstream}");
    let router = Router::new()
        .fallback(pass_on)
        .with_state(Arc::new(Upstream { client, url }));
    let listener = role::listen().await.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.unwrap();
}

async fn pass_on(State(upstream): State<Arc<Upstream>>, uri: Uri, body: Bytes) -> Response {
    match ask(&upstream, &uri, body).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn ask(upstream: &Upstream, uri: &Uri, body: Bytes) -> Result<Response, reqwest::Error> {
    let request = upstream
        .client
        .post(format!("{}{}", upstream.url, uri.path()))
        .header(CONTENT_TYPE, "application/json")
        .timeout(Duration::from_mins(5))
        .body(body);
    let answer = request.send().await?;
    let status = answer.status();
    let kind = answer.headers().get(CONTENT_TYPE).cloned();
    let streamed = kind
        .as_ref()
        .is_some_and(|kind| kind == "text/event-stream");
    let headers: HeaderMap = kind.into_iter().map(|kind| (CONTENT_TYPE, kind)).collect();
    let body = if streamed {
        Body::from_stream(answer.bytes_stream())
    } else {
        Body::from(answer.bytes().await?)
    };
    Ok((status, headers, body).into_response())
}
