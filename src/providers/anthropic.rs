//! Anthropic Messages.
//!
//! Submodules: the request ([`request`]) and response parsing ([`response`]). The catalogue has the
//! parameters that each model takes. Source: anthropic 2.10.0 (`PyPI`) `anthropic/types/*.py`;
//! checked against requests recorded from the package.

pub mod request;
pub mod response;

use async_trait::async_trait;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use super::{
    DeltaSink, ProviderError, ProviderErrorKind, Released, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{
        SetupError, VendorClient,
        base_url::VersionPath,
        classify::{self, ErrorInfo},
        vendor_message::VendorMessage,
    },
    setup::{Adapter, Adapters, Setup},
};
use crate::{
    catalogue::{
        Dialogue, ModelKind,
        vendor::{ModelSettings, Vendor, read_settings},
    },
    domain::{
        conversation::Spelling,
        generation::{Modality, Surface},
        settings::{ConfigError, words},
    },
};
use response::ResponseParser;

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        dialogue: Dialogue {
            late_instructions: false,
            top_p_with_temperature: false,
            json_object: false,
            thinking_budgets: true,
            free_arguments: false,
            blank_texts: false,
            alternating_roles: true,
            combined_schemas: false,
            all_keywords: false,
            names: Spelling {
                max_chars: 128,
                ..WORDS
            },
            ids: WORDS,
            image_detail: false,
            reasoning_fields: false,
            thought_signatures: false,
            documents: true,
            counts_tokens: true,
            searches: true,
            own: Some(Surface::AnthropicMessages),
            ..Dialogue::ALL
        },
        ..Vendor::new("anthropic", &[Modality::Text], |_, _, wire| {
            read_settings::<AnthropicModel>(wire)
        })
    },
    add: |registry, setup| {
        registry.add_text(setup, Anthropic::new(setup, client)?);
        Ok(())
    },
};

/// `^[a-zA-Z0-9_-]+$`
const WORDS: Spelling = Spelling {
    symbols: Some("_-"),
    ..Spelling::ANY
};
const VERSION: &str = "anthropic-version";
/// `thinking.type` for the minimum thinking of models that cannot switch it off.
const BETWEEN_TOOLS: &str = "between_tools";
/// Marks models whose thinking cannot be changed.
const ALWAYS: &str = "always";
/// The current `anthropic-version`, which refuses a temperature with 400.
pub const CURRENT_VERSION: &str = "2026-10-21";
/// The last version that takes a temperature, for older models.
const SAMPLING_VERSION: &str = "2023-06-01";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnthropicModel {
    /// `anthropic-version`: [`CURRENT_VERSION`], or `2023-06-01` for a model that takes a
    /// temperature (0 to 1).
    #[serde(deserialize_with = "version")]
    pub version: String,
    /// `output_config.effort`. `None` sends nothing.
    #[serde(deserialize_with = "effort")]
    pub effort: Option<String>,
    /// `thinking.type` that the model takes; [`ALWAYS`] if it takes none. `None` sends nothing
    /// either.
    #[serde(deserialize_with = "thinking")]
    pub thinking: Option<String>,
}

impl Default for AnthropicModel {
    fn default() -> Self {
        Self {
            version: CURRENT_VERSION.to_owned(),
            effort: None,
            thinking: None,
        }
    }
}

words! {
    version -> String = word(CURRENT_VERSION, SAMPLING_VERSION);
    effort -> Option<String> = word("low", "medium", "high", "xhigh", "max");
    thinking -> Option<String> = word("disabled", BETWEEN_TOOLS, "adaptive", ALWAYS);
}

impl ModelSettings for AnthropicModel {
    fn always_thinks(&self) -> bool {
        matches!(self.thinking.as_deref(), Some(ALWAYS | BETWEEN_TOOLS))
    }

    fn check(&self, model: &ModelKind) -> Result<(), ConfigError> {
        let ModelKind::Text(text) = model else {
            return Ok(());
        };
        match text.limits.temperature {
            Some([low, high]) if self.version != SAMPLING_VERSION || high > 1.0 => {
                let problem = format!(
                    "is [{low:?}, {high:?}]: Anthropic takes 0.0 to 1.0 and only with \
                     wire.version = \"{SAMPLING_VERSION}\"; set both or leave it out"
                );
                Err(ConfigError::new("limits.temperature", problem))
            }
            _ => Ok(()),
        }
    }
}

pub type Anthropic = Adapter<AnthropicModel>;

/// Builds the client. The key is sent as `x-api-key`, which the API and every gateway accept; the
/// SDK 2.x sends it as a bearer token.
fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    let key = (HeaderName::from_static("x-api-key"), "");
    VendorClient::new(setup, VersionPath::Last("v1"), key, error_info)
}

impl Anthropic {
    /// Returns the client for a call, with its model's version and the caller's headers.
    fn client(&self, call: &TextCall, settings: &AnthropicModel) -> VendorClient {
        let mut client = self.client.clone();
        let original = call.original.as_ref().map(Released::get);
        let own = original.iter().flat_map(|original| &original.headers);
        let own = own.map(|(name, value)| (*name, value.as_str()));
        for (name, value) in [(VERSION, settings.version.as_str())]
            .into_iter()
            .chain(own)
        {
            // The values came in a header or from the settings, so all are valid.
            if let Ok(value) = HeaderValue::from_str(value) {
                client.headers.insert(name, value);
            }
        }
        client
    }
}

#[async_trait]
impl TextProvider for Anthropic {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let settings = self.settings(&call.model);
        let client = self.client(call, &settings);
        let body = request::json(call, &settings, deltas.is_some())?;
        let post = (client.url(&["messages"]), body);
        exchange::<ResponseParser<'_>>(&client, post, call, deltas).await
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let settings = self.settings(&call.model);
        let client = self.client(call, &settings);
        let url = client.url(&["messages", "count_tokens"]);
        let body = request::count_json(call, &settings)?;
        count(&client, (url, body), "input_tokens").await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        request::may_think(call, &self.settings(&call.model))
    }
}

/// Reads an error body or an `error` event. The most specific code wins: `details.error_code`, then
/// `type`. Source: anthropic 2.13.0 (`PyPI`) `anthropic/types/shared/*_error.py`.
fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(error) = root.and_then(|root| root.get("error")) else {
        return ErrorInfo::default();
    };
    let code = classify::code(error.pointer("/details/error_code"));
    let kind_name = classify::code(error.get("type"));
    let vendor_message = VendorMessage::read(root);
    // Both are reported as a 400 without a code.
    let message = vendor_message.text.as_deref().unwrap_or_default();
    let has_no_funds = message.starts_with("Your credit balance is too low");
    let is_blocked = message.contains("content filtering policy");
    ErrorInfo {
        kind: (code.and_then(kind))
            .or(kind_name.and_then(kind))
            .or(has_no_funds.then_some(ProviderErrorKind::Account))
            .or(is_blocked.then_some(ProviderErrorKind::ContentPolicy)),
        hint: kind_name.and_then(hint),
        code: code.or(kind_name).map(str::to_owned),
        retry_after: None,
        vendor_message,
    }
}

/// Returns the kind for codes that take precedence over the status. `organization_on_hold` comes
/// with a 400. A 503 whose outcome is unknown may, unlike other 503s, have started the work.
fn kind(code: &str) -> Option<ProviderErrorKind> {
    let account =
        code.contains("spend_limit") || code.contains("billing") || code == "organization_on_hold";
    if account {
        Some(ProviderErrorKind::Account)
    } else if code.ends_with("_outcome_unknown") {
        Some(ProviderErrorKind::Failed)
    } else if code == "image_dimensions_too_large" {
        Some(ProviderErrorKind::Rejected)
    } else {
        None
    }
}

/// Returns the kind of a type inside a stream, which has no status.
fn hint(kind: &str) -> Option<ProviderErrorKind> {
    match kind {
        "authentication_error" | "permission_error" => Some(ProviderErrorKind::Account),
        "overloaded_error" | "rate_limit_error" => Some(ProviderErrorKind::Overloaded),
        "timeout_error" => Some(ProviderErrorKind::Timeout),
        "invalid_request_error" | "not_found_error" | "request_too_large" => {
            Some(ProviderErrorKind::Rejected)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
