//! Requests that Anthropic's Messages API refuses.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Checked, ensure, list, word};

fn is_said(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// Whether a model accepts messages of role `system`. Models up to 4.7 do not.
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

fn search_result(block: &Value) -> Checked {
    let texts = list(&block["content"]);
    let is_text = |text: &Value| text["type"] == "text" && is_said(&text["text"]);
    let has_both = is_said(&block["source"]) && is_said(&block["title"]);
    ensure(
        has_both && !texts.is_empty() && texts.iter().all(is_text),
        || "messages: search_result: Field required".to_owned(),
    )
}

#[expect(clippy::too_many_lines, reason = "a list of rules")]
pub(super) fn check(body: &Value) -> Checked {
    let tools = list(&body["tools"]);
    for tool in tools {
        word(&tool["name"], "_-", 128)?;
        let kind = tool["type"].as_str().unwrap_or("custom");
        if kind != "custom" {
            let known = [
                ("bash_20250124", "bash"),
                ("memory_20250818", "memory"),
                ("text_editor_20250728", "str_replace_based_edit_tool"),
                ("web_search_20250305", "web_search"),
            ];
            let is_known = known.iter().any(|of| kind == of.0 && tool["name"] == of.1);
            let has_own = ["description", "input_schema"]
                .iter()
                .any(|name| tool.get(name).is_some());
            ensure(is_known && !has_own, || {
                format!("tools.0: {tool} is no known tool")
            })?;
            continue;
        }
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
        // platform.claude.com, "Per-message effort": accepted at any position, unlike instructions.
        let configures = message["output_config"]
            .as_object()
            .is_some_and(|c| !c.is_empty());
        let content = message.get("content");
        if role == "system" && configures && content.is_none_or(|content| *content == json!([])) {
            continue;
        }
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
                "search_result" => {
                    search_result(block)?;
                    has_other = true;
                }
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
                        if part["type"] == "search_result" {
                            search_result(part)?;
                        }
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
