//! Models and providers of this server. Public, except for the statistics of the last day.

use axum::{
    Json,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use chrono::NaiveDate;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::{
    ApiState,
    error::ApiError,
    extract::{AnyToken, Authorized, NoQuery, Query},
};
use crate::{
    catalogue::{Feature, ImageLimits, Model, ModelKind, SpeechLimits, TextLimits, VideoLimits},
    domain::{
        generation::Modality,
        pricing::Prices,
        route::{Order, PROVIDER},
        validate::{Fields, Input, text, words},
    },
    jobs::Circuit,
    request::Target,
    service::reports::ModelStats,
};

/// A model with its prices and limits.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelBody {
    /// The provider's model id.
    pub id: String,
    /// Provider name.
    pub provider: String,
    /// Modality.
    pub r#type: Modality,
    /// Prices in credits.
    pub prices: Prices,
    /// Announced later prices, in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upcoming_prices: Vec<UpcomingPrices>,
    /// Limits of its requests.
    pub limits: Limits,
    /// Optional parts of its requests besides a prompt.
    pub features: Vec<Feature>,
    /// Whether it is used for requests that name this provider but no model.
    pub default: bool,
    /// The day from which requests for it are refused with 410 `model_retired`, at midnight UTC;
    /// the provider may have switched it off then.
    #[schema(required, nullable)]
    pub retiring: Option<NaiveDate>,
    /// Whether the model is retired.
    pub retired: bool,
    /// The model to use instead of a retiring one, as `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// Other names for it. Once it is retired, they resolve to its replacement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The models of a route (provider `route`), of which one is used. The route's prices and
    /// limits are those of the first model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
    /// The order in which a route's models are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
}

/// Prices of generations that are created from a day on.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpcomingPrices {
    /// The first day, from midnight UTC.
    pub valid_from: NaiveDate,
    /// Prices in credits.
    pub prices: Prices,
}

/// Models.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelsBody {
    /// All matching models.
    pub data: Vec<ModelBody>,
}

/// A provider.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProviderBody {
    /// Its name.
    pub id: String,
    /// The types that it generates.
    pub types: Vec<Modality>,
    /// Its default model of each type.
    pub default_models: BTreeMap<Modality, String>,
    /// The types for which it is the default provider.
    pub default_for: Vec<Modality>,
    /// Its models that this server skips if a request has other candidates, because their last
    /// calls were not started.
    pub open_circuits: Vec<CircuitBody>,
}

/// A model that is skipped.
#[derive(Debug, Serialize, ToSchema)]
pub struct CircuitBody {
    /// The model.
    pub model: String,
    /// Seconds until the next call probes it.
    pub retry_seconds: f64,
}

impl CircuitBody {
    /// Returns the open circuits of a provider.
    pub fn of(provider: &str, all: &[Circuit]) -> Vec<Self> {
        let own = all.iter().filter(|circuit| circuit.provider == provider);
        let body = |circuit: &Circuit| Self {
            model: circuit.model.clone(),
            retry_seconds: circuit.left.as_secs_f64(),
        };
        own.map(body).collect()
    }
}

/// Providers.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProvidersBody {
    /// All providers of this server.
    pub data: Vec<ProviderBody>,
}

/// The limits of a model, by its modality.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Limits {
    /// Text.
    Text(TextLimits),
    /// Images.
    Image(ImageLimits),
    /// Video.
    Video(VideoLimits),
    /// Speech.
    Speech(SpeechLimits),
}

fn body(state: &ApiState, model: &Model) -> ModelBody {
    let catalogue = state.service.catalogue();
    let default = catalogue.default_model(&model.provider, model.modality());
    let route = catalogue.route(&model.id);
    let route = route.filter(|_| model.provider == PROVIDER);
    let candidates = route.map_or(&[][..], |route| &route.candidates[..]);
    let name =
        |target: &Target| Some([target.provider.as_deref()?, target.model.as_deref()?].join("/"));
    ModelBody {
        id: model.id.clone(),
        provider: model.provider.clone(),
        r#type: model.modality(),
        prices: model.prices(),
        upcoming_prices: model
            .later
            .iter()
            .map(|(valid_from, (kind, _))| UpcomingPrices {
                valid_from: *valid_from,
                prices: kind.prices(),
            })
            .collect(),
        limits: match &model.kind {
            ModelKind::Text(text) => Limits::Text(text.limits.clone()),
            ModelKind::Image(image) => Limits::Image(image.limits.clone()),
            ModelKind::Video(video) => Limits::Video(video.limits.clone()),
            ModelKind::Speech(speech) => Limits::Speech(speech.limits.clone()),
        },
        features: model.features(),
        default: default == Some(model),
        retiring: model.retiring,
        retired: model.retired,
        replacement: model.replacement.clone(),
        aliases: model.aliases.clone(),
        candidates: candidates.iter().filter_map(name).collect(),
        order: route.map(|route| route.order),
    }
}

/// Which models are listed.
pub struct ModelFilter {
    modality: Option<Modality>,
    provider: Option<String>,
}

impl Input for ModelFilter {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        Some(Self {
            modality: fields.optional("type", "Modality", words()),
            provider: fields.optional("provider", "Provider name", text(usize::MAX)),
        })
    }
}

/// List models
#[utoipa::path(
    get, path = "/v1/models", tag = "catalogue",
    responses((status = 200, description = "The models of this server", body = ModelsBody)),
)]
pub async fn models(
    State(state): State<ApiState>,
    Query(ModelFilter { modality, provider }): Query<ModelFilter>,
) -> Result<Json<ModelsBody>, ApiError> {
    let data = state
        .service
        .catalogue()
        .listed()
        .filter(|m| modality.is_none_or(|wanted| m.modality() == wanted))
        .filter(|m| provider.as_ref().is_none_or(|wanted| &m.provider == wanted))
        .map(|m| body(&state, m))
        .collect();
    Ok(Json(ModelsBody { data }))
}

/// Get model statistics
///
/// Returns the success rate and median time of each model over all accounts: of the last day, or of
/// the newest 20,000 generations of all models if there were more. Only listed models with at least
/// 20 generations are included. The figures are at most a minute old, or older while they cannot be
/// read.
#[utoipa::path(
    get, path = "/v1/models/stats", tag = "catalogue",
    responses((status = 200, description = "The statistics", body = ModelStats)),
)]
pub async fn stats(auth: Authorized<AnyToken>, _query: NoQuery) -> Result<Response, ApiError> {
    let figures = auth.service.model_stats().await?;
    Ok(Json(&*figures).into_response())
}

/// Look up a model
#[utoipa::path(
    get, path = "/v1/models/{provider}/{model}", tag = "catalogue",
    params(
        ("provider" = String, Path, description = "Provider name"),
        ("model" = String, Path, description = "Model id or alias; a slash in it is written %2F"),
    ),
    responses((status = 200, description = "The model", body = ModelBody)),
)]
pub async fn model(
    State(state): State<ApiState>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    _query: NoQuery,
) -> Result<Json<ModelBody>, ApiError> {
    let missing = || ApiError::not_found("there is no such model on this server");
    let Path((provider, id)) = path.map_err(|_| missing())?;
    let model = state.service.catalogue().find_listed(&provider, &id);
    Ok(Json(body(&state, model.ok_or_else(missing)?)))
}

/// List providers
#[utoipa::path(
    get, path = "/v1/providers", tag = "catalogue",
    responses((status = 200, description = "The providers of this server", body = ProvidersBody)),
)]
pub async fn providers(State(state): State<ApiState>, _query: NoQuery) -> Json<ProvidersBody> {
    let catalogue = state.service.catalogue();
    let circuits = state.service.open_circuits();
    let provider = |name: &str| {
        let all = || Modality::ALL.iter().copied();
        let serves = |m: &Modality| {
            let is_it = |model: &Model| model.provider == name && model.modality() == *m;
            let mut models = catalogue.models().iter();
            models.any(|model| is_it(model) && !model.retired)
        };
        let default = |m| {
            let model = catalogue.default_model(name, m);
            Some((m, model.filter(|model| model.provider == name)?.id.clone()))
        };
        ProviderBody {
            id: name.to_owned(),
            types: all().filter(serves).collect(),
            default_for: all()
                .filter(|&m| catalogue.default_provider(m) == Some(name))
                .collect(),
            default_models: all().filter_map(default).collect(),
            open_circuits: CircuitBody::of(name, &circuits),
        }
    };
    let providers = catalogue.providers(None).into_iter();
    Json(ProvidersBody {
        data: providers.map(provider).collect(),
    })
}
