//! Images, as the `openai` packages ask for them (openai 3.51.0,
//! `openai/types/image_generate_params.py`, `images_response.py`).

use serde_json::{Value, json};

use crate::domain::{
    generation::Surface,
    named::named_enum,
    request::{ImageRequest, MODEL_NAME, Quality, SIZES, Target, size},
    validate::{FieldCode, Fields, Input, Object, Parsed, integer, only, parsed, text, words},
};

named_enum!(
    /// How an image is answered.
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
}

/// `None` stands for the default.
const SIZE: Parsed<Option<(u32, u32)>> = parsed(
    || {
        let sizes = SIZES.map(|(width, height)| format!("{width}x{height}"));
        json!({"type": "string", "pattern": format!("^(auto|{})$", sizes.join("|"))})
    },
    |text| match text {
        "auto" => Ok(None),
        text => size(text).map(Some),
    },
);

/// `None` stands for the default.
const QUALITY: Parsed<Option<Quality>> = parsed(
    || json!({"type": "string", "pattern": "^(auto|standard|low|medium|hd|high)$"}),
    |text| match text {
        "auto" => Ok(None),
        "standard" | "low" | "medium" => Ok(Some(Quality::Standard)),
        "hd" | "high" => Ok(Some(Quality::Hd)),
        _ => {
            let message = "must be one of auto, standard, low, medium, hd, high";
            Err((FieldCode::NotAllowed, message.into()))
        }
    },
);

impl Input for ImagesRequest {
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
        let about = "Default: both.";
        let format = fields.optional("response_format", about, words());
        for (name, value) in [
            ("background", json!("auto")),
            ("moderation", json!("auto")),
            ("output_compression", json!(100)),
            ("output_format", json!("png")),
            ("partial_images", json!(0)),
            ("stream", json!(false)),
        ] {
            fields.optional(name, "Only the default is supported.", only([value]));
        }
        fields.unsupported(&["input_fidelity", "user"]);
        Some(Self {
            request: ImageRequest {
                surface: Surface::OpenAiImages,
                prompt: prompt?,
                negative_prompt: None,
                target: Target {
                    provider: None,
                    model,
                },
                size: size.flatten(),
                quality: quality.flatten(),
                style,
                n,
                max_cost: None,
            },
            format,
        })
    }
}

impl Object for ImagesRequest {
    const SCHEMA: (&'static str, &'static str) = (
        "ImagesRequest",
        "Images from a prompt. Other fields of OpenAI's are refused by name.",
    );

    fn example() -> Value {
        json!({"model": "sandbox/sandbox-image-1", "prompt": "A lighthouse at dusk",
            "size": "512x512", "response_format": "url"})
    }
}
