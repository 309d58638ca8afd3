//! Runs one prompt on up to three models, side by side. Each run is a separate generation.

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use futures_util::future::join_all;
use http::{HeaderName, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    bench::{self, operation},
    kept,
    parameters::{self, Parameter},
    view::{
        self, ABOUT, available, bill, example, model_options, prompt, prompt_label, short_text,
        tabs,
    },
};
use crate::console::{
    form::Form,
    models::{MAX_COMPARED, name},
    operations::{self as op, Operation},
    parts::{self, badge, credits, field, list, served, text},
    problem::Problem,
    receipt,
    session::Session,
    shell,
};
use crate::domain::{credits::Credits, route::PROVIDER};

struct Comparison {
    kind: String,
    operation: Operation,
    /// All models of the type.
    models: Value,
    /// One to three models, including unknown ones, for which the API returns the error.
    chosen: Vec<Value>,
    parameters: Vec<Parameter>,
    form: Form,
}

type Run = Result<Value, Problem>;

impl Comparison {
    async fn set_up(session: &Session, kind: &str, form: Form) -> Result<Self, Problem> {
        let operation = operation(kind)?;
        let (models, providers, account) = tokio::try_join!(
            session.call(op::MODELS, &[]).query("type", kind).json(),
            session.get(op::PROVIDERS, &[]),
            session.get(op::ACCOUNT, &[]),
        )?;
        let find = |asked: &str| {
            let found = list(&models["data"])
                .iter()
                .find(|model| name(model) == asked);
            found.cloned().unwrap_or_else(|| {
                let (provider, id) = asked.split_once('/').unwrap_or(("", asked));
                json!({"provider": provider, "id": id, "type": kind})
            })
        };
        let asked = form
            .all("model")
            .into_iter()
            .filter(|name| !name.is_empty());
        let mut chosen: Vec<Value> = asked.take(MAX_COMPARED).map(find).collect();
        if chosen.is_empty() {
            chosen.push(bench::chosen(kind, "", &models, &providers, &account));
        }
        Ok(Self {
            kind: kind.to_owned(),
            operation,
            models,
            parameters: parameters::shared(&chosen),
            chosen,
            form,
        })
    }

    fn body(&self, model: &Value) -> Value {
        Value::Object(bench::body(&self.kind, model, &self.parameters, &self.form))
    }

    async fn estimates(&self, session: &Session) -> Option<Vec<Run>> {
        let estimate = |model| bench::estimate(session, &self.kind, self.body(model));
        let is_empty = self.form.word("prompt").is_empty();
        if is_empty {
            None
        } else {
            Some(join_all(self.chosen.iter().map(estimate)).await)
        }
    }

    /// Sends the requests. Each has an idempotency key derived from the ticket and its content, so
    /// that equal requests with one ticket are charged once, whichever column they are in.
    async fn run(&self, session: &Session) -> Vec<Run> {
        let ticket = self.form.word("ticket");
        let bodies: Vec<Value> = self.chosen.iter().map(|model| self.body(model)).collect();
        let run = |(at, body): (usize, &Value)| {
            let call = session.call(self.operation, &[]).body(body.clone());
            let mut call = call.header(HeaderName::from_static("prefer"), "respond-async");
            if !ticket.is_empty() {
                let same = bodies[..at].iter().filter(|other| *other == body);
                let key = format!("{ticket}.{}.{}", digest(body), same.count());
                call = call.header(HeaderName::from_static("idempotency-key"), &key);
            }
            async {
                let answer = call.json().await;
                answer.or_else(|problem| problem.generation().cloned().ok_or(problem))
            }
        };
        join_all(bodies.iter().enumerate().map(run)).await
    }

    /// Returns the URL of the results, with the form's values that some record lacks.
    fn address(&self, runs: &[Run]) -> String {
        let parameters = self
            .form
            .below("p.")
            .map(|(name, value)| (format!("p.{name}"), value));
        let parameters: Vec<_> = parameters.collect();
        let runs = runs.iter().flatten();
        let mut query: Vec<(&str, &str)> = Vec::new();
        query.extend(runs.map(|run| ("generation", text(&run["uuid"]))));
        query.extend(kept(&self.form));
        query.extend(parameters.iter().map(|(name, value)| (&**name, *value)));
        parts::link(&path(&self.kind), &query)
    }
}

/// Digests a request, in any order of its members.
fn digest(body: &Value) -> blake3::Hash {
    let mut sorted = body.clone();
    sorted.sort_all_objects();
    blake3::hash(sorted.to_string().as_bytes())
}

fn path(kind: &str) -> String {
    format!("/playground/{kind}/compare")
}

/// Reads the generations in a form's URL, without deleted ones. Returns 404 if none is left.
async fn records(session: &Session, form: &Form) -> Result<Vec<Value>, Problem> {
    let all = form.all("generation").into_iter().take(MAX_COMPARED);
    let all = join_all(all.map(async |uuid| session.get(op::GENERATION, &[uuid]).await)).await;
    let (mut records, mut missing) = (Vec::new(), None);
    for record in all {
        match record {
            Ok(record) => records.push(record),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => missing = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    match missing {
        Some(problem) if records.is_empty() => Err(problem),
        _ => Ok(records),
    }
}

/// Returns the route or model that a generation was requested with, as in the catalogue.
fn asked(record: &Value) -> String {
    match record["metadata"]["route"].as_str() {
        Some(route) => format!("{PROVIDER}/{route}"),
        None => served_by(record),
    }
}

fn served_by(record: &Value) -> String {
    format!("{}/{}", text(&record["provider"]), text(&record["model"]))
}

/// Whether an identical request may succeed later, or may have started already.
fn may_repeat(problem: &Problem) -> bool {
    let status = problem.status;
    status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT | StatusCode::PAYMENT_REQUIRED
        )
}

/// Returns the ticket for the page after a run. It is kept if a request may be repeated, so that a
/// repetition does not charge the other requests again.
fn next_ticket(comparison: &Comparison, runs: &[Run]) -> String {
    let mut problems = runs.iter().filter_map(|run| run.as_ref().err());
    match comparison.form.word("ticket") {
        old if !old.is_empty() && problems.any(may_repeat) => old.to_owned(),
        _ => new_ticket(),
    }
}

fn new_ticket() -> String {
    Uuid::now_v7().to_string()
}

pub async fn page(session: Session, Path(kind): Path<String>) -> Result<Markup, Problem> {
    let mut form = session.query.clone();
    let records = records(&session, &form).await?;
    for record in &records {
        form.push("prompt", text(&record["prompt"]));
        form.push("model", &asked(record));
    }
    if form.word("prompt").is_empty() {
        form.push("prompt", example(&kind));
    }
    let comparison = Comparison::set_up(&session, &kind, form).await?;
    let runs: Vec<Run> = records.into_iter().map(Ok).collect();
    Ok(render(&session, &comparison, &runs, &new_ticket()).await)
}

pub async fn run(
    Path(kind): Path<String>,
    session: Session,
    form: Form,
) -> Result<Response, Problem> {
    let comparison = Comparison::set_up(&session, &kind, form).await?;
    if comparison.form.get("action") == "preview" {
        let records = records(&session, &comparison.form)
            .await
            .unwrap_or_default();
        let runs: Vec<Run> = records.into_iter().map(Ok).collect();
        // Showing a price charges nothing, so the ticket is kept.
        let ticket = match comparison.form.word("ticket") {
            "" => new_ticket(),
            old => old.to_owned(),
        };
        let page = render(&session, &comparison, &runs, &ticket).await;
        return Ok(page.into_response());
    }
    let runs = comparison.run(&session).await;
    if runs.iter().all(Result::is_ok) {
        return Ok(Redirect::to(&comparison.address(&runs)).into_response());
    }
    let is_any_running = runs.iter().any(Result::is_ok);
    let refusal = runs.iter().find_map(|run| run.as_ref().err());
    let status = refusal
        .filter(|_| !is_any_running)
        .map_or(StatusCode::OK, |problem| problem.status);
    let ticket = next_ticket(&comparison, &runs);
    let page = render(&session, &comparison, &runs, &ticket).await;
    Ok((status, page).into_response())
}

async fn render(session: &Session, comparison: &Comparison, runs: &[Run], ticket: &str) -> Markup {
    let kind = &comparison.kind;
    let estimates = comparison.estimates(session).await;
    let address = comparison.address(runs);
    let content = html! {
        (shell::head("Side by side", ABOUT, &html! {
            a.button href={ "/playground/" (kind) } { "One model" }
            a.button href=(parts::link("/models", &[("type", kind)])) { "All models" }
        }))
        (tabs(kind, "/compare"))
        form.stack method="post" action=(path(kind)) data-follows="price" data-run="whole" {
            (request(comparison, runs, ticket))
            (price(session, comparison, estimates.as_deref()))
        }
        (results(comparison, runs, &address))
    };
    // A reload would lose the message of a refusal.
    let is_running = |run: &Run| run.as_ref().is_ok_and(receipt::is_unfinished);
    let reloads = runs.iter().all(Result::is_ok) && runs.iter().any(is_running);
    let reload = reloads.then_some(address.as_str());
    let title = format!("{}, side by side", parts::type_name(kind));
    shell::reloading(session, &title, &content, reload)
}

fn request(comparison: &Comparison, runs: &[Run], ticket: &str) -> Markup {
    let (kind, form) = (&comparison.kind, &comparison.form);
    let served = served(&comparison.models);
    html! {
        section.card {
            (view::ticket(ticket, runs.iter().flatten()))
            div.fields #models {
                @for at in 0..MAX_COMPARED {
                    @let model = comparison.chosen.get(at).map(name).unwrap_or_default();
                    (field(None, &format!("Model {}", at + 1), "model", "", &html! {
                        select name="model" data-reload="parameters" {
                            @if at > 0 { (parts::option("", &model, "None")) }
                            // A retired model, which the API refuses.
                            @if !model.is_empty() && !served.iter().any(|known| name(known) == model) {
                                (parts::option(&model, &model, &model))
                            }
                            (model_options(&served, &model))
                        }
                    }))
                }
            }
            (field(None, prompt_label(kind), "prompt", "", &prompt(form, kind)))
            @if kind == "text" {
                (field(None, "System prompt", "system_prompt", "", &short_text(form, "system_prompt")))
            }
            div.stack #parameters {
                div.fields { @for parameter in &comparison.parameters { (parameter.input(form, None)) } }
            }
        }
    }
}

/// Returns the sum of the estimates if it exceeds the available credits.
fn exceeding_sum(session: &Session, estimates: &[Run]) -> Option<Credits> {
    let available: Credits = text(&session.balance["available"]).parse().ok()?;
    let costs = estimates.iter().flatten();
    let mut costs = costs.filter_map(|cost| text(&cost["estimated"]).parse::<Credits>().ok());
    let sum = costs.try_fold(Credits::ZERO, Credits::checked_add)?;
    (sum > available).then_some(sum)
}

fn price(session: &Session, comparison: &Comparison, estimates: Option<&[Run]>) -> Markup {
    let sum = estimates.and_then(|estimates| exceeding_sum(session, estimates));
    html! {
        section.card {
            div #problems {}
            div.price {
                dl.facts #price {
                    @if let Some(estimates) = estimates {
                        @for (model, estimate) in comparison.chosen.iter().zip(estimates) {
                            (parts::fact(&name(model), &html! {
                                @match estimate {
                                    Ok(estimate) => {
                                        @if estimate["type"] == "text" { "At most " }
                                        strong { (credits(&estimate["estimated"])) }
                                    }
                                    Err(problem) => { span.error { (reasons(problem)) } }
                                }
                            }))
                        }
                    }
                    @if let Some(sum) = sum {
                        (parts::fact("Together", &html! {
                            (credits(&json!(sum)))
                            span.error {
                                " Only " (available(session))
                                " are available: not all of them would run."
                            }
                        }))
                    }
                }
                (view::buttons("Run on all"))
            }
        }
    }
}

fn reasons(problem: &Problem) -> String {
    let fields: Vec<_> = problem
        .others(&[])
        .map(|reason| parts::sentence(&reason))
        .collect();
    if fields.is_empty() {
        parts::sentence(problem.message())
    } else {
        fields.join(" ")
    }
}

fn results(comparison: &Comparison, runs: &[Run], address: &str) -> Markup {
    html! {
        div #result {
            @if runs.is_empty() {
                section.card {
                    (parts::empty("The results show here", "Choose two or three models, write a prompt and press Run.", &html! {}))
                }
            } @else {
                div.runs {
                    @for (at, run) in runs.iter().enumerate() {
                        @match run {
                            Ok(record) => (result(&comparison.kind, record, address)),
                            Err(problem) => {
                                section.card {
                                    div.card-head {
                                        h2 { (comparison.chosen.get(at).map(name).unwrap_or_default()) }
                                        (badge("refused"))
                                    }
                                    p.notice.bad role="alert" { (reasons(problem)) }
                                    @if problem.status.is_client_error() && problem.status != StatusCode::CONFLICT {
                                        p.notice.good { "Nothing was held or charged." }
                                    } @else {
                                        p.notice {
                                            "Press Run again: a run that has started is not charged twice."
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn result(kind: &str, record: &Value, address: &str) -> Markup {
    let uuid = text(&record["uuid"]);
    let is_unfinished = receipt::is_unfinished(record);
    let is_route = record["metadata"]["route"].is_string();
    let own = parts::link(&path(kind), &[("generation", uuid)]);
    let seconds = record["metadata"]["duration_ms"]
        .as_f64()
        .map(|ms| ms / 1_000.0);
    html! {
        section.card id={ "run-" (uuid) } data-live=[is_unfinished.then_some(&own)] {
            div.card-head {
                h2 { (asked(record)) }
                (badge(text(&record["status"])))
            }
            @if is_route && record["status"] == "completed" {
                p.muted.small { "served by " (served_by(record)) }
            }
            (receipt::result(record))
            @if is_unfinished { p.without-script { a.button href=(address) { "Look again" } } }
            (bill(record, seconds))
        }
    }
}
