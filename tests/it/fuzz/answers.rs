//! What upstreams answer: good answers of every vendor, changed. Whatever comes, the generation
//! ends, a failure costs nothing, a success at most its hold, and what is kept is what it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use gensvc::{
    domain::credits::Credits,
    media::{MediaKind, inspect},
    providers::SpeechFormat,
};
use http::Method;
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    Size, check,
    json::{Cut, Edit, cut, cuts, edit, edits, value},
};
use crate::common::{
    Account, Answer, Recorded, Reply, TestApp, Upstream,
    upstream::text,
    vendors::{mp4, png, speech},
};

/// A case takes milliseconds; one that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// What must not be told to anyone.
const SECRETS: [&str; 5] = [
    "sk-test",
    "test-gemini",
    "test-stability",
    "test-runway",
    "test-elevenlabs",
];

/// What is done to the answers.
#[derive(Debug, Clone)]
enum Harm {
    /// To the JSON, or to that of each event; then to its text.
    Json(Vec<Edit>, Vec<Cut>),
    /// To the order of the events: each is taken from here.
    Events(Vec<Index>),
    /// To the file inside.
    File(Vec<Cut>),
    /// A file whose header claims this for its width, height or length.
    Claim(Index, u32),
    /// Another file's bytes.
    Other(Index),
    Value(Value),
    Bytes(Vec<u8>),
    /// A gzip that is none.
    Nothing,
}

#[derive(Debug, Clone)]
struct Case {
    harm: Harm,
    status: u16,
    content_type: Option<&'static str>,
    /// Which of a job's calls are harmed, a bit each.
    stages: u8,
}

fn case() -> impl Strategy<Value = Case> {
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

/// Good files.
struct Files {
    png: Bytes,
    mp3: Bytes,
    wav: Bytes,
    mp4: Bytes,
}

impl Files {
    async fn new() -> Self {
        Self {
            png: png(1024, 1024),
            mp3: speech(SpeechFormat::Mp3, "x").await,
            wav: speech(SpeechFormat::Wav, "x").await,
            mp4: mp4(3).await,
        }
    }
}

impl Case {
    /// A file, harmed if files are to be.
    fn file(&self, good: &Bytes, files: &Files) -> Bytes {
        let mut bytes = good.to_vec();
        match &self.harm {
            // Most of what is worth changing lies at the front.
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

    /// A whole answer, harmed if it is its turn.
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

/// Changes a JSON text, or the JSON of each event in a stream.
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

/// What the vendors would answer to a request, harmed.
fn answer(case: &Case, files: &Files, url: &str, request: &Recorded) -> Reply {
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

struct Stage {
    app: TestApp,
    upstream: Upstream,
    files: Arc<Files>,
    account: Account,
    /// How many ended how, by type, provider and status.
    ends: Mutex<BTreeMap<[String; 3], usize>>,
}

impl Stage {
    async fn new(options: PgConnectOptions) -> Arc<Self> {
        let upstream = Upstream::start().await;
        let anthropic = format!("{}/anthropic", upstream.url());
        let more = [
            ("ANTHROPIC_API_KEY", "sk-test-anthropic"),
            ("ANTHROPIC_BASE_URL", &anthropic),
            // What cannot be read is asked for again until then.
            ("GENSVC__JOBS__DEADLINE_SECONDS", "5"),
        ];
        let app = TestApp::vendors(options, &upstream, &more).await;
        Arc::new(Self {
            account: app.account("1000000").await,
            app,
            upstream,
            files: Arc::new(Files::new().await),
            ends: Mutex::default(),
        })
    }

    /// Plays a case from now on.
    fn play(&self, case: &Case) {
        let (case, files) = (case.clone(), Arc::clone(&self.files));
        let url = self.upstream.url();
        self.upstream
            .play(move |request| answer(&case, &files, &url, request));
    }

    async fn post(&self, kind: &str, body: &Value) -> Answer {
        let path = format!("/v1/generate/{kind}");
        self.app.post(&self.account.key, &path, body).await
    }

    /// The record of what has just ended, from the answer of the call that waited for it.
    fn waited(answer: &Answer) -> Value {
        if answer.status == 200
            && answer
                .header("content-type")
                .starts_with("text/event-stream")
        {
            return answer.events().pop().unwrap().1;
        }
        let status = answer.status.as_u16();
        match status {
            200 => answer.json(),
            502..=504 => {
                let code = answer.json()["error"]["code"].clone();
                answer.error(status, code.as_str().unwrap());
                answer.json()["generation"].clone()
            }
            _ => panic!("{status}: {}", answer.text),
        }
    }

    /// What must hold of every end.
    async fn assert_ended(&self, record: &Value) {
        let amount = |name: &str| -> Credits {
            let text = record["credits"][name].as_str();
            text.unwrap_or_else(|| panic!("{name}: {record}"))
                .parse()
                .unwrap()
        };
        let end = ["type", "provider", "status"].map(|name| record[name].to_string());
        *self.ends.lock().unwrap().entry(end).or_default() += 1;
        assert_eq!(record["credits"]["held"], "0", "{record}");
        let text = record.to_string();
        assert!(
            SECRETS.iter().all(|secret| !text.contains(secret)),
            "{record}"
        );
        match record["status"].as_str() {
            Some("failed") => {
                assert_eq!(record["credits"]["charged"], "0", "{record}");
                assert_eq!(record["result"], Value::Null);
                assert_eq!(record["outputs"], json!([]));
                assert!(record["error"]["code"].is_string(), "{record}");
            }
            Some("completed") => {
                assert!(amount("charged") <= amount("estimated"), "{record}");
                assert!(record["result"].is_string(), "{record}");
                let outputs = record["outputs"].as_array().unwrap();
                assert_eq!(outputs.is_empty(), record["type"] == "text", "{record}");
                for output in outputs {
                    self.assert_file(output).await;
                }
            }
            _ => panic!("{record}"),
        }
    }

    /// Nothing is on hold. Of all kinds there were some, some ended well and some did not: or
    /// else little was tested.
    async fn assert_done(&self, kinds: usize) {
        self.app.idle().await;
        self.app.assert_settled().await;
        let ends = self.ends.lock().unwrap();
        let all: BTreeSet<_> = ends
            .keys()
            .map(|[kind, provider, _]| (kind, provider))
            .collect();
        let statuses: BTreeSet<_> = ends.keys().map(|[.., status]| status).collect();
        assert_eq!((all.len(), statuses.len()), (kinds, 2), "{ends:?}");
    }

    async fn assert_file(&self, output: &Value) {
        let file = self.app.file(&output["url"], &[]).await;
        assert_eq!(
            (file.status.as_u16(), &output["bytes"]),
            (200, &json!(file.bytes.len()))
        );
        let info = inspect(&file.bytes, &MediaKind::ALL).unwrap();
        assert_eq!(info.kind.content_type(), output["content_type"]);
        if output["type"] == "image" {
            // Told by a decoder that is not ours.
            let picture = image::load_from_memory(&file.bytes).unwrap();
            assert_eq!((picture.width(), picture.height()), (1024, 1024));
        } else {
            assert!(output["seconds"].as_f64().unwrap() > 0.0, "{output}");
        }
    }
}

#[sqlx::test]
async fn texts_end_whatever_is_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let stage = Stage::new(options).await;
    let last = Arc::clone(&stage);
    let providers = prop::sample::select(vec!["openai", "anthropic", "gemini"]);
    let size = Size {
        small: 120,
        cost: 4,
    };
    check(
        size,
        (case(), providers, any::<bool>()),
        move |(mut case, provider, stream)| {
            let stage = Arc::clone(&stage);
            async move {
                case.stages = 1;
                stage.play(&case);
                let body = json!({"prompt": "x", "provider": provider, "stream": stream,
                "parameters": {"max_tokens": 16}});
                let answer = tokio::time::timeout(PATIENCE, stage.post("text", &body)).await;
                stage.assert_ended(&Stage::waited(&answer.unwrap())).await;
            }
        },
    )
    .await;
    last.assert_done(3).await;
}

#[sqlx::test]
async fn images_end_whatever_is_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let stage = Stage::new(options).await;
    let last = Arc::clone(&stage);
    let providers = prop::sample::select(vec!["openai", "stability"]);
    let size = Size {
        small: 24,
        cost: 30,
    };
    check(size, (case(), providers), move |(mut case, provider)| {
        let stage = Arc::clone(&stage);
        async move {
            case.stages = 1;
            stage.play(&case);
            let body = json!({"prompt": "x", "provider": provider});
            let answer = tokio::time::timeout(PATIENCE, stage.post("image", &body)).await;
            stage.assert_ended(&Stage::waited(&answer.unwrap())).await;
        }
    })
    .await;
    last.assert_done(2).await;
}

#[sqlx::test]
async fn jobs_end_whatever_is_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let stage = Stage::new(options).await;
    let last = Arc::clone(&stage);
    let speech = |provider: &str, format: &str| {
        let parameters = json!({"format": format});
        (
            "audio",
            json!({"prompt": "x", "provider": provider, "parameters": parameters}),
        )
    };
    let video = |provider: &str| {
        let parameters = json!({"duration": 3});
        (
            "video",
            json!({"prompt": "x", "provider": provider, "parameters": parameters}),
        )
    };
    let requests = prop::sample::select(vec![
        speech("openai", "mp3"),
        speech("openai", "wav"),
        speech("elevenlabs", "mp3"),
        speech("elevenlabs", "wav"),
        speech("gemini", "wav"),
        video("runway"),
        video("gemini"),
    ]);
    let size = Size {
        small: 50,
        cost: 15,
    };
    check(size, (case(), requests), move |(mut case, (kind, body))| {
        let stage = Arc::clone(&stage);
        async move {
            if kind == "audio" {
                case.stages = 1;
            }
            stage.play(&case);
            let uuid = stage.app.queue(&stage.account, kind, &body).await;
            let ending = stage.app.until_finished(&stage.account, &uuid);
            let record = tokio::time::timeout(PATIENCE, ending).await.unwrap();
            stage.assert_ended(&record).await;
        }
    })
    .await;
    last.assert_done(5).await;
}
