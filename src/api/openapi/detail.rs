//! What the document says beyond the handlers' declarations about every route alike: the shape
//! of headers and paths, headers of answers, and where an answer leads on.

use serde_json::{Map, Value, json};

/// Adds all of it.
pub(super) fn add(document: &mut Value) {
    document["components"]["headers"] = headers();
    let Some(paths) = document["paths"].as_object_mut() else {
        return;
    };
    for (path, operations) in paths.iter_mut() {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            name(operation);
            shape_parameters(operation);
            add_headers(operation);
            if is_viewable(method, path, operation) {
                let mut parameters = operation["parameters"].as_array().cloned();
                parameters.get_or_insert_default().push(viewed_account());
                operation["parameters"] = json!(parameters);
            }
        }
    }
    for link in LINKS {
        add_links(paths, &link);
    }
    // Which delivery of which webhook.
    let deliveries = &mut paths["/v1/webhooks/{id}/deliveries"]["get"]["responses"]["200"];
    deliveries["links"]["webhooks_redeliver"] = json!({
        "operationId": "webhooks_redeliver",
        "parameters": {"id": "$request.path.id", "delivery": "$response.body#/data/0/id"},
    });
}

/// An operation's id is unique in the whole document: a handler's name is in its own file.
fn name(operation: &mut Value) {
    let tag = operation["tags"][0].as_str().unwrap_or_default();
    let handler = operation["operationId"].as_str().unwrap_or_default();
    operation["operationId"] = json!(format!("{}_{handler}", tag.replace('-', "_")));
}

/// Whether an operation reads an account that an operator can name.
pub(super) fn is_viewable(method: &str, path: &str, operation: &Value) -> bool {
    let is_read = method == "get" && path.starts_with("/v1/");
    is_read && operation["security"] == json!([{"bearer": []}])
}

/// The header by which an operator reads the account of a customer.
fn viewed_account() -> Value {
    json!({"name": "X-Gensvc-Account", "in": "header", "required": false,
        "description": "For the session of an operator: the id of the account to read",
        "schema": {"type": "integer", "format": "int64", "minimum": 1}})
}

/// The shape of a parameter, by its name.
fn parameter(name: &str) -> Option<Value> {
    Some(match name {
        "Idempotency-Key" => json!({"pattern": "^[!-~]{1,255}$"}),
        "uuid" => json!({"format": "uuid"}),
        _ => return None,
    })
}

fn shape_parameters(operation: &mut Value) {
    let parameters = operation.get_mut("parameters");
    for parameter_of in parameters
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let shape = parameter(parameter_of["name"].as_str().unwrap_or_default());
        let schema = &mut parameter_of["schema"];
        // What is not sent is absent: no header says null.
        if schema["type"] == json!(["string", "null"]) {
            schema["type"] = json!("string");
        }
        for (name, value) in shape
            .as_ref()
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            schema[name] = value.clone();
        }
        // No string of a request may contain U+0000.
        let is_shaped = ["enum", "pattern", "format"]
            .iter()
            .any(|name| schema.get(name).is_some());
        if schema["type"] == "string" && !is_shaped {
            schema["pattern"] = json!(r"^[^\x00]*$");
        }
    }
}

fn headers() -> Value {
    json!({
        "X-Request-Id": {"required": true, "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
            "description": "The request's own id where it sent a proper one, else a new one; logs and error bodies carry it too"},
        "X-RateLimit-Limit": {"schema": {"type": "integer", "minimum": 1},
            "description": "Requests per minute of this token"},
        "X-RateLimit-Remaining": {"schema": {"type": "integer", "minimum": 0},
            "description": "Requests that would be let through now"},
        "X-RateLimit-Reset": {"schema": {"type": "integer", "minimum": 0},
            "description": "Seconds until all of the limit is there again"},
        "Retry-After": {"schema": {"type": "integer", "minimum": 0}, "description": "Seconds"},
        "WWW-Authenticate": {"schema": {"type": "string"}, "description": "`Bearer`"},
        "X-Gensvc-Generation": {"schema": {"type": "string", "format": "uuid"},
            "description": "The generation's uuid"},
        "X-Gensvc-Max-Tokens": {"schema": {"type": "integer", "minimum": 1},
            "description": "The limit of output tokens that was sent to the provider"},
        "Idempotent-Replayed": {"schema": {"type": "string", "enum": ["true"]},
            "description": "An earlier request made it: with the same Idempotency-Key, or the one that this is a retry of"},
    })
}

/// Which headers the answers carry.
fn add_headers(operation: &mut Value) {
    let bearer = operation["security"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|scheme| scheme.get("bearer").is_some());
    let parameters = operation["parameters"].as_array();
    // It makes a generation for an SDK.
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
                names.extend(["X-Gensvc-Generation", "Idempotent-Replayed"]);
                if response["content"].get("text/event-stream").is_some() {
                    names.push("X-Gensvc-Max-Tokens");
                }
            }
            "401" => names.push("WWW-Authenticate"),
            "429" | "503" => names.push("Retry-After"),
            _ => {}
        }
        for name in names {
            response["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
        }
    }
}

/// A route whose answer names an object, and the routes that take its id.
struct Link {
    /// The routes that make it.
    from: &'static [&'static str],
    /// Where the id stands in the answer.
    id: &'static str,
    /// Method, path, and the parameter that takes the id.
    to: &'static [(&'static str, &'static str, &'static str)],
}

const LINKS: [Link; 5] = [
    Link {
        from: &[
            "/v1/generate/text",
            "/v1/generate/image",
            "/v1/generate/video",
            "/v1/generate/audio",
        ],
        id: "uuid",
        to: &[
            ("get", "/v1/generate/{uuid}", "uuid"),
            ("delete", "/v1/generate/{uuid}", "uuid"),
            ("post", "/v1/generate/{uuid}/cancel", "uuid"),
            ("get", "/v1/credits/ledger", "generation"),
        ],
    },
    Link {
        from: &["/v1/api-keys"],
        id: "id",
        to: &[
            ("get", "/v1/api-keys/{id}", "id"),
            ("delete", "/v1/api-keys/{id}", "id"),
        ],
    },
    Link {
        from: &["/v1/templates"],
        id: "id",
        to: &[
            ("get", "/v1/templates/{id}", "id"),
            ("put", "/v1/templates/{id}", "id"),
            ("delete", "/v1/templates/{id}", "id"),
        ],
    },
    Link {
        from: &["/v1/webhooks"],
        id: "id",
        to: &[
            ("get", "/v1/webhooks/{id}", "id"),
            ("delete", "/v1/webhooks/{id}", "id"),
            ("get", "/v1/webhooks/{id}/deliveries", "id"),
        ],
    },
    Link {
        from: &["/v1/admin/accounts"],
        id: "id",
        to: &[
            ("get", "/v1/admin/accounts/{id}", "id"),
            ("patch", "/v1/admin/accounts/{id}", "id"),
            ("delete", "/v1/admin/accounts/{id}", "id"),
            ("post", "/v1/admin/accounts/{id}/credits", "id"),
            ("post", "/v1/admin/accounts/{id}/suspend", "id"),
            ("post", "/v1/admin/accounts/{id}/resume", "id"),
        ],
    },
];

fn add_links(paths: &mut Map<String, Value>, link: &Link) {
    for (method, path, parameter) in link.to {
        let Some(target) = paths
            .get(*path)
            .and_then(|operations| operations.get(*method))
        else {
            continue;
        };
        let Some(operation) = target["operationId"].as_str().map(str::to_owned) else {
            continue;
        };
        for from in link.from {
            let responses = paths[*from]["post"]["responses"].as_object_mut();
            for (status, response) in responses.into_iter().flatten() {
                if status.starts_with('2') {
                    response["links"][&operation] = json!({
                        "operationId": operation,
                        "parameters": {*parameter: format!("$response.body#/{}", link.id)},
                    });
                }
            }
        }
    }
}
