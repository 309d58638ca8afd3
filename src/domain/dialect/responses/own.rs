//! Tools that only this dialect has: custom ones, whose input is any text, and those of a namespace.
//! To all vendors each is a function, and its calls are told as the tool was given.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::domain::{
    conversation::{Function, ToolCall},
    dialect::{json as text_of, schema_of},
};

/// The namespace that a tool has anyway: its functions keep their names.
const PLAIN: &str = "functions";
const INPUT: &str = "input";

/// What stands for a tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub function: Function,
    /// What it stands for, where that is no plain function.
    pub own: Option<OwnTool>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnTool {
    pub namespace: Option<String>,
    pub name: String,
    pub is_custom: bool,
}

/// The tools that are no plain functions, by the names of the functions that stand for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnTools(BTreeMap<String, OwnTool>);

impl OwnTools {
    pub(super) fn of(tools: &[&Tool]) -> Self {
        let own = tools.iter().filter_map(|tool| {
            let own = tool.own.clone()?;
            Some((tool.function.name.clone(), own))
        });
        Self(own.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, call: &ToolCall) -> Option<&OwnTool> {
        self.0.get(&call.name)
    }

    /// Whether the call's input is any text.
    pub(super) fn is_custom(&self, call: &ToolCall) -> bool {
        self.get(call).is_some_and(|own| own.is_custom)
    }
}

/// The name of the function that stands for a tool.
pub(super) fn function_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some(PLAIN) => name.to_owned(),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

/// As a tool of a namespace.
pub(super) fn within(tool: Tool, namespace: &str) -> Tool {
    let name = tool.function.name;
    let own = OwnTool {
        namespace: Some(namespace.to_owned()),
        is_custom: tool.own.is_some(),
        name: name.clone(),
    };
    Tool {
        function: Function {
            name: function_name(Some(namespace), &name),
            ..tool.function
        },
        own: Some(own),
    }
}

/// As a custom tool. `grammar`: its kind and definition, which the model is told and not held to.
pub(super) fn custom(function: Function, grammar: Option<(&str, &str)>) -> Tool {
    let mut input = Map::new();
    input.insert("type".to_owned(), json!("string"));
    if let Some((syntax, definition)) = grammar {
        let about = format!("A text of this {syntax} grammar:\n{definition}");
        input.insert("description".to_owned(), json!(about));
    }
    let schema = json!({"type": "object", "properties": {INPUT: input}, "required": [INPUT],
        "additionalProperties": false});
    let own = OwnTool {
        namespace: None,
        name: function.name.clone(),
        is_custom: true,
    };
    Tool {
        function: Function {
            parameters: schema.as_object().cloned().map(schema_of),
            ..function
        },
        own: Some(own),
    }
}

/// The arguments of a function that stands for a custom tool.
pub(super) fn arguments(input: &str) -> String {
    text_of(&json!({INPUT: input}))
}

/// The input of a custom tool, from them. A model may have written others.
pub(super) fn input(arguments: &str) -> String {
    let members: Option<Map<String, Value>> = serde_json::from_str(arguments).ok();
    let input = members.and_then(|members| Some(members.get(INPUT)?.as_str()?.to_owned()));
    input.unwrap_or_else(|| arguments.to_owned())
}
