//! Requests that OpenAI's Chat Completions and compatible servers refuse. Each server has some of these
//! rules.

use serde_json::{Value, json};

use super::{Checked, ensure, list, schema, strict_schema, word};

#[expect(clippy::too_many_lines, reason = "a list of rules")]
pub(super) fn check(body: &Value, is_openai: bool) -> Checked {
    // Other servers make longer ids themselves.
    let max_id = if is_openai { 40 } else { usize::MAX };
    let tools = list(&body["tools"]);
    ensure(body.get("tools").is_none() || !tools.is_empty(), || {
        "[] is too short - 'tools'".to_owned()
    })?;
    for tool in tools {
        if is_custom(tool, is_openai)? {
            word(&tool["custom"]["name"], "_-", 64)?;
            let format = &tool["custom"]["format"];
            let grammar = &format["grammar"];
            let is_text = format.is_null() || format["type"] == "text";
            let is_complete = grammar["syntax"].is_string() && grammar["definition"].is_string();
            ensure(
                is_text || format["type"] == "grammar" && is_complete,
                || "Invalid value: 'tools[0].custom.format'".to_owned(),
            )?;
            continue;
        }
        let function = &tool["function"];
        word(&function["name"], "_-", 64)?;
        if let Some(parameters) = function.get("parameters") {
            schema(parameters, "parameters")?;
            if is_openai && function["strict"] == true {
                strict_schema(parameters, "function")?;
            }
        }
    }
    let format = &body["response_format"]["json_schema"];
    if is_openai && format["strict"] == true {
        strict_schema(&format["schema"], "response_format")?;
    }
    // OpenAI also refuses tools if the effort is absent, but no test needs that.
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
    let choice = &body["tool_choice"];
    let kind = choice["type"].as_str().unwrap_or_default();
    if let Some(name) = choice[kind]["name"].as_str() {
        let known = tools.iter().any(|tool| tool[kind]["name"] == name);
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
            let (kind, said) = if is_custom(call, is_openai)? {
                ("custom", "input")
            } else {
                ("function", "arguments")
            };
            word(&call[kind]["name"], "_-", 64)?;
            ensure(call[kind][said].is_string(), || format!("no {said}"))?;
            let is_google = body["model"]
                .as_str()
                .unwrap_or_default()
                .contains("gemini");
            ensure(is_google || call.get("extra_content").is_none(), || {
                "property 'extra_content' is unsupported".to_owned()
            })?;
            open.push(id);
        }
    }
    Ok(())
}

/// Whether a tool or a call is a custom one, which only OpenAI knows (vLLM: "Input should be
/// 'function'").
fn is_custom(value: &Value, is_openai: bool) -> Result<bool, String> {
    let is_custom = value["type"] == "custom";
    let is_known = value["type"] == "function" || is_custom && is_openai;
    ensure(is_known, || "Input should be 'function'".to_owned())?;
    Ok(is_custom)
}
