//! The OpenAPI document: made from the handlers' own declarations, completed with what all
//! routes share.

mod detail;
mod examples;
mod shared;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use utoipa::{
    OpenApi,
    openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

use super::{
    context::Sdk,
    error::{AnthropicError, ApiError, Code, ErrorType, OpenAiError, sdk_status},
    route::{Facts, Route},
};
use crate::domain::validate::FieldError;

/// Errors that the state of the server may cause for a login and any request with a token.
pub const BUSY: [Code; 3] = [
    Code::DatabaseUnavailable,
    Code::Overloaded,
    Code::ShuttingDown,
];

/// The parts of the document that no handler declares.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "gensvc",
        description = "Text, image, video and speech generation through many providers, paid from prepaid credits. \
            Before work starts its cost ceiling is held; only completed work is billed, at real \
            usage; a failure costs nothing."
    ),
    components(schemas(FieldError, ErrorType, OpenAiError<'_>, AnthropicError<'_>)),
    tags(
        (name = "generate", description = "Generate text, images, video and speech"),
        (name = "generations", description = "Look up, list, cancel and delete generations"),
        (name = "credits", description = "Balance, ledger, usage and estimates"),
        (name = "openai", description = "For OpenAI's SDKs"),
        (name = "anthropic", description = "For Anthropic's SDKs"),
        (name = "templates", description = "Reusable prompt templates"),
        (name = "account", description = "The account's own settings"),
        (name = "api-keys", description = "API keys for servers"),
        (name = "webhooks", description = "Webhooks and their deliveries"),
        (name = "auth", description = "User sessions"),
        (name = "admin", description = "Account administration, with an admin token"),
        (name = "catalogue", description = "Models and providers of this server; no token needed"),
        (name = "health", description = "Health checks; no token needed"),
        (name = "operations", description = "Metrics for the operator"),
    )
)]
pub struct Document;

/// The document: what the handlers declare and their arguments tell, the bearer schemes, and the
/// errors that every route can answer.
pub fn document(table: Vec<Route>) -> Result<Value, serde_json::Error> {
    let mut router = OpenApiRouter::with_openapi(Document::openapi());
    let mut described = Vec::new();
    for route in table {
        let (path, method) = route.operation()?;
        described.push((path, method, route.sdk, route.facts, route.errors));
        router = router.routes(route.routes);
    }
    let mut document = router.into_openapi();
    if let Some(components) = &mut document.components {
        let tokens = [
            ("bearer", "An API key (svc_...) or a session token"),
            (
                "admin",
                "An admin token (adm_...), which only `gensvc admin token create` makes. It is \
                 good for /v1/admin only; other tokens get 403 missing_ability there.",
            ),
            ("metrics_token", "The setting metrics.token"),
        ];
        for (name, about) in tokens {
            let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
            let scheme = SecurityScheme::Http(bearer.description(Some(about)).build());
            components.add_security_scheme(name, scheme);
        }
        let key = ApiKeyValue::with_description("x-api-key", "The same token, as a key");
        let key = SecurityScheme::ApiKey(ApiKey::Header(key));
        components.add_security_scheme("x_api_key", key);
    }
    let mut document = serde_json::to_value(document)?;
    let mut schemas = document["components"]["schemas"].take();
    schemas["Error"] = error_schema();
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
    // Equal values must have their members in the same order to be found; so must versions of the
    // document, for a readable diff.
    document.sort_all_objects();
    shared::extract(&mut document);
    document.sort_all_objects();
    Ok(document)
}

fn operations(paths: &mut Value) -> impl Iterator<Item = &mut Value> {
    let items = paths.as_object_mut().into_iter();
    let items = items.flat_map(Map::values_mut);
    items.flat_map(|item| item.as_object_mut().into_iter().flat_map(Map::values_mut))
}

/// The errors of one operation: its own, and those that follow from its facts.
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
                Code::ValidationFailed => examples::invalid(&facts.refusal)?,
                Code::MissingAbility
                | Code::InsufficientCredits
                | Code::MaxCostExceeded
                | Code::CreditsOnHold => examples::error(code, facts.ability)?,
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

fn error_schema() -> Value {
    let credits = json!({"$ref": "#/components/schemas/Credits"});
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "description": "The envelope of every error.",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "code", "message", "retryable", "request_id"],
                "properties": {
                    "type": {"$ref": "#/components/schemas/ErrorType"},
                    "code": {"type": "string", "enum": codes, "examples": ["validation_failed"]},
                    "message": {"type": "string"},
                    "param": {"type": "string", "description": "The first failing field"},
                    "errors": {"type": "array", "items": {"$ref": "#/components/schemas/FieldError"}},
                    "retryable": {"type": "boolean", "description": "Whether the same request may succeed later without any change"},
                    "request_id": {"type": "string"},
                    "required_ability": {"type": "string"},
                    "required": credits, "balance": credits, "held": credits,
                    "available": credits, "shortfall": credits,
                    "limit": credits, "spent": credits,
                    "affordable": {"type": ["object", "null"], "additionalProperties": {"type": "integer"},
                        "description": "The largest value of the deciding parameter that would fit"},
                },
            },
            "generation": {"$ref": "#/components/schemas/GenerationRecord",
                "description": "The failed record, where a synchronous generation failed"},
        },
    })
}
