//! `OpenAI` images: the GPT image family, through `images/generations`, or `images/edits` if there
//! are inputs.
//!
//! Style and negative prompt have no field; they are part of the prompt. Source: openai 3.52.0
//! (`PyPI`) `openai/types/image_generate_params.py`, `image_edit_params.py`, `images_response.py`;
//! checked against requests recorded from the package.

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        ImageAnswer, ImageCall, ImageProvider, ProviderError, answer,
        http::{IMAGE_CAP, IMAGES_BODY_CAP, RequestJson, VendorClient, classify::Head, form::Form},
        media_call::inputs_with_role,
        setup::Adapter,
    },
    errors,
};
use crate::{
    catalogue::{ModelKind, Support, vendor::ModelSettings},
    domain::{
        conversation::WireObject,
        inputs::InputRole,
        pricing::Quality,
        settings::{ConfigError, words},
    },
    request::Background,
};

/// Settings of one model. The default suits the GPT image family.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenAiImageModel {
    /// `quality` of the standard tier.
    #[serde(deserialize_with = "quality")]
    pub standard: String,
    /// `quality` of the hd tier.
    #[serde(deserialize_with = "quality")]
    pub hd: String,
    /// `output_format`. `None` sends nothing.
    #[serde(deserialize_with = "output_format")]
    pub output_format: Option<String>,
    /// `moderation`. `None` sends nothing.
    #[serde(deserialize_with = "moderation")]
    pub moderation: Option<String>,
    /// `input_fidelity` of edits. `None` omits it: gpt-image-2 and later do not support it.
    #[serde(deserialize_with = "input_fidelity")]
    pub input_fidelity: Option<String>,
    /// Whether the model supports `background`.
    pub takes_background: bool,
}

impl Default for OpenAiImageModel {
    fn default() -> Self {
        Self {
            standard: "medium".to_owned(),
            hd: "high".to_owned(),
            output_format: Some("png".to_owned()),
            moderation: Some("auto".to_owned()),
            input_fidelity: None,
            takes_background: true,
        }
    }
}

words! {
    quality -> String = word("low", "medium", "high", "xhigh", "max");
    output_format -> Option<String> = word_or_blank("png", "jpeg", "webp");
    moderation -> Option<String> = word_or_blank("auto", "low");
    input_fidelity -> Option<String> = word_or_blank("low", "high");
}

impl ModelSettings for OpenAiImageModel {
    fn takes_background(&self) -> bool {
        // JPEG has no transparency.
        self.takes_background && self.output_format.as_deref() != Some("jpeg")
    }

    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Image(image) = model else {
            return Ok(());
        };
        let inputs = image.limits.inputs.as_ref();
        if inputs.is_some_and(|inputs| inputs.outpaints) {
            let problem = "is not supported: OpenAI's API has no endpoint for it";
            return Err(ConfigError::new("limits.inputs.outpaints", problem));
        }
        let fields = [
            ("limits.style", image.limits.style),
            ("limits.negative_prompt", image.limits.negative_prompt),
        ];
        match fields.iter().find(|(_, how)| *how == Support::Native) {
            None => Ok(()),
            Some((key, _)) => Err(ConfigError::new(
                *key,
                "is \"native\": OpenAI has no field for it; use guided or unsupported",
            )),
        }
    }
}

impl OpenAiImageModel {
    fn quality(&self, call: &ImageCall) -> &String {
        match call.quality {
            Quality::Standard => &self.standard,
            Quality::Hd => &self.hd,
        }
    }
}

fn body<'a>(call: &'a ImageCall, settings: &'a OpenAiImageModel) -> WireObject<'a> {
    WireObject::default()
        .with("model", &call.model)
        .with("prompt", &call.prompt)
        .with("n", json!(call.n))
        .with("size", json!(format!("{}x{}", call.size.0, call.size.1)))
        .with("quality", settings.quality(call))
        .with_some("background", call.background.map(Background::as_str))
        .with_some("output_format", settings.output_format.as_ref())
        .with_some("moderation", settings.moderation.as_ref())
}

/// Builds a form with the fields of the `openai` package: `image`, or `image[]` for each of several
/// pictures. The mask applies to the first. Edits have no field `moderation`.
fn form(call: &ImageCall, settings: &OpenAiImageModel) -> Form {
    let mut form = Form::default()
        .with("model", &call.model)
        .with("prompt", &call.prompt)
        .with("n", call.n.to_string())
        .with("size", format!("{}x{}", call.size.0, call.size.1))
        .with("quality", settings.quality(call))
        .with_some("background", call.background.map(Background::as_str))
        .with_some("output_format", settings.output_format.as_deref())
        .with_some("input_fidelity", settings.input_fidelity.as_deref());
    let sources = inputs_with_role(&call.inputs, InputRole::Source);
    let pictures: Vec<_> = sources
        .chain(inputs_with_role(&call.inputs, InputRole::Reference))
        .collect();
    let name = if pictures.len() == 1 {
        "image"
    } else {
        "image[]"
    };
    for picture in pictures {
        form = form.with_file(name, picture);
    }
    for mask in inputs_with_role(&call.inputs, InputRole::Mask) {
        form = form.with_file("mask", mask);
    }
    form
}

/// The image adapter of `OpenAI`. The best quality takes minutes: the timeout should be at least
/// 180 s.
pub type OpenAiImages = Adapter<OpenAiImageModel>;

/// Reads the answer. Fewer images than requested, or some unreadable ones, are accepted; none is an
/// error.
fn read(
    client: &VendorClient,
    most: usize,
    head: &Head,
    mut root: Value,
) -> Result<ImageAnswer, ProviderError> {
    if errors::is_error(&root) {
        return Err(client.error(head, Some(&root)));
    }
    let input_image_tokens =
        answer::count(root.pointer("/usage/input_tokens_details/image_tokens"));
    let Some(Value::Array(items)) = root.get_mut("data").map(Value::take) else {
        return Err(head.failed("data is no array"));
    };
    let mut images = Vec::new();
    let mut first = None;
    for item in items.iter().take(most) {
        match image(item) {
            Ok(bytes) => images.push(bytes),
            Err(error) => {
                tracing::warn!(provider = client.name, %error, "one of several images is invalid");
                first.get_or_insert(error);
            }
        }
    }
    if images.is_empty() {
        return Err(head.with_context(first.unwrap_or_else(|| ProviderError::failed("no image"))));
    }
    Ok(ImageAnswer {
        images,
        request_id: head.request_id.clone(),
        input_image_tokens,
        ..ImageAnswer::default()
    })
}

/// Decodes an image. Only retired models send a `url` instead of the bytes.
fn image(item: &Value) -> Result<Bytes, ProviderError> {
    match item["b64_json"].as_str() {
        Some(base64) => answer::file(base64, IMAGE_CAP),
        None => Err(ProviderError::failed("item without an image")),
    }
}

#[async_trait]
impl ImageProvider for OpenAiImages {
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        let settings = self.settings(&call.model);
        let endpoint = |name| self.client.url(&["images", name]);
        let answer = if call.inputs.is_empty() {
            let body = RequestJson::of(&body(call, &settings))?;
            self.client.post(endpoint("generations"), body).await?
        } else {
            let form = form(call, &settings);
            self.client.post_form(endpoint("edits"), form).await?
        };
        let (client, most) = (self.client.clone(), call.n as usize);
        let read = move |head: &Head, root| read(&client, most, head, root);
        answer.json_files(IMAGES_BODY_CAP, read).await
    }
}

#[cfg(test)]
mod tests;
