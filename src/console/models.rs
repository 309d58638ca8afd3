//! The models: prices, limits, features and statistics.

use std::time::Duration;

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    form::Form,
    operations as op,
    parts::{self, TYPES, amount, copyable, day, decimal, kind, list, select, text},
    problem::Problem,
    session::Session,
    shell,
    table::{self, Column, file},
};
use crate::domain::{credits::Credits, pricing::ANY_SIZE};

/// Maximum models of a comparison, on the page of models and in the playground.
pub const MAX_COMPARED: usize = 3;

/// Optional parts of requests besides a prompt.
const FEATURES: [(&str, &str); 4] = [
    ("images", "Images"),
    ("documents", "Documents"),
    ("tools", "Tools"),
    ("searches", "Web search"),
];
/// Maximum time that the page waits for the statistics.
const STATS_TIMEOUT: Duration = Duration::from_secs(1);
const FILTERS: [&str; 4] = ["q", "type", "provider", "feature"];

/// Returns `provider/model`.
pub fn name(model: &Value) -> String {
    format!("{}/{}", text(&model["provider"]), text(&model["id"]))
}

/// Returns the server's models with their statistics as `stats`, and the statistics, if available.
async fn models(session: &Session) -> Result<(Vec<Value>, Option<Value>), Problem> {
    let (models, stats) = tokio::join!(
        session.get(op::MODELS, &[]),
        tokio::time::timeout(STATS_TIMEOUT, session.get(op::MODEL_STATS, &[]))
    );
    let mut models = list(&models?["data"]).to_vec();
    models.sort_by_key(|model| model["retired"] == true);
    // The rest of the page works without statistics.
    let stats = stats.ok().and_then(Result::ok);
    let figures = stats.as_ref().map_or(&[][..], |stats| list(&stats["data"]));
    for model in &mut models {
        let is_it = |row: &&Value| {
            row["provider"] == model["provider"]
                && row["model"] == model["id"]
                && row["type"] == model["type"]
        };
        model["stats"] = figures.iter().find(is_it).cloned().unwrap_or_default();
    }
    Ok((models, stats))
}

/// Whether a model passes the filters of a form.
fn is_listed(model: &Value, form: &Form) -> bool {
    let wanted = form.word("q").to_lowercase();
    let is_wanted = |name: &str| name.to_lowercase().contains(&wanted);
    let is_alias_wanted = |alias: &Value| is_wanted(text(alias));
    let features = list(&model["features"]);
    let chosen = |filter| Some(form.word(filter)).filter(|word| !word.is_empty());
    (is_wanted(&name(model)) || list(&model["aliases"]).iter().any(is_alias_wanted))
        && chosen("type").is_none_or(|kind| model["type"] == kind)
        && chosen("provider").is_none_or(|provider| model["provider"] == provider)
        && chosen("feature").is_none_or(|feature| features.iter().any(|own| own == feature))
}

pub async fn page(session: Session) -> Result<Markup, Problem> {
    let form = &session.query;
    let (models, stats) = models(&session).await?;
    let compared = form.all("compare");
    let mut rows = models.clone();
    rows.retain(|model| is_listed(model, form));
    let export = format!("/models.csv?{}", session.query_text());
    let content = html! {
        (shell::head("Models", "Prices, limits, retirement, speed and success rate.",
            &parts::download(&export, &rows)))
        @if !compared.is_empty() { (comparison(&models, &compared)) }
        (filters(form, &models))
        section.card {
            @if rows.is_empty() {
                (parts::empty("No model fits these filters", "Remove a filter.",
                    &html! { a.button href="/models" { "Show everything" } }))
            } @else {
                form.stack method="get" action="/models" {
                    @for filter in FILTERS.iter().filter(|filter| !form.word(filter).is_empty()) {
                        input type="hidden" name=(filter) value=(form.word(filter));
                    }
                    div.card-head {
                        h2 { (rows.len()) @if rows.len() == 1 { " model" } @else { " models" } }
                        div.actions { button type="submit" { "Compare selected models" } }
                    }
                    (table::cards(&columns(&compared), &rows))
                }
            }
        }
        p.muted.small {
            @match &stats {
                Some(stats) => {
                    "Time and success cover generations of all accounts since "
                    (parts::time(&stats["since"]))
                    ": the last day, or the newest 20,000 generations if there were more. Time is the median "
                    "from start to end of completed generations. Success is completed generations divided by "
                    "completed ones plus provider failures. Models with fewer than 20 generations have none."
                }
                None => { "Time and success are not available at the moment." }
            }
        }
    };
    Ok(shell::page(&session, "Models", &content))
}

pub async fn csv(session: Session) -> Result<Response, Problem> {
    let (mut rows, _) = models(&session).await?;
    rows.retain(|model| is_listed(model, &session.query));
    Ok(table::download("models", &columns(&[]), &rows))
}

fn filters(form: &Form, models: &[Value]) -> Markup {
    let mut providers: Vec<_> = models
        .iter()
        .map(|m| (text(&m["provider"]), text(&m["provider"])))
        .collect();
    providers.sort_unstable();
    providers.dedup();
    html! {
        section.card {
            form.filters method="get" action="/models" {
                label.field {
                    span.label { "Name contains" }
                    input type="search" name="q" maxlength="200" value=(form.word("q"));
                }
                (select("Type", "type", form.word("type"), &TYPES))
                (select("Provider", "provider", form.word("provider"), &providers))
                (select("Supports", "feature", form.word("feature"), &FEATURES))
                div.actions {
                    button.primary type="submit" { "Filter" }
                    a.button href="/models" { "Clear" }
                }
            }
        }
    }
}

fn columns<'a>(compared: &'a [&'a str]) -> Vec<Column<'a>> {
    let try_it = |row: &Value| {
        html! {
            @if row["retired"] != true {
                a.button href=(playground(std::slice::from_ref(row))) { "Try it" }
            }
        }
    };
    vec![
        table::row("", "Model", |row| title(row, compared)).class("whole"),
        file("provider"),
        file("id"),
        table::kind("type", "Type").class("whole"),
        table::row("", "Credits", price).class("small whole"),
        file("input_per_million").at("/prices/input_per_million"),
        file("output_per_million").at("/prices/output_per_million"),
        file("per_second").at("/prices/per_second"),
        file("per_1000_characters").at("/prices/per_1000_characters"),
        table::row("features", "Supports", features).class("small whole"),
        table::row("", "Limits", limits).class("small whole"),
        table::seconds("median_seconds", "Time")
            .at("/stats/median_seconds")
            .unit("median"),
        table::row("success_rate", "Success", success)
            .at("/stats/success_rate")
            .class("right")
            .unit("succeeded"),
        file("default"),
        file("retiring"),
        file("retired"),
        file("replacement"),
        table::row("", "Playground", try_it),
    ]
}

/// Returns the URL that runs a prompt on models of one type in the playground.
fn playground(models: &[Value]) -> String {
    let names: Vec<String> = models.iter().map(name).collect();
    let pairs: Vec<_> = names.iter().map(|name| ("model", name.as_str())).collect();
    let page = if models.len() > 1 { "/compare" } else { "" };
    let kind = models.first().map_or("", |model| text(&model["type"]));
    parts::link(&format!("/playground/{kind}{page}"), &pairs)
}

fn title(model: &Value, compared: &[&str]) -> Markup {
    let name = name(model);
    html! {
        div.check {
            input type="checkbox" name="compare" value=(name) checked[compared.contains(&&*name)]
                aria-label={ "Compare " (name) };
            span {
                a href=(parts::link("/models", &[("compare", &name)])) { (text(&model["id"])) }
                br;
                span.muted.small {
                    (text(&model["provider"])) @if model["default"] == true { ", default" }
                }
                @if model["retiring"].is_string() { br; span.small { (retirement(model)) } }
            }
        }
    }
}

fn retirement(model: &Value) -> Markup {
    let replacement = text(&model["replacement"]);
    html! {
        @match model["retiring"].as_str() {
            None => (amount(&Value::Null)),
            Some(at) => {
                @if model["retired"] == true { "Retired on " } @else { "Retires on " }
                (day(at))
                @if !replacement.is_empty() {
                    "; use " a href=(parts::link("/models", &[("compare", replacement)])) { (replacement) }
                }
            }
        }
    }
}

/// The main prices of a model, each with its unit.
const PRICES: [(&str, &str); 4] = [
    ("/input_per_million", "per million input tokens"),
    ("/output_per_million", "per million output tokens"),
    ("/per_second", "per second"),
    ("/per_1000_characters", "per 1,000 characters"),
];

fn price(model: &Value) -> Markup {
    let next = list(&model["upcoming_prices"]).first();
    let is_route = !list(&model["candidates"]).is_empty();
    html! {
        @if is_route { span.muted { "first model: " } }
        (main_prices(&model["prices"]))
        @if let Some(next) = next {
            br;
            span.muted { "From " (day(text(&next["valid_from"]))) ": " (main_prices(&next["prices"])) }
        }
    }
}

fn main_prices(prices: &Value) -> Markup {
    let known = PRICES.iter();
    let known = known.filter_map(|(path, unit)| Some((prices.pointer(path)?, *unit)));
    let image = prices["per_image"].as_object().into_iter().flatten().next();
    html! {
        @for (at, (price, unit)) in known.enumerate() {
            @if at > 0 { ", " }
            (amount(price)) " " (unit)
        }
        @if let Some((size, tiers)) = image {
            @for (_, price) in tiers.as_object().into_iter().flatten().take(1) { (amount(price)) }
            " per image of " @if size == ANY_SIZE { "any size" } @else { (size.replace('x', "×")) }
        }
    }
}

fn features(model: &Value) -> Markup {
    let own = list(&model["features"]);
    let known = FEATURES
        .iter()
        .filter(|(name, _)| own.iter().any(|own| own == name));
    let words: Vec<&str> = known.map(|(_, word)| *word).collect();
    html! { @if words.is_empty() { span.muted { "Prompt only" } } @else { (words.join(", ")) } }
}

/// Renders the most important limits.
fn limits(model: &Value) -> Markup {
    let limits = &model["limits"];
    let ends = |name: &str| {
        let values = list(&limits[name]).iter().filter_map(Value::as_u64);
        Some((values.clone().min()?, values.max()?))
    };
    html! {
        @match text(&model["type"]) {
            "text" => {
                @if !limits["max_input_tokens"].is_null() { (amount(&limits["max_input_tokens"])) " tokens in, " }
                (amount(&limits["max_output_tokens"])) " out"
            }
            "image" => {
                @if limits["inputs"]["outpaints"] == true { "any size" }
                @else { (list(&limits["sizes"]).len()) " sizes" }
                ", up to " (amount(&limits["max_n"])) " images"
            }
            "video" => { @if let Some((least, most)) = ends("durations") { (least) " to " (most) "\u{a0}s" } }
            _ => { (amount(&limits["max_prompt_chars"])) " characters" }
        }
    }
}

fn success(model: &Value) -> Markup {
    match model["stats"]["success_rate"].as_f64() {
        // Rounded down: 100 % means that none failed.
        Some(rate) => html! {
            (decimal(&format!("{:.1}", (rate * 1_000.0).floor() / 10.0))) " %"
        },
        None => amount(&Value::Null),
    }
}

/// Renders models side by side with every price and limit. Equal values are dimmed.
fn comparison(models: &[Value], names: &[&str]) -> Markup {
    let find = |wanted: &&str| models.iter().find(|model| name(model) == **wanted);
    let found: Vec<Value> = names
        .iter()
        .filter_map(find)
        .take(MAX_COMPARED)
        .cloned()
        .collect();
    let unknown = names.iter().find(|name| find(name).is_none());
    let is_runnable = |model: &Value| model["type"] == found[0]["type"] && model["retired"] != true;
    let can_run = !found.is_empty() && found.iter().all(is_runnable);
    let rows = facts(&found);
    html! {
        section.card {
            div.card-head {
                h2 { @if found.len() > 1 { "Side by side" } @else { "Model" } }
                @if can_run {
                    a.button href=(playground(&found)) {
                        @if found.len() > 1 { "Run a prompt on them" } @else { "Try it" }
                    }
                }
            }
            @if let Some(unknown) = unknown { p.notice.bad { "This server has no model " (unknown) "." } }
            @if names.len() > MAX_COMPARED { p.notice { "At most " (MAX_COMPARED) " models are compared." } }
            @if !found.is_empty() {
                div.table tabindex="0" { table {
                    thead { tr { td {} @for model in &found { th { (text(&model["id"])) } } } }
                    tbody { @for (name, cells) in &rows {
                        @let shown: Vec<String> = cells.iter().map(|cell| cell.0.clone()).collect();
                        @let is_same = shown.len() > 1 && shown.iter().all(|cell| *cell == shown[0]);
                        tr class=[is_same.then_some("muted")] {
                            th scope="row" { (name) }
                            @for cell in cells { td { (cell) } }
                        }
                    } }
                } }
            }
        }
    }
}

/// Returns the facts of any of the models: the name of each, and a cell for each model.
fn facts(models: &[Value]) -> Vec<(String, Vec<Markup>)> {
    let fact = |name: &str, cell: &dyn Fn(&Value) -> Markup| {
        (name.to_owned(), models.iter().map(cell).collect::<Vec<_>>())
    };
    let mut facts = vec![
        fact("Name", &|model| copyable(&name(model))),
        fact("Type", &|model| kind(text(&model["type"]))),
        fact("Supports", &features),
        fact("Retirement", &retirement),
        fact("Aliases", &|model| value(&model["aliases"])),
        fact("Models of the route", &|model| value(&model["candidates"])),
        fact("Order", &|model| value(&model["order"])),
        fact("Success", &success),
        fact("Median time", &|model| {
            parts::seconds(&model["stats"]["median_seconds"])
        }),
    ];
    if models
        .iter()
        .any(|model| !list(&model["upcoming_prices"]).is_empty())
    {
        facts.push(fact("Credits", &price));
    }
    for (part, heading) in [("prices", "Price"), ("limits", "Limit")] {
        let mut paths = Vec::new();
        for model in models {
            collect(&model[part], "", &mut paths);
        }
        facts.extend(paths.iter().map(|path| {
            let words = path.replace(['/', '_'], " ");
            fact(&format!("{heading}:{words}"), &|model| {
                value(model[part].pointer(path).unwrap_or(&Value::Null))
            })
        }));
    }
    let is_given = |cell: &Markup| !cell.0.is_empty() && cell.0 != amount(&Value::Null).0;
    facts.retain(|(_, cells)| cells.iter().any(is_given));
    facts
}

/// Collects the paths of values that are not objects.
fn collect(part: &Value, path: &str, paths: &mut Vec<String>) {
    match part {
        Value::Object(members) => {
            for (name, member) in members {
                collect(member, &format!("{path}/{name}"), paths);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                collect(item, &format!("{path}/{at}"), paths);
            }
        }
        _ if paths.iter().any(|known| known == path) => {}
        _ => paths.push(path.to_owned()),
    }
}

/// Renders a value of the API that is not an object.
pub fn value(value: &Value) -> Markup {
    match value {
        Value::Bool(is) => html! { @if *is { "yes" } @else { "no" } },
        Value::Array(items) => html! {
            @for (at, item) in items.iter().enumerate() { @if at > 0 { ", " } (self::value(item)) }
        },
        Value::String(word) if word.parse::<Credits>().is_err() => html! { (word) },
        // Prices with a range have no value in other models.
        Value::Object(_) => amount(&Value::Null),
        _ => amount(value),
    }
}
