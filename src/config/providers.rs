//! Providers: which are configured, which are enabled, and why the others are not.
//!
//! Reads kind, key, base URL and timeout of each. A provider is enabled if it is not switched off,
//! its key (if it needs one) is in the environment, and it has a model.

use std::{collections::BTreeMap, time::Duration};

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::{
    ConfigError, ModelConfig,
    environment::Overrides,
    models::{self, RawModel},
    net::http_url,
};
use crate::{
    catalogue::vendor::{Access, Vendor},
    domain::{
        pricing::Markup,
        settings::{
            quoted,
            range::{Bounded, Seconds},
        },
    },
};

/// Maximum characters of a provider's name.
const MAX_NAME: usize = 40;
/// Default maximum time of a call.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Default maximum of concurrent calls.
const MAX_CONCURRENT: usize = 256;
/// The default for the sandbox, which makes no network calls.
const MAX_CONCURRENT_SANDBOX: usize = 2_048;

/// Whether a provider is enabled, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Enabled,
    /// `enabled = false`.
    SwitchedOff,
    /// The variable of its key is unset or blank.
    KeyMissing,
    /// All its models have `enabled = false`.
    NoModels,
}

/// A configured provider, whether enabled or not.
#[derive(Debug, Clone)]
pub struct Provider {
    pub name: String,
    pub vendor: &'static Vendor,
    pub status: Status,
    /// Variables of its key; the first that is set is used. Empty: it needs no key.
    pub api_key_env: Vec<String>,
    /// `None` for the sandbox.
    pub base_url: Option<Url>,
    pub api_key: Option<SecretString>,
    /// Maximum time of a call, 1 to 3,600 s.
    pub timeout: Duration,
    /// Maximum concurrent calls of this process, 1 to 10,000.
    pub max_concurrent: usize,
    pub models: Vec<ModelConfig>,
    model_ids: Vec<String>,
}

impl Provider {
    /// Whether it has a model with this id, enabled or not.
    pub fn has_model(&self, id: &str) -> bool {
        self.model_ids.iter().any(|known| known == id)
    }

    pub fn is_sandbox(&self) -> bool {
        self.vendor.access == Access::BuiltIn
    }

    /// Returns why it is enabled or not.
    pub fn reason(&self) -> String {
        match self.status {
            Status::Enabled => match self.api_key_env.join(" or ") {
                names if names.is_empty() => "needs no key".to_owned(),
                names => format!("key in {names}"),
            },
            Status::SwitchedOff => "switched off by enabled = false".to_owned(),
            Status::KeyMissing => format!("no key in {}", self.api_key_env.join(" or ")),
            Status::NoModels => "none of its models is enabled".to_owned(),
        }
    }
}

/// `[providers.NAME]`
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RawProvider {
    kind: Option<String>,
    enabled: Option<bool>,
    api_key_env: Option<Vec<String>>,
    base_url: Option<String>,
    base_url_env: Option<String>,
    timeout_seconds: Option<Seconds<1, 3_600>>,
    max_concurrent: Option<Bounded<usize, 1, 10_000>>,
    markup: Option<Markup>,
    /// Whether the models of a file replace the built-in ones.
    #[expect(dead_code, reason = "applied when the file is merged")]
    replace: Option<bool>,
    models: Option<Vec<RawModel>>,
}

/// Resolves all providers, by name. `markup` applies to providers without their own.
pub(super) fn resolve(
    raw: BTreeMap<String, RawProvider>,
    markup: Markup,
    env: &BTreeMap<String, String>,
    overrides: &Overrides<'_>,
    vendors: &[&'static Vendor],
    warnings: &mut Vec<String>,
) -> Result<Vec<Provider>, ConfigError> {
    raw.into_iter()
        .map(|(name, raw)| {
            check_margin(|| format!("providers.{name}.markup"), raw.markup, warnings);
            for (index, model) in raw.models.iter().flatten().enumerate() {
                let key = || format!("providers.{name}.models[{index}].markup");
                check_margin(key, model.markup, warnings);
            }
            let provider = provider(name, raw, markup, env, overrides, vendors)?;
            let optional_key = provider.vendor.access == Access::OptionalKey;
            if optional_key && provider.status == Status::KeyMissing {
                warnings.push(format!(
                    "providers.{} is not served: {}; set it, or remove api_key_env if the \
                     server needs no key",
                    provider.name,
                    provider.reason()
                ));
            }
            Ok(provider)
        })
        .collect()
}

fn provider(
    name: String,
    raw: RawProvider,
    markup: Markup,
    env: &BTreeMap<String, String>,
    overrides: &Overrides<'_>,
    vendors: &[&'static Vendor],
) -> Result<Provider, ConfigError> {
    let path = format!("providers.{name}");
    if !is_name(&name) {
        let problem = format!(
            "is not a usable name: must be 1 to {MAX_NAME} of a-z, 0-9, _ and -, \
             beginning with a letter or digit"
        );
        return Err(ConfigError::new(path, problem));
    }
    let missing = |key: &str, advice: &str| {
        let problem = format!("is missing: {advice}");
        ConfigError::new(format!("{path}.{key}"), problem)
    };
    let vendor = vendor(raw.kind.as_deref(), vendors).map_err(|error| error.under(&path))?;
    let api_key_env = raw.api_key_env.clone().unwrap_or_default();
    let api_key_env: Vec<String> = api_key_env.into_iter().filter(|v| !v.is_empty()).collect();
    for (key, names) in [
        ("api_key_env", api_key_env.as_slice()),
        ("base_url_env", raw.base_url_env.as_slice()),
    ] {
        check_names(names).map_err(|problem| ConfigError::new(format!("{path}.{key}"), problem))?;
    }
    let base_url = if vendor.access == Access::BuiltIn {
        refuse_unused(&path, &raw)?;
        None
    } else {
        let variable = raw.base_url_env.as_deref();
        let url = base_url(&path, variable, raw.base_url.as_deref(), env, overrides)?;
        let advice = "add the server's URL, such as \"http://localhost:11434/v1\"";
        Some(url.ok_or_else(|| missing("base_url", advice))?)
    };
    if vendor.access == Access::Key && api_key_env.is_empty() {
        let advice = "name the environment variable that holds the key";
        return Err(missing("api_key_env", advice));
    }
    let api_key = value(&api_key_env, env)?.map(SecretString::from);
    let Some(raw_models) = raw.models.filter(|models| !models.is_empty()) else {
        let advice = format!("add at least one [[{path}.models]]");
        return Err(missing("models", &advice));
    };
    let (models, model_ids) =
        models::resolve(&name, vendor, raw.markup.unwrap_or(markup), raw_models)?;
    let status = if raw.enabled == Some(false) {
        Status::SwitchedOff
    } else if api_key.is_none() && !api_key_env.is_empty() {
        Status::KeyMissing
    } else if models.is_empty() {
        Status::NoModels
    } else {
        Status::Enabled
    };
    Ok(Provider {
        name,
        vendor,
        status,
        api_key_env,
        base_url,
        api_key,
        timeout: raw.timeout_seconds.map_or(TIMEOUT, |seconds| *seconds),
        max_concurrent: match raw.max_concurrent {
            Some(number) => *number,
            None if vendor.access == Access::BuiltIn => MAX_CONCURRENT_SANDBOX,
            None => MAX_CONCURRENT,
        },
        models,
        model_ids,
    })
}

fn vendor(kind: Option<&str>, vendors: &[&'static Vendor]) -> Result<&'static Vendor, ConfigError> {
    let found = vendors.iter().find(|vendor| Some(vendor.kind) == kind);
    found.copied().ok_or_else(|| {
        let kinds: Vec<&str> = vendors.iter().map(|vendor| vendor.kind).collect();
        let kinds = kinds.join(", ");
        let problem = match kind {
            Some(kind) => format!("is {}: must be one of {kinds}", quoted(kind)),
            None => format!("is missing: write one of {kinds}"),
        };
        ConfigError::new("kind", problem)
    })
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || b == b'_' || b == b'-')
}

fn refuse_unused(path: &str, raw: &RawProvider) -> Result<(), ConfigError> {
    let unused = [
        ("api_key_env", raw.api_key_env.is_some()),
        ("base_url", raw.base_url.is_some()),
        ("base_url_env", raw.base_url_env.is_some()),
    ];
    match unused.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((key, _)) => Err(ConfigError::new(
            format!("{path}.{key}"),
            "is not used by the sandbox: remove it",
        )),
    }
}

/// Warns about a factor below 1, such as a margin written as 0.2 instead of 1.2.
pub(super) fn check_margin(
    key: impl FnOnce() -> String,
    markup: Option<Markup>,
    warnings: &mut Vec<String>,
) {
    if let Some(markup) = markup.filter(|markup| markup.is_below_cost()) {
        warnings.push(format!(
            "{} is {markup}: prices are below the provider's",
            key()
        ));
    }
}

/// Checks that these are names of variables, not values of keys: names are shown, keys never. A
/// blank name is allowed.
pub(super) fn check_names(names: &[String]) -> Result<(), &'static str> {
    let is_name = |name: &String| {
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
    };
    if names.iter().all(is_name) {
        return Ok(());
    }
    Err("is not the name of a variable (its value is not shown): \
         must be letters, digits and _, such as \"OPENAI_API_KEY\"")
}

/// Returns the base URL: from a `GENSVC__` variable, else the vendor's variable, else the files.
fn base_url(
    path: &str,
    vendor_variable: Option<&str>,
    in_files: Option<&str>,
    env: &BTreeMap<String, String>,
    overrides: &Overrides<'_>,
) -> Result<Option<Url>, ConfigError> {
    let key = format!("{path}.base_url");
    let vendor = vendor_variable
        .filter(|_| overrides.variable(&key).is_none())
        .and_then(|variable| Some((variable, env.get(variable)?.trim())))
        .filter(|(_, value)| !value.is_empty());
    let (key, text) = match (vendor, in_files) {
        (Some((variable, value)), _) => (format!("{variable} ({key})"), value),
        (None, Some(text)) if !text.is_empty() => (key, text),
        (None, _) => return Ok(None),
    };
    let url = http_url(text).map_err(|problem| ConfigError::new(key, problem))?;
    Ok(Some(url))
}

/// Returns the value of the first variable that is set and not blank.
pub(super) fn value<'a>(
    names: &[String],
    env: &'a BTreeMap<String, String>,
) -> Result<Option<&'a str>, ConfigError> {
    let found = names
        .iter()
        .filter_map(|name| Some((name, env.get(name)?.trim())))
        .find(|(_, value)| !value.is_empty());
    let Some((name, value)) = found else {
        return Ok(None);
    };
    if !value.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConfigError::new(
            name,
            "holds a space or another character that no key has (its value is not shown): \
             set it to the bare key",
        ));
    }
    Ok(Some(value))
}
