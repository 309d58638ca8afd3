//! A turn of a coding agent late in its dialogue: 2 MiB with 40 tools and 150 messages.

use serde_json::{Value, json};

const TOOLS: usize = 40;
const MESSAGES: usize = 150;
/// Of the whole body, within some bytes.
const SIZE: usize = 2 << 20;
/// A line of what tools are described by and files consist of, with characters that JSON escapes.
const LINE: &str =
    "    let found = store.find(\"key\", &at)?; // one of those that were asked for\n";

/// Chat Completions for that model.
pub fn turn(model: &str) -> String {
    let tools: Vec<Value> = (0..TOOLS).map(tool).collect();
    let body = |output: &str| {
        let messages = messages(output);
        let body = json!({"model": model, "max_tokens": 100, "messages": messages, "tools": tools});
        body.to_string()
    };
    let without = body("").len();
    let outputs = (MESSAGES - 2) / 2;
    let line = json!(LINE).to_string().len() - 2;
    body(&LINE.repeat((SIZE - without) / outputs / line))
}

/// The assistant calls a tool and is answered, again and again.
fn messages(output: &str) -> Vec<Value> {
    let mut messages = vec![
        json!({"role": "system", "content": LINE.repeat(100)}),
        json!({"role": "user", "content": "Find out why the test fails, and mend it."}),
    ];
    while messages.len() < MESSAGES {
        let id = format!("call_{}", messages.len());
        let arguments = json!({"path": format!("src/{id}.rs")}).to_string();
        let function = json!({"name": "tool_7", "arguments": arguments});
        messages.push(json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": function}]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
    }
    messages
}

fn tool(n: usize) -> Value {
    let description = LINE.repeat(10);
    let property = json!({"type": "string", "description": description});
    let properties = json!({"path": property, "pattern": property, "limit": {"type": "integer"}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["path"]});
    json!({"type": "function", "function":
        {"name": format!("tool_{n}"), "description": description, "parameters": parameters}})
}
