//! The catalogue: the models that this server offers, with their prices and limits.

mod dates;
mod dialogue;
mod features;
mod inputs;
mod media;
mod published;
mod routes;
mod text;
mod translate;
pub mod vendor;
mod vision;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use chrono::{DateTime, NaiveDate, Utc};
pub use dialogue::Dialogue;
pub use features::Feature;
pub use inputs::InputLimits;
pub use media::{
    ImageLimits, ImageModel, SpeechLimits, SpeechModel, Support, VideoLimits, VideoModel,
};
pub use published::{Comparison, Difference};
pub use routes::Route;
use serde_json::{Value, json};
pub use text::{TextLimits, TextModel};
pub use vision::Vision;

use crate::{
    domain::{
        generation::{Modality, Surface},
        likeness::suggestion,
        pricing::{LIST, Markup, Prices},
        route::route_name,
        validate::{FieldCode, FieldError},
    },
    request::{GenerationRequest, Target},
};

/// The prices and limits, by modality.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelKind {
    Text(TextModel),
    Image(ImageModel),
    Video(VideoModel),
    Speech(SpeechModel),
}

impl ModelKind {
    pub fn prices(&self) -> Prices {
        match self {
            Self::Text(model) => Prices::Text((*model.prices).clone()),
            Self::Image(model) => Prices::Image(model.prices.clone()),
            Self::Video(model) => Prices::Video(model.prices),
            Self::Speech(model) => Prices::Speech(model.prices),
        }
    }

    /// Adds the operator's margin to the prices. Must be called once, when they are complete.
    pub fn mark_up(&mut self, markup: Markup) {
        match self {
            Self::Text(model) => markup.apply(Arc::make_mut(&mut model.prices).amounts()),
            Self::Image(model) => markup.apply(model.prices.amounts()),
            Self::Video(model) => markup.apply(model.prices.amounts()),
            Self::Speech(model) => markup.apply([&mut model.prices.per_1000_characters]),
        }
    }
}

/// Maximum models or providers that an error suggests.
const SUGGESTED: usize = 3;
/// Maximum characters of a caller's value that an error repeats.
const QUOTED_CHARS: usize = 100;

/// Quotes a name from a request for an error.
fn quoted(name: &str) -> String {
    let mut chars = name
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let shown: String = chars.by_ref().take(QUOTED_CHARS).collect();
    let rest = if chars.next().is_some() { "…" } else { "" };
    format!("`{shown}{rest}`")
}

/// Returns the error for a name that no model or route of this server has.
fn not_listed(name: &str, modality: Modality, what: &str, surface: Surface) -> String {
    let (name, list) = (quoted(name), surface.models_path());
    format!("{name} is not a {modality} {what} of this server; GET {list} lists the models")
}

/// Prices and limits of a period, and the prices before the operator's markup.
pub type Terms = (ModelKind, Prices);

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub provider: String,
    pub id: String,
    /// Whether it is used for requests that name no model.
    pub default: bool,
    /// The first day on which the provider may have retired it.
    pub retiring: Option<NaiveDate>,
    /// The model to use from that day, as `provider/id`.
    pub replacement: Option<String>,
    /// Other names; after retirement they resolve to the replacement.
    pub aliases: Vec<String>,
    /// Whether requests for it are refused.
    pub retired: bool,
    /// The day of its first prices; before it the model is not served.
    pub valid_from: Option<NaiveDate>,
    pub kind: ModelKind,
    /// The prices before the operator's markup.
    pub list_prices: Prices,
    /// Prices and limits that begin on later days, ascending.
    pub later: Vec<(NaiveDate, Terms)>,
}

impl Model {
    /// Whether `name` is its id or an alias.
    fn has_name(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }

    pub const fn modality(&self) -> Modality {
        match self.kind {
            ModelKind::Text(_) => Modality::Text,
            ModelKind::Image(_) => Modality::Image,
            ModelKind::Video(_) => Modality::Video,
            ModelKind::Speech(_) => Modality::Audio,
        }
    }

    /// Returns every field of a request that this model lacks. `chars`: length of the sent prompt.
    pub fn violations(&self, request: &GenerationRequest, chars: usize) -> Vec<FieldError> {
        match (&self.kind, request) {
            (ModelKind::Text(model), GenerationRequest::Text(request)) => {
                model.violations(chars, request.max_tokens, request.temperature)
            }
            (ModelKind::Text(model), GenerationRequest::Dialogue(request)) => {
                model.dialogue_violations(request)
            }
            (ModelKind::Image(model), GenerationRequest::Image(request)) => {
                model.violations(request)
            }
            (ModelKind::Video(model), GenerationRequest::Video(request)) => {
                model.violations(request)
            }
            (ModelKind::Speech(model), GenerationRequest::Audio(request)) => {
                model.violations(request)
            }
            _ => Vec::new(),
        }
    }

    pub fn prices(&self) -> Prices {
        self.kind.prices()
    }

    /// Returns the prices to store with a generation: the model's, and the vendor's as the member
    /// [`LIST`].
    pub fn pinned_prices(&self) -> Value {
        let mut pinned = json!(self.prices());
        pinned[LIST] = json!(self.list_prices);
        pinned
    }
}

/// The enabled models of this server.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// The models at the catalogue's time.
    models: Vec<Model>,
    configured: Arc<[Model]>,
    /// The period in which this catalogue applies; empty until [`Self::at`].
    valid: Range<DateTime<Utc>>,
    /// Provider names by modality, in order of preference.
    preference: BTreeMap<Modality, Vec<String>>,
    /// Configured providers that are not enabled, each with the reason.
    disabled: BTreeMap<String, String>,
    routes: Vec<Route>,
    configured_routes: Arc<[Route]>,
}

impl Catalogue {
    /// Creates a catalogue. Requests that name no provider use the first enabled one of
    /// `preference`. `disabled`: configured providers that are not enabled, each with the reason.
    /// All candidates of `routes` must be in `models`.
    pub fn new(
        mut models: Vec<Model>,
        preference: BTreeMap<Modality, Vec<String>>,
        disabled: BTreeMap<String, String>,
        routes: Vec<Route>,
    ) -> Self {
        models.sort_by(|a, b| {
            (&a.provider, a.modality(), !a.default, &a.id).cmp(&(
                &b.provider,
                b.modality(),
                !b.default,
                &b.id,
            ))
        });
        Self {
            configured: models.clone().into(),
            models,
            valid: Range::default(),
            preference,
            disabled,
            configured_routes: routes.clone().into(),
            routes,
        }
    }

    /// Returns the models sorted by provider and modality, the default model first.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// Finds a model. `name`: its id or an alias.
    pub fn find(&self, provider: &str, name: &str) -> Option<&Model> {
        self.models
            .iter()
            .find(|m| m.provider == provider && m.has_name(name))
    }

    /// Returns the sorted providers: all, or those with a model for a modality, retired or not.
    pub fn providers(&self, modality: Option<Modality>) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .models
            .iter()
            .filter(|m| modality.is_none_or(|wanted| m.modality() == wanted))
            .map(|m| m.provider.as_str())
            .collect();
        names.dedup();
        names
    }

    /// Returns the model for requests that name this provider but no model: its default, or the
    /// default's replacement, possibly of another provider.
    pub fn default_model(&self, provider: &str, modality: Modality) -> Option<&Model> {
        let default = self.own_default(provider, modality)?;
        self.served(default, "").ok()
    }

    fn own_default(&self, provider: &str, modality: Modality) -> Option<&Model> {
        // The default is sorted first. A provider's only model needs no `default`.
        let is_of = |m: &&Model| m.provider == provider && m.modality() == modality;
        self.models.iter().find(is_of)
    }

    /// Returns the provider for requests that name none.
    pub fn default_provider(&self, modality: Modality) -> Option<&str> {
        let enabled = self.providers(Some(modality));
        self.preference
            .get(&modality)
            .into_iter()
            .flatten()
            .map(String::as_str)
            .find(|name| enabled.contains(name))
            .or_else(|| enabled.first().copied())
    }

    /// Resolves the model of a request. `account`: the account's defaults.
    pub fn model_of(
        &self,
        request: &GenerationRequest,
        account: &Target,
    ) -> Result<&Model, FieldError> {
        let modality = request.modality();
        if let Some(name) = request.route() {
            return self.first_of(modality, name, request.surface());
        }
        let Some(target) = request.target() else {
            let name = request.model().unwrap_or_default();
            return self.named(modality, name, account, request.surface());
        };
        match &target.model {
            // SDKs send one name for both.
            Some(name) if request.surface() != Surface::Generate && target.provider.is_none() => {
                self.named(modality, name, account, request.surface())
            }
            _ => self.resolve(modality, target, account),
        }
    }

    /// Resolves the model of a request. `account`: the account's own default.
    pub fn resolve(
        &self,
        modality: Modality,
        target: &Target,
        account: &Target,
    ) -> Result<&Model, FieldError> {
        let model = self.meant(modality, target, account)?;
        // A default resolves to its replacement, as an alias does.
        self.served(model, target.model.as_deref().unwrap_or_default())
    }

    /// Resolves the model that a request names, even if it is retired.
    pub fn meant(
        &self,
        modality: Modality,
        target: &Target,
        account: &Target,
    ) -> Result<&Model, FieldError> {
        let offered = self.providers(Some(modality));
        // An account default that has been disabled is ignored.
        let account_provider = account.provider.as_deref().filter(|p| offered.contains(p));
        let from_account = target.provider.is_none() && account_provider.is_some();
        let provider = target.provider.as_deref().or(account_provider);
        let Some(provider) = provider.or_else(|| self.default_provider(modality)) else {
            let message = format!("no provider on this server makes {modality}");
            let code = FieldCode::NotSupported;
            return Err(FieldError::new("provider", code, message));
        };
        self.check_provider(modality, provider, &offered)?;
        let model = match &target.model {
            Some(name) => self.of(provider, modality, name),
            None => {
                let own = account.model.as_ref().filter(|_| from_account);
                let own = own.and_then(|name| self.of(provider, modality, name));
                own.or_else(|| self.own_default(provider, modality))
            }
        };
        model.ok_or_else(|| self.not_of(provider, modality, target))
    }

    /// Returns the error for a model that `provider`, named by the request or its default, does not
    /// have.
    fn not_of(&self, provider: &str, modality: Modality, target: &Target) -> FieldError {
        let name = target.model.as_deref().unwrap_or_default();
        let models = || {
            let models = self.models.iter();
            models.filter(|m| m.modality() == modality && !m.retired)
        };
        let of_others = models().filter(|m| m.has_name(name)).take(SUGGESTED);
        let others: Vec<&str> = of_others.map(|m| m.provider.as_str()).collect();
        let ids: Vec<&str> = models()
            .filter(|m| m.provider == provider)
            .map(|m| m.id.as_str())
            .collect();
        let own = match suggestion(name, ids.iter().copied()) {
            Some(close) => close.to_owned(),
            None if ids.is_empty() => "another model of GET /v1/models".to_owned(),
            None if ids.len() <= SUGGESTED => ids.join(" or "),
            None => format!(
                "{} or another model of GET /v1/models",
                ids[..SUGGESTED].join(", ")
            ),
        };
        let (which, set) = match (&target.provider, &others[..]) {
            (None, []) => (
                ", the provider of this request",
                "set `provider`, or ".to_owned(),
            ),
            (None, others) => (
                ", the provider of this request",
                format!("set `provider` to {}, or ", others.join(" or ")),
            ),
            (Some(_), []) => ("", String::new()),
            (Some(_), others) => (
                "",
                format!("set `provider` to {}, or ", others.join(" or ")),
            ),
        };
        let name = quoted(name);
        let message =
            format!("{name} is not a {modality} model of `{provider}`{which}; {set}use {own}");
        FieldError::new("model", FieldCode::UnknownModel, message)
    }

    /// Finds a model by `provider/model`, or just `model`; among several providers, the one that
    /// comes first in the defaults. `account`: the account's own default. `surface`: the API of the
    /// request, for the error.
    pub fn named(
        &self,
        modality: Modality,
        name: &str,
        account: &Target,
        surface: Surface,
    ) -> Result<&Model, FieldError> {
        if let Some(name) = route_name(name) {
            return self.first_of(modality, name, surface);
        }
        if let Some((provider, id)) = name.split_once('/')
            && let Some(model) = self.of(provider, modality, id)
        {
            return self.served(model, id);
        }
        let is_it = |model: &&Model| model.has_name(name) && model.modality() == modality;
        let all: Vec<&Model> = self.models.iter().filter(is_it).collect();
        let preferred = self.preference.get(&modality).into_iter().flatten();
        let preferred = account.provider.iter().chain(preferred);
        let mut preferred = preferred.map(String::as_str);
        let of = |provider| all.iter().find(|model| model.provider == provider);
        // Refuse a retired model of a preferred vendor instead of billing another vendor's model.
        if let Some(model) = preferred.find_map(of) {
            return self.served(model, name);
        }
        let (code, message) = match &all[..] {
            [model, rest @ ..] if rest.is_empty() || all.iter().all(|model| model.retired) => {
                return self.served(model, name);
            }
            [] => (
                FieldCode::UnknownModel,
                not_listed(name, modality, "model", surface),
            ),
            several => {
                let names = several.iter().filter(|m| !m.retired).map(|m| m.name());
                let names = names.collect::<Vec<_>>().join(", ");
                let message = format!("is a model of several providers; must be one of {names}");
                (FieldCode::InvalidFormat, message)
            }
        };
        Err(FieldError::new("model", code, message))
    }

    fn of(&self, provider: &str, modality: Modality, name: &str) -> Option<&Model> {
        self.find(provider, name)
            .filter(|m| m.modality() == modality)
    }

    fn check_provider(
        &self,
        modality: Modality,
        provider: &str,
        offered: &[&str],
    ) -> Result<(), FieldError> {
        if offered.contains(&provider) {
            return Ok(());
        }
        Err(if self.providers(None).contains(&provider) {
            let message = format!(
                "{provider} does not make {modality}; these do: {}",
                offered.join(", ")
            );
            FieldError::new("provider", FieldCode::NotSupported, message)
        } else {
            let hint = match (
                self.disabled.get(provider),
                suggestion(provider, offered.iter().copied()),
            ) {
                (Some(reason), _) => {
                    format!("; {provider} is known here but not enabled ({reason})")
                }
                (None, Some(meant)) => format!("; did you mean {meant}?"),
                (None, None) => String::new(),
            };
            let message = format!("must be one of {}{hint}", offered.join(", "));
            FieldError::new("provider", FieldCode::UnknownProvider, message)
        })
    }
}
