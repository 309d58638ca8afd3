//! Requests of callers, validated within the API's own limits; templates, models and accounts are
//! not read here. One function per request parses it, validates it and describes it for the OpenAPI
//! document.

mod account;
mod dialogue;
mod inputs;
mod media;
mod operator;
mod text;
mod usage;

use serde_json::{Map, Value, json};

pub use account::{
    AccountChange, KeyRequest, Login, PasswordChange, TemplatePreview, TemplateText, WebhookRequest,
};
pub use dialogue::{DialogueRequest, Original, Search};
pub use inputs::{
    InputFrom, InputRequest, MAX_ALL_INPUT_BYTES, MAX_INPUT_BYTES, MAX_INPUT_PIXELS, MAX_INPUTS,
    read_inputs,
};
pub use media::{
    Background, ImageRequest, Outpaint, Ratio, SDK_SIZES, SIZES, SpeechFormat, SpeechRequest,
    Style, VOICE, VideoRequest, VoiceIds, size, size_names,
};
pub use operator::{
    AccountRequest, AccountUpdate, EMAIL_CHARS, Move, MoveRequest, PASSWORD_CHARS,
    SuspensionRequest, normalized_email, password_violations,
};
pub use text::TextRequest;
pub use usage::{GROUPS, UsageRequest};

use crate::domain::{
    credits::Credits,
    generation::{Modality, Surface},
    route::{MAX_FALLBACKS, PROVIDER, route_name},
    validate::{Body, FieldCode, FieldError, Fields, List, Schemas, Text, credits, text as string},
};

/// Maximum characters of a text prompt.
pub const TEXT_PROMPT_CHARS: usize = 10_000;
/// Maximum characters of a system prompt.
pub const SYSTEM_PROMPT_CHARS: usize = 5_000;
/// Maximum of `parameters.max_tokens`.
pub const MAX_TOKENS: u32 = 4096;
/// Default of `parameters.max_tokens`.
pub const DEFAULT_MAX_TOKENS: u32 = 1024;
/// Maximum characters of an image prompt.
pub const IMAGE_PROMPT_CHARS: usize = 5_000;
/// Maximum characters of a negative prompt.
pub const NEGATIVE_PROMPT_CHARS: usize = 2_000;
/// Maximum characters of a video prompt.
pub const VIDEO_PROMPT_CHARS: usize = 5_000;
/// Maximum characters of a text to speak.
pub const SPEECH_PROMPT_CHARS: usize = 10_000;
/// Maximum of a video's `parameters.duration`, in seconds.
pub const MAX_DURATION: u32 = 60;
/// Minimum and maximum of `parameters.speed`.
pub const SPEED: [f64; 2] = [0.25, 4.0];
/// Maximum characters of a voice id.
const VOICE_CHARS: usize = 100;
/// Maximum characters of a provider or model name.
pub const NAME_CHARS: usize = 200;

/// The provider and model of a request, in any modality.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Provider name; if absent, the account's or the server's default.
    pub provider: Option<String>,
    /// Model id of the resolved provider; if absent, its default.
    pub model: Option<String>,
    /// Models to use if the provider does not start, in order.
    pub fallbacks: Vec<Self>,
}

/// The template that a request names, with its variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRequest {
    pub id: i64,
    /// Values for its placeholders.
    pub variables: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum GenerationRequest {
    Text(TextRequest),
    Dialogue(Box<DialogueRequest>),
    Image(ImageRequest),
    Video(VideoRequest),
    Audio(SpeechRequest),
}

macro_rules! of_modality {
    ($($request:ident => $modality:ident),+) => {$(
        impl From<$request> for GenerationRequest {
            fn from(request: $request) -> Self {
                Self::$modality(request)
            }
        }
    )+};
}

impl From<DialogueRequest> for GenerationRequest {
    fn from(request: DialogueRequest) -> Self {
        Self::Dialogue(Box::new(request))
    }
}

of_modality!(TextRequest => Text, ImageRequest => Image);
of_modality!(VideoRequest => Video, SpeechRequest => Audio);

impl GenerationRequest {
    pub const fn is_streamed(&self) -> bool {
        match self {
            Self::Text(request) => request.stream,
            Self::Dialogue(request) => request.stream,
            _ => false,
        }
    }

    pub const fn modality(&self) -> Modality {
        match self {
            Self::Text(_) | Self::Dialogue(_) => Modality::Text,
            Self::Image(_) => Modality::Image,
            Self::Video(_) => Modality::Video,
            Self::Audio(_) => Modality::Audio,
        }
    }

    /// Returns its provider, model and fallbacks; `None` for a dialogue, which has only a model.
    pub const fn target(&self) -> Option<&Target> {
        match self {
            Self::Text(request) => Some(&request.target),
            Self::Dialogue(_) => None,
            Self::Image(request) => Some(&request.target),
            Self::Video(request) => Some(&request.target),
            Self::Audio(request) => Some(&request.target),
        }
    }

    /// Returns the same request for one provider and model.
    #[must_use]
    pub fn for_target(&self, target: &Target) -> Self {
        let (mut request, own) = (self.clone(), target.clone());
        match &mut request {
            Self::Text(request) => request.target = own,
            Self::Dialogue(request) => {
                let provider = own.provider.map(|provider| format!("{provider}/"));
                request.model = provider.unwrap_or_default() + &own.model.unwrap_or_default();
            }
            Self::Image(request) => request.target = own,
            Self::Video(request) => request.target = own,
            Self::Audio(request) => request.target = own,
        }
        request
    }

    /// Returns the maximum permitted hold.
    pub const fn max_cost(&self) -> Option<Credits> {
        match self {
            Self::Text(request) => request.max_cost,
            Self::Dialogue(_) => None,
            Self::Image(request) => request.max_cost,
            Self::Video(request) => request.max_cost,
            Self::Audio(request) => request.max_cost,
        }
    }

    /// Returns the name of the route that it requests.
    pub fn route(&self) -> Option<&str> {
        match self.target() {
            Some(target) if target.provider.as_deref() == Some(PROVIDER) => target.model.as_deref(),
            Some(target) if target.provider.is_some() => None,
            _ => route_name(self.model()?),
        }
    }

    /// Returns the name of the model that it requests.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Dialogue(request) => Some(&request.model),
            _ => self.target()?.model.as_deref(),
        }
    }

    /// Returns the API of the request.
    pub const fn surface(&self) -> Surface {
        match self {
            Self::Dialogue(request) => request.surface,
            Self::Image(request) => request.surface,
            Self::Audio(request) => request.surface,
            _ => Surface::Generate,
        }
    }

    /// Returns whether the caller must be confirmed before the request is planned, because planning
    /// reads a template or sends PDFs to a vendor.
    pub fn needs_confirmed_caller(&self) -> bool {
        match self {
            Self::Text(text) => text.template.is_some(),
            Self::Dialogue(dialogue) => dialogue.conversation.pdfs() > 0,
            _ => false,
        }
    }

    pub fn take_inputs(&mut self) -> Vec<InputRequest> {
        match self {
            Self::Image(request) => std::mem::take(&mut request.inputs),
            Self::Video(request) => std::mem::take(&mut request.inputs),
            _ => Vec::new(),
        }
    }

    pub fn inputs(&self) -> &[InputRequest] {
        match self {
            Self::Image(request) => &request.inputs,
            Self::Video(request) => &request.inputs,
            _ => &[],
        }
    }

    /// Returns the maximum memory of a copy in bytes; images and the body are shared.
    pub fn copied_bytes(&self) -> usize {
        match self {
            Self::Dialogue(dialogue) => {
                let original = dialogue.original.as_ref();
                let index = original.map_or(0, |original| original.members.index_bytes());
                dialogue.conversation.bytes() + index
            }
            request => request.prompt().len(),
        }
    }

    pub const fn prompt(&self) -> &String {
        match self {
            Self::Text(request) => &request.prompt,
            Self::Dialogue(request) => &request.prompt,
            Self::Image(request) => &request.prompt,
            Self::Video(request) => &request.prompt,
            Self::Audio(request) => &request.prompt,
        }
    }
}

/// The name of a provider or of a model.
const NAME: Text = string(NAME_CHARS).min(1);
/// The name of a model, with or without its provider.
pub const MODEL_NAME: Text = string(2 * NAME_CHARS).min(1);
/// The label of a key, a token or a template.
pub const LABEL: Text = string(100).not_blank();

impl Target {
    fn read(fields: &Fields<'_>) -> Self {
        let provider =
            "A provider of GET /v1/providers. Default: the account's, then the server's.";
        let model = "A model of the provider. Default: the provider's.";
        Self {
            provider: fields.optional("provider", provider, NAME),
            model: fields.optional("model", model, NAME),
            fallbacks: Self::read_fallbacks(fields),
        }
    }

    /// Whether it names nothing, so that the account's default applies.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    fn read_fallbacks(fields: &Fields<'_>) -> Vec<Self> {
        let read = FALLBACKS.read_up_to(Some(MAX_FALLBACKS), fields, "fallbacks", |fields| {
            let provider = "A provider of GET /v1/providers.";
            let provider = fields.required("provider", provider, NAME);
            let model = fields.required("model", "A model of the provider.", NAME);
            Some(Self {
                provider: Some(provider?),
                model: Some(model?),
                fallbacks: Vec::new(),
            })
        });
        read.unwrap_or_default()
    }
}

/// Alternatives to the provider and model of a request.
const FALLBACKS: List<Target> = List::new(
    "At most 3 models, in order. The next one is called only if the provider of the one \
     before is known not to have started. The hold is the maximum of their costs; the one that \
     serves is charged at its own price.",
    (
        "Fallback",
        "A model that serves if the one before does not start.",
    ),
);

fn max_cost(fields: &Fields<'_>) -> Option<Credits> {
    let about = "Credits: the request is refused when the hold would be above them.";
    fields.optional("max_cost", about, credits())
}

/// A request of any modality: that modality's fields, and `type`, which names the modality.
impl Body for GenerationRequest {
    const NAME: &'static str = "EstimateRequest";
    const HAS_PICTURES: bool = true;

    fn parse(members: &Map<String, Value>) -> (Option<Self>, Vec<FieldError>) {
        let refuse = |code, message: &str| (None, vec![FieldError::new("type", code, message)]);
        let modality = match members.get("type") {
            None | Some(Value::Null) => return refuse(FieldCode::Required, "is required"),
            Some(Value::String(name)) => Modality::parse(name),
            Some(_) => return refuse(FieldCode::InvalidType, "must be a string"),
        };
        let mut members = members.clone();
        members.shift_remove("type");
        match modality {
            Some(Modality::Text) => parse(&members, Self::Text),
            Some(Modality::Image) => parse(&members, Self::Image),
            Some(Modality::Video) => parse(&members, Self::Video),
            Some(Modality::Audio) => parse(&members, Self::Audio),
            None => refuse(
                FieldCode::NotAllowed,
                "must be one of text, image, video, audio",
            ),
        }
    }

    /// Lists the fields explicitly, because a closed object cannot be extended.
    fn schema(schemas: &mut Schemas) -> Value {
        let bodies = [
            (Modality::Text, TextRequest::schema(schemas)),
            (Modality::Image, ImageRequest::schema(schemas)),
            (Modality::Video, VideoRequest::schema(schemas)),
            (Modality::Audio, SpeechRequest::schema(schemas)),
        ];
        let bodies = bodies.into_iter().map(|(modality, mut schema)| {
            schema["properties"]["type"] = json!({"type": "string", "enum": [modality]});
            if let Some(required) = schema["required"].as_array_mut() {
                required.push(json!("type"));
            }
            if let Some(members) = schema.as_object_mut() {
                members.remove("example");
            }
            schema
        });
        json!({
            "description": "A generation request of any type, to be estimated.",
            "example": {"type": "text", "prompt": "A haiku about exactness"},
            "oneOf": bodies.collect::<Vec<_>>(),
        })
    }
}

fn parse<T: Body, U>(
    members: &Map<String, Value>,
    of: impl FnOnce(T) -> U,
) -> (Option<U>, Vec<FieldError>) {
    let (request, errors) = T::parse(members);
    (request.map(of), errors)
}
