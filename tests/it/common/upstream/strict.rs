//! What the vendors refuse in a request for a text.
//!
//! Sources: the error messages of the vendors, and the rules in the types of openai 3.57.0, anthropic
//! 2.13.0 and google-genai 3.6.1.

use std::collections::HashSet;

use serde_json::{Value, json};

/// Why the vendor of the path refuses a body, and its answer.
pub fn refusal(path: &str, body: &Value) -> Option<(String, Value)> {
    if path.ends_with("/chat/completions") {
        // Other servers of the dialect make longer ids themselves.
        let max_id = if path.starts_with("/openai") {
            40
        } else {
            usize::MAX
        };
        let message = openai(body, max_id).err()?;
        let error = json!({"error": {"message": message, "type": "invalid_request_error",
            "param": null, "code": null}});
        Some((message, error))
    } else if path.ends_with("/messages") {
        let message = anthropic(body).err()?;
        let error = json!({"type": "invalid_request_error", "message": message});
        Some((message, json!({"type": "error", "error": error})))
    } else if path.contains("enerateContent") && body.get("contents").is_some() && !is_speech(body)
    {
        let message = gemini(body).err()?;
        let error = json!({"code": 400, "message": message, "status": "INVALID_ARGUMENT"});
        Some((message, json!({ "error": error })))
    } else {
        None
    }
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

fn openai(body: &Value, max_id: usize) -> Checked {
    let tools = list(&body["tools"]);
    ensure(body.get("tools").is_none() || !tools.is_empty(), || {
        "[] is too short - 'tools'".to_owned()
    })?;
    for tool in tools {
        let function = &tool["function"];
        word(&function["name"], "_-", 64)?;
        if let Some(parameters) = function.get("parameters") {
            schema(parameters, "parameters")?;
        }
    }
    for name in ["tool_choice", "parallel_tool_calls"] {
        let given = body.get(name).is_some_and(|value| !value.is_null());
        ensure(!given || !tools.is_empty(), || {
            format!("'{name}' is only allowed when 'tools' are specified")
        })?;
    }
    if let Some(name) = body["tool_choice"]["function"]["name"].as_str() {
        let known = tools.iter().any(|tool| tool["function"]["name"] == name);
        ensure(known, || {
            format!("Tool choice '{name}' not found in 'tools'")
        })?;
    }
    let stops = list(&body["stop"]).len();
    ensure(stops <= 4, || "'stop' has at most 4 sequences".to_owned())?;
    let messages = list(&body["messages"]);
    ensure(!messages.is_empty(), || {
        "[] is too short - 'messages'".to_owned()
    })?;
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        let content = &message["content"];
        for part in list(content) {
            let empty = part["type"] == "text" && part["text"] == "";
            ensure(!empty, || "empty text part".to_owned())?;
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let at = open.iter().position(|open| *open == id);
            let at = at.ok_or("messages with role 'tool' must be a response to a preceding message with 'tool_calls'")?;
            open.remove(at);
            ensure(content.is_string() || content.is_array(), || {
                "no content".to_owned()
            })?;
            continue;
        }
        ensure(open.is_empty(), || {
            "an assistant message with 'tool_calls' must be followed by tool messages".to_owned()
        })?;
        let calls = list(&message["tool_calls"]);
        let has_content = content.is_string() || !list(content).is_empty();
        match role {
            "assistant" => {
                let empty = message
                    .get("tool_calls")
                    .is_some_and(|calls| calls == &json!([]));
                ensure(!empty, || "[] is too short - 'tool_calls'".to_owned())?;
                ensure(has_content || !calls.is_empty(), || {
                    "Invalid value for 'content': expected a string, got null".to_owned()
                })?;
            }
            "system" | "developer" | "user" => {
                ensure(has_content, || format!("no content of {role}"))?;
            }
            _ => return Err(format!("unknown role {role}")),
        }
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default();
            ensure((1..=max_id).contains(&id.len()), || {
                format!("id {id} is too long")
            })?;
            word(&call["function"]["name"], "_-", 64)?;
            ensure(call["function"]["arguments"].is_string(), || {
                "no arguments".to_owned()
            })?;
            open.push(id);
        }
    }
    Ok(())
}

fn is_said(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn anthropic(body: &Value) -> Checked {
    let tools = list(&body["tools"]);
    for tool in tools {
        word(&tool["name"], "_-", 128)?;
        let of_schema = &tool["input_schema"];
        ensure(of_schema["type"] == "object", || {
            "tools.0.custom.input_schema.type: Field required".to_owned()
        })?;
    }
    let choice = &body["tool_choice"];
    ensure(choice.is_null() || !tools.is_empty(), || {
        "tool_choice may only be specified while providing tools".to_owned()
    })?;
    if let Some(name) = choice["name"].as_str() {
        let known = tools.iter().any(|tool| tool["name"] == name);
        ensure(known, || {
            format!("Tool '{name}' not found in provided tools")
        })?;
    }
    ensure(
        body.as_object()
            .unwrap()
            .values()
            .all(|value| !value.is_null()),
        || "Input should not be null".to_owned(),
    )?;
    let messages = list(&body["messages"]);
    ensure(!messages.is_empty(), || {
        "messages: at least one message is required".to_owned()
    })?;
    ensure(messages[0]["role"] == "user", || {
        "messages: first message must use the \"user\" role".to_owned()
    })?;
    let mut before = "";
    let (mut ids, mut open): (HashSet<&str>, Vec<&str>) = Default::default();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        ensure(
            ["user", "assistant", "system"].contains(&role) && role != before,
            || format!("messages: roles must alternate: {role} after {before}"),
        )?;
        before = role;
        let content = &message["content"];
        let blocks = list(content);
        ensure(is_said(content) || !blocks.is_empty(), || {
            "messages: all messages must have non-empty content".to_owned()
        })?;
        let mut has_other = false;
        for block in blocks {
            match block["type"].as_str().unwrap_or_default() {
                "text" => {
                    ensure(is_said(&block["text"]), || {
                        "messages: text content blocks must contain non-whitespace text".to_owned()
                    })?;
                    has_other = true;
                }
                "thinking" => ensure(block["signature"] != "", || {
                    "messages: Invalid `signature` in `thinking` block".to_owned()
                })?,
                "tool_use" => {
                    word(&block["id"], "_-", usize::MAX)?;
                    word(&block["name"], "_-", 128)?;
                    ensure(block["input"].is_object(), || {
                        "input: not a dictionary".to_owned()
                    })?;
                    let id = block["id"].as_str().unwrap_or_default();
                    ensure(ids.insert(id), || {
                        "`tool_use` ids must be unique".to_owned()
                    })?;
                    open.push(id);
                }
                "tool_result" => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    let at = open.iter().position(|open| *open == id);
                    let at = at.ok_or("unexpected `tool_use_id` found in `tool_result` blocks")?;
                    open.remove(at);
                    ensure(!has_other, || {
                        "`tool_result` blocks must come first".to_owned()
                    })?;
                    for part in list(&block["content"]) {
                        let empty = part["type"] == "text" && !is_said(&part["text"]);
                        ensure(!empty, || {
                            "text content blocks must be non-empty".to_owned()
                        })?;
                    }
                }
                _ => has_other = true,
            }
        }
        ensure(role == "assistant" || open.is_empty(), || {
            "`tool_use` ids were found without `tool_result` blocks immediately after".to_owned()
        })?;
    }
    Ok(())
}

fn gemini_name(name: &Value) -> Checked {
    word(name, "_.:-", 64)?;
    let first = name.as_str().unwrap_or_default().chars().next();
    let starts = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    ensure(starts, || {
        format!("Invalid function name {name}. Must start with a letter")
    })
}

fn gemini(body: &Value) -> Checked {
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
    let stops = list(&body["generationConfig"]["stopSequences"]).len();
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
