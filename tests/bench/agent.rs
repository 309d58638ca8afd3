//! Turns of a coding agent late in its dialogue, with 40 tools.

use serde_json::{Value, json};

use crate::upstream::HELD_MODEL;

const TOOLS: usize = 40;
/// A line of what tools are described by and files consist of, with characters that JSON escapes.
const LINE: &str =
    "    let found = store.find(\"key\", &at)?; // one of those that were asked for\n";

/// A turn, and how it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub size: Size,
    pub dialect: Dialect,
    pub stream: bool,
    /// Whether the upstream takes seconds to answer.
    pub held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 245 KB of 52 messages.
    Small,
    /// 2 MiB of 150 messages.
    Large,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Chat,
    Messages,
}

impl Size {
    /// Of the whole body, within some bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 245_000,
            Self::Large => 2 << 20,
        }
    }

    const fn messages(self) -> usize {
        match self {
            Self::Small => 52,
            Self::Large => 150,
        }
    }
}

impl Turn {
    /// The route of gensvc, and the model by its name there.
    pub fn of_gensvc(self) -> (&'static str, String) {
        let (path, model) = match self.dialect {
            Dialect::Chat => ("/openai/v1/chat/completions", "bench"),
            Dialect::Messages => ("/anthropic/v1/messages", "bench-anthropic"),
        };
        (path, format!("{model}/{}", self.model()))
    }

    /// The same of the upstream.
    pub const fn of_upstream(self) -> (&'static str, &'static str) {
        let path = match self.dialect {
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Messages => "/v1/messages",
        };
        (path, self.model())
    }

    const fn model(self) -> &'static str {
        if self.held { HELD_MODEL } else { "bench" }
    }

    pub fn body(self, model: &str) -> String {
        let tools: Vec<Value> = (0..TOOLS).map(|n| self.tool(n)).collect();
        let body = |output: &str| {
            let messages = self.messages(output);
            // The upstream looks for the model and the stream at the end.
            json!({"tools": tools, "system": self.system(), "messages": messages,
                "max_tokens": 100, "model": model, "stream": self.stream})
        };
        let text = |mut body: Value| {
            let members = body.as_object_mut().unwrap();
            members.retain(|_, value| !value.is_null() && *value != json!(false));
            body.to_string()
        };
        let without = text(body("")).len();
        let outputs = self.size.messages() / 2;
        let line = json!(LINE).to_string().len() - 2;
        text(body(
            &LINE.repeat((self.size.bytes() - without) / outputs / line),
        ))
    }

    /// Instructions outside the messages, for dialects that support this.
    fn system(self) -> Value {
        match self.dialect {
            Dialect::Chat => Value::Null,
            Dialect::Messages => json!(LINE.repeat(100)),
        }
    }

    /// The assistant calls a tool and is answered, again and again.
    fn messages(self, output: &str) -> Vec<Value> {
        let mut messages = Vec::new();
        if self.dialect == Dialect::Chat {
            messages.push(json!({"role": "system", "content": LINE.repeat(100)}));
        }
        messages.push(json!({"role": "user", "content": "Find out why the test fails."}));
        while messages.len() < self.size.messages() {
            let id = format!("call_{}", messages.len());
            let path = json!({"path": format!("src/{id}.rs")});
            messages.extend(match self.dialect {
                Dialect::Chat => {
                    let function = json!({"name": "tool_7", "arguments": path.to_string()});
                    [
                        json!({"role": "assistant", "content": null, "tool_calls":
                            [{"id": id, "type": "function", "function": function}]}),
                        json!({"role": "tool", "tool_call_id": id, "content": output}),
                    ]
                }
                Dialect::Messages => [
                    json!({"role": "assistant", "content":
                        [{"type": "tool_use", "id": id, "name": "tool_7", "input": path}]}),
                    json!({"role": "user", "content":
                        [{"type": "tool_result", "tool_use_id": id, "content": output}]}),
                ],
            });
        }
        messages
    }

    fn tool(self, n: usize) -> Value {
        let (name, description) = (format!("tool_{n}"), LINE.repeat(8));
        let property = json!({"type": "string", "description": LINE.repeat(4)});
        let properties =
            json!({"path": property, "pattern": property, "limit": {"type": "integer"}});
        let schema = json!({"type": "object", "properties": properties, "required": ["path"]});
        match self.dialect {
            Dialect::Chat => json!({"type": "function", "function":
                {"name": name, "description": description, "parameters": schema}}),
            Dialect::Messages => {
                json!({"name": name, "description": description, "input_schema": schema})
            }
        }
    }
}
