//! Requests that Gemini refuses.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Checked, ensure, list, schema, word};

/// The members of `generationConfig` that requests for texts may have.
const GENERATION_CONFIG: &[&str] = &[
    "candidateCount",
    "maxOutputTokens",
    "responseJsonSchema",
    "responseMimeType",
    "seed",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
];

fn gemini_name(name: &Value) -> Checked {
    word(name, "_.:-", 64)?;
    let first = name.as_str().unwrap_or_default().chars().next();
    let starts = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    ensure(starts, || {
        format!("Invalid function name {name}. Must start with a letter")
    })
}

/// google-genai 3.6.1 `GenerateContentConfig.response_json_schema`, and google-gemini/gemini-cli#4758.
fn references(schema: &Value, path: &str) -> Checked {
    let is_bare = |(name, _): (&String, &Value)| name.starts_with('$');
    let mut members = schema.as_object().into_iter().flatten();
    ensure(!schema["$ref"].is_string() || members.all(is_bare), || {
        format!(
            "schema at {path} can only contain properties starting with '$' when $ref is present"
        )
    })?;
    for name in ["$defs", "definitions", "properties"] {
        for (of, schema) in schema[name].as_object().into_iter().flatten() {
            references(schema, &format!("{path}.{name}.{of}"))?;
        }
    }
    for name in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        let mut schemas = list(&schema[name]).iter();
        schemas.try_for_each(|schema| references(schema, &format!("{path}.{name}")))?;
    }
    for name in ["additionalProperties", "items"] {
        if let Some(schema) = schema.get(name) {
            references(schema, &format!("{path}.{name}"))?;
        }
    }
    Ok(())
}

pub(super) fn check(body: &Value) -> Checked {
    let tools = list(&body["tools"]).iter();
    let functions: Vec<&Value> = tools
        .flat_map(|tool| list(&tool["functionDeclarations"]))
        .collect();
    let mut names = HashSet::new();
    for function in &functions {
        gemini_name(&function["name"])?;
        ensure(names.insert(function["name"].as_str()), || {
            "Duplicate function".to_owned()
        })?;
        if let Some(parameters) = function.get("parametersJsonSchema") {
            schema(parameters, "parameters")?;
            references(parameters, "parameters")?;
        }
    }
    let config = &body["toolConfig"]["functionCallingConfig"];
    ensure(config.is_null() || !functions.is_empty(), || {
        "Function calling config is set without function_declarations.".to_owned()
    })?;
    for name in list(&config["allowedFunctionNames"]) {
        ensure(names.contains(&name.as_str()), || {
            format!("unknown function {name}")
        })?;
    }
    let config = &body["generationConfig"];
    references(&config["responseJsonSchema"], "response_json_schema")?;
    let int32 = |value: &Value| value.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
    for (name, least) in [("seed", i64::MIN), ("topK", 1)] {
        let given = config.get(name);
        let fits = given.is_none_or(|v| int32(v) && v.as_i64() >= Some(least));
        ensure(fits, || {
            format!("Invalid value at 'generation_config.{name}'")
        })?;
    }
    for (name, _) in config.as_object().into_iter().flatten() {
        ensure(GENERATION_CONFIG.contains(&name.as_str()), || {
            format!("Unknown name \"{name}\" at 'generation_config': Cannot find field.")
        })?;
    }
    let stops = list(&config["stopSequences"]).len();
    ensure(stops <= 5, || "at most 5 stop sequences".to_owned())?;
    let contents = list(&body["contents"]);
    ensure(!contents.is_empty(), || {
        "contents is not specified".to_owned()
    })?;
    let (mut before, mut open) = (&json!("model"), 0);
    for content in contents {
        let role = &content["role"];
        ensure(role == "user" || role == "model", || {
            "Please use a valid role".to_owned()
        })?;
        ensure(role != before, || {
            "Please ensure that multiturn requests alternate between user and model".to_owned()
        })?;
        before = role;
        let parts = list(&content["parts"]);
        ensure(!parts.is_empty(), || {
            "contents.parts must not be empty".to_owned()
        })?;
        let responses = parts
            .iter()
            .filter(|part| part.get("functionResponse").is_some());
        ensure(responses.count() == open, || {
            "the number of function response parts is not equal to that of function call parts"
                .to_owned()
        })?;
        open = 0;
        for part in parts {
            let data = ["text", "inlineData", "functionCall", "functionResponse"];
            let count = data
                .iter()
                .filter(|name| part.get(**name).is_some())
                .count();
            ensure(count == 1 && part["text"] != "", || {
                "required oneof field 'data' must have one initialized field".to_owned()
            })?;
            if let Some(call) = part.get("functionCall") {
                gemini_name(&call["name"])?;
                ensure(call["args"].is_object(), || "args is no object".to_owned())?;
                open += 1;
            }
            if let Some(response) = part.get("functionResponse") {
                gemini_name(&response["name"])?;
            }
        }
    }
    Ok(())
}
