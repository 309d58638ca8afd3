//! The tools of a chat, and the form of its answer.

use crate::domain::{
    conversation::{Format, Schema, Tools},
    dialect::{
        NOT_EMPTY, STRING,
        functions::{self, Choice, ToolType},
        needed, schema_of,
    },
    named::named_enum,
    validate::{Fields, List, any_object, boolean, words},
};

pub(super) fn read(fields: &Fields<'_>) -> Tools {
    let tools = List::new(
        "Functions that the model may call.",
        ("ChatTool", "A function."),
    );
    let functions = tools.read_any(fields, "tools", |tool| {
        tool.required("type", "What it is.", words::<ToolType>());
        let schema = ("ChatFunction", "A function.");
        let function = tool.object("function", "The function.", schema, functions::function);
        if !tool.has("function") {
            needed::<()>(tool, "function", None);
        }
        function
    });
    functions::tools(fields, functions, Choice::Within)
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
    let name = fields.required("name", "Its name, for the model.", NOT_EMPTY);
    let description = fields.optional("description", "What it is for, for the model.", STRING);
    let schema = fields.required("schema", "A JSON schema.", any_object());
    let about = "Whether the answer must follow it. Default: the provider's.";
    Some(Schema {
        strict: fields.optional("strict", about, boolean()),
        name: Some(name?),
        description,
        schema: schema_of(schema?),
    })
}
