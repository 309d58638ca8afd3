//! The OpenAPI document, built from the handlers' declarations and completed with the parts that
//! all routes share.

mod detail;
mod examples;
mod shared;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::{
    context::Sdk,
    error::{ApiError, Code, ErrorType, sdk_status},
    route::{Facts, Route},
};
use crate::domain::validate::FieldError;

/// Errors that the state of the server may cause for a login and any request with a token.
pub const BUSY: [Code; 3] = [
    Code::DatabaseUnavailable,
    Code::Overloaded,
    Code::ShuttingDown,
];

/// The parts that no handler declares: tags, security schemes, headers, error bodies, and
/// references to the vendors' documentation.
const COMMON: &str = include_str!("openapi/common.json");

/// The title, and schemas that no handler declares.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "gensvc",
        description = "Text, image, video and speech generation through many providers, paid from prepaid credits. \
            Before work starts its cost ceiling is held; only completed work is billed, at real \
            usage; a failure costs nothing."
    ),
    components(schemas(FieldError, ErrorType))
)]
pub struct Document;

/// Builds the document from the handlers' declarations and arguments, the bearer schemes, and the
/// errors that every route can return.
pub fn document(table: Vec<Route>) -> Result<Value, serde_json::Error> {
    let mut router = OpenApiRouter::with_openapi(Document::openapi());
    let mut described = Vec::new();
    for route in table {
        let (path, method) = route.operation()?;
        described.push((path, method, route.sdk, route.facts, route.errors));
        router = router.routes(route.routes);
    }
    let mut document = serde_json::to_value(router.into_openapi())?;
    merge(&mut document, serde_json::from_str(COMMON)?);
    let mut schemas = document["components"]["schemas"].take();
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    schemas["Error"]["properties"]["error"]["properties"]["code"]["enum"] = json!(codes);
    for (path, method, sdk, mut facts, mut errors) in described {
        let operation = &mut document["paths"][&path][&method];
        facts.complete(&path, operation, &mut schemas);
        if sdk == Some(Sdk::Anthropic) {
            operation["security"] = json!([{"bearer": []}, {"x_api_key": []}]);
        }
        if detail::is_viewable(&method, &path, operation) {
            errors.extend([Code::InvalidHeader, Code::NotFound]);
            detail::add_viewed_account(operation);
        }
        add_errors(operation, &path, sdk, &facts, &errors)?;
    }
    document["components"]["schemas"] = schemas;
    detail::add(&mut document);
    let recorded = examples::recorded()?;
    document["components"]["examples"] = examples::errors(&recorded)?;
    examples::add(&mut document["paths"], &recorded);
    // Equal values are only found if their members have the same order. Versions of the document
    // also need it for a readable diff.
    document.sort_all_objects();
    shared::extract(&mut document);
    document.sort_all_objects();
    Ok(document)
}

/// Adds the members of `added`, at any depth.
fn merge(document: &mut Value, added: Value) {
    match (document, added) {
        (Value::Object(document), Value::Object(added)) => {
            for (name, value) in added {
                merge(document.entry(name).or_insert(Value::Null), value);
            }
        }
        (document, added) => *document = added,
    }
}

fn operations(paths: &mut Value) -> impl Iterator<Item = &mut Value> {
    let items = paths.as_object_mut().into_iter();
    let items = items.flat_map(Map::values_mut);
    items.flat_map(|item| item.as_object_mut().into_iter().flat_map(Map::values_mut))
}

/// Adds the errors of one operation: its own, and those that follow from its facts.
fn add_errors(
    operation: &mut Value,
    path: &str,
    sdk: Option<Sdk>,
    facts: &Facts,
    errors: &[Code],
) -> Result<(), serde_json::Error> {
    let mut codes: BTreeSet<Code> = errors.iter().copied().collect();
    codes.extend([Code::ValidationFailed, Code::InternalError]);
    if facts.ability.is_some() {
        codes.extend(BUSY);
        codes.extend([
            Code::MissingToken,
            Code::InvalidToken,
            Code::RevokedKey,
            Code::ExpiredKey,
            Code::MissingAbility,
            Code::SessionRequired,
            Code::AccountSuspended,
            Code::RateLimited,
        ]);
    }
    if facts.body.is_some() || operation.get("requestBody").is_some() {
        codes.extend([
            Code::MalformedJson,
            Code::InvalidHeader,
            Code::RequestTimeout,
            Code::PayloadTooLarge,
            Code::UnsupportedMediaType,
        ]);
    }
    if path.contains('{') {
        codes.insert(Code::NotFound);
    }
    let schema = match sdk {
        None => "Error",
        Some(Sdk::OpenAi) => "OpenAiError",
        Some(Sdk::Anthropic) => "AnthropicError",
    };
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        let status = sdk.map_or(code.status(), |_| sdk_status(code));
        let of_status = by_status.entry(status.as_u16());
        of_status.or_default().push(code);
    }
    for (status, codes) in by_status {
        let retry = if matches!(status, 429 | 503) {
            "; with Retry-After"
        } else {
            ""
        };
        let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
        let mut content = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
        if let (Some(sdk), Some(&code)) = (sdk, codes.first()) {
            let (_, body) =
                ApiError::example(code, facts.ability).for_sdk(sdk, examples::REQUEST_ID);
            content["example"] = serde_json::from_str(&body)?;
        }
        let examples = codes.into_iter().filter(|_| sdk.is_none());
        for code in examples {
            content["examples"][code.as_str()] = match code {
                Code::ValidationFailed => {
                    examples::error_example(&ApiError::invalid(facts.refusal.clone()))?
                }
                Code::MissingAbility
                | Code::InsufficientCredits
                | Code::MaxCostExceeded
                | Code::CreditsOnHold => {
                    examples::error_example(&ApiError::example(code, facts.ability))?
                }
                _ => json!({"$ref": format!("#/components/examples/{}", code.as_str())}),
            };
        }
        operation["responses"][status.to_string()] = json!({
            "description": format!("{}{retry}", names.join(", ")),
            "content": {"application/json": content},
        });
    }
    Ok(())
}
