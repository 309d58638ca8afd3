//! Routes: lists of models under one name.

use super::{Catalogue, Model};
use crate::domain::{
    generation::Modality,
    request::Target,
    route::{Order, PROVIDER},
    validate::{FieldCode, FieldError},
};

/// A route of the configuration.
#[derive(Debug, Clone)]
pub struct Route {
    pub name: String,
    pub order: Order,
    /// Each with provider and model.
    pub candidates: Vec<Target>,
    /// As in lists of models: with the prices and limits of its first candidate.
    pub listed: Model,
}

impl Route {
    /// `first`: the model of the first candidate.
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
}

impl Catalogue {
    /// Adds routes. Their candidates are models of the catalogue.
    #[must_use]
    pub fn with_routes(mut self, routes: Vec<Route>) -> Self {
        self.routes = routes;
        self
    }

    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// The route of this name and modality.
    pub fn route_for(&self, modality: Modality, name: &str) -> Result<&Route, FieldError> {
        let route = self
            .route(name)
            .filter(|route| route.modality() == modality);
        route.ok_or_else(|| {
            let message =
                format!("names no route for {modality} of this server; GET /v1/models has them");
            FieldError::new("model", FieldCode::UnknownModel, message)
        })
    }

    /// The models of a route, in the listed order.
    pub fn candidates(&self, route: &str) -> impl Iterator<Item = &Model> {
        let route = self.route(route).into_iter();
        let targets = route.flat_map(|route| &route.candidates);
        targets
            .filter_map(|target| self.find(target.provider.as_deref()?, target.model.as_deref()?))
    }

    /// The first candidate of a route.
    pub(super) fn first_of(&self, modality: Modality, name: &str) -> Result<&Model, FieldError> {
        let route = self.route_for(modality, name)?;
        let first = route.candidates.first().cloned().unwrap_or_default();
        self.resolve(modality, &first, &Target::default())
    }

    /// The models, and the routes as models.
    pub fn listed(&self) -> impl Iterator<Item = &Model> {
        let routes = self.routes.iter().map(|route| &route.listed);
        self.models.iter().chain(routes)
    }

    /// The model or route with this provider and id.
    pub fn find_listed(&self, provider: &str, id: &str) -> Option<&Model> {
        self.listed()
            .find(|model| model.provider == provider && model.id == id)
    }
}
