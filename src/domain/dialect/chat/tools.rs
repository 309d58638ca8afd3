//! The tools of a chat, and the form of its answer.

use serde_json::{Value, json};

use super::message::ToolType;
use crate::domain::{
    conversation::{Format, Function, Schema, ToolChoice, Tools},
    dialect::{MAX_TOOLS, needed, schema_of},
    named::named_enum,
    validate::{
        Field, FieldCode, Fields, Kind, List, Schemas, any_object, boolean, component, text, words,
    },
};

pub(super) fn read(fields: &Fields<'_>) -> Tools {
    let tools = List {
        about: "Functions that the model may call.",
        schema: ("ChatTool", "A function."),
        required: false,
        short: None,
    };
    let functions = tools.read_any(fields, "tools", |tool| {
        tool.required("type", "What it is.", words::<ToolType>());
        let schema = ("ChatFunction", "A function.");
        let function = tool.object("function", "The function.", schema, function);
        if !tool.has("function") {
            needed::<()>(tool, "function", None);
        }
        function
    });
    let functions = functions.unwrap_or_default();
    if functions.len() > MAX_TOOLS {
        let message = format!("must be at most {MAX_TOOLS} tools");
        fields.error("tools", FieldCode::OutOfRange, message);
    }
    let about = "Which of them it calls: `none`, `auto`, `required`, or the named function. \
                 Default: `auto`.";
    let choice = fields.optional("tool_choice", about, Choice);
    let about = "Whether one answer may have several calls. Default: true.";
    let parallel = fields.optional("parallel_tool_calls", about, boolean());
    fields.needs("tool_choice", "tools", "needs tools");
    let choice = choice.unwrap_or_default();
    if let ToolChoice::Named(name) = &choice
        && !functions.iter().any(|function| function.name == *name)
    {
        let message = "names a function that is not among tools";
        fields.error("tool_choice", FieldCode::NotAllowed, message);
    }
    Tools {
        functions,
        choice,
        one_at_a_time: parallel == Some(false),
    }
}

fn function(fields: &Fields<'_>) -> Option<Function> {
    let name = fields.required("name", "Its name.", text(usize::MAX).min(1));
    let about = "What it does, for the model.";
    let description = fields.optional("description", about, text(usize::MAX));
    let about = "A JSON schema of its arguments.";
    let parameters = fields.optional("parameters", about, any_object());
    let about = "Whether the arguments must follow the schema. Default: the provider's.";
    Some(Function {
        strict: fields.optional("strict", about, boolean()),
        name: name?,
        description,
        parameters: parameters.map(schema_of),
    })
}

struct Choice;

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
            Value::Object(members) if members.get("type") == Some(&json!("function")) => {
                let name = members.get("function").and_then(|f| f.get("name"));
                if let Some(name) = name.and_then(Value::as_str) {
                    return Some(ToolChoice::Named(name.to_owned()));
                }
            }
            _ => {}
        }
        let message = "must be none, auto, required, or an object with type function and \
                       function.name";
        at.error(FieldCode::NotAllowed, message);
        None
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        let named = component(schemas, "ChatNamedTool", |_| {
            let name = json!({"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}}});
            json!({"type": "object", "description": "The function to call.",
                "required": ["type", "function"],
                "properties": {"type": {"const": "function"}, "function": name}})
        });
        let words = json!({"type": "string", "enum": ["none", "auto", "required"]});
        json!({"oneOf": [words, named]})
    }
}

named_enum!(
    /// The form of an answer.
    ChatFormatType {
        Text = "text",
        JsonObject = "json_object",
        JsonSchema = "json_schema",
    }
);

pub(super) fn format(fields: &Fields<'_>) -> Format {
    let about = "The form of the answer. Default: text.";
    let schema = ("ChatResponseFormat", "The form of an answer.");
    let format = fields.object("response_format", about, schema, |format| {
        let kind = format.required("type", "What it is.", words::<ChatFormatType>());
        let about = "Of type `json_schema`.";
        let schema = ("ChatJsonSchema", "The schema of an answer.");
        let schema = format.object("json_schema", about, schema, json_schema);
        match kind? {
            ChatFormatType::Text => Some(Format::Text),
            ChatFormatType::JsonObject => Some(Format::JsonObject),
            ChatFormatType::JsonSchema if format.has("json_schema") => schema.map(Format::Schema),
            ChatFormatType::JsonSchema => needed(format, "json_schema", None),
        }
    });
    format.unwrap_or_default()
}

fn json_schema(fields: &Fields<'_>) -> Option<Schema> {
    let about = "Its name, for the model.";
    let name = fields.required("name", about, text(usize::MAX).min(1));
    let about = "What it is for, for the model.";
    let description = fields.optional("description", about, text(usize::MAX));
    let schema = fields.required("schema", "A JSON schema.", any_object());
    let about = "Whether the answer must follow it. Default: the provider's.";
    Some(Schema {
        strict: fields.optional("strict", about, boolean()),
        name: Some(name?),
        description,
        schema: schema_of(schema?),
    })
}
