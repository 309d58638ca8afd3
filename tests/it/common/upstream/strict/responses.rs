//! Requests that OpenAI's Responses API refuses.

use std::collections::HashSet;

use serde_json::Value;

use super::{Checked, ensure, list, schema, strict_schema, word};

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

/// The id of the item that encrypted content belongs to. The fakes write it as `gAAAA.ID`.
const ENCRYPTED: &str = "gAAAA.";

pub(super) fn check(body: &Value) -> Checked {
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
    let truncation = body["truncation"].as_str();
    ensure(
        truncation.is_none_or(|value| ["auto", "disabled"].contains(&value)),
        || "Invalid value for 'truncation'".to_owned(),
    )?;
    let streamed = body["stream"] == true;
    ensure(streamed || body.get("stream_options").is_none(), || {
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned()
    })?;
    let format = &body["text"]["format"];
    if format["strict"] == true {
        strict_schema(&format["schema"], "text.format")?;
    }
    let names = response_tools(list(&body["tools"]))?;
    let choice = &body["tool_choice"];
    let needs = choice.is_object() || choice == "required";
    ensure(!needs || !names.is_empty(), || {
        "Tool choice must be specified with 'tools' parameter.".to_owned()
    })?;
    let own = choice["type"].as_str();
    let own = own.filter(|kind| ["apply_patch", "shell"].contains(kind));
    if let Some(name) = choice["name"].as_str().or(own) {
        ensure(names.contains(name), || {
            format!("Tool choice '{name}' not found in 'tools' parameter.")
        })?;
    }
    for tool in list(&choice["tools"]) {
        let name = tool["name"].as_str().unwrap_or_default();
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
            "apply_patch_call" | "local_shell_call" | "shell_call" => {
                open.insert(item["call_id"].as_str().unwrap_or_default());
            }
            "apply_patch_call_output" | "local_shell_call_output" | "shell_call_output" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                ensure(open.remove(id), || {
                    format!("No tool call found for shell call output with call_id {id}.")
                })?;
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
                if tool["strict"] == true {
                    strict_schema(&tool["parameters"], "function")?;
                }
            }
            "custom" | "namespace" => {}
            "tool_search" => continue,
            "apply_patch" | "local_shell" => {
                names.extend(tool["type"].as_str());
                continue;
            }
            "shell" => {
                ensure(tool["environment"]["type"] == "local", || {
                    "a shell that is not local".to_owned()
                })?;
                names.insert("shell");
                continue;
            }
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
