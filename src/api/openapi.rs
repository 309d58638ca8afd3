//! The OpenAPI document: made from the handlers' own declarations, completed with what all
//! routes share.

mod detail;

use std::sync::Arc;

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

use super::{
    ApiState,
    error::{ApiError, ErrorType},
    extract::NoQuery,
};
use crate::domain::validate::FieldError;

/// Bodies whose unknown fields are refused.
const CLOSED: [&str; 17] = [
    "TextGenerationRequest",
    "TextParameters",
    "ImageGenerationRequest",
    "ImageParameters",
    "VideoGenerationRequest",
    "VideoParameters",
    "SpeechGenerationRequest",
    "SpeechParameters",
    "KeyCreationRequest",
    "LoginRequest",
    "AccountCreationRequest",
    "CreditMovementRequest",
    "WebhookCreationRequest",
    "TemplateRequest",
    "AccountChange",
    "DefaultsChange",
    "DefaultChange",
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
        (name = "generate", description = "Make something"),
        (name = "generations", description = "What was made"),
        (name = "credits", description = "What it costs"),
        (name = "templates", description = "Prompts to be used again"),
        (name = "account", description = "The account's own settings"),
        (name = "api-keys", description = "Keys for servers"),
        (name = "webhooks", description = "Being told instead of asking"),
        (name = "auth", description = "Sessions for people"),
        (name = "admin", description = "For the operator's own systems, with an admin token"),
        (name = "catalogue", description = "What this server offers; no token needed"),
        (name = "health", description = "How the server is; no token needed"),
        (name = "operations", description = "For the operator's own systems"),
    )
)]
pub struct Document;

/// Completes the document: the bearer schemes, and the errors that every route can answer.
pub fn complete(document: &mut utoipa::openapi::OpenApi) -> Result<Value, serde_json::Error> {
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
            .description(Some("The setting metrics.token, where it is set"))
            .build();
        components.add_security_scheme("metrics_token", SecurityScheme::Http(metrics));
    }
    let mut document = serde_json::to_value(document)?;
    let schemas = &mut document["components"]["schemas"];
    schemas["Error"] = error_schema();
    for closed in CLOSED {
        schemas[closed]["additionalProperties"] = json!(false);
    }
    schemas["EstimateRequest"]["oneOf"] = estimated(schemas);
    let Some(paths) = document["paths"].as_object_mut() else {
        return Ok(document);
    };
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            add_errors(path, method, operation);
        }
    }
    detail::add(&mut document);
    Ok(document)
}

/// The errors of one operation, from what it declares.
fn add_errors(path: &str, method: &str, operation: &mut Value) {
    let metrics = path == "/metrics";
    let secured = operation.get("security").is_some() && !metrics;
    let body = operation.get("requestBody").is_some();
    let login = path == "/v1/auth/login";
    let generates = method == "post" && path.starts_with("/v1/generate/") && body;
    let mut add = |status: &str, description: &str| {
        let responses = &mut operation["responses"];
        if responses.get(status).is_none() {
            responses[status] = json!({
                "description": description,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            });
        }
    };
    if path.starts_with("/v1/media/") {
        add("403", "invalid_signature or expired_signature");
        add("416", "range_not_satisfiable");
        add("503", "storage_unavailable; with Retry-After");
    }
    if secured {
        add(
            "401",
            "missing_token, invalid_token, revoked_key or expired_key",
        );
        add(
            "403",
            "missing_ability, session_required or account_suspended",
        );
    }
    if metrics {
        add(
            "401",
            "missing_token or invalid_token, where metrics.token is set",
        );
        add("403", "loopback_only, where it is not");
    }
    if login {
        add("401", "invalid_credentials");
    }
    if body {
        add("400", "malformed_json or invalid_header");
        add("408", "request_timeout");
        add("413", "payload_too_large");
        add("415", "unsupported_media_type");
    }
    if generates {
        add(
            "402",
            "insufficient_credits, max_cost_exceeded or spend_limit_exceeded",
        );
        add(
            "409",
            "idempotency_in_progress, or cancelled with the generation",
        );
        add(
            "502",
            "provider_error, provider_rejected or content_policy, with the generation",
        );
        add("504", "provider_timeout, with the generation");
        add(
            "422",
            "validation_failed: every failing field is named; or idempotency_key_reused",
        );
    }
    if path.ends_with("/credits") && body {
        add(
            "422",
            "validation_failed: every failing field is named; or reference_reused",
        );
    }
    if path.ends_with("/cancel") {
        add("409", "already_finished");
    }
    if method == "delete" && path.starts_with("/v1/generate/") {
        add("409", "not_finished");
    }
    if path.contains('{') || generates {
        add("404", "not_found");
    }
    add("422", "validation_failed: every failing field is named");
    if secured || login {
        add(
            "429",
            "rate_limited, too_many_logins, too_many_jobs or credits_on_hold; with Retry-After",
        );
        add(
            "503",
            "database_unavailable, storage_unavailable, overloaded, shutting_down or provider_overloaded; with Retry-After",
        );
    }
    add("500", "internal_error");
}

/// What an estimate takes: each generation's body, and its type. They are written out, because
/// a closed body cannot be added to.
fn estimated(schemas: &Value) -> Value {
    let of = |(modality, body): (&str, &str)| {
        let mut schema = schemas[body].clone();
        schema["properties"]["type"] = json!({"type": "string", "enum": [modality]});
        if let Some(required) = schema["required"].as_array_mut() {
            required.push(json!("type"));
        }
        if let Some(members) = schema.as_object_mut() {
            members.remove("example");
        }
        schema
    };
    let bodies = [
        ("text", "TextGenerationRequest"),
        ("image", "ImageGenerationRequest"),
        ("video", "VideoGenerationRequest"),
        ("audio", "SpeechGenerationRequest"),
    ];
    bodies.into_iter().map(of).collect()
}

fn error_schema() -> Value {
    let credits = json!({"$ref": "#/components/schemas/Credits"});
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
                    "code": {"type": "string", "examples": ["validation_failed"]},
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
