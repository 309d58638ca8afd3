//! Valid responses of every vendor, and mutations of them.

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use gensvc::request::SpeechFormat;
use http::Method;
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    common::{
        Recorded, Reply,
        upstream::text,
        vendors::{mp4, png, speech},
    },
    fuzz::{
        bytes::{Cut, cut, cuts},
        json::{Edit, edit, edits, value},
    },
};

/// Mutations of the responses.
#[derive(Debug, Clone)]
pub enum Harm {
    /// Of the JSON, or that of each event; then of its text.
    Json(Vec<Edit>, Vec<Cut>),
    /// Of the order of events: each is taken from here.
    Events(Vec<Index>),
    /// Of the file inside.
    File(Vec<Cut>),
    /// A file whose header claims this width, height or length.
    Claim(Index, u32),
    /// Another file's bytes.
    Other(Index),
    Value(Value),
    Bytes(Vec<u8>),
    /// An invalid gzip.
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Case {
    harm: Harm,
    status: u16,
    content_type: Option<&'static str>,
    /// Which calls of a job are mutated, one bit each.
    pub stages: u8,
}

pub fn case() -> impl Strategy<Value = Case> {
    let harm = prop_oneof![
        8 => (edits(3), cuts(0)).prop_map(|(edits, cuts)| Harm::Json(edits, cuts)),
        3 => (edits(1), cuts(3)).prop_map(|(edits, cuts)| Harm::Json(edits, cuts)),
        3 => vec(any::<Index>(), 0..12).prop_map(Harm::Events),
        6 => cuts(4).prop_map(Harm::File),
        3 => (any::<Index>(), prop::sample::select(vec![0, 1, 7, 8, 60_000, 0x7fff_ffff, u32::MAX]))
            .prop_map(|(at, size)| Harm::Claim(at, size)),
        1 => any::<Index>().prop_map(Harm::Other),
        1 => value().prop_map(Harm::Value),
        1 => vec(any::<u8>(), 0..200).prop_map(Harm::Bytes),
        1 => Just(Harm::Nothing),
    ];
    let status = prop_oneof![
        12 => Just(200_u16),
        1 => prop::sample::select(vec![201, 202, 204, 206, 302, 400, 401, 402, 403, 404, 408, 413,
            422, 429, 500, 502, 503, 504, 529, 599, 999]),
    ];
    let content_type = prop_oneof![
        8 => Just(None),
        1 => prop::sample::select(vec!["", "text/html", "application/json", "text/event-stream",
            "audio/mpeg", "audio/L16;rate=0", "multipart/mixed", "\t;;"]).prop_map(Some),
    ];
    (harm, status, content_type, 1..8_u8).prop_map(|(harm, status, content_type, stages)| Case {
        harm,
        status,
        content_type,
        stages,
    })
}

/// Valid files.
pub struct Files {
    png: Bytes,
    mp3: Bytes,
    wav: Bytes,
    mp4: Bytes,
}

impl Files {
    pub async fn new() -> Self {
        Self {
            png: png(1024, 1024),
            mp3: speech(SpeechFormat::Mp3, "x").await,
            wav: speech(SpeechFormat::Wav, "x").await,
            mp4: mp4(3).await,
        }
    }
}

impl Case {
    /// A file, mutated if files are to be.
    fn file(&self, good: &Bytes, files: &Files) -> Bytes {
        let mut bytes = good.to_vec();
        match &self.harm {
            // Most of what is worth changing is at the front.
            Harm::File(cuts) if cuts.len() % 2 == 1 => {
                let mut front: Vec<u8> = bytes.drain(..bytes.len().min(200)).collect();
                cut(&mut front, cuts);
                bytes.splice(0..0, front);
            }
            Harm::File(cuts) => cut(&mut bytes, cuts),
            Harm::Claim(at, size) => {
                let at = at.index(bytes.len().min(400) - 4);
                bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
            }
            Harm::Other(at) => {
                let all = [&files.png, &files.mp3, &files.wav, &files.mp4];
                return all[at.index(4)].clone();
            }
            _ => {}
        }
        bytes.into()
    }

    /// A complete response, mutated if it is its turn.
    fn reply(&self, stage: u8, content_type: &str, body: &[u8]) -> Reply {
        if self.stages & (1 << stage) == 0 {
            let content_type = content_type.to_owned();
            return Reply::Bytes(200, content_type, Bytes::copy_from_slice(body));
        }
        let body = match &self.harm {
            Harm::Json(edits, cuts) => {
                let mut bytes = each_json(body, edits);
                cut(&mut bytes, cuts);
                bytes
            }
            Harm::Events(order) if content_type == "text/event-stream" => {
                let text = String::from_utf8_lossy(body);
                let events: Vec<&str> = text.split_inclusive("\n\n").collect();
                let taken = order.iter().map(|at| events[at.index(events.len())]);
                taken.collect::<String>().into_bytes()
            }
            Harm::Value(value) => value.to_string().into_bytes(),
            Harm::Bytes(bytes) => bytes.clone(),
            _ => body.to_vec(),
        };
        let content_type = self.content_type.unwrap_or(content_type);
        Reply::Bytes(self.status, content_type.to_owned(), body.into())
    }

    fn json(&self, stage: u8, body: &Value) -> Reply {
        self.reply(stage, "application/json", body.to_string().as_bytes())
    }
}

/// Mutates a JSON text, or the JSON of each event in a stream.
fn each_json(body: &[u8], edits: &[Edit]) -> Vec<u8> {
    let changed = |text: &str| {
        serde_json::from_str(text).ok().map(|mut value: Value| {
            edit(&mut value, edits);
            value.to_string()
        })
    };
    let text = String::from_utf8_lossy(body);
    if let Some(changed) = changed(&text) {
        return changed.into_bytes();
    }
    let line = |line: &str| {
        let data = line.strip_prefix("data: ").and_then(changed);
        data.map_or_else(|| format!("{line}\n"), |data| format!("data: {data}\n"))
    };
    text.lines().map(line).collect::<String>().into_bytes()
}

/// A vendor's response to a request, mutated.
pub fn answer(case: &Case, files: &Files, url: &str, request: &Recorded) -> Reply {
    let path = request.path.as_str();
    let post = request.method == Method::POST;
    let base64 = |good: &Bytes| BASE64_STANDARD.encode(case.file(good, files));
    let speech = if request.text.contains("wav") || path.contains("pcm") || path.contains("wav") {
        &files.wav
    } else {
        &files.mp3
    };
    if path.contains("/images/") {
        let image = json!({"b64_json": base64(&files.png)});
        case.json(0, &json!({"created": 1, "data": [image]}))
    } else if path.starts_with("/stability") {
        let image = base64(&files.png);
        case.json(
            0,
            &json!({"image": image, "finish_reason": "SUCCESS", "seed": 1}),
        )
    } else if path.contains("/audio/speech") || path.starts_with("/elevenlabs") {
        case.reply(0, "audio/mpeg", &case.file(speech, files))
    } else if path.contains("tts") {
        let data = json!({"mimeType": "audio/wav", "data": base64(&files.wav)});
        case.json(
            0,
            &json!({"candidates": [{"content": {"role": "model",
            "parts": [{"inlineData": data}]}, "finishReason": "STOP"}], "responseId": "r-1"}),
        )
    } else if path.contains("/files/") {
        case.reply(2, "video/mp4", &case.file(&files.mp4, files))
    } else if path.contains("/text_to_video") {
        case.json(0, &json!({"id": "task-1"}))
    } else if path.contains("/tasks/") {
        let output = format!("{url}/files/out.mp4");
        case.json(
            1,
            &json!({"id": "t", "status": "SUCCEEDED", "output": [output]}),
        )
    } else if path.contains("interactions") && post {
        case.json(0, &json!({"id": "int-1", "status": "in_progress"}))
    } else if path.contains("interactions") {
        let uri = format!("{url}/gemini/v1beta/files/f:download");
        let video = json!({"type": "video", "uri": uri, "mime_type": "video/mp4"});
        case.json(
            1,
            &json!({"id": "int-1", "status": "completed",
            "steps": [{"type": "model_output", "content": [video]}]}),
        )
    } else {
        let streamed = request.body["stream"] == true || path.contains("streamGenerateContent");
        let body = text::body(path, streamed, "Hello there, all of you.", 10, 3);
        let kind = if streamed {
            "text/event-stream"
        } else {
            "application/json"
        };
        case.reply(0, kind, body.as_bytes())
    }
}
