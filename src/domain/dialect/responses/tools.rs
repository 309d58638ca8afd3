//! The tools of a dialogue, and the form of its answer.

use serde_json::{Value, json};

use crate::domain::{
    conversation::{Format, Function, Schema, ToolChoice, Tools},
    dialect::{MAX_TOOLS, needed, schema_of},
    named::named_enum,
    validate::{
        Field, FieldCode, Fields, Kind, List, Schemas, any_object, boolean, component, only, text,
        words,
    },
};

named_enum!(
    /// What a tool is.
    ToolType {
        Function = "function",
    }
);

pub(super) fn read(fields: &Fields<'_>) -> Tools {
    let tools = List {
        about: "Functions that the model may call.",
        schema: ("ResponseTool", "A function."),
        required: false,
        short: None,
    };
    let functions = tools.read_any(fields, "tools", function);
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
    let choice = choice.unwrap_or_default();
    if let ToolChoice::Named(name) = &choice
        && !functions.iter().any(|function| function.name == *name)
    {
        let message = "names a function that is not among tools";
        fields.error("tool_choice", FieldCode::NotAllowed, message);
    }
    if choice == ToolChoice::Required {
        fields.needs("tool_choice", "tools", "needs tools");
    }
    Tools {
        functions,
        choice,
        one_at_a_time: parallel == Some(false),
    }
}

fn function(fields: &Fields<'_>) -> Option<Function> {
    fields.required("type", "What it is.", words::<ToolType>());
    let name = fields.required("name", "Its name.", text(usize::MAX).min(1));
    let about = "What it does, for the model.";
    let description = fields.optional("description", about, text(usize::MAX));
    let about = "A JSON schema of its arguments.";
    let parameters = fields.optional("parameters", about, any_object());
    let about = "Whether the arguments must follow the schema. Default: the provider's.";
    let strict = fields.optional("strict", about, boolean());
    fields.optional("defer_loading", "As it is anyway.", only([json!(false)]));
    fields.unsupported(&["allowed_callers", "output_schema"]);
    Some(Function {
        name: name?,
        description,
        parameters: parameters.map(schema_of),
        strict,
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
                if let Some(name) = members.get("name").and_then(Value::as_str) {
                    return Some(ToolChoice::Named(name.to_owned()));
                }
            }
            _ => {}
        }
        let message = "must be none, auto, required, or an object with type function and name";
        at.error(FieldCode::NotAllowed, message);
        None
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        let named = component(schemas, "ResponseNamedTool", |_| {
            json!({"type": "object", "description": "The function to call.",
                "required": ["type", "name"],
                "properties": {"type": {"const": "function"}, "name": {"type": "string"}}})
        });
        let words = json!({"type": "string", "enum": ["none", "auto", "required"]});
        json!({"oneOf": [words, named]})
    }
}

named_enum!(
    /// The form of an answer.
    FormatType {
        Text = "text",
        JsonObject = "json_object",
        JsonSchema = "json_schema",
    }
);

pub(super) fn format(fields: &Fields<'_>) -> Format {
    let schema = ("ResponseTextConfig", "The form of the answer.");
    let format = fields.object("text", "The answer.", schema, |config| {
        config.optional("verbosity", "As it is anyway.", only([json!("medium")]));
        let schema = ("ResponseTextFormat", "The form of an answer.");
        config.object("format", "Its form. Default: text.", schema, |format| {
            let kind = format.required("type", "What it is.", words::<FormatType>());
            let about = "Of a schema: its name, for the model.";
            let name = format.optional("name", about, text(usize::MAX).min(1));
            let about = "Of a schema: what it is for, for the model.";
            let description = format.optional("description", about, text(usize::MAX));
            let schema = format.optional("schema", "A JSON schema.", any_object());
            let about = "Whether the answer must follow it. Default: the provider's.";
            let strict = format.optional("strict", about, boolean());
            match kind? {
                FormatType::Text => Some(Format::Text),
                FormatType::JsonObject => Some(Format::JsonObject),
                FormatType::JsonSchema => {
                    let name = needed(format, "name", name);
                    Some(Format::Schema(Schema {
                        schema: schema_of(needed(format, "schema", schema)?),
                        name: Some(name?),
                        description,
                        strict,
                    }))
                }
            }
        })
    });
    format.unwrap_or_default()
}
