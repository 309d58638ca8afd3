//! Request bodies as the document shows them. They are read field by field
//! ([`crate::domain::validate`]), so that one answer names every mistake; a test holds both
//! against each other.

#![expect(dead_code, reason = "they are documents, not readers")]

use chrono::{DateTime, Utc};
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::{
    ability::Abilities,
    credits::Credits,
    request::{Quality, SpeechFormat, Style},
    spend::SpendPeriod,
    usage::TextUsage,
    webhook::WebhookEvent,
};

/// Parameters of a text generation.
#[derive(ToSchema)]
pub struct TextParameters {
    /// Upper bound of output tokens. Default 1024.
    #[schema(nullable, minimum = 1, maximum = 4096)]
    pub max_tokens: Option<u32>,
    /// Sampling temperature. Default: the provider's. Not every model takes one.
    #[schema(nullable, minimum = 0.0, maximum = 2.0)]
    pub temperature: Option<f64>,
}

/// Whole credits that 64 bits of micro-credits hold.
pub(super) const MAX_CREDITS: i64 = i64::MAX / 1_000_000;

/// Credits as a caller may give them: a string, or a number that is exact in six digits.
pub(super) fn credits_given() -> utoipa::openapi::schema::Schema {
    use utoipa::openapi::{ObjectBuilder, OneOfBuilder, schema::Type};
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^[+]?[0-9]+(\.[0-9]{1,6}0*)?$"));
    let number = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(0))
        .maximum(Some(MAX_CREDITS));
    OneOfBuilder::new()
        .description(Some(
            "Credits: the request is refused when the hold would be above them.",
        ))
        .item(text)
        .item(number)
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .build()
        .into()
}

/// A text generation.
#[derive(ToSchema)]
#[schema(example = json!({"prompt": "A haiku about exactness", "parameters": {"max_tokens": 64}}))]
pub struct TextGenerationRequest {
    /// Not blank.
    #[schema(min_length = 1, max_length = 10_000, pattern = r"\S")]
    pub prompt: String,
    /// Instructions above the prompt.
    #[schema(nullable, max_length = 5_000)]
    pub system_prompt: Option<String>,
    /// A provider of GET /v1/providers. Default: the account's, then the server's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub provider: Option<String>,
    /// A model of the provider. Default: the provider's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub model: Option<String>,
    /// A saved prompt template. It is rendered before anything is held: what it renders is
    /// what is sent, held for, billed and kept as the record's `prompt`. `{{ prompt }}` in it
    /// is the request's prompt; where a template does not use it, the prompt is appended after
    /// a blank line. The rendered prompt keeps the limit of `prompt`, and so does the system
    /// prompt. A `system_prompt` in the request wins over the template's.
    #[schema(nullable, minimum = 1)]
    pub template_id: Option<i64>,
    /// Values for the template's placeholders, by name; null counts as absent. Needs
    /// `template_id`. A name that the template does not have is refused.
    #[schema(nullable, value_type = Option<Object>)]
    pub template_variables: Option<Value>,
    /// Parameters.
    #[schema(nullable)]
    pub parameters: Option<TextParameters>,
    /// Whether the answer is an event stream.
    #[schema(nullable)]
    pub stream: Option<bool>,
    #[schema(schema_with = credits_given)]
    pub max_cost: Option<Credits>,
}

/// A generation request of any type, to be estimated.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(example = json!({"type": "text", "prompt": "A haiku about exactness"}))]
pub enum EstimateRequest {
    /// As POST /v1/generate/text takes it.
    Text(TextGenerationRequest),
    /// As POST /v1/generate/image takes it.
    Image(ImageGenerationRequest),
    /// As POST /v1/generate/video takes it.
    Video(VideoGenerationRequest),
    /// As POST /v1/generate/audio takes it.
    Audio(SpeechGenerationRequest),
}

/// A prompt template to be kept, in a part of [Jinja](https://docs.rs/minijinja/latest/minijinja/syntax/index.html):
/// variables with their members and items, `if`/`elif`/`else`, `for` over given values (with
/// `loop`), comparisons, `and`, `or`, `not`, `in`, `is`, `a if b else c`, strings, numbers,
/// comments, `raw` and the filters and tests below. Anything else, such as `set`, `macro`,
/// `include`, arithmetic, `~`, `range()` or lists in `[]`, is a syntax error that names it. An
/// undefined value is an error.
///
/// Filters: capitalize, default, first, float, int, join, last, length, lower, replace,
/// reverse, round, sort, title, tojson, trim, unique, upper.
///
/// Tests: boolean, defined, endingwith, even, false, float, integer, iterable, mapping, none,
/// number, odd, sequence, startingwith, string, true, undefined.
///
/// Limits of a rendering: 50,000 steps (fewer with strings over 4,000 bytes), 1 MiB of output,
/// and a bound on the work of filters and comparisons with large values.
#[derive(ToSchema)]
#[schema(example = json!({"name": "translate", "prompt": "Translate into {{ language }}: {{ prompt }}", "system_prompt": "You are a {{ tone|default('careful') }} translator."}))]
pub struct TemplateRequest {
    /// Its label; not blank.
    #[schema(min_length = 1, max_length = 100, pattern = r"\S")]
    pub name: String,
    /// The template of the prompt; not blank.
    #[schema(min_length = 1, max_length = 10_000, pattern = r"\S")]
    pub prompt: String,
    /// The template of the system prompt. Default none.
    #[schema(nullable, max_length = 5_000)]
    pub system_prompt: Option<String>,
}

/// The default of a modality.
#[derive(ToSchema)]
pub struct DefaultChange {
    /// A provider of this server that makes the modality.
    #[schema(min_length = 1, max_length = 200)]
    pub provider: String,
    /// One of its models. Default: the provider's own default.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub model: Option<String>,
}

/// Defaults to be changed; null clears one, and one that is left out stays.
#[derive(ToSchema)]
pub struct DefaultsChange {
    /// Of text.
    pub text: Option<DefaultChange>,
    /// Of images.
    pub image: Option<DefaultChange>,
    /// Of video.
    pub video: Option<DefaultChange>,
    /// Of speech.
    pub audio: Option<DefaultChange>,
}

/// What is to be changed of an account.
#[derive(ToSchema)]
#[schema(example = json!({"defaults": {"text": {"provider": "sandbox"}, "video": null}}))]
pub struct AccountChange {
    /// Defaults by modality.
    pub defaults: Option<DefaultsChange>,
}

/// Parameters of an image generation.
#[derive(ToSchema)]
pub struct ImageParameters {
    /// Pixels. Default 1024x1024.
    #[schema(
        nullable,
        pattern = "^(256x256|512x512|1024x1024|1024x1792|1792x1024)$"
    )]
    pub size: Option<String>,
    /// Quality tier; hd costs more. Default standard.
    pub quality: Option<Quality>,
    /// Style. Default none.
    pub style: Option<Style>,
    /// How many; billed each. Default 1.
    #[schema(nullable, minimum = 1, maximum = 4)]
    pub n: Option<u32>,
}

/// An image generation.
#[derive(ToSchema)]
#[schema(example = json!({"prompt": "A lighthouse at dusk", "parameters": {"size": "512x512"}}))]
pub struct ImageGenerationRequest {
    /// Not blank.
    #[schema(min_length = 1, max_length = 5_000, pattern = r"\S")]
    pub prompt: String,
    /// What to avoid.
    #[schema(nullable, max_length = 2_000)]
    pub negative_prompt: Option<String>,
    /// A provider of GET /v1/providers. Default: the account's, then the server's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub provider: Option<String>,
    /// A model of the provider. Default: the provider's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub model: Option<String>,
    /// Parameters.
    #[schema(nullable)]
    pub parameters: Option<ImageParameters>,
    #[schema(schema_with = credits_given)]
    pub max_cost: Option<Credits>,
}

/// Parameters of a video generation.
#[derive(ToSchema)]
pub struct VideoParameters {
    /// Seconds; billed each. Default: the model's.
    #[schema(nullable, minimum = 1, maximum = 60)]
    pub duration: Option<u32>,
    /// Aspect ratio, width:height. Default 16:9.
    #[schema(
        nullable,
        pattern = "^([1-9][0-9]{0,3}|0[1-9][0-9]{0,2}|00[1-9][0-9]?|000[1-9]):([1-9][0-9]{0,3}|0[1-9][0-9]{0,2}|00[1-9][0-9]?|000[1-9])$"
    )]
    pub ratio: Option<String>,
}

/// A video generation.
#[derive(ToSchema)]
#[schema(example = json!({"prompt": "Waves on a pebble beach", "parameters": {"duration": 4, "ratio": "16:9"}}))]
pub struct VideoGenerationRequest {
    /// Not blank.
    #[schema(min_length = 1, max_length = 5_000, pattern = r"\S")]
    pub prompt: String,
    /// A provider of GET /v1/providers. Default: the account's, then the server's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub provider: Option<String>,
    /// A model of the provider. Default: the provider's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub model: Option<String>,
    /// Parameters.
    #[schema(nullable)]
    pub parameters: Option<VideoParameters>,
    #[schema(schema_with = credits_given)]
    pub max_cost: Option<Credits>,
}

/// Parameters of a speech generation.
#[derive(ToSchema)]
pub struct SpeechParameters {
    /// Voice id. Default: the model's.
    #[schema(nullable, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    pub voice: Option<String>,
    /// Playback rate. Default 1.0. Not every model takes one.
    #[schema(nullable, minimum = 0.25, maximum = 4.0)]
    pub speed: Option<f64>,
    /// File format. Default mp3.
    pub format: Option<SpeechFormat>,
}

/// A speech generation.
#[derive(ToSchema)]
#[schema(example = json!({"prompt": "Good morning.", "parameters": {"format": "mp3"}}))]
pub struct SpeechGenerationRequest {
    /// The text to speak; not blank.
    #[schema(min_length = 1, max_length = 10_000, pattern = r"\S")]
    pub prompt: String,
    /// A provider of GET /v1/providers. Default: the account's, then the server's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub provider: Option<String>,
    /// A model of the provider. Default: the provider's.
    #[schema(nullable, min_length = 1, max_length = 200)]
    pub model: Option<String>,
    /// Parameters.
    #[schema(nullable)]
    pub parameters: Option<SpeechParameters>,
    #[schema(schema_with = credits_given)]
    pub max_cost: Option<Credits>,
}

/// What a generation used, in the units that it is billed by.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum Usage {
    /// Text.
    Text(TextUsage),
    /// Images.
    Image {
        /// Stored images.
        images: u32,
    },
    /// Video.
    Video {
        /// Seconds.
        seconds: u32,
    },
    /// Speech.
    Audio {
        /// Characters of the text.
        characters: u64,
    },
}

/// An API key to be made.
#[derive(ToSchema)]
#[schema(example = json!({"name": "backend", "abilities": ["generate:text", "read:history"]}))]
pub struct KeyCreationRequest {
    /// Its label.
    #[schema(min_length = 1, max_length = 100, pattern = r"\S")]
    pub name: String,
    /// What it may call. Default: everything.
    #[schema(nullable, min_items = 1)]
    pub abilities: Option<Abilities>,
    /// Requests per minute. Default 600.
    #[schema(nullable, minimum = 1, maximum = 1_000_000)]
    pub rate_limit_per_minute: Option<u32>,
    /// In the future. Default: never.
    #[schema(nullable)]
    pub expires_at: Option<DateTime<Utc>>,
    /// What it may spend in each period, charged and on hold together. Default: no limit but
    /// the balance.
    #[schema(schema_with = credits_given)]
    pub spend_limit: Option<Credits>,
    /// When the sum begins anew, in UTC; only with a `spend_limit`. Default: never.
    #[schema(nullable)]
    pub spend_period: Option<SpendPeriod>,
}

/// A webhook to be made.
#[derive(ToSchema)]
#[schema(example = json!({"url": "https://example.com/hooks/gensvc", "events": ["generation.completed"]}))]
pub struct WebhookCreationRequest {
    /// Where events are posted to: http or https, without credentials and fragment, at a public
    /// address.
    #[schema(
        min_length = 1,
        max_length = 2_048,
        pattern = r"^[Hh][Tt][Tt][Pp][Ss]?:[^\s#]+$"
    )]
    pub url: String,
    /// Which events. Default: all.
    #[schema(nullable, min_items = 1)]
    pub events: Option<Vec<WebhookEvent>>,
}

/// Credentials.
#[derive(ToSchema)]
#[schema(example = json!({"email": "ada@example.com", "password": "correct horse"}))]
pub struct LoginRequest {
    /// Compared without case.
    #[schema(min_length = 1, max_length = 254, pattern = r"\S")]
    pub email: String,
    /// The password.
    #[schema(min_length = 1, max_length = 1_024, pattern = r"\S")]
    pub password: String,
}
