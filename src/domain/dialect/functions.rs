//! Functions as both of OpenAI's dialects have them.

use serde_json::{Map, Value, json};

use super::{MAX_TOOLS, NOT_EMPTY, STRING};
use crate::domain::{
    conversation::{Function, Parameters, ToolChoice, Tools},
    named::named_enum,
    validate::{Field, FieldCode, Fields, Kind, Schemas, any_object, boolean, component},
};

named_enum!(
    /// The type of a tool.
    ToolType {
        Function = "function",
    }
);

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

/// The functions, and what the request says of their use.
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
        ["allowed_tools", "apply_patch", "shell"].contains(&kind) || kind.starts_with("web_search")
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

/// The member of `tool_choice` that has the name of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Name,
    /// `name` of its member `function`.
    Within,
}

impl Choice {
    /// Whether a choice of this type is one of a tool.
    fn is_tool(self, kind: Option<&Value>) -> bool {
        kind.is_some_and(|kind| kind == "function" || self == Self::Name && kind == "custom")
    }

    fn name(self, members: &Map<String, Value>) -> Option<&str> {
        let name = match self {
            Self::Name => members.get("name"),
            Self::Within => members.get("function")?.get("name"),
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
            Value::Object(members) if self.is_tool(members.get("type")) => {
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
        let (schema, member, holder) = match self {
            Self::Name => ("ResponseNamedTool", "name", name),
            Self::Within => {
                let holder = json!({"type": "object", "required": ["name"],
                    "properties": {"name": name}});
                ("ChatNamedTool", "function", holder)
            }
        };
        let named = component(schemas, schema, |_| {
            json!({"type": "object", "description": "The function to call.",
                "required": ["type", member],
                "properties": {"type": {"const": "function"}, member: holder}})
        });
        let words = json!({"type": "string", "enum": ["none", "auto", "required"]});
        json!({"oneOf": [words, named]})
    }
}
