//! Google Gemini `generateContent` and `streamGenerateContent`.
//!
//! Submodules: the text request ([`request`]), response parsing ([`response`]), [`speech`] and
//! video ([`omni`]). Source: google-genai 3.3.0 (`PyPI`) `google/genai/models.py`, `types.py`;
//! checked against requests recorded from the package.

pub mod omni;
pub mod request;
pub mod response;
pub mod speech;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::header::HeaderName;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use url::Url;

use super::{
    DeltaSink, ProviderError, ProviderErrorKind, TextAnswer, TextCall, TextProvider,
    exchange::{count, exchange},
    http::{
        SetupError, VendorClient,
        base_url::VersionPath,
        classify::{self, ErrorInfo, by_status},
        retry_after,
        vendor_message::VendorMessage,
    },
    setup::{Adapter, Adapters, Setup},
};
use crate::{
    catalogue::{
        Dialogue,
        vendor::{ModelSettings, SharedSettings, SpeechRange, Vendor, no_settings, read_settings},
    },
    domain::{
        conversation::Spelling,
        generation::Modality,
        settings::{ConfigError, range::bounded, read_table, words},
    },
    request::SpeechFormat,
};
use omni::{GeminiOmni, OmniModel};
use response::ResponseParser;
use speech::{GeminiSpeech, GeminiSpeechModel};

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        speech: SpeechRange {
            formats: &[SpeechFormat::Wav],
            ..SpeechRange::ALL
        },
        dialogue: Dialogue {
            late_instructions: false,
            thinking: false,
            one_at_a_time: false,
            strict_tools: false,
            reasoning_fields: false,
            free_arguments: false,
            alternating_roles: true,
            // google-gemini/gemini-cli#4758
            described_references: false,
            // google-genai 3.6.1 `FunctionDeclaration.name`; colons are newer than the rest.
            names: Spelling {
                symbols: Some("_.-"),
                max_chars: 64,
                starts_with_letter: true,
            },
            // google-genai 3.6.1 `GenerateContentConfig.stop_sequences`.
            max_stops: 5,
            image_urls: false,
            result_images: false,
            image_detail: false,
            gifs: false,
            documents: true,
            counts_tokens: true,
            seed_and_top_k: true,
            ..Dialogue::ALL
        },
        ..Vendor::new(
            "gemini",
            &[Modality::Text, Modality::Video, Modality::Audio],
            |_, modality, wire| match modality {
                Modality::Video => read_settings::<OmniModel>(wire),
                Modality::Audio => {
                    no_settings::<GeminiSpeechModel>("Gemini's speech", wire.as_ref())
                }
                Modality::Text | Modality::Image => text(wire),
            },
        )
    },
    add: |registry, setup| {
        registry.add_text(setup, Gemini::new(setup, client)?);
        registry.add_speech(setup, GeminiSpeech::new(setup, client)?);
        registry.add_video(setup, GeminiOmni::new(setup, omni::client)?);
        Ok(())
    },
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeminiModel {
    /// `thinkingConfig.thinkingLevel`, from the 3.x family on. `None` sends nothing.
    #[serde(deserialize_with = "thinking_level")]
    pub thinking_level: Option<String>,
    /// `thinkingConfig.thinkingBudget` in tokens, 2.5 family; 0 disables thinking. `None` sends
    /// nothing.
    #[serde(deserialize_with = "thinking_budget")]
    pub thinking_budget: Option<i64>,
}

words! {
    thinking_level -> Option<String> = word("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH");
}

fn thinking_budget<'de, D: Deserializer<'de>>(source: D) -> Result<Option<i64>, D::Error> {
    bounded::<_, 0, 32_768, _>(source).map(Some)
}

impl ModelSettings for GeminiModel {
    fn dialogue(&self, vendor: Dialogue) -> Dialogue {
        Dialogue {
            thinking_budgets: self.thinking_budget.is_some(),
            ..vendor
        }
    }
}

fn text(wire: Option<toml::Value>) -> Result<SharedSettings, ConfigError> {
    let model: GeminiModel = read_table(wire)?;
    if model.thinking_level.is_some() && model.thinking_budget.is_some() {
        return Err(ConfigError::new(
            "",
            "sets both thinking_level and thinking_budget: keep the one that the model takes",
        ));
    }
    Ok(Arc::new(model))
}

pub type Gemini = Adapter<GeminiModel>;

const KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Builds the client. A base URL without a version path gets `/v1beta`; a given one (`/v1`) is
/// kept.
fn client(setup: &Setup) -> Result<VendorClient, SetupError> {
    VendorClient::new(setup, VersionPath::Last("v1beta"), (KEY, ""), error_info)
}

/// Returns the model's name in paths and answers.
fn bare_name(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

fn method_url(client: &VendorClient, model: &str, method: &str) -> Url {
    client.url(&["models", &format!("{}:{method}", bare_name(model))])
}

#[async_trait]
impl TextProvider for Gemini {
    async fn generate(
        &self,
        call: &TextCall,
        deltas: Option<&DeltaSink>,
    ) -> Result<TextAnswer, ProviderError> {
        let body = request::json(call, &self.settings(&call.model))?;
        let url = if deltas.is_some() {
            let mut url = method_url(&self.client, &call.model, "streamGenerateContent");
            url.set_query(Some("alt=sse"));
            url
        } else {
            method_url(&self.client, &call.model, "generateContent")
        };
        exchange::<ResponseParser<'_>>(&self.client, (url, body), call, deltas).await
    }

    async fn count_input(&self, call: &TextCall) -> Result<u64, ProviderError> {
        let body = request::count_json(call, &self.settings(&call.model))?;
        let url = method_url(&self.client, &call.model, "countTokens");
        count(&self.client, (url, body), "totalTokens").await
    }

    fn may_hide_reasoning(&self, call: &TextCall) -> bool {
        request::may_think(call.sampling.reasoning, &self.settings(&call.model))
    }
}

/// Wait after a per-day quota error, whose `RetryInfo` wrongly gives seconds.
const DAY_QUOTA_WAIT: Duration = Duration::from_hours(1);

/// Returns the error in a response, if there is one: `{"error": {"code", "status", "message",
/// "details": [...]}}`, sometimes in an array of one. Source: google-genai 3.3.0 (`PyPI`)
/// `google/genai/errors.py`; `google/rpc/error_details.proto` for `ErrorInfo`, `RetryInfo` and
/// `QuotaFailure`.
fn error_of(root: &Value) -> Option<&Value> {
    let root = root.get(0).unwrap_or(root);
    root.get("error").filter(|error| error.is_object())
}

fn error_info(root: Option<&Value>) -> ErrorInfo {
    let Some(error) = root.and_then(error_of) else {
        return ErrorInfo::default();
    };
    let details = || error["details"].as_array().into_iter().flatten();
    let reason = details().find_map(|detail| classify::code(detail.get("reason")));
    let status = classify::code(error.get("status"));
    let stated = details()
        .filter_map(|detail| detail.get("retryDelay")?.as_str())
        .find_map(retry_after::from_proto);
    let per_day = details()
        .filter_map(|detail| detail.get("violations")?.as_array())
        .flatten()
        .filter_map(|violation| violation.get("quotaId")?.as_str())
        .any(|quota| quota.contains("PerDay"));
    // An invalid key and an account without billing are reported as 400.
    let account = reason.is_some_and(|reason| reason.starts_with("API_KEY_"))
        || status == Some("FAILED_PRECONDITION");
    ErrorInfo {
        kind: account.then_some(ProviderErrorKind::Account),
        hint: error["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .map(|code| by_status(code).0),
        code: reason.or(status).map(str::to_owned),
        vendor_message: VendorMessage::read(root),
        retry_after: if per_day {
            stated.max(Some(DAY_QUOTA_WAIT))
        } else {
            stated
        },
    }
}

#[cfg(test)]
mod tests;
