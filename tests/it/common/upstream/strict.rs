//! What the vendors refuse in a request for a text.
//!
//! Sources: the error messages of the vendors, and the rules in the types of openai 3.57.0, anthropic
//! 2.13.0 and google-genai 3.6.1.

use std::collections::HashSet;

use serde_json::{Value, json};

/// Why the vendor of the path refuses a body, and its answer.
pub fn refusal(path: &str, body: &Value) -> Option<(String, Value)> {
    if path.ends_with("/chat/completions") {
        let message = openai(body, path.starts_with("/openai")).err()?;
        let error = json!({"error": {"message": message, "type": "invalid_request_error",
            "param": null, "code": null}});
        Some((message, error))
    } else if path.ends_with("/responses") {
        let message = responses(body).err()?;
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

/// What a server of the dialect refuses: `OpenAI`, or compatible ones, each of which has some of the
/// rules.
#[expect(clippy::too_many_lines, reason = "a list of rules")]
fn openai(body: &Value, is_openai: bool) -> Checked {
    // Other servers make longer ids themselves.
    let max_id = if is_openai { 40 } else { usize::MAX };
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
    // Where it is not given, too; but no test needs that.
    let effort = &body["reasoning_effort"];
    let reasons = is_openai && effort.is_string() && effort != "none";
    ensure(!reasons || tools.is_empty(), || {
        "Function tools with reasoning_effort are not supported in /v1/chat/completions. \
         To use function tools, use /v1/responses or set reasoning_effort to 'none'."
            .to_owned()
    })?;
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
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        // Groq: "property 'refusal' is unsupported".
        let members = message.as_object().into_iter().flatten();
        for (name, value) in members.filter(|(name, _)| *name != "content") {
            let is_given = !value.is_null() && (name != "annotations" || *value != json!([]));
            ensure(is_openai || is_given, || {
                format!("property '{name}' is unsupported")
            })?;
        }
        // earendil-works/pi#1048
        ensure(is_openai || role != "developer", || {
            "Unexpected message role.".to_owned()
        })?;
        // vllm-project/vllm#41114, ollama/ollama#17774
        ensure(is_openai || at == 0 || role != "system", || {
            "System message must be at the beginning.".to_owned()
        })?;
        let content = &message["content"];
        // QwenLM/qwen-code#2320
        let is_text = list(content).iter().all(|part| part["type"] == "text");
        ensure(is_openai || !content.is_array() || !is_text, || {
            "invalid type: sequence, expected a string".to_owned()
        })?;
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
                // vllm-project/vllm#54368
                ensure(is_openai || message.get("content").is_some(), || {
                    "Field required: 'content'".to_owned()
                })?;
                // can1357/oh-my-pi#788
                let reasons = message["reasoning_content"].is_string();
                ensure(is_openai || !reasons || !content.is_null(), || {
                    "The `reasoning_content` in the thinking mode must be passed back".to_owned()
                })?;
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

/// The parameters of the Responses API.
const RESPONSES: &[&str] = &[
    "access_programs",
    "background",
    "background_options",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// The id of the item that encrypted content is of, as our fakes write it: `gAAAA.ID`.
const ENCRYPTED: &str = "gAAAA.";

fn responses(body: &Value) -> Checked {
    for name in body.as_object().into_iter().flatten().map(|(name, _)| name) {
        ensure(RESPONSES.contains(&name.as_str()), || {
            format!("Unknown parameter: '{name}'.")
        })?;
    }
    ensure(body["store"] == false, || "'store' is not false".to_owned())?;
    let limit = body["max_output_tokens"].as_u64();
    ensure(limit.is_none_or(|limit| limit >= 16), || {
        "Invalid 'max_output_tokens': integer below minimum value".to_owned()
    })?;
    let streamed = body["stream"] == true;
    ensure(streamed || body.get("stream_options").is_none(), || {
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned()
    })?;
    let names = response_tools(list(&body["tools"]))?;
    let choice = &body["tool_choice"];
    let needs = choice.is_object() || choice == "required";
    ensure(!needs || !names.is_empty(), || {
        "Tool choice must be specified with 'tools' parameter.".to_owned()
    })?;
    if let Some(name) = choice["name"].as_str() {
        ensure(names.contains(name), || {
            format!("Tool choice '{name}' not found in 'tools' parameter.")
        })?;
    }
    if body["input"].is_string() {
        return Ok(());
    }
    let items = list(&body["input"]);
    ensure(!items.is_empty(), || {
        "One of 'input', 'previous_response_id' or 'prompt' must be provided.".to_owned()
    })?;
    let mut open = HashSet::new();
    for (at, item) in items.iter().enumerate() {
        match item["type"].as_str().unwrap_or("message") {
            "message" => response_message(item)?,
            "function_call" | "custom_tool_call" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                ensure((1..=64).contains(&id.chars().count()), || {
                    format!("Invalid 'input[{at}].call_id': string too long")
                })?;
                word(&item["name"], "_-", 64)?;
                let content = ["arguments", "input"]
                    .iter()
                    .any(|name| item[name].is_string());
                ensure(content, || {
                    format!("Missing required parameter: 'input[{at}].arguments'")
                })?;
                open.insert(id);
            }
            "function_call_output" | "custom_tool_call_output" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                ensure(open.remove(id), || {
                    format!("No tool call found for function call output with call_id {id}.")
                })?;
                ensure(
                    item["output"].is_string() || item["output"].is_array(),
                    || format!("Missing required parameter: 'input[{at}].output'"),
                )?;
            }
            "reasoning" => response_reasoning(item, items.get(at + 1))?,
            "additional_tools" | "compaction" | "tool_search_call" | "tool_search_output" => {}
            kind => return Err(format!("Invalid value: '{kind}'")),
        }
    }
    ensure(open.is_empty(), || {
        format!("No tool output found for function call {open:?}.")
    })
}

/// The names of the tools.
fn response_tools(tools: &[Value]) -> Result<HashSet<&str>, String> {
    let mut names = HashSet::new();
    for tool in tools {
        match tool["type"].as_str().unwrap_or_default() {
            "function" => {
                for member in ["parameters", "strict"] {
                    ensure(tool.get(member).is_some(), || {
                        format!("Missing required parameter: 'tools[0].{member}'.")
                    })?;
                }
                if !tool["parameters"].is_null() {
                    schema(&tool["parameters"], "parameters")?;
                }
            }
            "custom" | "namespace" => {}
            "tool_search" => continue,
            kind => {
                return Err(format!(
                    "Invalid value: '{kind}'. Supported values are: 'function'"
                ));
            }
        }
        word(&tool["name"], "_-", 64)?;
        names.extend(tool["name"].as_str());
    }
    Ok(names)
}

fn response_message(item: &Value) -> Checked {
    let role = item["role"].as_str().unwrap_or_default();
    ensure(
        ["user", "assistant", "system", "developer"].contains(&role),
        || format!("Invalid value: '{role}'"),
    )?;
    let content = &item["content"];
    ensure(content.is_string() || !list(content).is_empty(), || {
        "Missing required parameter: 'input[0].content'".to_owned()
    })?;
    for part in list(content) {
        let kind = part["type"].as_str().unwrap_or_default();
        let known: &[&str] = match role {
            "assistant" => &["output_text", "refusal"],
            _ => &["input_text", "input_image", "input_file"],
        };
        ensure(known.contains(&kind), || {
            format!("Invalid value: '{kind}' of {role}")
        })?;
    }
    Ok(())
}

fn response_reasoning(item: &Value, next: Option<&Value>) -> Checked {
    let id = item["id"].as_str();
    ensure(item["summary"].is_array(), || {
        "Missing required parameter: 'input[0].summary'".to_owned()
    })?;
    let content = item["encrypted_content"].as_str();
    let content = content.ok_or_else(|| {
        format!(
            "Item with id '{id:?}' not found. Items are not persisted when `store` is set to false."
        )
    })?;
    let of = content.strip_prefix(ENCRYPTED);
    let of = of.ok_or("The encrypted content could not be verified.")?;
    ensure(id.is_none_or(|id| id == of), || {
        "Encrypted content item_id did not match the target item id.".to_owned()
    })?;
    let follows = next.is_some_and(|next| {
        next["role"] == "assistant"
            || ["reasoning", "function_call", "custom_tool_call"]
                .iter()
                .any(|kind| next["type"] == *kind)
    });
    ensure(follows, || {
        format!(
            "Item '{id:?}' of type 'reasoning' was provided without its required following item."
        )
    })
}

fn is_said(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// Whether a model accepts messages of role `system`: not up to 4.7.
fn knows_system_role(model: &str) -> bool {
    let numbers = model.split('-').filter_map(|word| word.parse::<u32>().ok());
    let version: Vec<u32> = numbers.take(2).collect();
    version > vec![4, 7]
}

/// A schema that answers must follow. The first message is that of `agentjido/req_llm#302`.
fn enforced(schema: &Value, place: &str) -> Checked {
    const ENFORCED: [&str; 16] = [
        "$defs",
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "default",
        "definitions",
        "description",
        "enum",
        "format",
        "items",
        "minItems",
        "properties",
        "required",
        "title",
    ];
    let kind = &schema["type"];
    for (name, value) in schema.as_object().into_iter().flatten() {
        let is_known = name == "type" || ENFORCED.contains(&name.as_str());
        let fits = name != "minItems" || value == 0 || value == 1;
        ensure(is_known && fits, || {
            format!("{place}: For {kind} type, property '{name}' is not supported")
        })?;
        let within: Vec<&Value> = match name.as_str() {
            "$defs" | "definitions" | "properties" => value
                .as_object()
                .into_iter()
                .flatten()
                .map(|of| of.1)
                .collect(),
            "allOf" | "anyOf" => list(value).iter().collect(),
            "items" => vec![value],
            _ => Vec::new(),
        };
        within
            .into_iter()
            .try_for_each(|schema| enforced(schema, place))?;
    }
    ensure(
        *kind != "object" || schema["additionalProperties"] == false,
        || {
            format!(
                "{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
        },
    )
}

#[expect(clippy::too_many_lines, reason = "a list of rules")]
fn anthropic(body: &Value) -> Checked {
    let tools = list(&body["tools"]);
    for tool in tools {
        word(&tool["name"], "_-", 128)?;
        let of_schema = &tool["input_schema"];
        ensure(of_schema["type"] == "object", || {
            "tools.0.custom.input_schema.type: Field required".to_owned()
        })?;
        if tool["strict"] == true {
            enforced(of_schema, "tools.0.custom")?;
        }
    }
    let format = &body["output_config"]["format"];
    if !format.is_null() {
        enforced(&format["schema"], "output_config.format.schema")?;
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
    ensure(list(&body["stop_sequences"]).iter().all(is_said), || {
        "stop_sequences: each stop sequence must contain non-whitespace".to_owned()
    })?;
    let system = &body["system"];
    let blank = |block: &Value| !is_said(&block["text"]);
    ensure(
        !list(system).iter().any(blank) && (!system.is_string() || is_said(system)),
        || "system: text content blocks must be non-empty".to_owned(),
    )?;
    let both = body.get("temperature").is_some() && body.get("top_p").is_some();
    ensure(!both, || {
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
            .to_owned()
    })?;
    let messages = list(&body["messages"]);
    ensure(!messages.is_empty(), || {
        "messages: at least one message is required".to_owned()
    })?;
    ensure(messages[0]["role"] == "user", || {
        "messages: first message must use the \"user\" role".to_owned()
    })?;
    let knows_system = knows_system_role(body["model"].as_str().unwrap_or_default());
    let mut before = "";
    let (mut ids, mut open): (HashSet<&str>, Vec<&str>) = Default::default();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        ensure(
            ["user", "assistant", "system"].contains(&role) && role != before,
            || format!("messages: roles must alternate: {role} after {before}"),
        )?;
        if role == "system" {
            ensure(knows_system, || {
                "messages: Unexpected role \"system\". The Messages API accepts a top-level \
                 `system` parameter, not \"system\" as an input message role."
                    .to_owned()
            })?;
            let next = messages.get(at + 1);
            let is_in_place = before == "user" && next.is_none_or(|n| n["role"] == "assistant");
            ensure(is_in_place, || {
                "messages: a system message must follow a user turn, and be last or followed by \
                 an assistant turn"
                    .to_owned()
            })?;
        }
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
    let config = &body["generationConfig"];
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
