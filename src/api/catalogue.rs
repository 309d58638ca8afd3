//! Models and providers of this server; public, without a token.

use axum::{
    Json,
    extract::{Path, State},
};
use chrono::NaiveDate;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::{
    ApiState,
    error::ApiError,
    extract::{NoQuery, Query},
};
use crate::domain::{
    catalogue::{ImageLimits, Model, ModelKind, SpeechLimits, TextLimits, VideoLimits},
    generation::Modality,
    pricing::Prices,
    validate::{Fields, Input, text, words},
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
    /// The limits of its requests.
    pub limits: Limits,
    /// Whether it serves requests to this provider that name no model.
    pub default: bool,
    /// The day from which the provider may have switched it off.
    #[schema(required, nullable)]
    pub retiring: Option<NaiveDate>,
}

/// Models.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelsBody {
    /// All that match.
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
    /// The types for which requests without a provider go to it.
    pub default_for: Vec<Modality>,
}

/// Providers.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProvidersBody {
    /// All of this server.
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

impl ModelBody {
    fn of(model: &Model, default: bool) -> Self {
        Self {
            id: model.id.clone(),
            provider: model.provider.clone(),
            r#type: model.modality(),
            prices: model.prices(),
            limits: match &model.kind {
                ModelKind::Text(text) => Limits::Text(text.limits.clone()),
                ModelKind::Image(image) => Limits::Image(image.limits.clone()),
                ModelKind::Video(video) => Limits::Video(video.limits.clone()),
                ModelKind::Speech(speech) => Limits::Speech(speech.limits.clone()),
            },
            default,
            retiring: model.retiring,
        }
    }
}

fn body(state: &ApiState, model: &Model) -> ModelBody {
    let default = state
        .service
        .catalogue()
        .default_model(&model.provider, model.modality());
    ModelBody::of(model, default == Some(model))
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
    query: Query<ModelFilter>,
) -> Result<Json<ModelsBody>, ApiError> {
    let ModelFilter { modality, provider } = query.read()?;
    let data = state
        .service
        .catalogue()
        .models()
        .iter()
        .filter(|m| modality.is_none_or(|wanted| m.modality() == wanted))
        .filter(|m| provider.as_ref().is_none_or(|wanted| &m.provider == wanted))
        .map(|m| body(&state, m))
        .collect();
    Ok(Json(ModelsBody { data }))
}

/// Look up a model
#[utoipa::path(
    get, path = "/v1/models/{provider}/{model}", tag = "catalogue",
    params(
        ("provider" = String, Path, description = "Provider name"),
        ("model" = String, Path, description = "Model id; a slash in it is written %2F"),
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
    let model = state
        .service
        .catalogue()
        .find(&provider, &id)
        .ok_or_else(missing)?;
    Ok(Json(body(&state, model)))
}

/// List providers
#[utoipa::path(
    get, path = "/v1/providers", tag = "catalogue",
    responses((status = 200, description = "The providers of this server", body = ProvidersBody)),
)]
pub async fn providers(State(state): State<ApiState>, _query: NoQuery) -> Json<ProvidersBody> {
    let catalogue = state.service.catalogue();
    let provider = |name: &str| {
        let defaults: BTreeMap<Modality, String> = Modality::ALL
            .iter()
            .filter_map(|&m| Some((m, catalogue.default_model(name, m)?.id.clone())))
            .collect();
        ProviderBody {
            id: name.to_owned(),
            types: defaults.keys().copied().collect(),
            default_for: defaults
                .keys()
                .copied()
                .filter(|&m| catalogue.default_provider(m) == Some(name))
                .collect(),
            default_models: defaults,
        }
    };
    let data = catalogue
        .providers(None)
        .into_iter()
        .map(provider)
        .collect();
    Json(ProvidersBody { data })
}
