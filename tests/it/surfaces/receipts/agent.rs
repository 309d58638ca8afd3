//! An agent's dialogue of 30 turns, counted by public tokenizers (tests/fixtures/agent): its holds
//! are close to what it can cost, and its charges are the vendor's.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, RESPONSES, micros};
use crate::{
    common::{Account, DEFAULT_APIS, Reply, TestApp, Upstream, upstream::text::response},
    surfaces::record,
};

const DIALOGUE: &str = include_str!("../../../fixtures/agent/dialogue.json");
const DOCUMENT: &str = include_str!("../../../../docs/sdks/holds.md");
const LIMIT: u64 = 8_192;
/// Turns that the document shows.
const SHOWN: [usize; 11] = [1, 2, 3, 4, 5, 6, 10, 15, 20, 25, 30];

/// A dialect, with what a vendor counts by its name.
struct Dialect {
    path: &'static str,
    model: &'static str,
    vendor: &'static str,
    /// Instructions and tools.
    head: fn(&Value) -> Value,
    said: fn(&Value) -> Vec<Value>,
    /// Tokens of what is thought before it, which are counted until the next question.
    thought: u64,
    results: fn(&Value) -> Vec<Value>,
    /// From the input of this turn and of the one before, and the output.
    usage: fn(u64, u64, u64) -> Usage,
    /// An answer with this usage.
    answer: fn(&Value) -> Value,
}

/// Tokens of each price, and the usage that the vendor reports.
struct Usage {
    plain: u64,
    read: u64,
    written: u64,
    output: u64,
    reported: Value,
}

const CHATS: Dialect = Dialect {
    path: CHAT,
    model: "openai/gpt-6.1-terra",
    vendor: "openai",
    head: |dialogue| {
        let tools = dialogue["tools"].as_array().unwrap().iter().map(|tool| {
            json!({"type": "function", "function": {"name": tool["name"],
                "description": tool["description"], "parameters": tool["input_schema"]}})
        });
        json!({"tools": tools.collect::<Vec<_>>(), "messages": [
            {"role": "system", "content": dialogue["system"]},
            {"role": "user", "content": dialogue["task"]}]})
    },
    said: |turn| {
        let calls = calls(turn).map(|call| {
            json!({"id": id("call", call), "type": "function", "function": {
                "name": call["name"], "arguments": call["input"].to_string()}})
        });
        let content = if turn["say"] == "" {
            &Value::Null
        } else {
            &turn["say"]
        };
        let tool_calls = calls.collect::<Vec<_>>();
        vec![json!({"role": "assistant", "content": content, "tool_calls": tool_calls})]
    },
    thought: 0,
    results: |turn| {
        let results = calls(turn).map(|call| {
            json!({"role": "tool", "tool_call_id": id("call", call), "content": call["result"]})
        });
        let question = &turn["question"];
        let asked = question.is_string();
        let question = asked.then(|| json!({"role": "user", "content": question}));
        results.chain(question).collect()
    },
    usage: |input, before, output| {
        let (whole, read) = (input / 128 * 128, before / 128 * 128);
        Usage {
            plain: input - whole,
            read,
            written: whole - read,
            output,
            reported: json!({"prompt_tokens": input, "completion_tokens": output,
                "total_tokens": input + output, "prompt_tokens_details":
                    {"cached_tokens": read, "cache_write_tokens": whole - read}}),
        }
    },
    answer: |usage| {
        let message = json!({"role": "assistant", "content": "x"});
        json!({"id": "c-1", "object": "chat.completion", "model": "gpt-6.1-terra", "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    },
};

const MESSAGED: Dialect = Dialect {
    path: MESSAGES,
    model: "anthropic/claude-sonnet-5-5",
    vendor: "anthropic",
    head: |dialogue| {
        let mut tools = dialogue["tools"].clone();
        mark(&mut tools);
        let mut system = json!([{"type": "text", "text": dialogue["system"]}]);
        mark(&mut system);
        json!({"tools": tools, "system": system, "messages": [
            {"role": "user", "content": [{"type": "text", "text": dialogue["task"]}]}]})
    },
    said: |turn| {
        let text = turn["say"].as_str().filter(|text| !text.is_empty());
        let text = text.map(|text| json!({"type": "text", "text": text}));
        let calls = calls(turn).map(|call| {
            json!({"type": "tool_use", "id": id("toolu", call), "name": call["name"],
                "input": call["input"]})
        });
        let content = text.into_iter().chain(calls).collect::<Vec<_>>();
        vec![json!({"role": "assistant", "content": content})]
    },
    thought: 0,
    results: |turn| {
        let results = calls(turn).map(|call| {
            json!({"type": "tool_result", "tool_use_id": id("toolu", call),
                "content": [{"type": "text", "text": call["result"]}]})
        });
        let question = &turn["question"];
        let asked = question.is_string();
        let question = asked.then(|| json!({"type": "text", "text": question}));
        vec![json!({"role": "user", "content": results.chain(question).collect::<Vec<_>>()})]
    },
    usage: |input, before, output| {
        // All but what follows the last marker.
        let (plain, read) = (3, before.saturating_sub(3));
        let written = input - read - plain;
        Usage {
            plain,
            read,
            written,
            output,
            reported: json!({"input_tokens": plain, "output_tokens": output,
                "cache_read_input_tokens": read, "cache_creation_input_tokens": written,
                "cache_creation": {"ephemeral_5m_input_tokens": written,
                    "ephemeral_1h_input_tokens": 0}}),
        }
    },
    answer: |usage| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "usage": usage,
            "model": "claude-sonnet-5-5", "content": [{"type": "text", "text": "x"}],
            "stop_reason": "end_turn"})
    },
};

/// The same dialogue with an OpenAI model through Responses.
const RESPONDED: Dialect = Dialect {
    path: RESPONSES,
    head: |dialogue| {
        let tools = dialogue["tools"].as_array().unwrap().iter().map(|tool| {
            json!({"type": "function", "name": tool["name"], "description": tool["description"],
                "parameters": tool["input_schema"], "strict": false})
        });
        json!({"tools": tools.collect::<Vec<_>>(), "instructions": dialogue["system"],
            "input": [{"role": "user", "content": dialogue["task"]}]})
    },
    said: |turn| {
        let text = turn["say"].as_str().filter(|text| !text.is_empty());
        let text = text.map(|text| json!({"role": "assistant", "content": text}));
        let calls = calls(turn).map(|call| {
            json!({"type": "function_call", "call_id": id("call", call), "name": call["name"],
                "arguments": call["input"].to_string()})
        });
        text.into_iter().chain(calls).collect()
    },
    results: |turn| {
        let results = calls(turn).map(|call| {
            json!({"type": "function_call_output", "call_id": id("call", call),
                "output": call["result"]})
        });
        let question = &turn["question"];
        let asked = question.is_string();
        let question = asked.then(|| json!({"role": "user", "content": question}));
        results.chain(question).collect()
    },
    usage: |input, before, output| {
        let usage = (CHATS.usage)(input, before, output);
        let details = &usage.reported["prompt_tokens_details"];
        let written = &details["cache_write_tokens"];
        let reported = json!({"input_tokens": input, "output_tokens": output,
            "total_tokens": input + output, "input_tokens_details": {
                "cached_tokens": details["cached_tokens"], "cache_write_tokens": written,
                "cache_write_tokens_details": {"ttl_30m_tokens": written, "ttl_12h_tokens": 0}}});
        Usage { reported, ..usage }
    },
    answer: |usage| {
        let content = json!([{"type": "output_text", "text": "x", "annotations": []}]);
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant",
            "status": "completed", "content": content});
        response("completed", &[message], usage)
    },
    ..CHATS
};

/// Of 17 tokens.
const THOUGHT: &str = "I look at what calls it, and run its tests, before I change it. ";

const THOUGHTFUL: Dialect = Dialect {
    said: |turn| {
        let mut said = (MESSAGED.said)(turn);
        let (thought, signature) = (THOUGHT.repeat(8), "c2lnbmVk".repeat(50));
        let thought = json!({"type": "thinking", "thinking": thought, "signature": signature});
        said[0]["content"]
            .as_array_mut()
            .unwrap()
            .insert(0, thought);
        said
    },
    thought: 8 * 17,
    ..MESSAGED
};

fn calls(turn: &Value) -> impl Iterator<Item = &Value> {
    turn["calls"].as_array().unwrap().iter()
}

fn id(prefix: &str, call: &Value) -> String {
    format!("{prefix}_{:0>24}", call["id"].as_str().unwrap())
}

/// Has the last block of a list cached.
fn mark(blocks: &mut Value) {
    let last = blocks.as_array_mut().unwrap().last_mut().unwrap();
    last["cache_control"] = json!({"type": "ephemeral"});
}

/// The dialogue, with the files that were read as the agent saw them: with numbered lines.
fn dialogue() -> Value {
    let mut dialogue: Value = serde_json::from_str(DIALOGUE).unwrap();
    let pool = dialogue["pool"].take();
    let lines = |lines: &Value| {
        let at = |n: usize| usize::try_from(lines[n].as_u64().unwrap()).unwrap();
        let text = pool[at(0)].as_str().unwrap().split('\n').enumerate();
        let lines = text.take(at(2)).skip(at(1));
        let lines = lines.map(|(n, line)| format!("{:>6}\t{line}", n + 1));
        lines.collect::<Vec<_>>().join("\n")
    };
    for turn in dialogue["turns"].as_array_mut().unwrap() {
        for call in turn["calls"].as_array_mut().unwrap() {
            if call["result"].is_array() {
                call["result"] = json!(lines(&call["result"]));
            }
        }
    }
    dialogue
}

/// A turn, in micro-credits.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    input: u64,
    /// Of the input only.
    held: u64,
    /// The input at the dearer of its price and that of a short cache write.
    dearest: u64,
    charged: u64,
}

async fn run(app: &TestApp, account: &Account, upstream: &Upstream, of: &Dialect) -> Vec<Turn> {
    let dialogue = dialogue();
    let mut body = (of.head)(&dialogue);
    body["model"] = json!(of.model);
    let (limit, messages) = match of.path {
        RESPONSES => ("max_output_tokens", "input"),
        _ => ("max_tokens", "messages"),
    };
    body[limit] = json!(LIMIT);
    let (mut all, mut before, mut thoughts) = (Vec::new(), 0, 0);
    let mut begun = String::new();
    for turn in dialogue["turns"].as_array().unwrap() {
        let counted = |name: &str| turn["tokens"][of.vendor][name].as_u64().unwrap();
        let (input, output) = (counted("input") + thoughts, counted("output"));
        let usage = (of.usage)(input, before, output);
        upstream.reply(Reply::Status(200, (of.answer)(&usage.reported)));
        let mut sent = body.clone();
        if of.path == MESSAGES {
            let last = sent["messages"].as_array_mut().unwrap().last_mut().unwrap();
            mark(&mut last["content"]);
        }
        let answer = app.post(&account.key, of.path, &sent).await;
        answer.expect(200);
        // The part of the dialogue in the vendor's cache is sent again byte for byte.
        let text = upstream.requests().pop().unwrap().text;
        if of.path == RESPONSES {
            let (sent, _) = text.split_once("],\"model\"").unwrap();
            assert!(sent.starts_with(&begun), "{sent}");
            sent.clone_into(&mut begun);
        }
        let record = record(app, account, &answer).await;
        let (prices, credits) = (&record["metadata"]["pricing"], &record["credits"]);
        let price = |name: &str| micros(&prices[name]);
        let (held, charged) = (micros(&credits["estimated"]), micros(&credits["charged"]));
        let exact = usage.plain * price("input_per_million")
            + usage.read * price("cached_input_per_million")
            + usage.written * price("cache_write_per_million")
            + usage.output * price("output_per_million");
        assert_eq!(charged, exact.div_ceil(1_000_000), "{}", record["usage"]);
        assert!(charged <= held);
        let dearest = price("input_per_million").max(price("cache_write_per_million"));
        all.push(Turn {
            input,
            held: held - LIMIT * price("output_per_million") / 1_000_000,
            dearest: input * dearest / 1_000_000,
            charged,
        });
        let messages = body[messages].as_array_mut().unwrap();
        messages.extend((of.said)(turn));
        messages.extend((of.results)(turn));
        if turn["question"].is_string() {
            (before, thoughts) = (input - thoughts, 0);
        } else {
            (before, thoughts) = (input, thoughts + of.thought);
        }
    }
    all
}

/// Asserts that the holds are close, and returns their sum.
fn close(turns: &[Turn]) -> Turn {
    for (at, turn) in turns.iter().enumerate() {
        assert!(turn.held >= turn.dearest, "{} {turn:?}", at + 1);
        assert!(
            at < 5 || turn.held <= 2 * turn.dearest,
            "{} {turn:?}",
            at + 1
        );
    }
    let sum = turns.iter().fold(Turn::default(), |sum, turn| Turn {
        input: sum.input + turn.input,
        held: sum.held + turn.held,
        dearest: sum.dearest + turn.dearest,
        charged: sum.charged + turn.charged,
    });
    assert!(sum.held <= 2 * sum.dearest, "{sum:?}");
    sum
}

/// Credits, to a thousandth.
fn credits(micros: u64) -> String {
    let thousandths = (micros + 500) / 1_000;
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn row(table: &mut String, name: &str, turns: [Turn; 2]) {
    write!(table, "| {name} ").unwrap();
    for turn in turns {
        let shown = [turn.held, turn.dearest, turn.charged].map(credits);
        write!(table, "| {} | {} ", turn.input, shown.join(" | ")).unwrap();
    }
    table.push_str("|\n");
}

#[sqlx::test]
async fn its_holds_are_close(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000000").await;
    let mut all = Vec::new();
    for dialect in [CHATS, MESSAGED] {
        let turns = run(&app, &account, &upstream, &dialect).await;
        let sum = close(&turns);
        all.push((turns, sum));
    }
    let mut table = String::new();
    for at in SHOWN {
        let turns = [all[0].0[at - 1], all[1].0[at - 1]];
        row(&mut table, &at.to_string(), turns);
    }
    row(&mut table, "all 30", [all[0].1, all[1].1]);
    assert!(
        DOCUMENT.contains(&table),
        "docs/sdks/holds.md is to show\n{table}"
    );
    app.assert_settled().await;
}

/// Each turn through Responses is held and charged like a turn through Chat Completions.
#[sqlx::test]
async fn its_holds_are_close_by_responses(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream_with(options, &upstream, &[(DEFAULT_APIS, "1")]).await;
    let account = app.account("1000000").await;
    let turns = run(&app, &account, &upstream, &RESPONDED).await;
    let sum = close(&turns);
    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| request.path.ends_with("/responses"))
    );
    // The list price of all turns, which the page shows for a chat.
    assert!(DOCUMENT.contains(&format!("| all 30 | {} |", sum.input)));
    assert!(DOCUMENT.contains(&format!(" {} |", credits(sum.charged))));
    app.assert_settled().await;
}

#[sqlx::test]
async fn its_holds_are_close_where_it_thinks(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000000").await;
    close(&run(&app, &account, &upstream, &THOUGHTFUL).await);
    app.assert_settled().await;
}
