//! Texts of `OpenAI` and Anthropic, complete and streamed. Both cost 10 and 50 micro-credits per
//! token, of the model [`DEAR`] ten times as much.

use std::time::Duration;

use serde_json::{Value, json};

use super::mood::Mood;
use crate::{
    texts::{chat, chat_events, halves, message, message_events},
    wire::{Piece, Reply},
};

const DEAR: &str = "claude-haiku-4-5";
/// Between two events of a stream.
const PAUSE: Duration = Duration::from_millis(40);
/// How long a model thinks unseen before the text of a stream of an SDK.
const THINKING: Duration = Duration::from_millis(400);
/// The price of a web search in micro-credits.
const SEARCH: i64 = 1_000_000;
/// Tokens of unseen thinking.
const THOUGHTS: i64 = 5;

/// A response with the mark in it, and its price.
pub fn answer(path: &str, call: &Value, mark: &str, mood: Mood) -> (Reply, Option<i64>) {
    let text = format!("You said {mark}, and this is the answer to that.");
    let (input, output) = (20, i64::try_from(text.len() / 4).unwrap());
    let (mut reported_input, mut reported_output) = (json!(input), json!(output));
    let factor = if call["model"] == DEAR { 10 } else { 1 };
    let mut due = Some((input * 10 + output * 50) * factor);
    if let Mood::Lie(which) = mood {
        due = None;
        (reported_input, reported_output) = match which {
            0 => (json!(1_000_000_000_000_000_i64), json!(i64::MAX)),
            1 => (json!(-5), json!(-1)),
            2 => (Value::Null, Value::Null),
            3 => (json!("12"), json!("many")),
            4 => (json!(1.5), json!(1e300)),
            5 => (json!([1]), json!({"n": 2})),
            _ => (json!(0), json!(0)),
        };
    }
    let twice = mood == Mood::Twice;
    let anthropic = path.contains("/anthropic");
    let searches = anthropic && call["tools"][0]["name"] == "web_search";
    let responses = path.ends_with("/responses");
    let names = if anthropic || responses {
        ["input_tokens", "output_tokens"]
    } else {
        ["prompt_tokens", "completion_tokens"]
    };
    let mut usage = json!({names[0]: reported_input, names[1]: reported_output});
    let mut content = Vec::new();
    if searches {
        due = due.map(|due| due + SEARCH);
        usage["server_tool_use"] = json!({"web_search_requests": 1});
        content.extend(search());
    }
    content.push(json!({"type": "text", "text": text}));
    let thinks = mark.starts_with("mk-sdk-") && call["stream"] == true;
    if thinks && !anthropic {
        let details = json!({"reasoning_tokens": THOUGHTS});
        let name = if responses { "output" } else { "completion" };
        usage[format!("{name}_tokens_details")] = details;
    }
    if call["stream"] == true {
        let mut events = if anthropic {
            message_events(&content, &usage, &usage)
        } else if responses {
            response_events(&text, &usage)
        } else {
            chat_events(&text, &usage)
        };
        if twice {
            events.extend_from_within(events.len() - 2..);
        }
        let complete = !matches!(mood, Mood::Cut { .. });
        let events = if complete { &events[..] } else { &events[..2] };
        let mut reply = Reply::stream(events, PAUSE, complete);
        if thinks {
            // After the head of the response.
            reply.pieces.insert(1, Piece::Wait(THINKING));
        }
        return (reply, due.filter(|_| complete));
    }
    let model = call["model"].as_str().unwrap_or_default();
    let whole = if anthropic {
        message(model, &content, &usage)
    } else if responses {
        response(&text, &usage)
    } else {
        chat(model, &text, &usage)
    };
    (Reply::json(200, &whole), due)
}

fn response(text: &str, usage: &Value) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"id": "resp_1", "object": "response", "model": "m", "status": "completed", "error": null,
        "output": [{"id": "msg_1", "type": "message", "role": "assistant", "content": content}],
        "usage": usage})
}

fn response_events(text: &str, usage: &Value) -> Vec<String> {
    let event = |kind: &str, body: Value| {
        let mut event = body;
        event["type"] = json!(format!("response.{kind}"));
        format!("event: response.{kind}\ndata: {event}\n\n")
    };
    let (first, second) = halves(text);
    let delta = |text: &str| {
        event(
            "output_text.delta",
            json!({"output_index": 0, "item_id": "msg_1", "delta": text}),
        )
    };
    let whole = response(text, usage);
    vec![
        event("created", json!({"response": {"id": "resp_1"}})),
        delta(first),
        delta(second),
        event(
            "output_item.done",
            json!({"output_index": 0, "item": whole["output"][0]}),
        ),
        event("completed", json!({ "response": whole })),
    ]
}

/// The blocks of a web search.
fn search() -> [Value; 2] {
    let results = json!([{"type": "web_search_result", "url": "https://example.com", "title": "t",
        "encrypted_content": "e", "page_age": null}]);
    [
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
            "input": {"query": "it"}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": results}),
    ]
}
