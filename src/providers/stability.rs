//! Stability AI's `stable-image` (v2beta): core, ultra, sd3 and inpaint.
//!
//! Submodule: masks in its format ([`mask`]). The endpoints take an aspect ratio instead of a size,
//! or keep the source's; the caller scales the result. Sources: api-evangelist/stability-ai
//! `openapi/_original/stability-ai-stable-image-generate-openapi.yml`; Comfy-Org/ComfyUI
//! `comfy_api_nodes/apis/stability_api.py`; `Stability-AI/ComfyUI-SAI_API` `stability_api.py` for
//! `image`, `mask` and `strength`.

mod mask;
pub mod settings;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use reqwest::header::AUTHORIZATION;
use serde_json::Value;
use url::Url;

use super::{
    ImageAnswer, ImageCall, ImageProvider, ProviderError, ProviderErrorKind, answer,
    http::{
        IMAGE_CAP, SetupError, VendorClient,
        base_url::VersionPath,
        classify::{self, ErrorInfo, Head},
        form::Form,
        vendor_message::VendorMessage,
    },
    media_call::inputs_with_role,
    setup::{Adapter, Adapters, Setup},
};
use crate::{
    catalogue::vendor::Vendor,
    domain::{generation::Modality, inputs::InputRole, pricing::Quality},
    request::{Outpaint, Style},
};
pub use settings::{StabilityEndpoint, StabilityModel, StabilityTarget};

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor::new("stability", &[Modality::Image], |_, _, wire| {
        settings::read(wire)
    }),
    add: |registry, setup| {
        registry.add_image(setup, Stability::new(setup, client)?);
        Ok(())
    },
};

/// Maximum bytes of a response: one image in base64 and some JSON.
const ONE_IMAGE_BODY_CAP: usize = IMAGE_CAP / 3 * 4 + (64 << 10);
/// Maximum concurrent requests, and maximum images of a call.
const MOST: u32 = 4;
/// The supported aspect ratios.
const RATIOS: [(&str, f64); 9] = [
    ("21:9", 21.0 / 9.0),
    ("16:9", 16.0 / 9.0),
    ("3:2", 1.5),
    ("5:4", 1.25),
    ("1:1", 1.0),
    ("4:5", 0.8),
    ("2:3", 2.0 / 3.0),
    ("9:16", 9.0 / 16.0),
    ("9:21", 9.0 / 21.0),
];
/// Tolerance between size and ratio: real outputs are multiples of 64, such as 1344x768 for 16:9.
const TOLERANCE: f64 = 0.03;

/// Returns the ratio closest to `size`, within the tolerance.
fn aspect_ratio((width, height): (u32, u32)) -> Option<&'static str> {
    let wanted = f64::from(width) / f64::from(height);
    RATIOS
        .iter()
        .find(|(_, ratio)| (wanted / ratio - 1.0).abs() <= TOLERANCE)
        .map(|(name, _)| *name)
}

fn form(call: &ImageCall, settings: &StabilityModel, target: &StabilityTarget) -> Option<Form> {
    let style = match call.style {
        Some(Style::Vivid) => settings.vivid.as_deref(),
        Some(Style::Natural) => settings.natural.as_deref(),
        None => None,
    };
    let source = inputs_with_role(&call.inputs, InputRole::Source).next();
    let ratio = match source {
        Some(_) => None,
        None => Some(aspect_ratio(call.size)?),
    };
    let mut form = Form::default()
        .with("prompt", &call.prompt)
        .with_some("negative_prompt", call.negative_prompt.as_deref())
        .with_some("aspect_ratio", ratio)
        .with("output_format", "png")
        .with_some("style_preset", style)
        .with_some("model", target.model.as_deref());
    let Some(source) = source else {
        return Some(form);
    };
    if target.endpoint == StabilityEndpoint::Sd3 {
        form = form.with("mode", "image-to-image");
    }
    if target.endpoint.has_strength() {
        form = form.with("strength", settings.strength.to_string());
    }
    if let Some(Outpaint {
        left,
        right,
        up,
        down,
    }) = call.outpaint
    {
        for (side, pixels) in [("left", left), ("right", right), ("up", up), ("down", down)] {
            form = form.with(side, pixels.to_string());
        }
    }
    form = form.with_file("image", source);
    for mask in inputs_with_role(&call.inputs, InputRole::Mask) {
        form = form.with_file("mask", mask);
    }
    Some(form)
}

/// The image adapter of Stability. It rejects a model without settings.
pub type Stability = Adapter<StabilityModel>;

/// Builds the client. The timeout applies to each of the `n` concurrent requests.
fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    let key = (AUTHORIZATION, "Bearer ");
    VendorClient::new(setup, VersionPath::Last("v2beta"), key, error_info)
}

impl Stability {
    fn url(&self, target: StabilityEndpoint) -> Url {
        let kind = match target {
            StabilityEndpoint::Inpaint | StabilityEndpoint::Outpaint => "edit",
            _ => "generate",
        };
        self.client.url(&["stable-image", kind, target.as_str()])
    }

    /// Makes one request. Returns the image and the request id.
    async fn one(&self, url: Url, form: Form) -> Result<(Bytes, Option<String>), ProviderError> {
        let answer = self.client.post_form(url, form).await?;
        let read = |head: &Head, root| Ok((image(head, &root)?, head.request_id.clone()));
        answer.json_files(ONE_IMAGE_BODY_CAP, read).await
    }
}

/// Decodes an image. A filtered image is included in the response, but blurred.
fn image(head: &Head, root: &Value) -> Result<Bytes, ProviderError> {
    match root["finish_reason"].as_str() {
        None | Some("SUCCESS") => {}
        Some(reason @ "CONTENT_FILTERED") => return Err(head.refused(Some(reason))),
        Some(_) => return Err(head.failed("generation ended in an error")),
    }
    match root["image"].as_str() {
        Some(base64) => answer::file(base64, IMAGE_CAP).map_err(|error| head.with_context(error)),
        None => Err(head.failed("answer without an image")),
    }
}

#[async_trait]
impl ImageProvider for Stability {
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        let settings = (self.models.get(&call.model))
            .ok_or_else(|| ProviderError::rejected("model without settings"))?;
        let target = match call.quality {
            Quality::Standard => &settings.standard,
            Quality::Hd => settings.hd.as_ref().unwrap_or(&settings.standard),
        };
        let call = &mask::convert_masks(call).await?;
        let form = form(call, settings, target)
            .ok_or_else(|| ProviderError::rejected("no such aspect ratio"))?;
        let url = self.url(target.endpoint);
        let requests = (0..call.n.clamp(1, MOST)).map(|_| self.one(url.clone(), form.clone()));
        let mut images = Vec::new();
        let mut request_id = None;
        let mut first: Option<ProviderError> = None;
        let mut started = false;
        for outcome in join_all(requests).await {
            match outcome {
                Ok((image, id)) => {
                    images.push(image);
                    request_id = request_id.or(id);
                }
                Err(error) => {
                    if error.kind != ProviderErrorKind::ContentPolicy {
                        tracing::warn!(provider = self.client.name, %error, "one of the image requests failed");
                    }
                    started |= !error.not_started && !error.is_refused;
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(mut error) if images.is_empty() => {
                error.not_started &= !started;
                error.is_refused &= !started;
                Err(error)
            }
            _ => Ok(ImageAnswer {
                images,
                request_id,
                ..ImageAnswer::default()
            }),
        }
    }
}

/// Reads `{"id", "name": "bad_request", "errors": ["..."]}`. Only `name` decides the kind.
fn error_info(root: Option<&Value>) -> ErrorInfo {
    let name = classify::code(root.and_then(|root| root.get("name")));
    ErrorInfo {
        code: name.map(str::to_owned),
        kind: name.and_then(kind),
        vendor_message: VendorMessage::read(root),
        ..ErrorInfo::default()
    }
}

/// Returns the kind of a name. A moderated prompt gets 403, which otherwise means an invalid key.
fn kind(name: &str) -> Option<ProviderErrorKind> {
    match name {
        "content_moderation" | "content_filtered" => Some(ProviderErrorKind::ContentPolicy),
        "payment_required" | "insufficient_credits" | "insufficient_balance" => {
            Some(ProviderErrorKind::Account)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
