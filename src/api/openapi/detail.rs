//! Completes the document with facts about all routes: the format of headers and paths, response
//! headers, and links between operations.

use serde_json::{Map, Value, json};

use super::operations;

pub(super) fn add(document: &mut Value) {
    let paths = &mut document["paths"];
    for operation in operations(paths) {
        name(operation);
        shape_parameters(operation);
        add_headers(operation);
    }
    add_links(paths);
}

/// Makes an operation's id unique in the document; a handler's name is only unique in its file.
fn name(operation: &mut Value) {
    let tag = operation["tags"][0].as_str().unwrap_or_default();
    let handler = operation["operationId"].as_str().unwrap_or_default();
    operation["operationId"] = json!(format!("{}_{handler}", tag.replace('-', "_")));
}

/// Whether an operator can choose the account that an operation reads.
pub(super) fn is_viewable(method: &str, path: &str, operation: &Value) -> bool {
    let is_read = method == "get" && path.starts_with("/v1/");
    is_read && operation["security"] == json!([{"bearer": []}])
}

/// Adds the header with which an operator reads the account of a customer.
pub(super) fn add_viewed_account(operation: &mut Value) {
    let mut parameters = operation["parameters"].as_array().cloned();
    parameters.get_or_insert_default().push(
        json!({"name": "X-Gensvc-Account", "in": "header", "required": false,
            "description": "With an operator's session: the id of the account to read",
            "schema": {"type": "integer", "format": "int64", "minimum": 1}}),
    );
    operation["parameters"] = json!(parameters);
}

fn shape_parameters(operation: &mut Value) {
    let parameters = operation.get_mut("parameters");
    let parameters = parameters.and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].take();
        let schema = &mut parameter["schema"];
        // A parameter is absent if it is not sent, and never null.
        if schema["type"] == json!(["string", "null"]) {
            schema["type"] = json!("string");
        }
        match name.as_str() {
            Some("Idempotency-Key") => schema["pattern"] = json!("^[!-~]{1,255}$"),
            Some("uuid") => schema["format"] = json!("uuid"),
            _ => {}
        }
        // No string of a request may contain U+0000.
        let is_shaped = ["enum", "pattern", "format"]
            .iter()
            .any(|name| schema.get(name).is_some());
        if schema["type"] == "string" && !is_shaped {
            schema["pattern"] = json!(r"^[^\x00]*$");
        }
        parameter["name"] = name;
    }
}

fn add_headers(operation: &mut Value) {
    let bearer = operation["security"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|scheme| scheme.get("bearer").is_some());
    let parameters = operation["parameters"].as_array();
    let generates = operation["tags"][0] == "generate";
    // It creates a generation for an SDK.
    let counts_retries = parameters
        .into_iter()
        .flatten()
        .any(|parameter| parameter["name"] == "X-Stainless-Retry-Count");
    let responses = operation["responses"].as_object_mut();
    for (status, response) in responses.into_iter().flatten() {
        let mut names = vec!["X-Request-Id"];
        if bearer && status != "401" {
            names.extend([
                "X-RateLimit-Limit",
                "X-RateLimit-Remaining",
                "X-RateLimit-Reset",
            ]);
        }
        match status.as_str() {
            "200" if counts_retries => {
                names.extend([
                    "X-Gensvc-Generation",
                    "X-Gensvc-Served-By",
                    "Idempotent-Replayed",
                ]);
                if response["content"].get("text/event-stream").is_some() {
                    names.push("X-Gensvc-Max-Tokens");
                }
            }
            "200" if generates => names.extend(["X-Gensvc-Served-By", "Idempotent-Replayed"]),
            "202" if generates => names.extend(["Location", "Retry-After"]),
            "401" => names.push("WWW-Authenticate"),
            "429" | "503" => names.push("Retry-After"),
            _ => {}
        }
        for name in names {
            response["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
        }
    }
}

/// Routes that create an object, and the path of the object.
const CREATED: [(&str, &str); 9] = [
    ("/v1/generate/text", "/v1/generate/{uuid}"),
    ("/v1/generate/image", "/v1/generate/{uuid}"),
    ("/v1/generate/video", "/v1/generate/{uuid}"),
    ("/v1/generate/audio", "/v1/generate/{uuid}"),
    ("/v1/api-keys", "/v1/api-keys/{id}"),
    ("/v1/uploads", "/v1/uploads/{id}"),
    ("/v1/templates", "/v1/templates/{id}"),
    ("/v1/webhooks", "/v1/webhooks/{id}"),
    ("/v1/admin/accounts", "/v1/admin/accounts/{id}"),
];

/// Adds links from responses to the operations that take the id of their object.
fn add_links(paths: &mut Value) {
    for (from, object) in CREATED {
        let id = object.rsplit(['{', '}']).nth(1).unwrap_or_default();
        let items = paths.as_object().into_iter().flatten();
        let below =
            items.filter(|(path, _)| path.starts_with(object) && path.matches('{').count() == 1);
        let operations = below.filter_map(|(_, item)| item.as_object());
        let operations = operations.flat_map(Map::values);
        let mut targets: Vec<_> = operations.map(|o| (o["operationId"].clone(), id)).collect();
        if id == "uuid" {
            targets.push((json!("credits_ledger"), "generation"));
        }
        let responses = paths[from]["post"]["responses"].as_object_mut();
        for (status, response) in responses.into_iter().flatten() {
            for (operation, parameter) in targets.iter().filter(|_| status.starts_with('2')) {
                response["links"][operation.as_str().unwrap_or_default()] = json!({
                    "operationId": operation,
                    "parameters": {*parameter: format!("$response.body#/{id}")},
                });
            }
        }
    }
}
