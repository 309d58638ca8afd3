//! The playground's page.

use maud::{Markup, html};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    bench::{Bench, Outcome},
    parameters::{self, Parameter},
    pictures,
};
use crate::console::{
    code,
    form::Form,
    models,
    parts::{self, TYPES, amount, credits, field, icon, list, option, served, text},
    receipt,
    session::Session,
    shell,
    templates::{lacks_only_values, values},
};

/// Example prompts.
const EXAMPLES: [(&str, &str); 4] = [
    ("text", "Explain in two sentences why the sky is blue."),
    ("image", "A lighthouse at dusk, seen from the sea"),
    ("video", "Waves on a pebble beach, slow and calm"),
    (
        "audio",
        "Good morning. The train to the coast leaves from platform two.",
    ),
];

/// Returns the initial prompt of a form.
pub fn example(kind: &str) -> &'static str {
    let found = EXAMPLES.iter().find(|(name, _)| *name == kind);
    found.map_or("", |(_, prompt)| prompt)
}

pub fn render(session: &Session, bench: &Bench, outcome: &Outcome<'_>) -> Markup {
    let kind = &bench.kind;
    let content = html! {
        (shell::head("Playground", ABOUT, &html! {
            a.button href=(parts::link(&format!("/playground/{kind}/compare"), &[("model", &models::name(&bench.model))])) {
                "Compare models"
            }
        }))
        (tabs(kind, ""))
        div.columns {
            form.stack method="post" action={ "/playground/" (kind) } data-follows="price code"
                data-run=(if kind == "text" { "stream" } else { "whole" })
            {
                (request(bench, outcome))
                (price(session, bench, outcome))
            }
            div.stack {
                (result(kind, outcome.record.as_ref()))
                (running(kind, outcome))
                (snippets(session, bench))
            }
        }
    };
    // A reload would lose the message of a refusal, and the form.
    let record = outcome
        .record
        .as_ref()
        .filter(|_| outcome.problem.is_none());
    let unfinished = record.filter(|record| receipt::is_unfinished(record));
    let address = unfinished.map(|record| address(kind, Some(record)));
    shell::reloading(
        session,
        parts::type_name(kind),
        &content,
        address.as_deref(),
    )
}

pub const ABOUT: &str =
    "Every run is a real request, paid from your credits. Failures cost nothing.";

/// Renders the types as links to their pages. `page`: the end of their paths.
pub fn tabs(kind: &str, page: &str) -> Markup {
    html! {
        nav.tabs aria-label="Type" {
            @for (name, label) in TYPES {
                a href={ "/playground/" (name) (page) } aria-current=[(name == kind).then_some("page")] {
                    (icon(name)) (label)
                }
            }
        }
    }
}

fn request(bench: &Bench, outcome: &Outcome<'_>) -> Markup {
    let (form, problem) = (&bench.form, outcome.problem);
    let most = bench.model["limits"]["max_prompt_chars"].to_string();
    html! {
        section.card {
            (ticket(&Uuid::now_v7().to_string(), &outcome.record))
            (field(problem, "Model", "model", "", &model_select(bench)))
            @if bench.kind == "text" { (templates(bench)) }
            (field(
                problem,
                prompt_label(&bench.kind), "prompt",
                &format!("At most {} characters.", parts::grouped(&most)),
                &prompt(form, &bench.kind)
            ))
            @if bench.kind == "text" {
                (field(problem, "System prompt", "system_prompt", "", &short_text(form, "system_prompt")))
            }
            div.stack #parameters {
                @if parameters::takes_negative_prompt(&bench.model) {
                    (field(problem, "What to avoid", "negative_prompt", "", &short_text(form, "negative_prompt")))
                }
                (pictures::fields(&bench.kind, &bench.model, &bench.form))
                div.fields {
                    @for parameter in &bench.parameters { (parameter.input(form, problem)) }
                }
            }
        }
    }
}

/// Renders the ticket of the next run, and the generations on the page.
pub fn ticket<'a>(ticket: &str, records: impl IntoIterator<Item = &'a Value>) -> Markup {
    html! {
        span #ticket hidden {
            input type="hidden" name="ticket" value=(ticket) autocomplete="off";
            @for record in records {
                input type="hidden" name="generation" value=(text(&record["uuid"])) autocomplete="off";
            }
        }
    }
}

pub fn prompt_label(kind: &str) -> &'static str {
    match kind {
        "audio" => "Text to speak",
        _ => "Prompt",
    }
}

pub fn prompt(form: &Form, kind: &str) -> Markup {
    html! {
        textarea name="prompt" placeholder=(example(kind)) required { (lines(form, "prompt")) }
    }
}

pub fn short_text(form: &Form, name: &str) -> Markup {
    html! { textarea.short name=(name) { (lines(form, name)) } }
}

/// Returns the content of a text area with a first line break, which HTML drops.
fn lines(form: &Form, name: &str) -> String {
    format!("\n{}", form.get(name))
}

fn model_select(bench: &Bench) -> Markup {
    let all = served(&bench.models);
    html! {
        select name="model" data-reload="parameters" {
            (model_options(&all, &models::name(&bench.model)))
        }
        @if all.len() > 1 {
            button.without-script type="submit" name="action" value="preview" formnovalidate {
                "Show its parameters"
            }
        }
    }
}

/// Renders the models as options, by provider.
pub fn model_options(all: &[&Value], chosen: &str) -> Markup {
    let mut providers: Vec<&str> = all.iter().map(|m| text(&m["provider"])).collect();
    providers.dedup();
    html! {
        @for provider in providers {
            optgroup label=(provider) {
                @for model in all.iter().filter(|m| m["provider"] == provider) {
                    (option(&models::name(model), chosen, text(&model["id"])))
                }
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
            (values(&bench.form, list(&bench.template["variables"]).iter().map(text)))
        }
    }
}

fn price(session: &Session, bench: &Bench, outcome: &Outcome<'_>) -> Markup {
    let params: Vec<String> = bench.parameters.iter().map(Parameter::param).collect();
    let mut shown = vec!["prompt", "system_prompt", "negative_prompt", "model"];
    shown.extend(params.iter().map(String::as_str));
    html! {
        section.card {
            div #problems { (parts::refusal(outcome.problem, &shown)) }
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
                                strong { (credits(&estimate["estimated"])) }
                            }
                            @if estimate["sufficient"] == true {
                                p.muted.small {
                                    "Held while it runs. " (available(session)) " are available."
                                }
                            } @else {
                                p.error {
                                    "Only " (available(session)) " are available: it would be refused."
                                }
                            }
                        }
                        Some(Err(problem)) if lacks_only_values(problem) => {
                            p { strong { "–" } " credits" }
                            p.muted.small { "The price shows as soon as the template has its values." }
                        }
                        Some(Err(problem)) => {
                            p { strong { "–" } " credits" }
                            p.error { (parts::sentence(problem.message())) }
                        }
                    }
                }
                (buttons("Generate"))
            }
        }
    }
}

/// Renders the buttons that show the price, and run the request.
pub fn buttons(run: &str) -> Markup {
    html! {
        div.actions {
            button.without-script type="submit" name="action" value="preview" { "Price" }
            button.primary data-run type="submit" title="Ctrl+Enter" { (run) }
        }
    }
}

pub fn available(session: &Session) -> Markup {
    html! { span data-balance { (amount(&session.balance["available"])) } }
}

/// Returns the page's URL with a generation's result.
pub fn address(kind: &str, record: Option<&Value>) -> String {
    let path = format!("/playground/{kind}");
    match record {
        Some(record) => format!("{path}?generation={}", text(&record["uuid"])),
        None => path,
    }
}

/// Lists other running work, so that a new run does not hide it.
fn running(kind: &str, outcome: &Outcome<'_>) -> Markup {
    let rows = &outcome.running;
    let live = (!rows.is_empty()).then(|| address(kind, outcome.record.as_ref()));
    html! {
        div #running data-live=[live] {
            @if !rows.is_empty() {
                section.card {
                    h2 { "Also running" }
                    ul.running {
                        @for row in rows {
                            li {
                                (parts::badge(text(&row["status"]))) " "
                                @if let Some(percent) = row["progress"].as_u64() { (percent) " % " }
                                a href={ "/generations/" (text(&row["uuid"])) } { (text(&row["prompt"])) }
                            }
                        }
                    }
                    p.muted.small { "What has ended is in the " a href="/generations" { "history" } "." }
                }
            }
        }
    }
}

fn result(kind: &str, record: Option<&Value>) -> Markup {
    let Some(record) = record else {
        return html! {
            section.card #result {
                (parts::empty("The result shows here", "Write a prompt and press Generate.", &html! {}))
            }
        };
    };
    let live = address(kind, Some(record));
    html! {
        section.card #result data-live=[receipt::is_unfinished(record).then_some(&live)] {
            div.card-head {
                h2 { "Result" }
                (parts::badge(text(&record["status"])))
            }
            (receipt::result(record))
            (pictures::uses(record))
            @if receipt::is_unfinished(record) {
                p.without-script { a.button href=(live) { "Look again" } }
            }
            (bill(record, None))
        }
    }
}

/// Renders a generation's charge, its duration, and the link to its receipt.
pub fn bill(record: &Value, seconds: Option<f64>) -> Markup {
    html! {
        p.small {
            @if record["credits"]["charged"].is_string() {
                span.muted { "Charged " } (credits(&record["credits"]["charged"])) span.muted { " · " }
            }
            @if let Some(seconds) = seconds {
                (parts::seconds(&json!(seconds))) span.muted { " · " }
            }
            a href={ "/generations/" (text(&record["uuid"])) } { "Receipt" }
        }
    }
}

fn snippets(session: &Session, bench: &Bench) -> Markup {
    let call = code::Call {
        base_url: session.public_url(),
        path: bench.operation.path,
        body: &bench.body(),
        waits: matches!(bench.kind.as_str(), "video" | "audio"),
    };
    html! {
        section.card #code {
            h2 { "The same as code" }
            p.muted.small {
                code { "GENSVC_API_KEY" } " is an API key: " a href="/keys/new" { "create one" } "."
            }
            (code::all(&call))
        }
    }
}
