//! Responses of the image, speech and video vendors.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};

use super::{Recorded, Reply, Upstream};
use crate::picture::encoded;
pub use crate::sandbox::{mp4, speech};

pub fn png(width: u32, height: u32) -> Bytes {
    let picture = RgbImage::from_fn(width, height, |x, y| {
        Rgb([x.to_le_bytes()[0], y.to_le_bytes()[0], 128])
    });
    encoded(picture, ImageFormat::Png).into()
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
