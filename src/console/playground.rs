//! The playground: a form for each type, with its price, its result and the request as code.

mod bench;
pub mod compare;
mod parameters;
pub mod pictures;
mod view;

use axum::{
    extract::{Path, Request},
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderName, StatusCode, header};
use maud::Markup;
use serde_json::{Value, json};

use self::{
    bench::{Bench, Outcome, operation},
    pictures::PictureForm,
    view::{address, render},
};
use super::{
    form::Form,
    operations as op,
    parts::{self, text},
    problem::Problem,
    session::Session,
};

pub async fn first() -> Redirect {
    Redirect::to("/playground/text")
}

pub async fn page(session: Session, Path(kind): Path<String>) -> Result<Markup, Problem> {
    let mut form = session.query.clone();
    operation(&kind)?;
    // A link from the models page has only a model.
    if ["prompt", "generation", "input"]
        .iter()
        .all(|name| form.word(name).is_empty())
    {
        form.push("prompt", view::example(&kind));
    }
    let record = match form.word("generation") {
        "" => None,
        uuid => Some(session.get(op::GENERATION, &[uuid]).await?),
    };
    if let Some(record) = &record {
        form.refill(record);
        pictures::refill(&mut form, record);
    }
    let bench = Bench::set_up(&session, &kind, form).await?;
    let outcome = outcome(&session, &bench, record, None).await;
    Ok(render(&session, &bench, &outcome))
}

pub async fn run(
    Path(kind): Path<String>,
    session: Session,
    form: Form,
) -> Result<Response, Problem> {
    let ticket = form.word("ticket").to_owned();
    let bench = Bench::set_up(&session, &kind, form).await?;
    if bench.form.get("action") == "preview" {
        return Ok(again(&session, &bench, None).await);
    }
    let mut body = bench.body();
    let accept = session.headers.get(header::ACCEPT);
    let streams = kind == "text" && accept.is_some_and(|accept| accept == "text/event-stream");
    if streams {
        body["stream"] = json!(true);
    }
    let mut call = session.call(bench.operation, &[]).body(body);
    if !ticket.is_empty() {
        call = call.header(HeaderName::from_static("idempotency-key"), &ticket);
    }
    let answer = if streams {
        match call.response().await {
            Ok(stream) => return Ok(stream),
            Err(problem) => Err(problem),
        }
    } else {
        call.json().await
    };
    // A failed generation also has a page.
    match answer.or_else(|problem| problem.generation().cloned().ok_or(problem)) {
        Ok(record) => Ok(Redirect::to(&result_address(&bench, &record)).into_response()),
        Err(problem) => Ok(again(&session, &bench, Some(&problem)).await),
    }
}

/// Uploads the picture of a form and shows the form with it.
pub async fn add_picture(
    Path(kind): Path<String>,
    session: Session,
    request: Request,
) -> Result<Response, Problem> {
    let _permit = session.permit(&session.console.0.pictures, "uploads")?;
    let sent = PictureForm::read(request).await?;
    let mut form = sent.form;
    let role = form.word("role").to_owned();
    let call = session.call(op::UPLOAD, &[]);
    let uploaded = call.file(&sent.media_type, sent.picture).json().await;
    if let Ok(upload) = &uploaded {
        form.push("input", &format!("{role} {}", text(&upload["id"])));
    }
    let bench = Bench::set_up(&session, &kind, form).await?;
    Ok(again(&session, &bench, uploaded.as_ref().err()).await)
}

/// Maximum characters of a form's text that are kept in the URL.
const KEPT_CHARS: usize = 1_000;

/// Returns the URL of a generation's result. It keeps the form's texts that the record lacks.
fn result_address(bench: &Bench, record: &Value) -> String {
    let mut query = vec![("generation", text(&record["uuid"]))];
    query.extend(kept(&bench.form));
    parts::link(&address(&bench.kind, None), &query)
}

fn kept(form: &Form) -> impl Iterator<Item = (&str, &str)> {
    let names = ["system_prompt", "negative_prompt"].into_iter();
    let fields = names.map(|name| (name, form.get(name)));
    fields.filter(|(_, value)| value.chars().count() <= KEPT_CHARS)
}

/// Renders the page after a form that generated nothing, with the previous results.
async fn again(session: &Session, bench: &Bench, problem: Option<&Problem>) -> Response {
    let status = problem.map_or(StatusCode::OK, |problem| problem.status);
    let record = match bench.form.word("generation") {
        "" => None,
        uuid => session.get(op::GENERATION, &[uuid]).await.ok(),
    };
    let outcome = outcome(session, bench, record, problem).await;
    (status, render(session, bench, &outcome)).into_response()
}

async fn outcome<'a>(
    session: &Session,
    bench: &Bench,
    record: Option<Value>,
    problem: Option<&'a Problem>,
) -> Outcome<'a> {
    let (estimate, mut running) = tokio::join!(bench.estimate(session), bench.running(session));
    if let Some(record) = &record {
        running.retain(|other| other["uuid"] != record["uuid"]);
    }
    Outcome {
        estimate,
        problem,
        record,
        running,
    }
}
