//! Responses of the image, speech and video vendors.

use std::{
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::DateTime;
use gensvc::{
    domain::{clock::ManualClock, request::SpeechFormat},
    providers::{
        SpeechCall, SpeechProvider as _, VideoCall, VideoOutput, VideoProvider as _, VideoStatus,
        sandbox::{SandboxSpeech, SandboxVideo},
    },
};
use http::Method;
use serde_json::{Value, json};

use super::{Recorded, Reply, Upstream};

pub fn png(width: u32, height: u32) -> Bytes {
    let picture = image::RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([x.to_le_bytes()[0], y.to_le_bytes()[0], 128])
    });
    let mut bytes = Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    bytes.into_inner().into()
}

pub async fn speech(format: SpeechFormat, text: &str) -> Bytes {
    let call = SpeechCall {
        model: "sandbox-speech-1".to_owned(),
        text: text.to_owned(),
        voice: "aria".to_owned(),
        speed: 1.0,
        format,
    };
    SandboxSpeech.generate(&call).await.unwrap().parts[0].clone()
}

pub async fn mp4(seconds: u32) -> Bytes {
    let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let sandbox = SandboxVideo::new(Arc::new(ManualClock::new(now)), Duration::ZERO);
    let call = VideoCall {
        model: "sandbox-video-1".to_owned(),
        prompt: "x".to_owned(),
        duration: seconds,
        ratio: (16, 9),
        inputs: Vec::new(),
    };
    let task = sandbox.submit(&call).await.unwrap();
    match sandbox.poll(&task, &call).await.unwrap() {
        VideoStatus::Done(VideoOutput::Bytes(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Images from OpenAI.
pub fn openai_images(images: &[Bytes]) -> Reply {
    let item = |bytes: &Bytes| json!({"b64_json": BASE64_STANDARD.encode(bytes)});
    let data: Vec<Value> = images.iter().map(item).collect();
    Reply::Status(200, json!({"created": 1, "data": data}))
}

/// One image from Stability.
pub fn stability_image(image: &Bytes, reason: &str) -> Reply {
    let image = BASE64_STANDARD.encode(image);
    Reply::Status(
        200,
        json!({"image": image, "finish_reason": reason, "seed": 1}),
    )
}

/// Speech from Gemini.
pub fn gemini_speech(mime: &str, bytes: &Bytes) -> Reply {
    let data = json!({"inlineData": {"mimeType": mime, "data": BASE64_STANDARD.encode(bytes)}});
    Reply::Status(
        200,
        json!({"candidates": [{"content": {"role": "model", "parts": [data]},
            "finishReason": "STOP"}], "responseId": "r-1"}),
    )
}

/// A Runway whose task is done at poll number `done_at`, with its output at `output` (`None`: at
/// the upstream itself) and `file` for all other requests.
pub fn runway(upstream: &Upstream, done_at: usize, output: Option<String>, file: Reply) {
    let output = output.unwrap_or_else(|| format!("{}/files/out.mp4", upstream.url()));
    let (tasks, polls) = (AtomicUsize::new(0), AtomicUsize::new(0));
    upstream.play(move |request: &Recorded| {
        if request.path.ends_with("_to_video") || request.path.ends_with("_to_image") {
            let n = tasks.fetch_add(1, Ordering::Relaxed);
            return Reply::Status(200, json!({"id": format!("task-{n}")}));
        }
        if !request.path.contains("/tasks/") {
            return file.clone();
        }
        if request.method == Method::DELETE {
            return Reply::Status(204, Value::Null);
        }
        let done = polls.fetch_add(1, Ordering::Relaxed) + 1 >= done_at;
        Reply::Status(
            200,
            if done {
                json!({"id": "t", "status": "SUCCEEDED", "output": [output]})
            } else {
                json!({"id": "t", "status": "RUNNING", "progress": 0.5})
            },
        )
    });
}
