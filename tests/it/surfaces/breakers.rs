//! What breaks gateways elsewhere: a module for each of the fifteen.

mod row_01_retries;
mod row_02_cache;
mod row_03_cuts;
mod row_04_limits;
mod row_05_refusals;
mod row_06_tools;
mod row_07_thoughts;
mod row_08_responses;
mod row_09_usage;
mod row_10_errors;
mod row_11_refused;
mod row_12_life;
mod row_13_counts;
mod row_14_order;
mod row_15_models;

use serde_json::{Value, json};

use super::{
    CHAT, MESSAGES, MODELS, RESPONSES, ROUTES, ask, error, events, get, parts, record, text_of,
    with,
};

/// Every dialect.
const PATHS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];

/// A prompt in the dialect of the path.
fn prompt(path: &str, model: &str, text: &str) -> Value {
    if path == RESPONSES {
        json!({"model": model, "input": text, "max_output_tokens": 500})
    } else {
        with(ask(model, text), &json!({"max_tokens": 500}))
    }
}

/// A function without parameters, in the dialect of the path.
fn function(path: &str, name: &str) -> Value {
    match path {
        CHAT => json!({"type": "function", "function": {"name": name}}),
        RESPONSES => json!({"type": "function", "name": name}),
        _ => json!({"name": name, "input_schema": {"type": "object"}}),
    }
}

/// The usage that a stream ends with, or that a body has.
fn usage(path: &str, text: &str) -> Value {
    if let Ok(body) = serde_json::from_str::<Value>(text) {
        return body["usage"].clone();
    }
    let events = events(path, text);
    let last = &events[events.len() - 1];
    match path {
        RESPONSES => last["response"]["usage"].clone(),
        _ => events[events.len() - 2]["usage"].clone(),
    }
}

/// Events of a stream, as a vendor sends them.
pub fn stream_of(events: &[Value]) -> String {
    let event = |event: &Value| {
        let name = event["type"].as_str();
        let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
        format!("{name}data: {event}\n\n")
    };
    events.iter().map(event).collect()
}
