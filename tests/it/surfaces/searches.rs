//! Web searches at the vendor: off by default, held by their maximum number, charged by count.

use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{MESSAGES, RESPONSES, delivered::Open, error, events, record, with};
use crate::common::{Account, CONFIG_FILE, End, Recorded, Reply, TestApp, Upstream};

const CLAUDE: &str = "anthropic/c";
const GPT: &str = "openai/g";

/// A model of each vendor with at most three searches, at a credit and 1,000 tokens each. A million
/// tokens cost 50 credits for output, 10 for input, 1 for a cache read, 12.5 for a cache write.
async fn start(options: PgConnectOptions, upstream: &Upstream) -> (TestApp, Account) {
    let model = |vendor: &str, id: &str, wire: &str| {
        format!(
            "[[providers.{vendor}.models]]\nid = \"{id}\"\ntype = \"text\"\n{wire}\
             prices = {{ input_per_million = \"10\", cached_input_per_million = \"1\", \
             cache_write_per_million = \"12.5\", output_per_million = \"50\", per_search = \"1\" }}\n\
             limits = {{ max_output_tokens = 1000, searches = 3, search_tokens = 1000 }}\n"
        )
    };
    let text = [
        model("anthropic", "c", ""),
        model("openai", "g", "wire.api = \"responses\"\n"),
    ]
    .concat();
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, text).unwrap();
    let config = [(CONFIG_FILE, file.to_str().unwrap())];
    let app = TestApp::upstream_with(options, upstream, &config).await;
    std::fs::remove_file(&file).unwrap();
    upstream.be_lenient();
    let account = app.account("100").await;
    (app, account)
}

fn tool(path: &str) -> Value {
    if path == RESPONSES {
        return json!({"type": "web_search", "filters": {"allowed_domains": ["example.com"]}});
    }
    json!({"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["example.com"]})
}

fn asked(path: &str, most: Option<u32>) -> Value {
    let mut tool = tool(path);
    if path == RESPONSES {
        let mut body =
            json!({"model": GPT, "input": "Find it", "max_output_tokens": 64, "tools": [tool]});
        if let Some(most) = most {
            body["max_tool_calls"] = json!(most);
        }
        return body;
    }
    if let Some(most) = most {
        tool["max_uses"] = json!(most);
    }
    json!({"model": CLAUDE, "max_tokens": 64, "tools": [tool],
        "messages": [{"role": "user", "content": "Find it"}]})
}

/// The blocks or items of a search, and the text after them.
fn found(path: &str) -> Value {
    if path == RESPONSES {
        let call = json!({"id": "ws_1", "type": "web_search_call", "status": "completed",
            "action": {"type": "search", "query": "it",
                "sources": [{"type": "url", "url": "https://example.com"}]}});
        let opened = json!({"id": "ws_2", "type": "web_search_call", "status": "completed",
            "action": {"type": "open_page", "url": "https://example.com"}});
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Here.", "annotations": []}]});
        return json!([call, opened, message]);
    }
    json!([
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "it"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://example.com", "title": "t",
                "encrypted_content": "e", "page_age": null}]},
        {"type": "text", "text": "Here."}
    ])
}

/// An answer with this count of searches; null: no count.
fn answer(request: &Recorded, searches: &Value, input: u64) -> Reply {
    let streamed = request.body["stream"] == true;
    if request.path.ends_with("/responses") {
        let items = found(RESPONSES);
        let usage = json!({"input_tokens": input, "output_tokens": 20, "total_tokens": input + 20});
        let mut body =
            crate::common::upstream::text::response("completed", items.as_array().unwrap(), &usage);
        if !searches.is_null() {
            body["tool_usage"] = json!({"web_search": {"num_requests": searches}});
        }
        if !streamed {
            return Reply::Status(200, body);
        }
        let mut events = Vec::new();
        for (at, item) in items.as_array().unwrap().iter().enumerate() {
            for kind in ["output_item.added", "output_item.done"] {
                events.push((kind, json!({"output_index": at, "item": item})));
            }
        }
        events.push(("completed", json!({ "response": body })));
        let text = crate::common::upstream::text::response_events(&events);
        return Reply::Raw(200, "text/event-stream", text);
    }
    let usage = json!({"input_tokens": input, "output_tokens": 20,
        "server_tool_use": {"web_search_requests": searches}});
    if !streamed {
        return Reply::Status(
            200,
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "c",
                "content": found(MESSAGES), "stop_reason": "end_turn", "usage": usage}),
        );
    }
    let event = |value: Value| {
        format!(
            "event: {}\ndata: {value}\n\n",
            value["type"].as_str().unwrap()
        )
    };
    let mut text = event(
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "c",
        "usage": {"input_tokens": 1, "output_tokens": 1}}}),
    );
    for (at, block) in found(MESSAGES).as_array().unwrap().iter().enumerate() {
        let mut begun = block.clone();
        let (member, delta) = match block["type"].as_str().unwrap() {
            "server_tool_use" => (
                "input",
                vec!["{\"query\":", " \"it\"}"]
                    .into_iter()
                    .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
                    .collect(),
            ),
            "text" => ("text", vec![json!({"type": "text_delta", "text": "Here."})]),
            _ => ("", Vec::new()),
        };
        match member {
            "input" => begun["input"] = json!({}),
            "text" => begun["text"] = json!(""),
            _ => {}
        }
        text += &event(json!({"type": "content_block_start", "index": at, "content_block": begun}));
        for delta in delta {
            text += &event(json!({"type": "content_block_delta", "index": at, "delta": delta}));
        }
        text += &event(json!({"type": "content_block_stop", "index": at}));
    }
    text += &event(
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
    );
    text += &event(json!({"type": "message_stop"}));
    Reply::Raw(200, "text/event-stream", text)
}

/// The AI SDK asks for the sources of each search.
#[sqlx::test]
async fn sources_of_searches_can_be_included(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.play(|request| answer(request, &json!(1), 2_100));
    let include =
        json!({"include": ["web_search_call.action.sources", "reasoning.encrypted_content"]});
    for stream in [false, true] {
        let more = with(include.clone(), &json!({ "stream": stream }));
        let body = with(asked(RESPONSES, None), &more);
        let answered = app.post(&account.key, RESPONSES, &body).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
        assert_eq!(answered.header("x-gensvc-left-out"), "annotations");
        assert!(answered.text.contains("\"sources\""), "{}", answered.text);
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["include"], include["include"]);
    }
    // Without a search there is nothing to include.
    let body = with(json!({"model": CLAUDE, "input": "x"}), &include);
    upstream.reply(Reply::Text("Here.".to_owned(), 9, 2));
    let answered = app.post(&account.key, RESPONSES, &body).await;
    answered.expect(200);
    assert_eq!(answered.header("x-gensvc-left-out"), "include");
    app.assert_settled().await;
}

/// Returns the bound of the input that a request with at most `bound` searches was held for. The
/// prompt is read again after each search. All input may be written to the cache.
fn held_input(record: &Value, bound: i64) -> i64 {
    let held = micros(&record["credits"]["estimated"]) - bound * 1_000_000 - 64 * 50;
    (held * 2 / 25 - bound * 1_000) / (bound + 1)
}

fn micros(value: &Value) -> i64 {
    value.as_str().unwrap().parse::<Credits>().unwrap().micros()
}

#[sqlx::test]
async fn searches_are_bounded_held_and_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for path in [MESSAGES, RESPONSES] {
        let mut held = None;
        for (most, bound) in [(None, 3), (Some(2), 2)] {
            for stream in [false, true] {
                upstream.play(|request| answer(request, &json!(2), 2_100));
                let body = with(asked(path, most), &json!({ "stream": stream }));
                let answered = app.post(&account.key, path, &body).await;
                assert_eq!(answered.status, 200, "{}", answered.text);
                let sent = upstream.requests().pop().unwrap().body;
                let sent_bound = match path {
                    RESPONSES => &sent["max_tool_calls"],
                    _ => &sent["tools"][0]["max_uses"],
                };
                assert_eq!(sent_bound, bound, "{sent}");
                let record = record(&app, &account, &answered).await;
                // The hold covers the prompt once for each search and once more, for any bound.
                let input = held_input(&record, bound);
                assert_eq!(*held.get_or_insert(input), input, "{path} {bound}");
                assert!((50..400).contains(&input), "{path} {input}");
                assert_eq!(
                    micros(&record["credits"]["charged"]),
                    2_100 * 10 + 20 * 50 + 2 * 1_000_000
                );
                assert_eq!(record["usage"]["searches"], 2);
                if !stream {
                    let body = answered.json();
                    let shown = match path {
                        RESPONSES => &body["tool_usage"]["web_search"]["num_requests"],
                        _ => &body["usage"]["server_tool_use"]["web_search_requests"],
                    };
                    assert_eq!(shown, 2);
                }
                assert_eq!(record["result"], "Here.");
                // Search results are passed on in their own dialect.
                for word in [
                    "Here.",
                    if path == MESSAGES {
                        "encrypted_content"
                    } else {
                        "ws_"
                    },
                ] {
                    assert!(answered.text.contains(word), "{word}: {}", answered.text);
                }
                if stream && path == MESSAGES {
                    let events = events(path, &answered.text);
                    let begun = events
                        .iter()
                        .position(|event| event["content_block"]["type"] == "server_tool_use");
                    let [begun, input, end] = &events[begun.unwrap()..][..3] else {
                        panic!("{events:?}");
                    };
                    assert_eq!(begun["content_block"]["input"], json!({}));
                    assert_eq!(
                        input["delta"],
                        json!({"type": "input_json_delta", "partial_json": "{\"query\":\"it\"}"})
                    );
                    assert_eq!(end["type"], "content_block_stop");
                }
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_choice_of_the_search_passes(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.play(|request| answer(request, &json!(1), 100));
    for (path, choice) in [
        (MESSAGES, json!({"type": "tool", "name": "web_search"})),
        (MESSAGES, json!({"type": "any"})),
        (RESPONSES, json!({"type": "web_search"})),
        (RESPONSES, json!("required")),
    ] {
        let body = with(asked(path, None), &json!({"tool_choice": choice}));
        let answered = app.post(&account.key, path, &body).await;
        answered.expect(200);
        let left_out = if path == MESSAGES {
            "citations"
        } else {
            "annotations"
        };
        assert_eq!(answered.header("x-gensvc-left-out"), left_out, "{choice}");
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["tool_choice"], choice);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_lying_count_of_searches_is_capped(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for path in [MESSAGES, RESPONSES] {
        // More than were allowed, none, nonsense, and nothing: the searches of the answer are
        // counted instead.
        let by_items = 1;
        for (searches, input, charged) in [
            (json!(1_000), 2_500, None),
            (json!(9_000_000_000_000_000_u64), 2_500, None),
            (json!(3), 900_000, None),
            (json!(0), 2_500, Some(0)),
            (json!(-1), 2_500, Some(by_items)),
            (json!("2"), 2_500, Some(by_items)),
            (Value::Null, 2_500, Some(by_items)),
        ] {
            upstream.play(move |request| answer(request, &searches, input));
            let answered = app.post(&account.key, path, &asked(path, None)).await;
            answered.expect(200);
            let record = record(&app, &account, &answered).await;
            assert!(record["bill"].is_object(), "{record}");
            let credits = &record["credits"];
            match charged {
                None => assert_eq!(credits["charged"], credits["estimated"]),
                Some(searches) => assert_eq!(
                    micros(&credits["charged"]),
                    2_500 * 10 + 20 * 50 + searches * 1_000_000
                ),
            }
        }
        let before = app.balance(&account).await;
        upstream.reply(Reply::Cut);
        let answered = app.post(&account.key, path, &asked(path, None)).await;
        error(path, &answered, 502, "provider_error");
        assert_eq!(app.balance(&account).await, before);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_was_found_comes_back_in_the_next_turn(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.play(|request| answer(request, &json!(1), 100));
    for path in [MESSAGES, RESPONSES] {
        for stream in [false, true] {
            let first = with(asked(path, None), &json!({ "stream": stream }));
            let answered = app.post(&account.key, path, &first).await;
            assert_eq!(answered.status, 200, "{}", answered.text);
            let mut next = asked(path, None);
            if path == RESPONSES {
                let body = if stream {
                    events(path, &answered.text).pop().unwrap()["response"].clone()
                } else {
                    answered.json()
                };
                let mut input = vec![json!({"role": "user", "content": "Find it"})];
                input.extend(body["output"].as_array().unwrap().clone());
                input.push(json!({"role": "user", "content": "More"}));
                next["input"] = json!(input);
            } else {
                let blocks = if stream {
                    let events = events(path, &answered.text);
                    let mut blocks: Vec<Value> = Vec::new();
                    for event in &events {
                        if event["content_block"].is_object() {
                            blocks.push(event["content_block"].clone());
                        } else if let Some(input) = event["delta"]["partial_json"].as_str() {
                            let block = blocks.last_mut().unwrap();
                            block["input"] = serde_json::from_str(input).unwrap();
                        }
                    }
                    blocks.last_mut().unwrap()["text"] = json!("Here.");
                    json!(blocks)
                } else {
                    answered.json()["content"].clone()
                };
                let messages = next["messages"].as_array_mut().unwrap();
                messages.push(json!({"role": "assistant", "content": blocks}));
                messages.push(json!({"role": "user", "content": "More"}));
            }
            app.post(&account.key, path, &next).await.expect(200);
            let sent = upstream.requests().pop().unwrap().body;
            if path == MESSAGES {
                assert_eq!(sent["messages"][1]["content"], found(path));
            } else {
                for at in 0..2 {
                    let mut call = found(path)[at].clone();
                    call.as_object_mut().unwrap().remove("id");
                    assert_eq!(sent["input"][at + 1], call);
                }
            }
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn only_a_turn_without_searches_bounds_the_next(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for path in [MESSAGES, RESPONSES] {
        for has_searched in [true, false] {
            upstream.play(move |request| {
                if has_searched {
                    answer(request, &json!(1), 2_000)
                } else {
                    Reply::Text("Hi.".to_owned(), 2_000, 5)
                }
            });
            let said = json!([
                {"role": "user", "content": format!("{has_searched} {}", "x ".repeat(4_000))},
                {"role": "assistant", "content": "Hi."},
                {"role": "user", "content": "More"},
            ]);
            let list = if path == RESPONSES {
                "input"
            } else {
                "messages"
            };
            let (mut first, mut next) = (asked(path, None), asked(path, None));
            first[list] = json!([said[0]]);
            next[list] = said;
            app.post(&account.key, path, &first).await.expect(200);
            let answered = app.post(&account.key, path, &next).await;
            assert_eq!(answered.status, 200, "{}", answered.text);
            let bound = held_input(&record(&app, &account, &answered).await, 3);
            assert_eq!(bound > 8_000, has_searched, "{path} {bound}");
        }
    }
}

#[sqlx::test]
async fn searches_of_an_incomplete_answer_are_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let body = with(asked(MESSAGES, None), &json!({"stream": true}));
    let events_of = |request: &Recorded| match answer(request, &json!(2), 2_100) {
        Reply::Raw(_, _, text) => text,
        _ => String::new(),
    };
    // The model refuses to continue.
    upstream.play(move |request| {
        let text = events_of(request).replace("end_turn", "refusal");
        Reply::Raw(200, "text/event-stream", text)
    });
    let answered = app.post(&account.key, MESSAGES, &body).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let refused = record(&app, &account, &answered).await;
    assert_eq!(refused["metadata"]["finish_reason"], "content_filter");
    assert_eq!(
        micros(&refused["credits"]["charged"]),
        2_100 * 10 + 20 * 50 + 2_000_000
    );
    // The stream is cut.
    let before = app.balance(&account).await;
    upstream.play(move |request| {
        let text = events_of(request);
        let at = text.find("event: message_delta").unwrap();
        Reply::Stream(text[..at].to_owned().into(), End::Cut)
    });
    let cut = app.post(&account.key, MESSAGES, &body).await;
    assert!(cut.text.contains("event: error"), "{}", cut.text);
    assert_eq!(app.balance(&account).await, before);
    // The caller cancels after the search, whose count comes at the end.
    upstream.play(move |request| {
        let text = events_of(request);
        let events = text.split_inclusive("\n\n").map(str::to_owned);
        Reply::Steps(events.collect())
    });
    let asked = (&app, &account, &upstream);
    let open = Open::new(asked, MESSAGES, &body, 9, "Here.").await;
    open.cancel(&app, &account).await;
    let id = open.id.clone();
    open.end().await;
    let cancelled = app.record(&account, &id).await;
    assert_eq!(cancelled["metadata"]["finish_reason"], "cancelled");
    let usage = &cancelled["usage"];
    assert_eq!(
        (&usage["searches"], &usage["estimated"]),
        (&json!(1), &json!(true))
    );
    assert!(micros(&cancelled["credits"]["charged"]) > 1_000_000);
    app.assert_settled().await;
}

#[sqlx::test]
async fn searches_are_refused_by_name(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for (path, param) in [
        (MESSAGES, "tools[0].max_uses"),
        (RESPONSES, "max_tool_calls"),
    ] {
        let answer = app.post(&account.key, path, &asked(path, Some(4))).await;
        let refused = error(path, &answer, 400, "unsupported_parameter");
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("must be at most 3") && message.contains(param),
            "{message}"
        );
    }
    // Another vendor's dialect, and the tools of others.
    for (path, model) in [
        (MESSAGES, GPT),
        (RESPONSES, CLAUDE),
        (MESSAGES, "sandbox/sandbox-text-1"),
    ] {
        let body = with(asked(path, None), &json!({ "model": model }));
        let answer = app.post(&account.key, path, &body).await;
        let refused = error(path, &answer, 400, "unsupported_parameter");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("tools[0].type"), "{message}");
    }
    let twice = json!({"tools": [tool(MESSAGES), tool(MESSAGES)]});
    let body = with(asked(MESSAGES, None), &twice);
    let answer = app.post(&account.key, MESSAGES, &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    for kind in [
        "web_search_preview",
        "code_interpreter",
        "web_search_20260318",
    ] {
        for path in [MESSAGES, RESPONSES] {
            let tools = json!({"tools": [{"type": kind, "name": "web_search"}]});
            let answer = app
                .post(&account.key, path, &with(asked(path, None), &tools))
                .await;
            assert_eq!(answer.status, 400, "{kind}: {}", answer.text);
        }
    }
    // A search tool among the input items would have no limit.
    let input = json!([{"role": "user", "content": "x"},
        {"type": "additional_tools", "role": "developer", "tools": [tool(RESPONSES)]}]);
    let body = json!({"model": GPT, "input": input, "max_output_tokens": 64});
    let answer = app.post(&account.key, RESPONSES, &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(upstream.count(), 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn searches_are_off_by_default(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app =
        TestApp::upstream_with(options, &upstream, &[(crate::common::DEFAULT_APIS, "1")]).await;
    let account = app.account("10").await;
    for (path, model) in [
        (MESSAGES, "anthropic/claude-haiku-5-5"),
        (RESPONSES, "openai/gpt-6-luna"),
    ] {
        let body = with(asked(path, Some(1)), &json!({ "model": model }));
        let answer = app.post(&account.key, path, &body).await;
        let refused = error(path, &answer, 400, "unsupported_parameter");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("is off for this model"), "{message}");
    }
    assert_eq!(upstream.count(), 0);
}
