//! The fake upstream, in a process of its own: Chat Completions and Messages, whole and as a stream,
//! and Images, answered at once.

use std::{io, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{picture::encoded, role, wire};

/// The model whose streams stay open, a piece each second.
pub const LONG_MODEL: &str = "bench-long";
/// Seconds for which they do: longer than they are looked at.
const LONG: u32 = 3600;
/// The model that answers after a while.
pub const HELD_MODEL: &str = "bench-held";
/// How long that is.
const HELD: Duration = Duration::from_secs(8);
/// Pieces of any other stream.
const PIECES: usize = 20;
/// Of a body, at its end. The longest text is shorter.
const LOOKED_AT: usize = 1000;
/// A piece of a text. The whole is 260 bytes long.
const PIECE: &str = "twelve bytes ";

/// What is answered, ready to be sent.
struct Answers {
    text: Vec<u8>,
    image: Vec<u8>,
    message: Vec<u8>,
    /// All of a stream of Messages.
    message_events: Vec<u8>,
    /// The head of a stream and its first piece.
    first: Vec<u8>,
    piece: Vec<u8>,
    /// All further pieces and the end.
    rest: Vec<u8>,
    end: Vec<u8>,
}

pub async fn serve() {
    let answers = Arc::new(Answers::make());
    let listener = role::listen().await;
    while let Ok((stream, _)) = listener.accept().await {
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            // The caller is gone: no error.
            let _ = answers.connection(stream).await;
        });
    }
}

impl Answers {
    fn make() -> Self {
        let text = json!({
            "id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench",
            "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": PIECE.repeat(PIECES)}}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 60, "total_tokens": 72},
        });
        let image = json!({"created": 1, "data": [{"b64_json": picture()}]});
        let piece = chunk(&json!({"content": PIECE}), &Value::Null, &Value::Null);
        let usage = json!({"prompt_tokens": 12, "completion_tokens": 60, "total_tokens": 72});
        let last = chunk(&json!({}), &json!("stop"), &usage);
        let end = [last, sized("data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat();
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
            transfer-encoding: chunked\r\n\r\n";
        Self {
            text: whole(&text),
            image: whole(&image),
            message: whole(&message(
                "end_turn",
                &json!([{"type": "text", "text": PIECE.repeat(PIECES)}]),
            )),
            message_events: message_events(head),
            first: [&head[..], &piece].concat(),
            rest: [piece.repeat(PIECES - 1), end.clone()].concat(),
            piece,
            end,
        }
    }

    async fn connection(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut bytes = Vec::with_capacity(4096);
        loop {
            let (head, end) = wire::request(&mut stream, &mut bytes).await?;
            // What asks for a stream stands at the end of a body; an agent's are large.
            let body = &bytes[head.max(end.saturating_sub(LOOKED_AT))..end];
            if wire::contains(body, HELD_MODEL.as_bytes()) {
                tokio::time::sleep(HELD).await;
            }
            let is_stream = wire::contains(body, b"\"stream\":true");
            if wire::contains(&bytes[..head], b"/images/") {
                stream.write_all(&self.image).await?;
            } else if wire::contains(&bytes[..head], b"/messages") {
                let answer = if is_stream {
                    &self.message_events
                } else {
                    &self.message
                };
                stream.write_all(answer).await?;
            } else if !is_stream {
                stream.write_all(&self.text).await?;
            } else if wire::contains(body, LONG_MODEL.as_bytes()) {
                stream.write_all(&self.first).await?;
                for _ in 1..LONG {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    stream.write_all(&self.piece).await?;
                }
                stream.write_all(&self.end).await?;
            } else {
                stream.write_all(&self.first).await?;
                stream.write_all(&self.rest).await?;
            }
        }
    }
}

fn message(stop: &str, content: &Value) -> Value {
    json!({"id": "msg_bench", "type": "message", "role": "assistant", "model": "bench",
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 12, "output_tokens": 60}})
}

fn message_events(head: &[u8]) -> Vec<u8> {
    let mut start = message("", &json!([]));
    start["stop_reason"] = Value::Null;
    let delta = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": PIECE}});
    let mut events = vec![
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
    ];
    events.extend(std::iter::repeat_n(delta, PIECES));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 60}}),
        json!({"type": "message_stop"}),
    ]);
    let mut bytes = head.to_vec();
    for event in events {
        let kind = event["type"].as_str().unwrap();
        bytes.extend(sized(&format!("event: {kind}\ndata: {event}\n\n")));
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

fn whole(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn chunk(delta: &Value, finish: &Value, usage: &Value) -> Vec<u8> {
    let event = json!({
        "id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": usage,
    });
    sized(&format!("data: {event}\n\n"))
}

fn sized(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// A PNG of 1024 x 1024 pixels and some 200 kB, in base64.
fn picture() -> String {
    let picture = RgbImage::from_fn(1024, 1024, |x, y| {
        let shade = |n: u32| u8::try_from((n / 4) % 256).unwrap_or(0);
        let grain = u8::try_from(((x * 31) ^ (y * 17)) % 5).unwrap_or(0);
        Rgb([shade(x).saturating_add(grain), shade(y), shade(x + y)])
    });
    BASE64_STANDARD.encode(encoded(picture, ImageFormat::Png))
}
