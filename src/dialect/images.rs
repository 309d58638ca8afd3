//! Images of the `openai` packages (openai 3.51.0, `openai/types/image_generate_params.py`,
//! `image_edit_params.py`, `images_response.py`).

use std::iter::repeat;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::json;

use crate::{
    domain::{
        generation::Surface,
        inputs::InputRole,
        named::named_enum,
        pricing::Quality,
        validate::{
            FieldCode, Fields, List, Object, Parsed, SchemaName, integer, only, parsed, text, words,
        },
    },
    request::{
        Background, ImageRequest, InputFrom, InputRequest, MAX_INPUTS, MODEL_NAME, SDK_SIZES,
        Target, size, size_names,
    },
};

named_enum!(
    /// How an image is returned.
    ImageFormat {
        /// A link to the stored file.
        Url = "url",
        /// The file itself.
        Base64 = "b64_json",
    }
);

#[derive(Debug, Clone, PartialEq)]
pub struct ImagesRequest {
    pub request: ImageRequest,
    /// `None`: in both ways.
    pub format: Option<ImageFormat>,
    /// Fields of the request that change no image.
    pub left_out: Vec<&'static str>,
}

/// Possible values of `left_out`.
const HINTS: &[&str] = &["safety_identifier", "user"];

/// Reads a size; `None`: the default.
const SIZE: Parsed<Option<(u32, u32)>> = parsed(
    || json!({"type": "string", "pattern": format!("^(auto|{})$", size_names(&SDK_SIZES, "|"))}),
    |text| match text {
        "auto" => Ok(None),
        text => size(text, &SDK_SIZES).map(Some),
    },
);

/// Reads a quality; `None`: the default.
const QUALITY: Parsed<Option<Quality>> = parsed(
    || json!({"type": "string", "pattern": "^(auto|standard|medium|hd|high)$"}),
    |text| match text {
        "auto" => Ok(None),
        "standard" | "medium" => Ok(Some(Quality::Standard)),
        "hd" | "high" => Ok(Some(Quality::Hd)),
        _ => {
            let message = "must be one of auto, standard, medium, hd, high";
            Err((FieldCode::NotAllowed, message.into()))
        }
    },
);

/// Reads a background; `None`: the default.
const BACKGROUND: Parsed<Option<Background>> = parsed(
    || json!({"type": "string", "pattern": "^(auto|transparent|opaque)$"}),
    |text| match text {
        "auto" => Ok(None),
        text => Background::parse(text).map(Some).ok_or_else(|| {
            let message = "must be one of auto, transparent, opaque";
            (FieldCode::NotAllowed, message.into())
        }),
    },
);

/// A request with input pictures.
#[derive(Debug, Clone, PartialEq)]
pub struct EditsRequest(pub ImagesRequest);

/// Reads a data URL of a picture. Its media type is ignored; the bytes determine the format.
const DATA_URL: Parsed<Bytes> = parsed(
    || json!({"type": "string", "pattern": "^data:"}),
    |text| {
        let wrong = |message: &'static str| (FieldCode::InvalidFormat, message.into());
        let rest = text.strip_prefix("data:").ok_or_else(|| {
            wrong("must be a data URL in base64; this server does not fetch URLs")
        })?;
        let (_, data) = rest.split_once(";base64,").unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(data);
        bytes
            .map(Bytes::from)
            .map_err(|_| wrong("must be a data URL in padded base64"))
    },
);

fn picture(fields: &Fields<'_>) -> Option<Bytes> {
    fields.unsupported(&["file_id"]);
    fields.required("image_url", "A data URL in base64.", DATA_URL)
}

impl Object for EditsRequest {
    const SCHEMA: SchemaName = (
        "EditsRequest",
        "Images to edit, with a prompt. Other OpenAI fields are refused by name.",
    );
    const EXAMPLE: &'static str = r#"{"model": "sandbox/sandbox-image-1",
        "prompt": "The same at night",
        "images": [{"image_url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="}],
        "size": "512x512", "response_format": "url"}"#;
    const TAKES_FORMS: bool = true;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let images = List::new(
            "The images to edit, in the form `image` or `image[]`.",
            ("EditImage", "An image to edit."),
        )
        .required();
        let images = images.read_up_to(Some(MAX_INPUTS), fields, "images", picture);
        let about = "A PNG of the first image's size, transparent where it is edited.";
        let mask = fields.object("mask", about, ("EditMask", "A mask."), picture);
        let mut request = ImagesRequest::read(fields)?;
        let roles = [InputRole::Source]
            .into_iter()
            .chain(repeat(InputRole::Reference));
        let images = images?.into_iter().enumerate();
        let images = images.map(|(at, bytes)| (format!("images[{at}].image_url"), bytes));
        let mask = mask.map(|mask| (InputRole::Mask, ("mask.image_url".to_owned(), mask)));
        let inputs = roles.zip(images).chain(mask);
        request.request.inputs = inputs
            .map(|(role, (field, bytes))| InputRequest {
                role,
                from: InputFrom::Data(bytes),
                sdk_field: Some(field),
            })
            .collect();
        Some(Self(request))
    }
}

impl Object for ImagesRequest {
    const SCHEMA: SchemaName = (
        "ImagesRequest",
        "Images from a prompt. Other fields of OpenAI's are refused by name.",
    );
    const EXAMPLE: &'static str = r#"{"model": "sandbox/sandbox-image-1",
        "prompt": "A lighthouse at dusk", "size": "512x512", "response_format": "url"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        fields.take_unknown_nulls();
        let about = "Not blank. The model may bound it further.";
        let prompt = fields.required("prompt", about, text(usize::MAX).not_blank());
        let about = "`provider/model` of GET /v1/models?type=image, or just `model`. Default: the \
                     account's, then the server's.";
        let model = fields.optional("model", about, MODEL_NAME);
        let about = "How many; billed each. Default 1.";
        let n = fields.optional("n", about, integer(1..=4));
        let about = "Pixels. Default: 1024x1024 where the model makes it.";
        let size = fields.optional("size", about, SIZE);
        let about = "`hd`, or `high`, costs more; all others are the standard tier.";
        let quality = fields.optional("quality", about, QUALITY);
        let style = fields.optional("style", "Default none.", words());
        let about = "Default: the model decides. Not every model takes another one.";
        let background = fields.optional("background", about, BACKGROUND);
        let about = "Default: both.";
        let format = fields.optional("response_format", about, words());
        for (name, value) in [
            ("moderation", json!("auto")),
            ("output_compression", json!(100)),
            ("output_format", json!("png")),
            ("partial_images", json!(0)),
            ("stream", json!(false)),
        ] {
            fields.optional(name, "Only the default is supported.", only([value]));
        }
        fields.unsupported(&["input_fidelity"]);
        Some(Self {
            request: ImageRequest {
                surface: Surface::OpenAiImages,
                prompt: prompt?,
                negative_prompt: None,
                inputs: Vec::new(),
                target: Target {
                    provider: None,
                    model,
                    fallbacks: Vec::new(),
                },
                size: size.flatten(),
                outpaint: None,
                quality: quality.flatten(),
                style,
                background: background.flatten(),
                n,
                max_cost: None,
            },
            format,
            left_out: fields.hints(HINTS),
        })
    }
}
