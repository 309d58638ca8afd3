//! The OpenAPI document: made from the handlers' own declarations, completed with what all
//! routes share.

mod detail;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    extract::{Path, State, rejection::PathRejection},
    response::{Html, IntoResponse, Response},
};
use http::{HeaderName, StatusCode, header};
use serde_json::{Value, json};
use utoipa::{
    OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

use super::{
    ApiState,
    error::{ApiError, Code, ErrorType},
    extract::NoQuery,
    route::{Facts, Route},
};
use crate::domain::validate::FieldError;

/// What the state of the server may keep any request with a token from, and a login.
pub const BUSY: [Code; 3] = [
    Code::DatabaseUnavailable,
    Code::Overloaded,
    Code::ShuttingDown,
];

/// What the handlers do not declare themselves.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "gensvc",
        description = "Text, image, video and speech generation through many providers, paid from prepaid credits. \
            Before work starts its cost ceiling is held; only completed work is billed, at real \
            usage; a failure costs nothing."
    ),
    components(schemas(FieldError, ErrorType)),
    tags(
        (name = "generate", description = "Generate text, images, video and speech"),
        (name = "generations", description = "Look up, list, cancel and delete generations"),
        (name = "credits", description = "Balance, ledger, usage and estimates"),
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
        described.push((path, method, route.facts, route.errors));
        router = router.routes(route.routes);
    }
    let mut document = router.into_openapi();
    if let Some(components) = &mut document.components {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key (svc_...) or a session token"))
            .build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let admin = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "An admin token (adm_...), which only `gensvc admin token create` makes. It is \
                 good for /v1/admin only; other tokens get 403 missing_ability there.",
            ))
            .build();
        components.add_security_scheme("admin", SecurityScheme::Http(admin));
        let metrics = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The setting metrics.token"))
            .build();
        components.add_security_scheme("metrics_token", SecurityScheme::Http(metrics));
    }
    let mut document = serde_json::to_value(document)?;
    let mut schemas = document["components"]["schemas"].take();
    schemas["Error"] = error_schema();
    for (path, method, mut facts, errors) in described {
        let operation = &mut document["paths"][&path][&method];
        facts.complete(operation, &mut schemas);
        add_errors(operation, &path, &facts, &errors);
    }
    document["components"]["schemas"] = schemas;
    detail::add(&mut document);
    Ok(document)
}

/// The errors of one operation: its own, and those that follow from its facts.
fn add_errors(operation: &mut Value, path: &str, facts: &Facts, errors: &[Code]) {
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
    if facts.body.is_some() {
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
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in codes {
        by_status
            .entry(code.status().as_u16())
            .or_default()
            .push(code.as_str());
    }
    for (status, codes) in by_status {
        let retry = if matches!(status, 429 | 503) {
            "; with Retry-After"
        } else {
            ""
        };
        operation["responses"][status.to_string()] = json!({
            "description": format!("{}{retry}", codes.join(", ")),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        });
    }
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

pub async fn openapi(State(state): State<ApiState>, _query: NoQuery) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, state.settings.openapi.clone()).into_response()
}

/// The page's own frame: absolute paths, so that it needs no redirect to a slash, and nothing
/// from another host.
const PAGE: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gensvc API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"#;

/// What the page does: in a file, so that no script within a page need be allowed.
const START: &str =
    "SwaggerUIBundle({dom_id: '#swagger-ui', url: '/openapi.json', deepLinking: true});\n";

/// Scripts and calls of this server's own only. The page holds no secret until somebody types
/// a key into it; then nothing may carry that elsewhere, nor show the page in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The headers of the page and of its files.
const GUARDED: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

pub async fn page(_query: NoQuery) -> impl IntoResponse {
    (GUARDED, Html(PAGE))
}

/// GET /docs/{file}: the files of Swagger UI, from within the program.
pub async fn asset(path: Result<Path<String>, PathRejection>) -> Result<Response, ApiError> {
    let missing = || ApiError::from_status(StatusCode::NOT_FOUND);
    let Path(file) = path.map_err(|_| missing())?;
    if file == "start.js" {
        let content_type = [(header::CONTENT_TYPE, "text/javascript")];
        return Ok((GUARDED, content_type, START).into_response());
    }
    let config = Arc::new(utoipa_swagger_ui::Config::from("/openapi.json"));
    match utoipa_swagger_ui::serve(&file, config) {
        Ok(Some(found)) => {
            let content_type = [(header::CONTENT_TYPE, found.content_type)];
            Ok((GUARDED, content_type, found.bytes.into_owned()).into_response())
        }
        Ok(None) => Err(missing()),
        Err(error) => {
            tracing::error!(%error, file, "a file of the documentation cannot be served");
            Err(ApiError::internal())
        }
    }
}
