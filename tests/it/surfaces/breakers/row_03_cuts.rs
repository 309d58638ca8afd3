//! Streams that the provider cuts short.

use axum::body::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, error, events, with};
use crate::common::{End, Recorded, Reply, TestApp, Upstream};

/// A text, a call, the reason of the end, the usage: in the dialect of each vendor.
const OPENAI: &str = "\
data: {\"choices\":[{\"delta\":{\"content\":\"\u{e9}\"}}]}

data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}

data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}

data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}

data: [DONE]

";
const ANTHROPIC: &str = "\
data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}

data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}

data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"\u{e9}\"}}

data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\"}}

data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":3}}

data: {\"type\":\"message_stop\"}

";
const GEMINI: &str = "\
data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\u{e9}\"}]}}]}

data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\"}}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":3}}

";

/// Model, stream, and a string in the event that completes the answer.
const STREAMS: [(&str, &str, &str); 3] = [
    (MODELS[1], OPENAI, "finish_reason"),
    (MODELS[2], ANTHROPIC, "message_stop"),
    (MODELS[3], GEMINI, "finishReason"),
];

/// A stream that is cut after `after` bytes. The prompt of the request contains these values.
#[derive(Debug, Clone, Copy)]
struct Cut {
    stream: usize,
    after: usize,
    end: End,
    path: &'static str,
}

impl Cut {
    fn all() -> impl Iterator<Item = Self> {
        let streams = STREAMS.iter().enumerate();
        let places = streams
            .flat_map(|(stream, (_, whole, _))| (0..whole.len()).map(move |after| (stream, after)));
        places.flat_map(|(stream, after)| {
            [CHAT, RESPONSES, MESSAGES]
                .into_iter()
                .flat_map(move |path| {
                    [End::Clean, End::Cut].map(|end| Self {
                        stream,
                        after,
                        end,
                        path,
                    })
                })
        })
    }

    fn body(self) -> Value {
        let end = if self.end == End::Clean {
            "clean"
        } else {
            "cut"
        };
        let prompt = format!("after {} {end} of {}.", self.after, self.stream);
        let model = STREAMS[self.stream].0;
        let body = if self.path == RESPONSES {
            json!({"model": model, "input": prompt, "max_output_tokens": 64})
        } else {
            ask(model, &prompt)
        };
        with(body, &json!({"stream": true}))
    }

    fn reply(request: &Recorded) -> Reply {
        let (_, cut) = request.text.split_once("after ").unwrap();
        let (cut, _) = cut.split_once('.').unwrap();
        let [after, end, _, stream] = cut.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{cut}")
        };
        let end = if end == "clean" { End::Clean } else { End::Cut };
        let whole = STREAMS[stream.parse::<usize>().unwrap()].1;
        let bytes = &whole.as_bytes()[..after.parse().unwrap()];
        Reply::Stream(Bytes::from_static(bytes), end)
    }

    /// Some servers end a stream without its last events: the answer is whole if it and its finish
    /// reason have arrived and no event is incomplete.
    fn is_whole(self) -> bool {
        let (_, whole, last) = STREAMS[self.stream];
        let last = whole.find(last).unwrap();
        let last = last + whole[last..].find("\n\n").unwrap();
        if self.end == End::Cut || self.after < last {
            return false;
        }
        let (before, rest) = whole.split_at(self.after);
        let (_, begun) = before.rsplit_once("\n\n").unwrap();
        rest.starts_with('\n') || "data: ".starts_with(begun)
    }
}

/// Whether events end in an error of their dialect, and contain no other end.
fn failed(path: &str, events: &[Value]) -> bool {
    let ended = |event: &Value| {
        event == "[DONE]"
            || event["choices"][0]["finish_reason"].is_string()
            || event["delta"]["stop_reason"].is_string()
            || ["message_stop", "response.completed", "response.incomplete"]
                .iter()
                .any(|end| event["type"] == *end)
    };
    let (last, before) = events.split_last().unwrap();
    let code = match path {
        CHAT => &last["error"]["code"],
        RESPONSES if last["type"] == "response.failed" => &last["response"]["error"]["code"],
        _ if last["type"] == "error" => &last["error"]["details"]["error_code"],
        _ => &Value::Null,
    };
    *code == "provider_error" && !ended(last) && !before.iter().any(ended)
}

#[sqlx::test]
async fn row_03_a_cut_after_any_byte_is_an_error_and_free(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.play(Cut::reply);
    let env = [("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100")];
    let app = TestApp::upstream_with(options, &upstream, &env).await;
    let (short, whole) = (app.account("10").await, app.account("10").await);
    let cuts = stream::iter(Cut::all());
    cuts.for_each_concurrent(16, async |cut| {
        let account = if cut.is_whole() { &whole } else { &short };
        let answer = app.post(&account.key, cut.path, &cut.body()).await;
        if answer.status != 200 {
            assert!(!cut.is_whole(), "{cut:?}");
            error(cut.path, &answer, 502, "provider_error");
            return;
        }
        let events = events(cut.path, &answer.text);
        assert_eq!(
            failed(cut.path, &events),
            !cut.is_whole(),
            "{cut:?} {}",
            answer.text
        );
    })
    .await;
    let balance = app.balance(&short).await;
    assert_eq!(balance, ("10".to_owned(), "0".to_owned()));
    let completed =
        "select count(*) from finished_generations where account_id = $1 and not failed";
    let completed: i64 = sqlx::query_scalar(completed)
        .bind(short.id.0)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(completed, 0);
    app.assert_settled().await;
}
