//! A route: a handler, its documentation and its facts. Facts that follow from the handler's
//! arguments, such as its permission and its body, are derived from their types.

use std::mem;

use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, Method, Uri},
};
use serde_json::{Map, Value, json};
use utoipa_axum::router::UtoipaMethodRouter;

use super::{
    ApiState,
    admin::Operator,
    body::{EmptyBody, JsonBody, OptionalBody, RawBody},
    context::{CallerSlot, RequestPermit, Sdk},
    error::{ApiError, Code},
    extract::{Authorized, FromPath, PathId, PathIds, Permission, Query},
    metrics::Scraper,
};
use crate::domain::validate::{
    Body, FieldError, Input, Schemas, component, query_parameters, read_query,
};

/// One operation of the API.
pub struct Route {
    pub routes: UtoipaMethodRouter<ApiState>,
    /// The SDK that uses it.
    pub sdk: Option<Sdk>,
    pub facts: Facts,
    /// Whether the time limit of requests applies.
    pub bounded: bool,
    /// Error codes that do not follow from its facts.
    pub errors: Vec<Code>,
}

impl Route {
    pub fn new<A>(routes: UtoipaMethodRouter<ApiState>, handler: &impl Handler<A>) -> Self {
        let sdk = routes.1.paths.keys().find_map(|path| Sdk::of_path(path));
        Self {
            routes,
            sdk,
            facts: handler.facts(),
            bounded: true,
            errors: Vec::new(),
        }
    }

    /// Removes the time limit, for routes that have their own or stream.
    pub fn unbounded(self) -> Self {
        Self {
            bounded: false,
            ..self
        }
    }

    pub fn errors(mut self, errors: &[Code]) -> Self {
        self.errors.extend(errors);
        self
    }

    pub fn paths(&self) -> impl Iterator<Item = &String> {
        self.routes.1.paths.keys()
    }

    /// Returns its path and its method.
    pub fn operation(&self) -> Result<(String, String), serde_json::Error> {
        let paths = serde_json::to_value(&self.routes.1)?;
        let operation = paths.as_object().into_iter().flatten().next();
        let method = |item: &Value| item.as_object()?.keys().next().cloned();
        Ok(operation
            .and_then(|(path, item)| Some((path.clone(), method(item)?)))
            .unwrap_or_default())
    }
}

/// Facts about a route that are derived from its handler's arguments.
#[derive(Default)]
pub struct Facts {
    security: Option<Value>,
    /// The ability that the caller must have.
    pub ability: Option<&'static str>,
    /// The schema of the body.
    pub body: Option<Value>,
    is_body_optional: bool,
    /// The parameters of the path in order, without their names.
    path: Vec<Value>,
    query: Vec<Value>,
    /// The errors of a request with one unknown field.
    pub refusal: Vec<FieldError>,
    /// The schemas that other members refer to.
    schemas: Schemas,
}

impl Facts {
    /// Adds the facts to the operation's documentation.
    pub fn complete(&mut self, path: &str, operation: &mut Value, schemas: &mut Value) {
        if let Some(security) = &self.security {
            operation["security"] = security.clone();
        }
        if let Some(ability) = self.ability {
            operation["x-required-ability"] = json!(ability);
        }
        if let Some(body) = &self.body {
            operation["requestBody"] = json!({"required": !self.is_body_optional, "content": {"application/json": {"schema": body}}});
        }
        let names = path.split(['{', '}']).skip(1).step_by(2);
        for (parameter, name) in self.path.iter_mut().zip(names) {
            parameter["name"] = json!(name);
        }
        let mut parameters = mem::take(&mut self.path);
        let own = operation["parameters"].as_array().cloned();
        parameters.extend(own.unwrap_or_default());
        parameters.append(&mut self.query);
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        if let Some(schemas) = schemas.as_object_mut() {
            schemas.append(&mut self.schemas);
        }
    }
}

/// An argument of a handler.
pub trait Argument {
    fn describe(_: &mut Facts) {}
}

impl<P: Permission> Argument for Authorized<P> {
    fn describe(facts: &mut Facts) {
        facts.security = Some(json!([{"bearer": []}]));
        facts.ability = Some(P::NAME);
    }
}

impl Argument for Operator {
    fn describe(facts: &mut Facts) {
        facts.security = Some(json!([{"admin": []}]));
        facts.ability = Some("admin");
    }
}

impl Argument for Scraper {
    fn describe(facts: &mut Facts) {
        facts.security = Some(json!([{"metrics_token": []}]));
    }
}

impl<T: Body> Argument for JsonBody<T> {
    fn describe(facts: &mut Facts) {
        facts.body = Some(component(&mut facts.schemas, T::NAME, T::schema));
        facts.refusal = T::parse(&misspelt()).1;
    }
}

impl<T: Body> Argument for OptionalBody<T> {
    fn describe(facts: &mut Facts) {
        JsonBody::<T>::describe(facts);
        facts.is_body_optional = true;
    }
}

impl<T: Input> Argument for Query<T> {
    fn describe(facts: &mut Facts) {
        facts.query = query_parameters::<T>(&mut facts.schemas);
        facts.refusal = read_query::<T>(&misspelt()).1;
    }
}

impl<T: Input> Argument for Result<Query<T>, ApiError> {
    fn describe(facts: &mut Facts) {
        Query::<T>::describe(facts);
    }
}

fn misspelt() -> Map<String, Value> {
    Map::from_iter([("promt".to_owned(), json!("A haiku"))])
}

/// Implements [`Argument`] for types that add nothing to the document.
macro_rules! silent {
    ($($argument:ty),+ $(,)?) => {$(
        impl Argument for $argument {}
    )+};
}

silent!(
    State<ApiState>,
    HeaderMap,
    Method,
    Uri,
    Extension<RequestPermit>,
    Extension<CallerSlot>,
    EmptyBody,
    Result<EmptyBody, ApiError>,
    RawBody,
    Result<Path<(String, String)>, PathRejection>,
    Result<Path<String>, PathRejection>,
);

impl<T: FromPath> Argument for PathId<T> {
    fn describe(facts: &mut Facts) {
        facts.path.push(
            json!({"in": "path", "required": true, "description": T::ABOUT,
            "schema": T::schema()}),
        );
    }
}

impl<T: FromPath, U: FromPath> Argument for PathIds<T, U> {
    fn describe(facts: &mut Facts) {
        PathId::<T>::describe(facts);
        PathId::<U>::describe(facts);
    }
}

/// A handler whose argument types describe its route.
pub trait Handler<A> {
    fn facts(&self) -> Facts;
}

macro_rules! handlers {
    ($($argument:ident)*) => {
        impl<F, R, $($argument: Argument),*> Handler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> R,
        {
            fn facts(&self) -> Facts {
                let mut facts = Facts::default();
                $($argument::describe(&mut facts);)*
                facts
            }
        }
    };
}

handlers!(A);
handlers!(A B);
handlers!(A B C);
handlers!(A B C D);
handlers!(A B C D E);

/// Creates the route of a handler, with the handler's own method and path.
macro_rules! route {
    ($($handler:tt)+) => {
        $crate::api::route::Route::new(utoipa_axum::routes!($($handler)+), &$($handler)+)
    };
}

pub(super) use route;
