//! The tools of a dialogue, and the form of its answer.

use serde_json::json;

use crate::domain::{
    conversation::{Format, Function, Schema, ToolChoice, Tools},
    dialect::{
        functions::{self, Choice, ToolType},
        needed, schema_of,
    },
    named::named_enum,
    validate::{Fields, List, any_object, boolean, only, text, words},
};

pub(super) fn read(fields: &Fields<'_>) -> Tools {
    let tools = List {
        about: "Functions that the model may call.",
        schema: ("ResponseTool", "A function."),
        required: false,
        short: None,
    };
    let functions = tools.read_any(fields, "tools", function);
    let tools = functions::tools(fields, functions, Choice::Beside);
    if tools.choice == ToolChoice::Required {
        fields.needs("tool_choice", "tools", "needs tools");
    }
    tools
}

fn function(fields: &Fields<'_>) -> Option<Function> {
    fields.required("type", "What it is.", words::<ToolType>());
    let function = functions::function(fields);
    fields.optional("defer_loading", "As it is anyway.", only([json!(false)]));
    fields.unsupported(&["allowed_callers", "output_schema"]);
    function
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
