//! The playground: one form for each type, its price before, its result after, and the same as code.

mod bench;
mod parameters;
mod view;

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use maud::Markup;
use serde_json::json;

use self::{
    bench::{Bench, Outcome, operation},
    view::render,
};
use super::{client::Problem, form::Form, operations as op, session::Session};

pub async fn first() -> Redirect {
    Redirect::to("/playground/text")
}

pub async fn page(session: Session, Path(kind): Path<String>, uri: Uri) -> Result<Markup, Problem> {
    let mut form = Form::of_query(uri.query());
    operation(&kind)?;
    let record = match form.word("generation") {
        "" => None,
        uuid => Some(session.get(op::GENERATION, &[uuid]).await?),
    };
    if let Some(record) = &record {
        form.refill(record);
    }
    let bench = Bench::set_up(&session, &kind, form).await?;
    let outcome = Outcome {
        estimate: bench.estimate(&session).await,
        record,
        problem: None,
    };
    Ok(render(&session, &bench, &outcome))
}

pub async fn run(
    Path(kind): Path<String>,
    headers: HeaderMap,
    mut session: Session,
    form: Form,
) -> Result<Response, Problem> {
    let ticket = form.word("ticket").to_owned();
    let previewed = form.get("action") == "preview";
    let bench = Bench::set_up(&session, &kind, form).await?;
    let mut outcome = Outcome::default();
    let mut status = StatusCode::OK;
    if !previewed {
        let mut body = bench.body();
        let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
        let streams = kind == "text" && accept == Some(b"text/event-stream");
        if streams {
            body["stream"] = json!(true);
        }
        let call = session.call(bench.operation, &[]).body(body);
        let key = HeaderName::from_static("idempotency-key");
        let call = if ticket.is_empty() {
            call
        } else {
            call.header(key, &ticket)
        };
        let answer = if streams {
            match call.response().await {
                Ok(stream) => return Ok(stream),
                Err(problem) => Err(problem),
            }
        } else {
            call.json().await
        };
        match answer {
            Ok(record) => outcome.record = Some(record),
            Err(problem) => {
                status = problem.status;
                match problem.generation() {
                    Some(record) => outcome.record = Some(record.clone()),
                    None => outcome.problem = Some(problem),
                }
            }
        }
        session.refresh().await;
    }
    outcome.estimate = bench.estimate(&session).await;
    Ok((status, render(&session, &bench, &outcome)).into_response())
}
