//! The playground: one form for each type, its price before, its result after, and the same as code.

mod parameters;

use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::parameters::Parameter;
use super::{
    client::Problem,
    code,
    form::Form,
    operations::{self as op, Operation},
    parts::{self, Field, TYPES, amount, icon, list, option, text},
    receipt,
    session::Session,
    shell,
};

/// Prompts to begin with.
const EXAMPLES: [(&str, &str); 4] = [
    ("text", "Explain in two sentences why the sky is blue."),
    ("image", "A lighthouse at dusk, seen from the sea"),
    ("video", "Waves on a pebble beach, slow and calm"),
    (
        "audio",
        "Good morning. The train to the coast leaves from platform two.",
    ),
];

fn operation(kind: &str) -> Result<Operation, Problem> {
    match kind {
        "text" => Ok(op::GENERATE_TEXT),
        "image" => Ok(op::GENERATE_IMAGE),
        "video" => Ok(op::GENERATE_VIDEO),
        "audio" => Ok(op::GENERATE_AUDIO),
        _ => Err(Problem::not_found()),
    }
}

pub async fn first() -> Redirect {
    Redirect::to("/playground/text")
}

/// What the form of a type is made of.
struct Bench {
    kind: String,
    operation: Operation,
    models: Value,
    /// The chosen one.
    model: Value,
    parameters: Vec<Parameter>,
    /// The account's templates; for texts only.
    templates: Value,
    template: Value,
    form: Form,
}

/// What is known of a request.
#[derive(Default)]
struct Outcome {
    estimate: Option<Result<Value, Problem>>,
    problem: Option<Problem>,
    record: Option<Value>,
}

impl Bench {
    async fn set_up(session: &Session, kind: &str, form: Form) -> Result<Self, Problem> {
        let operation = operation(kind)?;
        let templates = async {
            if kind != "text" {
                return Ok(Value::Null);
            }
            session
                .call(op::TEMPLATES, &[])
                .query("per_page", "100")
                .json()
                .await
        };
        let (models, providers, account, templates) = tokio::try_join!(
            session.call(op::MODELS, &[]).query("type", kind).json(),
            session.get(op::PROVIDERS, &[]),
            session.get(op::ACCOUNT, &[]),
            templates,
        )?;
        let model = chosen(kind, form.get("model"), &models, &providers, &account);
        let id: Option<i64> = form.word("template_id").parse().ok();
        let mut all = list(&templates["data"]).iter();
        let template = all.find(|template| template["id"].as_i64() == id);
        Ok(Self {
            kind: kind.to_owned(),
            operation,
            parameters: parameters::of(&model),
            template: template.cloned().unwrap_or_default(),
            templates,
            models,
            model,
            form,
        })
    }

    /// The request that the form stands for.
    fn body(&self) -> Value {
        let (form, mut body) = (&self.form, Map::new());
        for name in ["provider", "id"] {
            let field = if name == "id" { "model" } else { name };
            body.insert(field.to_owned(), self.model[name].clone());
        }
        form.put_text(&mut body, "prompt");
        if self.kind == "text" {
            form.put_text(&mut body, "system_prompt");
        }
        if parameters::takes_negative_prompt(&self.model) {
            form.put_text(&mut body, "negative_prompt");
        }
        if self.template.is_object() {
            body.insert("template_id".to_owned(), self.template["id"].clone());
            let mut variables = Map::new();
            for name in list(&self.template["variables"]).iter().map(text) {
                let value = form.get(&format!("v.{name}"));
                if !value.is_empty() {
                    variables.insert(name.to_owned(), Value::from(value));
                }
            }
            if !variables.is_empty() {
                body.insert("template_variables".to_owned(), Value::Object(variables));
            }
        }
        let mut given = Map::new();
        for parameter in &self.parameters {
            parameter.put(&mut given, form);
        }
        if !given.is_empty() {
            body.insert("parameters".to_owned(), Value::Object(given));
        }
        Value::Object(body)
    }

    /// What it would cost; `None` while there is nothing to ask for.
    async fn estimate(&self, session: &Session) -> Option<Result<Value, Problem>> {
        if self.form.word("prompt").is_empty() {
            return None;
        }
        let mut body = self.body();
        body["type"] = json!(self.kind);
        Some(session.call(op::ESTIMATE, &[]).body(body).json().await)
    }
}

/// The model of a form, else the account's default, else the server's.
fn chosen(kind: &str, asked: &str, models: &Value, providers: &Value, account: &Value) -> Value {
    let models = list(&models["data"]);
    let find = |provider: &str, id: Option<&str>| {
        let fits = |model: &&Value| {
            model["provider"] == provider
                && id.map_or(model["default"] == true, |id| model["id"] == id)
        };
        models.iter().find(fits)
    };
    let default = &account["defaults"][kind];
    let mut providers = list(&providers["data"]).iter();
    let server = providers.find(|p| list(&p["default_for"]).iter().any(|t| t == kind));
    let found = asked
        .split_once('/')
        .and_then(|(provider, id)| find(provider, Some(id)));
    found
        .or_else(|| find(default["provider"].as_str()?, default["model"].as_str()))
        .or_else(|| find(server?["id"].as_str()?, None))
        .or(models.first())
        .cloned()
        .unwrap_or_default()
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

fn render(session: &Session, bench: &Bench, outcome: &Outcome) -> Markup {
    let kind = &bench.kind;
    let unfinished = outcome
        .record
        .as_ref()
        .filter(|r| receipt::is_unfinished(r));
    let content = html! {
        (shell::head("Playground", "Try a model. Every run is a real request, paid from your credits; a failure costs nothing.", &html! {}))
        nav.tabs aria-label="Type" {
            @for (name, label) in TYPES {
                a href={ "/playground/" (name) } aria-current=[(name == kind).then_some("page")] {
                    (icon(name)) (label)
                }
            }
        }
        div.columns {
            form.stack method="post" action={ "/playground/" (kind) } data-follows="price code"
                data-run=(if kind == "text" { "stream" } else { "whole" })
            {
                (request(bench, outcome.problem.as_ref()))
                (price(session, outcome))
            }
            div.stack {
                (result(kind, outcome.record.as_ref()))
                (snippets(session, bench))
            }
        }
    };
    let address = unfinished.map(|record| live(kind, record));
    shell::reloading(session, type_title(kind), &content, address.as_deref())
}

fn type_title(kind: &str) -> &'static str {
    let found = TYPES.iter().find(|(name, _)| *name == kind);
    found.map_or("Playground", |(_, label)| label)
}

fn request(bench: &Bench, problem: Option<&Problem>) -> Markup {
    let form = &bench.form;
    let params: Vec<String> = bench.parameters.iter().map(Parameter::param).collect();
    let mut shown = vec!["prompt", "system_prompt", "negative_prompt", "model"];
    shown.extend(params.iter().map(String::as_str));
    let example = EXAMPLES.iter().find(|(name, _)| *name == bench.kind);
    let most = bench.model["limits"]["max_prompt_chars"].to_string();
    let area = |name: &str, class: &str, placeholder: &str, required: bool| {
        html! {
            textarea class=(class) name=(name) placeholder=(placeholder) required[required] {
                // A first line break would be swallowed.
                "\n" (form.get(name))
            }
        }
    };
    let field = |label, param, hint: &str, input| {
        let field = Field {
            label,
            param,
            hint,
            problem,
            input,
        };
        html! { (field) }
    };
    html! {
        section.card {
            div #problems { (parts::refusal(problem, &shown)) }
            input #ticket type="hidden" name="ticket" value=(Uuid::now_v7());
            (field("Model", "model", "", models(bench)))
            @if bench.kind == "text" { (templates(bench)) }
            (field(
                if bench.kind == "audio" { "Text to speak" } else { "Prompt" }, "prompt",
                &format!("At most {} characters.", parts::grouped(&most)),
                area("prompt", "", example.map_or("", |(_, text)| text), true)
            ))
            @if bench.kind == "text" {
                (field("System prompt", "system_prompt", "", area("system_prompt", "short", "", false)))
            }
            div.stack #parameters {
                @if parameters::takes_negative_prompt(&bench.model) {
                    (field("What to avoid", "negative_prompt", "", area("negative_prompt", "short", "", false)))
                }
                div.fields {
                    @for parameter in &bench.parameters { (parameter.input(form, problem)) }
                }
            }
        }
    }
}

fn models(bench: &Bench) -> Markup {
    let all = list(&bench.models["data"]);
    let mut providers: Vec<&str> = all.iter().map(|m| text(&m["provider"])).collect();
    providers.dedup();
    let value = |m: &Value| format!("{}/{}", text(&m["provider"]), text(&m["id"]));
    let chosen = value(&bench.model);
    html! {
        select name="model" data-reload="parameters" {
            @for provider in providers {
                optgroup label=(provider) {
                    @for model in all.iter().filter(|m| m["provider"] == provider) {
                        (option(&value(model), &chosen, text(&model["id"])))
                    }
                }
            }
        }
        @if all.len() > 1 {
            button.without-script type="submit" name="action" value="preview" formnovalidate {
                "Show its parameters"
            }
        }
    }
}

fn templates(bench: &Bench) -> Markup {
    let all = list(&bench.templates["data"]);
    if all.is_empty() {
        return html! {};
    }
    let chosen = bench.form.word("template_id");
    html! {
        label.field {
            span.label { "Template" }
            select name="template_id" data-reload="variables" {
                (option("", chosen, "None"))
                @for template in all {
                    (option(&template["id"].to_string(), chosen, text(&template["name"])))
                }
            }
        }
        div.fields #variables {
            @for name in list(&bench.template["variables"]).iter().map(text) {
                @let field = format!("v.{name}");
                label.field {
                    span.label { code { (name) } }
                    input type="text" name=(field) value=(bench.form.get(&field));
                }
            }
        }
    }
}

fn price(session: &Session, outcome: &Outcome) -> Markup {
    html! {
        section.card {
            div.price {
                div #price {
                    @match &outcome.estimate {
                        None => {
                            p { strong { "–" } " credits" }
                            p.muted.small { "The price shows as soon as there is a prompt." }
                        }
                        Some(Ok(estimate)) => {
                            p {
                                @if estimate["type"] == "text" { "At most " }
                                strong { (amount(&estimate["estimated"])) } " credits"
                            }
                            @if estimate["sufficient"] == true {
                                p.muted.small {
                                    "Held while it runs. " (amount(&session.balance["available"]))
                                    " are available."
                                }
                            } @else {
                                p.error {
                                    "Only " (amount(&session.balance["available"]))
                                    " are available: it would be refused."
                                }
                            }
                        }
                        Some(Err(problem)) => {
                            p { strong { "–" } " credits" }
                            p.error { (parts::sentence(problem.message())) }
                        }
                    }
                }
                div.actions {
                    button.without-script type="submit" name="action" value="preview" { "Price" }
                    button.primary data-run type="submit" { "Generate" }
                }
            }
        }
    }
}

/// Where a generation is shown as it goes on.
fn live(kind: &str, record: &Value) -> String {
    format!("/playground/{kind}?generation={}", text(&record["uuid"]))
}

fn result(kind: &str, record: Option<&Value>) -> Markup {
    let Some(record) = record else {
        return html! {
            section.card #result {
                (parts::empty("The result shows here", "Write a prompt and press Generate.", &html! {}))
            }
        };
    };
    let uuid = text(&record["uuid"]);
    let live = live(kind, record);
    html! {
        section.card #result data-live=[receipt::is_unfinished(record).then_some(&live)] {
            div.card-head {
                h2 { "Result" }
                (parts::badge(text(&record["status"])))
            }
            (receipt::result(record))
            @if receipt::is_unfinished(record) {
                p.without-script { a.button href=(live) { "Look again" } }
            }
            p.small {
                @if let Some(charged) = record["credits"]["charged"].as_str() {
                    span.muted { "Charged " } (parts::decimal(charged)) span.muted { " credits · " }
                }
                a href={ "/generations/" (uuid) } { "Receipt" }
            }
        }
    }
}

fn snippets(session: &Session, bench: &Bench) -> Markup {
    let call = code::Call {
        base_url: &session.public_url,
        path: bench.operation.path,
        body: &bench.body(),
        waits: matches!(bench.kind.as_str(), "video" | "audio"),
    };
    html! {
        section.card #code {
            h2 { "The same as code" }
            (code::all(&call))
        }
    }
}
