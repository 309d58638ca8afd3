//! Requests for texts that the vendors refuse.
//!
//! Sources: the error messages of the vendors, and the rules in the types of openai 3.57.0, anthropic
//! 2.13.0 and google-genai 3.6.1.

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::{Value, json};

/// Returns the message and the answer of the path's vendor if it refuses a body.
pub fn refusal(path: &str, body: &Value) -> Option<(String, Value)> {
    if path.ends_with("/chat/completions") {
        let message = chat::check(body, path.starts_with("/openai")).err()?;
        let error = json!({"error": {"message": message, "type": "invalid_request_error",
            "param": null, "code": null}});
        Some((message, error))
    } else if path.ends_with("/responses") {
        let message = responses::check(body).err()?;
        let error = json!({"error": {"message": message, "type": "invalid_request_error",
            "param": null, "code": null}});
        Some((message, error))
    } else if path.ends_with("/messages") {
        let message = messages::check(body).err()?;
        let error = json!({"type": "invalid_request_error", "message": message});
        Some((message, json!({"type": "error", "error": error})))
    } else if path.contains("enerateContent") && body.get("contents").is_some() && !is_speech(body)
    {
        let message = gemini::check(body).err()?;
        let error = json!({"code": 400, "message": message, "status": "INVALID_ARGUMENT"});
        Some((message, json!({ "error": error })))
    } else if path.ends_with("/audio/speech") || path.ends_with("/images/generations") {
        let message = media(body).err()?;
        let error = json!({"error": {"message": message, "type": "invalid_request_error",
            "param": null, "code": null}});
        Some((message, error))
    } else {
        None
    }
}

/// Checks a body of speech or images of OpenAI.
fn media(body: &Value) -> Checked {
    let model = body["model"].as_str().unwrap_or_default();
    let takes_style = !model.starts_with("tts-1");
    ensure(takes_style || body.get("instructions").is_none(), || {
        format!("Unsupported parameter: 'instructions' with {model}")
    })?;
    let is_transparent = body["background"] == "transparent";
    ensure(!is_transparent || body["output_format"] != "jpeg", || {
        "Transparent background is not supported for JPEG output".to_owned()
    })
}

type Checked = Result<(), String>;

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(message()) }
}

fn is_speech(body: &Value) -> bool {
    body["generationConfig"]["responseModalities"].is_array()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value, symbols: &str, max: usize) -> Checked {
    let fits = value.as_str().is_some_and(|text| {
        let chars = text.chars();
        (1..=max).contains(&text.chars().count())
            && chars
                .into_iter()
                .all(|c| c.is_ascii_alphanumeric() || symbols.contains(c))
    });
    ensure(fits, || {
        format!("{value} does not match the pattern of names")
    })
}

/// The schema of arguments, and the arrays in it.
fn schema(schema: &Value, place: &str) -> Checked {
    ensure(schema["type"] == "object", || {
        format!("{place}: schema must be of type object: {schema}")
    })?;
    ensure(schema["properties"].is_object(), || {
        format!("{place}: object schema missing properties")
    })?;
    arrays(schema, place)
}

fn arrays(value: &Value, place: &str) -> Checked {
    if value["type"] == "array" && value.get("items").is_none() {
        return Err(format!("{place}: array schema missing items"));
    }
    let members = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, value)| value);
    let mut within = members.chain(list(value));
    within.try_for_each(|value| arrays(value, place))
}

/// A schema that OpenAI is to enforce (openai 3.57.0 `openai/lib/_pydantic.py`, and
/// developers.openai.com, "Structured outputs").
fn strict_schema(schema: &Value, place: &str) -> Checked {
    ensure(
        schema["type"] == "object" && schema.get("anyOf").is_none(),
        || {
            format!(
                "Invalid schema for {place}: schema must be a JSON Schema of 'type: \"object\"'"
            )
        },
    )?;
    enforced(schema, place)
}

fn enforced(schema: &Value, place: &str) -> Checked {
    const REFUSED: [&str; 13] = [
        "allOf",
        "contains",
        "default",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
    ];
    let wrong = |message: &str| format!("Invalid schema for {place}: {message}: {schema}");
    let members = schema.as_object().ok_or_else(|| wrong("no object"))?;
    if members.contains_key("$ref") {
        return ensure(members.len() == 1, || wrong("$ref cannot have keywords"));
    }
    let refused = REFUSED.iter().find(|name| members.contains_key(**name));
    ensure(refused.is_none(), || {
        wrong(&format!("{refused:?} is not permitted"))
    })?;
    let has_type = members.contains_key("type") || members.contains_key("anyOf");
    ensure(has_type, || wrong("schema must have a 'type' key"))?;
    ensure(schema["format"] != "uri", || {
        wrong("'uri' is not a valid format")
    })?;
    if schema["type"] == "object" || list(&schema["type"]).contains(&json!("object")) {
        ensure(schema["additionalProperties"] == false, || {
            wrong("'additionalProperties' is required to be supplied and to be false")
        })?;
        let mut names = schema["properties"].as_object().into_iter().flatten();
        let required = list(&schema["required"]);
        ensure(
            names.all(|(name, _)| required.contains(&json!(name))),
            || {
                wrong(
                    "'required' is required to be supplied and to be an array including every key",
                )
            },
        )?;
    }
    for name in ["$defs", "definitions", "properties"] {
        let mut schemas = schema[name].as_object().into_iter().flatten();
        schemas.try_for_each(|(_, schema)| enforced(schema, place))?;
    }
    let mut within = list(&schema["anyOf"]).iter().chain(schema.get("items"));
    within.try_for_each(|schema| enforced(schema, place))
}
