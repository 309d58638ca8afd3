//! What the document says beyond the handlers' declarations about every route alike: the shape
//! of shared parameters, rules that join two fields, headers of answers, and where an answer
//! leads on.

use serde_json::{Map, Value, json};

/// Adds all of it.
pub(super) fn add(document: &mut Value) {
    add_rules(&mut document["components"]["schemas"]);
    document["components"]["headers"] = headers();
    let Some(paths) = document["paths"].as_object_mut() else {
        return;
    };
    for operations in paths.values_mut() {
        for operation in operations.as_object_mut().into_iter().flatten() {
            let operation = operation.1;
            name(operation);
            shape_parameters(operation);
            add_headers(operation);
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

/// The shape of a parameter, by its name.
fn parameter(name: &str) -> Option<Value> {
    let group = "(day|type|provider|model|api_key)";
    Some(match name {
        "cursor" => json!({"pattern": "^[A-Za-z0-9_-]{1,64}$"}),
        "Idempotency-Key" => json!({"pattern": "^[!-~]{1,255}$"}),
        "uuid" | "generation" => json!({"format": "uuid"}),
        "kind" => json!({"enum": ["grant", "hold", "charge", "release", "adjustment", "refund"]}),
        "group_by" => json!({"pattern": format!("^{group}(,{group}){{0,4}}$")}),
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
        refuse_nul(schema);
    }
}

/// No string of a request may contain U+0000, and what must not be blank has more than white
/// space.
fn refuse_nul(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(refuse_nul),
        Value::Object(members) => {
            let types = members.get("type").cloned().unwrap_or_default();
            let text = types == "string" || types == json!(["string", "null"]);
            let shaped = ["enum", "format"]
                .iter()
                .any(|name| members.contains_key(*name));
            match members.get("pattern").and_then(Value::as_str) {
                None if text && !shaped => {
                    members.insert("pattern".to_owned(), json!(r"^[^\x00]*$"));
                }
                Some(r"\S") => {
                    members.insert("pattern".to_owned(), json!(r"^\s*[^\s\x00][^\x00]*$"));
                }
                _ => {}
            }
            members.values_mut().for_each(refuse_nul);
        }
        _ => {}
    }
}

/// Rules that no field has alone.
fn add_rules(schemas: &mut Value) {
    for name in super::CLOSED.iter().chain(["EstimateRequest"].iter()) {
        refuse_nul(&mut schemas[name]);
    }
    schemas["Abilities"]["minItems"] = json!(1);
    schemas["Abilities"]["uniqueItems"] = json!(true);
    schemas["WebhookCreationRequest"]["properties"]["events"]["uniqueItems"] = json!(true);
    // "*" stands alone.
    schemas["Abilities"]["anyOf"] = json!([{"maxItems": 1}, {"items": {"not": {"const": "*"}}}]);
    schemas["KeyCreationRequest"]["dependentSchemas"] =
        needs("spend_period", "spend_limit", &json!(["string", "number"]));
    let template = needs("template_variables", "template_id", &json!("integer"));
    let estimated = schemas["EstimateRequest"]["oneOf"].as_array_mut();
    for body in estimated.into_iter().flatten() {
        if body["properties"].get("template_id").is_some() {
            body["dependentSchemas"] = template.clone();
        }
    }
    schemas["TextGenerationRequest"]["dependentSchemas"] = template;
}

/// `field` is given only together with `other`; null counts as absent.
fn needs(field: &str, other: &str, types: &Value) -> Value {
    json!({field: {"anyOf": [
        {"properties": {field: {"type": "null"}}},
        {"properties": {other: {"type": types}}, "required": [other]},
    ]}})
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
    })
}

/// Which headers the answers carry.
fn add_headers(operation: &mut Value) {
    let bearer = operation["security"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|scheme| scheme.get("bearer").is_some());
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
