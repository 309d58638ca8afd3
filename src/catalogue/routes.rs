//! Routes: lists of models under one name.

use super::{Catalogue, Model, not_listed};
use crate::{
    domain::{
        generation::{Modality, Surface},
        route::{Order, PROVIDER},
        validate::{FieldCode, FieldError},
    },
    request::Target,
};

#[derive(Debug, Clone)]
pub struct Route {
    pub name: String,
    pub order: Order,
    /// The candidates, each with provider and model.
    pub candidates: Vec<Target>,
    /// The route in lists of models, with the prices and limits of its first candidate.
    pub listed: Model,
}

impl Route {
    /// Creates a route. `first`: the model of the first candidate.
    pub fn new(name: String, order: Order, candidates: Vec<Target>, first: &Model) -> Self {
        Self {
            listed: Model {
                provider: PROVIDER.to_owned(),
                id: name.clone(),
                default: false,
                retiring: None,
                replacement: None,
                aliases: Vec::new(),
                ..first.clone()
            },
            name,
            order,
            candidates,
        }
    }

    pub const fn modality(&self) -> Modality {
        self.listed.modality()
    }

    /// Resolves the route in `catalogue`, using replacements for retired models. Returns `None` if
    /// no model is left.
    pub(super) fn at(&self, catalogue: &Catalogue) -> Option<Self> {
        let mut models: Vec<&Model> = Vec::new();
        let targets = self.candidates.iter();
        for model in targets.filter_map(|target| catalogue.followed(target)) {
            if !models.contains(&model) {
                models.push(model);
            }
        }
        let first = models.iter().find(|model| !model.retired);
        let first = first.or(models.first())?;
        let candidates = models.iter().map(|model| model.target()).collect();
        Some(Self::new(self.name.clone(), self.order, candidates, first))
    }
}

impl Model {
    pub fn target(&self) -> Target {
        Target {
            provider: Some(self.provider.clone()),
            model: Some(self.id.clone()),
            fallbacks: Vec::new(),
        }
    }
}

impl Catalogue {
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// Finds the route of this name and modality. `surface`: the API of the request, for the error.
    pub fn route_for(
        &self,
        modality: Modality,
        name: &str,
        surface: Surface,
    ) -> Result<&Route, FieldError> {
        let route = self
            .route(name)
            .filter(|route| route.modality() == modality);
        route.ok_or_else(|| {
            let message = not_listed(name, modality, "route", surface);
            FieldError::new("model", FieldCode::UnknownModel, message)
        })
    }

    /// Returns the models of a route, in the listed order.
    pub fn candidates(&self, route: &str) -> impl Iterator<Item = &Model> {
        let route = self.route(route).into_iter();
        let targets = route.flat_map(|route| &route.candidates);
        targets
            .filter_map(|target| self.find(target.provider.as_deref()?, target.model.as_deref()?))
    }

    /// Returns the model of a target with provider and model, or its replacement if it has one.
    pub fn followed(&self, target: &Target) -> Option<&Model> {
        let model = self.find(target.provider.as_deref()?, target.model.as_deref()?)?;
        Some(self.served(model, "").unwrap_or(model))
    }

    /// Returns the first candidate of a route that is not retired.
    pub(super) fn first_of(
        &self,
        modality: Modality,
        name: &str,
        surface: Surface,
    ) -> Result<&Model, FieldError> {
        let route = self.route_for(modality, name, surface)?;
        let served = self.candidates(name).find(|model| !model.retired);
        let first = route.candidates.first().cloned().unwrap_or_default();
        served.map_or_else(|| self.resolve(modality, &first, &Target::default()), Ok)
    }

    pub fn listed(&self) -> impl Iterator<Item = &Model> {
        let routes = self.routes.iter().map(|route| &route.listed);
        self.models.iter().chain(routes)
    }

    /// Finds the model or route with this provider and id, or the model with this alias.
    pub fn find_listed(&self, provider: &str, name: &str) -> Option<&Model> {
        let is_it = |model: &&Model| model.provider == provider && model.has_name(name);
        let model = self.listed().find(is_it)?;
        Some(self.served(model, name).unwrap_or(model))
    }
}
