//! A request for a generation, of any modality.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use image::{ImageFormat, Rgb, RgbImage};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    http::{Http, json_body},
    picture::encoded,
};

/// A generation that a client requests.
#[derive(Clone)]
pub struct Call {
    pub route: &'static str,
    pub body: Value,
    pub mark: String,
    pub key: Option<String>,
    pub prefer: Option<&'static str>,
}

impl Call {
    /// One of any modality, with a mark that identifies it upstream and in the database.
    pub fn draw(rng: &mut fastrand::Rng, name: &str) -> Self {
        let mark = format!("mk-{name}-end");
        let prompt = format!("Say {mark}");
        let one_of = |n: u32, rng: &mut fastrand::Rng| rng.u32(0..n) == 0;
        let (route, mut body, prefer) = match rng.u32(0..100) {
            0..40 => {
                let provider = if rng.bool() { "openai" } else { "anthropic" };
                let max_tokens = rng.i32(20..2_000);
                let body = json!({"provider": provider, "stream": one_of(3, rng),
                    "parameters": {"max_tokens": max_tokens}});
                let prefer = one_of(6, rng).then_some("respond-async");
                ("/v1/generate/text", body, prefer)
            }
            40..52 => {
                let body = json!({"provider": "openai", "parameters": {"n": rng.i32(1..3)}});
                let prefer = one_of(4, rng).then_some("respond-async");
                ("/v1/generate/image", body, prefer)
            }
            52..80 => {
                let duration = rng.i32(2..5);
                let body = json!({"provider": "runway", "parameters": {"duration": duration}});
                (
                    "/v1/generate/video",
                    body,
                    one_of(3, rng).then_some("wait=2"),
                )
            }
            _ => {
                let format = if rng.bool() { "mp3" } else { "wav" };
                let body = json!({"provider": "elevenlabs", "parameters": {"format": format}});
                (
                    "/v1/generate/audio",
                    body,
                    one_of(3, rng).then_some("wait=2"),
                )
            }
        };
        body["prompt"] = json!(prompt);
        Self {
            route,
            body,
            key: (rng.u32(0..10) < 6).then(|| format!("key-{name}")),
            mark,
            prefer,
        }
    }

    /// Gives a text a dearer or a cheaper fallback, and its mark `-or`. Servers of a release without
    /// fallbacks refuse it.
    pub fn add_fallback(&mut self) {
        if self.route != "/v1/generate/text" {
            return;
        }
        let dear = json!({"provider": "anthropic", "model": "claude-haiku-4-5"});
        let cheap = json!({"provider": "openai", "model": "gpt-6-luna"});
        let [first, other] = if self.body["provider"] == "openai" {
            [cheap, dear]
        } else {
            [dear, cheap]
        };
        for (name, value) in first.as_object().into_iter().flatten() {
            self.body[name] = value.clone();
        }
        self.body["fallbacks"] = json!([other]);
        self.mark = self.mark.replace("-end", "-or-end");
        self.body["prompt"] = json!(format!("Say {}", self.mark));
    }

    /// Gives an image or a video pictures as inputs. Servers of a release without inputs refuse them.
    pub fn add_inputs(&mut self, rng: &mut fastrand::Rng) {
        let roles: &[_] = match self.route {
            "/v1/generate/image" => &["source", "reference"],
            "/v1/generate/video" => &["first_frame"],
            _ => return,
        };
        let inputs: Vec<_> = roles.iter().map(|role| picture(role, rng)).collect();
        self.body["inputs"] = json!(inputs);
    }

    /// The request for it.
    pub fn request(&self, http: &Http, server: usize, token: &str) -> RequestBuilder {
        let mut request = http.build(server, Method::POST, self.route, token);
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(prefer) = self.prefer {
            request = request.header("prefer", prefer);
        }
        json_body(request, self.body.to_string())
    }
}

/// An input of one random color, so that few inputs have the same bytes.
fn picture(role: &str, rng: &mut fastrand::Rng) -> Value {
    let color = Rgb([rng.u8(..), rng.u8(..), rng.u8(..)]);
    let file = encoded(RgbImage::from_pixel(16, 9, color), ImageFormat::Png);
    json!({"role": role, "data": BASE64_STANDARD.encode(file)})
}
