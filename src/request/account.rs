//! Requests of an account's users and programs other than generations: login, API keys, webhooks,
//! templates, settings.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::{
    EMAIL_CHARS, LABEL, NAME, NAME_CHARS, PASSWORD_CHARS, TEXT_PROMPT_CHARS, Target,
    normalized_email, operator::PASSWORD,
};
use crate::domain::{
    ability::Abilities,
    credits::Credits,
    generation::Modality,
    rate::{DEFAULT_PER_MINUTE, MAX_PER_MINUTE},
    spend::SpendPeriod,
    template::{PROMPT_SOURCE_CHARS, SYSTEM_PROMPT_SOURCE_CHARS, Template},
    validate::{
        self, FieldCode, Fields, Object, Parsed, Refusal, SchemaName, Text, any_object, credits,
        integer, parsed, set, text, timestamp, words,
    },
    webhook::WebhookEvent,
};

#[derive(Debug)]
pub struct Login {
    pub email: String,
    pub password: SecretString,
}

impl Object for Login {
    const SCHEMA: SchemaName = ("LoginRequest", "Credentials.");
    const EXAMPLE: &'static str = r#"{"email": "ada@example.com", "password": "correct horse"}"#;

    /// A password that cannot be set is treated as wrong, so that the response reveals nothing.
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let email = text(EMAIL_CHARS).not_blank();
        let email = fields.required("email", "Compared without case.", email);
        let password = text(PASSWORD_CHARS).not_blank();
        let password = fields.required("password", "The password.", password);
        Some(Self {
            email: normalized_email(&email?),
            password: password?.into(),
        })
    }
}

/// A new password for the logged-in user.
#[derive(Debug)]
pub struct PasswordChange {
    pub current: SecretString,
    pub new: SecretString,
}

impl Object for PasswordChange {
    const SCHEMA: SchemaName = (
        "PasswordChangeRequest",
        "Another password for who is logged in.",
    );
    const EXAMPLE: &'static str =
        r#"{"current_password": "correct horse", "new_password": "battery staple"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let current = text(PASSWORD_CHARS).not_blank();
        let current = fields.required("current_password", "The password until now.", current);
        let new = fields.required("new_password", "The password from now on.", PASSWORD);
        Some(Self {
            current: current?.into(),
            new: new?.into(),
        })
    }
}

#[derive(Debug, Clone)]
pub struct KeyRequest {
    pub name: String,
    pub abilities: Abilities,
    pub rate_limit_per_minute: u32,
    /// Must be in the future, which is not checked here.
    pub expires_at: Option<DateTime<Utc>>,
    pub spend_limit: Option<Credits>,
    /// The period of the limit; `None`: the limit is for all time.
    pub spend_period: Option<SpendPeriod>,
}

impl Object for KeyRequest {
    const SCHEMA: SchemaName = ("KeyCreationRequest", "The API key to create.");
    const EXAMPLE: &'static str =
        r#"{"name": "backend", "abilities": ["generate:text", "read:history"]}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let name = fields.required("name", "Its label.", LABEL);
        let about = "What it may call. Default: everything.";
        let abilities = fields.optional("abilities", about, validate::Abilities);
        let about = "Requests per minute. Default 600.";
        let limit = integer(1..=i64::from(MAX_PER_MINUTE));
        let rate = fields.optional("rate_limit_per_minute", about, limit);
        let expiry = "In the future. Default: never.";
        let limit = "What it may spend in each period, charged and on hold together. Default: no \
                     limit but the balance.";
        let request = Self {
            name: name.unwrap_or_default(),
            abilities: abilities.unwrap_or_else(Abilities::all),
            rate_limit_per_minute: rate.unwrap_or(DEFAULT_PER_MINUTE),
            expires_at: fields.optional("expires_at", expiry, timestamp()),
            spend_limit: fields.optional("spend_limit", limit, credits()),
            spend_period: fields.optional(
                "spend_period",
                "The period after which the sum restarts, in UTC; only with a `spend_limit`. \
                 Default: never.",
                words().or_say("must be day, month or null"),
            ),
        };
        let message = "is the period of a spend_limit, which is missing";
        fields.needs("spend_period", "spend_limit", message);
        Some(request)
    }
}

/// A webhook to create. The address of its URL is not checked here.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// The text of the request, and the parsed URL.
    pub url: (String, Url),
    pub events: Vec<WebhookEvent>,
}

const URL: Text = text(2_048).not_blank();
const WEBHOOK_URL: Parsed<(String, Url)> = parsed(
    || URL.with_pattern(r"^[Hh][Tt][Tt][Pp][Ss]?:[^\s#]+$"),
    |text| {
        URL.check(text)?;
        Ok((text.to_owned(), parse_url(text)?))
    },
);

fn parse_url(text: &str) -> Result<Url, Refusal> {
    let format = || {
        let message = "must be a URL, such as https://example.com/hooks";
        (FieldCode::InvalidFormat, message.into())
    };
    // The parser would remove these silently.
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format());
    }
    let url = Url::parse(text).map_err(|_| format())?;
    let refuse = |message: &'static str| Err((FieldCode::NotAllowed, message.into()));
    if !["http", "https"].contains(&url.scheme()) {
        return refuse("must begin with https:// or http://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not contain credentials");
    }
    if url.fragment().is_some() {
        return refuse("must not have a fragment (#)");
    }
    Ok(url)
}

impl Object for WebhookRequest {
    const SCHEMA: SchemaName = ("WebhookCreationRequest", "The webhook to create.");
    const EXAMPLE: &'static str =
        r#"{"url": "https://example.com/hooks/gensvc", "events": ["generation.completed"]}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let about = "Where events are posted to: http or https, without credentials and fragment, \
                     at a public address.";
        let url = fields.required("url", about, WEBHOOK_URL);
        let about = "Which events. Default: all.";
        let events = fields.optional("events", about, set("must name at least one event"));
        Some(Self {
            url: url?,
            events: events.unwrap_or_else(|| WebhookEvent::ALL.to_vec()),
        })
    }
}

#[derive(Debug, Clone)]
pub struct TemplateText {
    pub name: String,
    /// The template of the prompt.
    pub prompt: String,
    /// The template of the system prompt.
    pub system_prompt: Option<String>,
    /// The names that the two templates read, sorted.
    pub variables: Vec<String>,
}

/// A template's source, with the names that it reads.
type Source = (String, Vec<String>);

const PROMPT: Text = text(PROMPT_SOURCE_CHARS).not_blank();
const PROMPT_SOURCE: Parsed<Source> = parsed(
    || PROMPT.json_schema(),
    |text| PROMPT.check(text).and_then(|()| source(text)),
);
const SYSTEM_PROMPT: Text = text(SYSTEM_PROMPT_SOURCE_CHARS);
const SYSTEM_PROMPT_SOURCE: Parsed<Source> = parsed(
    || SYSTEM_PROMPT.json_schema(),
    |text| SYSTEM_PROMPT.check(text).and_then(|()| source(text)),
);

fn source(source: &str) -> Result<Source, Refusal> {
    let template = Template::parse(source).map_err(|error| {
        let message = format!("is not a valid template: {error}");
        (FieldCode::InvalidFormat, message.into())
    })?;
    let variables = template.variables().map(str::to_owned).collect();
    Ok((source.to_owned(), variables))
}

/// A template to preview, and the values to render it with.
#[derive(Debug, Clone)]
pub struct TemplatePreview {
    pub text: TemplateText,
    pub values: Map<String, Value>,
    /// The prompt of the request that would use the template.
    pub request_prompt: String,
}

impl Object for TemplateText {
    const SCHEMA: SchemaName = (
        "TemplateRequest",
        "A prompt template to be kept, in a part of [Jinja](https://docs.rs/minijinja/latest/minijinja/syntax/index.html):\n\
         variables with their members and items, `if`/`elif`/`else`, `for` over given values (with\n\
         `loop`), comparisons, `and`, `or`, `not`, `in`, `is`, `a if b else c`, strings, numbers,\n\
         comments, `raw` and the filters and tests below. Anything else, such as `set`, `macro`,\n\
         `include`, arithmetic, `~`, `range()` or lists in `[]`, is a syntax error that names it. An\n\
         undefined value is an error.\n\n\
         Filters: capitalize, default, first, float, int, join, last, length, lower, replace,\n\
         reverse, round, sort, title, tojson, trim, unique, upper.\n\n\
         Tests: boolean, defined, endingwith, even, false, float, integer, iterable, mapping, none,\n\
         number, odd, sequence, startingwith, string, true, undefined.\n\n\
         Limits of a rendering: 50,000 steps (fewer with strings over 4,000 bytes), 1 MiB of output,\n\
         and a bound on the work of filters and comparisons with large values.",
    );
    const EXAMPLE: &'static str = r#"{"name": "translate",
        "prompt": "Translate into {{ language }}: {{ prompt }}",
        "system_prompt": "You are a {{ tone|default('careful') }} translator."}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let name = fields.required("name", "Its label; not blank.", LABEL);
        let text = Self::read_sources(fields);
        Some(Self {
            name: name?,
            ..text?
        })
    }
}

impl TemplateText {
    /// Reads all fields but the name.
    fn read_sources(fields: &Fields<'_>) -> Option<Self> {
        let about = "The template of the prompt; not blank.";
        let prompt = fields.required("prompt", about, PROMPT_SOURCE);
        let about = "The template of the system prompt. Default none.";
        let system_prompt = fields.optional("system_prompt", about, SYSTEM_PROMPT_SOURCE);
        let sources = [prompt.as_ref(), system_prompt.as_ref()];
        let names = sources.into_iter().flatten().flat_map(|(_, names)| names);
        let variables: BTreeSet<_> = names.cloned().collect();
        Some(Self {
            name: String::new(),
            prompt: prompt?.0,
            system_prompt: system_prompt.map(|(source, _)| source),
            variables: variables.into_iter().collect(),
        })
    }
}

impl Object for TemplatePreview {
    const SCHEMA: SchemaName = ("TemplatePreviewRequest", "A prompt template to be tried.");
    const EXAMPLE: &'static str = r#"{"prompt": "Translate into {{ language }}: {{ prompt }}",
        "template_variables": {"language": "French"}, "request_prompt": "Good morning"}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let text = TemplateText::read_sources(fields);
        let about = "Values for the template's placeholders, by name; null counts as absent.";
        let values = fields.optional("template_variables", about, any_object(Map::clone));
        let about = "The prompt of the request that would use it: `{{ prompt }}`. Not blank.";
        let limit = validate::text(TEXT_PROMPT_CHARS).not_blank();
        let request_prompt = fields.required("request_prompt", about, limit);
        Some(Self {
            text: text?,
            values: values.unwrap_or_default(),
            request_prompt: request_prompt?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountChange {
    /// Default providers and models; `None` clears a default.
    pub defaults: Vec<(Modality, Option<Target>)>,
}

impl Object for AccountChange {
    const SCHEMA: SchemaName = ("AccountChange", "What is to be changed of an account.");
    const EXAMPLE: &'static str =
        r#"{"defaults": {"text": {"provider": "sandbox"}, "video": null}}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let schema = (
            "DefaultsChange",
            "Defaults to be changed; null clears one, and one that is left out stays.",
        );
        let defaults = fields.object("defaults", "Defaults by modality.", schema, |defaults| {
            let of = |(modality, about)| read_default(defaults, modality, about);
            let abouts = ["Of text.", "Of images.", "Of video.", "Of speech."];
            let all = Modality::ALL.iter().copied().zip(abouts);
            all.filter_map(of).collect()
        });
        Some(Self { defaults })
    }
}

/// Also accepts an empty name, which is as unknown as any other name.
const ANY_NAME: Parsed<String> = parsed(
    || NAME.json_schema(),
    |name| text(NAME_CHARS).check(name).map(|()| name.to_owned()),
);

fn read_default(
    defaults: &Fields<'_>,
    modality: Modality,
    about: &'static str,
) -> Option<(Modality, Option<Target>)> {
    let schema = ("DefaultChange", "The default of a modality.");
    let name = modality.as_str();
    let target = defaults.object(name, about, schema, |default| {
        let missing = if default.has("model") {
            "is required: a model is named only together with its provider"
        } else {
            "is required; null in place of the object clears the default"
        };
        let provider = "A provider of this server that makes the modality.";
        let model = "One of its models. Default: the provider's own default.";
        let provider = default.required_or("provider", provider, ANY_NAME, missing);
        let model = default.optional("model", model, ANY_NAME);
        let fallbacks = Target::read_fallbacks(default);
        let target = Target {
            provider: Some(provider?),
            model,
            fallbacks,
        };
        (!default.failed("model")).then_some(target)
    });
    if defaults.is_null(name) {
        return Some((modality, None));
    }
    Some((modality, Some(target?)))
}
