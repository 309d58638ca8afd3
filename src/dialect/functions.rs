//! Functions as both of OpenAI's dialects have them.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{MAX_TOOLS, NOT_EMPTY, STRING, json as text_of};
use crate::domain::{
    conversation::{Function, Parameters, ToolChoice, Tools},
    named::named_enum,
    validate::{Field, FieldCode, Fields, Kind, Schemas, any_object, boolean, component},
};

named_enum!(
    /// The type of a tool.
    ToolType {
        Function = "function",
        Custom = "custom",
    }
);

named_enum!(
    /// The format of the input of a custom tool.
    CustomFormatType {
        Text = "text",
        Grammar = "grammar",
    }
);

named_enum!(
    /// The kind of a grammar.
    GrammarSyntax {
        Lark = "lark",
        Regex = "regex",
    }
);

/// The type of a `tool_choice` that limits the tools.
pub const ALLOWED_TOOLS: &str = "allowed_tools";

/// The argument of a function that represents a custom tool.
const INPUT: &str = "input";

/// The function that represents a custom tool, whose input is any text. `grammar`: its kind and
/// definition, which the model sees but need not follow.
pub(super) fn custom(function: Function, grammar: Option<(GrammarSyntax, String)>) -> Function {
    let mut input = json!({"type": "string"});
    if let Some((syntax, definition)) = grammar {
        let about = format!("A text of this {} grammar:\n{definition}", syntax.as_str());
        input["description"] = about.into();
    }
    let schema = json!({"type": "object", "properties": {INPUT: input}, "required": [INPUT],
        "additionalProperties": false});
    Function {
        parameters: schema.as_object().map(Parameters::of),
        ..function
    }
}

/// The arguments of a function that represents a custom tool.
pub fn custom_arguments(input: &str) -> String {
    text_of(&json!({INPUT: input}))
}

/// The input of a custom tool. The arguments may be cut off at the output limit, and a model may have
/// written others.
pub(super) fn custom_input(arguments: &str) -> String {
    let input = match serde_json::from_str::<Map<String, Value>>(arguments) {
        Ok(members) if members.is_empty() => Some(String::new()),
        Ok(members) => members
            .get(INPUT)
            .and_then(Value::as_str)
            .map(str::to_owned),
        Err(_) => cut_input(arguments),
    };
    let input = input.unwrap_or_else(|| arguments.to_owned());
    // Callers could not send U+0000 back.
    input.replace('\0', "\u{fffd}")
}

/// The beginning of an input whose arguments are cut off.
fn cut_input(arguments: &str) -> Option<String> {
    let mut rest = arguments;
    for token in ["{", "\"input\"", ":", "\""] {
        rest = rest.trim_start();
        let Some(after) = rest.strip_prefix(token) else {
            return token.starts_with(rest).then(String::new);
        };
        rest = after;
    }
    let mut is_escaped = false;
    let is_end = |byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    };
    let end = rest.bytes().position(is_end).unwrap_or(rest.len());
    // The longest beginning of an escape is that of a surrogate pair, 11 bytes.
    (0..12).find_map(|missing| {
        let whole = rest.get(..end.checked_sub(missing)?)?;
        serde_json::from_str(&format!("\"{whole}\"")).ok()
    })
}

/// Refuses members that only tools of another type have.
pub(super) fn refuse(fields: &Fields<'_>, names: &[&'static str]) {
    for name in names.iter().filter(|name| fields.has(name)) {
        fields.error(name, FieldCode::NotAllowed, "is not of a tool of this type");
    }
}

/// Refuses two tools of one name, by which custom tools are distinguished from functions.
pub(super) fn refuse_repeated<'a>(fields: &Fields<'_>, names: impl IntoIterator<Item = &'a str>) {
    let mut known = HashSet::new();
    if let Some(name) = names.into_iter().find(|&name| !known.insert(name)) {
        let message = format!("has two tools of the name {name}");
        fields.error("tools", FieldCode::NotAllowed, message);
    }
}

/// Reads the members of a function, whichever object has them.
pub(super) fn function(fields: &Fields<'_>) -> Option<Function> {
    let name = fields.required("name", "Its name.", NOT_EMPTY);
    let description = fields.optional("description", "What it does, for the model.", STRING);
    let about = "A JSON schema of its arguments.";
    let parameters = fields.optional("parameters", about, any_object(Parameters::of));
    let about = "Whether the arguments must follow the schema. Default: the provider's.";
    Some(Function {
        strict: fields.optional("strict", about, boolean()),
        name: name?,
        description,
        parameters,
    })
}

/// Reads the functions and the tool choice.
pub(super) fn tools(
    fields: &Fields<'_>,
    functions: Option<Vec<Function>>,
    choice: Choice,
) -> Tools {
    let functions = functions.unwrap_or_default();
    if functions.len() > MAX_TOOLS {
        let message = format!("must be at most {MAX_TOOLS} tools");
        fields.error("tools", FieldCode::OutOfRange, message);
    }
    let about = "Which of them it calls: `none`, `auto`, `required`, or the named function. \
                 Default: `auto`.";
    // A choice of allowed tools or of a tool without a name is passed on if the vendor has the same
    // dialect.
    let given = fields.value("tool_choice").map(|choice| &choice["type"]);
    let is_passed = |kind: &str| {
        [ALLOWED_TOOLS, "apply_patch", "shell"].contains(&kind) || kind.starts_with("web_search")
    };
    let choice = if given.and_then(Value::as_str).is_some_and(is_passed) {
        fields.neutral("tool_choice", Vec::new());
        None
    } else {
        fields.optional("tool_choice", about, choice)
    };
    let about = "Whether one answer may have several calls. Default: true.";
    let parallel = fields.optional("parallel_tool_calls", about, boolean());
    let mut choice = choice.unwrap_or_default();
    if let ToolChoice::Named(name) = &choice
        && !functions.iter().any(|function| function.name == *name)
    {
        let message = "names a function that is not among tools";
        fields.error("tool_choice", FieldCode::NotAllowed, message);
    }
    // Tools other than functions are passed on together with the choice.
    let given = fields.value("tools").and_then(Value::as_array);
    if functions.is_empty() && given.is_some_and(|tools| !tools.is_empty()) {
        choice = ToolChoice::Auto;
    }
    if choice == ToolChoice::Required && functions.is_empty() {
        fields.error("tool_choice", FieldCode::NotAllowed, "needs tools");
    }
    Tools {
        functions,
        choice,
        one_at_a_time: parallel == Some(false),
    }
}

/// The mode and the names of tools in a `tool_choice` of a chat that limits them; `None` for others.
/// Source: openai 3.57.0 (`PyPI`) `openai/types/chat/chat_completion_allowed_tools_param.py`.
pub fn allowed_tools(choice: &Value) -> Option<(&str, Vec<&str>)> {
    let allowed = &choice["allowed_tools"];
    let mode = allowed["mode"].as_str()?;
    let is_known = choice["type"] == ALLOWED_TOOLS && ["auto", "required"].contains(&mode);
    let tools = allowed["tools"].as_array().filter(|_| is_known)?.iter();
    let names = tools.map(|tool| tool[tool["type"].as_str()?]["name"].as_str());
    Some((mode, names.collect::<Option<_>>()?))
}

/// The member of `tool_choice` that has the name of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Name,
    /// `name` of its member `function`, or `custom`.
    Within,
}

impl Choice {
    /// The name of the chosen tool; `None` if this is no choice of one.
    fn name(self, members: &Map<String, Value>) -> Option<&str> {
        let kind = ToolType::parse(members.get("type")?.as_str()?)?;
        let name = match self {
            Self::Name => members.get("name"),
            Self::Within => members.get(kind.as_str())?.get("name"),
        };
        name?.as_str()
    }
}

impl Kind for Choice {
    type Value = ToolChoice;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<ToolChoice> {
        match value {
            Value::String(word) => match word.as_str() {
                "none" => return Some(ToolChoice::None),
                "auto" => return Some(ToolChoice::Auto),
                "required" => return Some(ToolChoice::Required),
                _ => {}
            },
            Value::Object(members) => {
                if let Some(name) = self.name(members) {
                    return Some(ToolChoice::Named(name.to_owned()));
                }
            }
            _ => {}
        }
        let named = match self {
            Self::Name => "name",
            Self::Within => "function.name",
        };
        let message =
            format!("must be none, auto, required, or an object with type function and {named}");
        at.error(FieldCode::NotAllowed, message);
        None
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        let name = json!({"type": "string"});
        let types: Vec<&str> = ToolType::ALL.iter().map(|kind| kind.as_str()).collect();
        let mut properties = json!({"type": {"enum": types}});
        let (schema, required) = match self {
            Self::Name => {
                properties["name"] = name;
                ("ResponseNamedTool", json!(["type", "name"]))
            }
            Self::Within => {
                for kind in types {
                    properties[kind] = json!({"type": "object", "required": ["name"],
                        "properties": {"name": name}});
                }
                ("ChatNamedTool", json!(["type"]))
            }
        };
        let named = component(schemas, schema, |_| {
            json!({"type": "object", "description": "The tool to call.", "required": required,
                "properties": properties})
        });
        let words = json!({"type": "string", "enum": ["none", "auto", "required"]});
        json!({"oneOf": [words, named]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_of_a_cut_call_is_unescaped_up_to_the_cut() {
        let input = "a\n\"b\" \\ {é😀}\t";
        let arguments = custom_arguments(input);
        assert_eq!(custom_input(&arguments), input);
        let ascii = r#" { "input" : "a\n\"b\" \\ {\u00e9\ud83d\ude00}\t" , "more": ["#;
        for arguments in [&arguments, ascii] {
            for (end, _) in arguments.char_indices() {
                let cut = custom_input(&arguments[..end]);
                assert!(input.starts_with(&cut), "{end} {cut}");
                let missing = arguments.len() - end;
                assert!(cut.len() + missing >= input.len(), "{end} {cut}");
            }
        }
        assert_eq!(custom_input(ascii), input);
        for (arguments, input) in [
            ("", ""),
            ("{}", ""),
            ("{\"a\":1}", "{\"a\":1}"),
            ("{\"input\":1}", "{\"input\":1}"),
            ("{\"inputs\":\"x", "{\"inputs\":\"x"),
            ("text", "text"),
        ] {
            assert_eq!(custom_input(arguments), input);
        }
    }
}
