//! The tools of a dialogue, and the format of its answer.

use serde_json::{Value, json};

use super::{
    Item,
    mapping::{OwnTools, Tool, custom_tool, with_namespace},
};
use crate::{
    dialect::{
        NOT_EMPTY, STRING,
        functions::{self, Choice, CustomFormatType, GrammarSyntax, refuse},
        needed,
    },
    domain::{
        conversation::{Format, Json, Schema, TOOLS_TOKENS, Tools},
        named::named_enum,
        validate::{FieldCode, Fields, List, any_object, boolean, words},
    },
    request::Search,
};

named_enum!(
    /// The type of a tool.
    ResponseToolType {
        Function = "function",
        Custom = "custom",
        Namespace = "namespace",
    }
);

named_enum!(
    /// The type of a tool of a namespace.
    NamespacedToolType {
        Function = "function",
        Custom = "custom",
    }
);

/// Reads the tools, including those in items of the input.
pub(super) fn read(fields: &Fields<'_>, input: &[Item]) -> (Tools, OwnTools) {
    let about = "What the model may call.";
    let passed = [PASSED, SEARCHES].concat();
    let given = list(fields, "tools", about, &passed).unwrap_or_default();
    let items = fields.value("input").and_then(Value::as_array);
    let within = items.into_iter().flatten().map(|item| &item["tools"]);
    let passed = within.chain(fields.value("tools")).map(count_passed);
    fields.count_others(TOOLS_TOKENS * passed.sum::<usize>());
    let others = input.iter().filter_map(|item| match item {
        Item::Tools(tools) => Some(tools),
        Item::Message(_) | Item::Passed => None,
    });
    let all: Vec<&Tool> = given.iter().chain(others.flatten()).collect();
    let own = all.iter().filter_map(|tool| {
        let own = tool.own.clone()?;
        Some((tool.function.name.clone(), own))
    });
    let own: OwnTools = own.collect();
    if !own.is_empty() {
        functions::refuse_repeated(fields, all.iter().map(|tool| &tool.function.name[..]));
    }
    let functions = all.into_iter().map(|tool| tool.function.clone());
    let tools = functions::tools(fields, Some(functions.collect()), Choice::Name);
    (tools, own)
}

/// Reads a list of tools; each tool of a namespace becomes an entry.
pub(super) fn list(
    fields: &Fields<'_>,
    name: &'static str,
    about: &'static str,
    passed: &[&str],
) -> Option<Vec<Tool>> {
    let tools = List::new(
        about,
        ("ResponseTool", "A tool, or several of one namespace."),
    );
    let tools = tools.read_any(fields, name, |fields| tool(fields, passed))?;
    Some(tools.into_iter().flatten().collect())
}

/// Tools that the caller runs, or that cost only tokens, and that only `OpenAI` knows.
pub(super) const PASSED: &[&str] = &["apply_patch", "local_shell", SHELL, "tool_search"];

/// A tool that `OpenAI` runs unless its environment is local.
const SHELL: &str = "shell";

/// Search tools that `OpenAI` runs.
const SEARCHES: &[&str] = &["web_search", "web_search_2025_08_26"];

/// Returns the search among the tools. `most`: the request's limit of tool calls at the vendor.
pub(super) fn search(fields: &Fields<'_>, most: Option<u32>) -> Option<Search> {
    let tools = fields.value("tools").and_then(Value::as_array);
    let kinds = tools.into_iter().flatten().map(|tool| &tool["type"]);
    let mut kinds = kinds.filter_map(Value::as_str);
    kinds
        .any(|kind| SEARCHES.contains(&kind))
        .then_some(Search { most, tool: None })
}

/// Whether a loaded tool has a type that a request may have.
pub(super) fn is_known(tool: &Value) -> bool {
    let kind = tool["type"].as_str().unwrap_or_default();
    let within = tool["tools"].as_array().into_iter().flatten();
    (PASSED.contains(&kind) || ResponseToolType::parse(kind).is_some())
        && is_local(kind, &tool["environment"])
        && within.into_iter().all(is_known)
}

/// Returns the number of tools whose definition `OpenAI` adds to the input.
fn count_passed(tools: &Value) -> usize {
    let tools = tools.as_array().into_iter().flatten();
    let counts = tools.map(|tool| {
        let kind = tool["type"].as_str().unwrap_or_default();
        usize::from(PASSED.contains(&kind)) + count_passed(&tool["tools"])
    });
    counts.sum()
}

/// Whether a tool or an item of this type runs in the caller's environment.
fn is_local(kind: &str, environment: &Value) -> bool {
    environment["type"] == "local" || environment.is_null() && kind != SHELL
}

/// Whether an object has one of these types, whose members only `OpenAI` reads. They are passed to
/// it and refused by name for others.
pub(super) fn passes(fields: &Fields<'_>, types: &[&str]) -> bool {
    let kind = fields.value("type").and_then(Value::as_str);
    let Some(kind) = kind.filter(|kind| types.contains(kind)) else {
        return false;
    };
    fields.neutral("type", Vec::new());
    if !is_local(kind, fields.value("environment").unwrap_or(&Value::Null)) {
        let message = "must have the type local: environments at OpenAI are not supported";
        fields.error("environment", FieldCode::NotSupported, message);
    }
    fields.neutral("environment", Vec::new());
    true
}

fn tool(fields: &Fields<'_>, passed: &[&str]) -> Option<Vec<Tool>> {
    if passes(fields, passed) {
        return Some(Vec::new());
    }
    let kind = fields.required("type", "What it is.", words::<ResponseToolType>());
    let within = List::new(
        "Of a namespace.",
        ("ResponseNamespacedTool", "A tool of a namespace."),
    );
    let within = within.read_any(fields, "tools", |fields| {
        let kind = fields.required("type", "What it is.", words::<NamespacedToolType>());
        one(fields, kind? == NamespacedToolType::Custom)
    });
    let tool = one(fields, kind == Some(ResponseToolType::Custom));
    if kind? != ResponseToolType::Namespace {
        refuse(fields, &["tools"]);
        return Some(vec![tool?]);
    }
    refuse(fields, &["parameters", "strict"]);
    let namespace = tool?.function;
    let within = within.unwrap_or_default().into_iter();
    let mut tools: Vec<Tool> = within
        .map(|tool| with_namespace(tool, &namespace.name))
        .collect();
    // The model sees the description once, with the first of its tools.
    let about = namespace.description.filter(|about| !about.is_empty());
    if let Some((first, about)) = tools.first_mut().zip(about) {
        let own = first.function.description.take();
        let own = own.map(|own| format!("\n\n{own}")).unwrap_or_default();
        first.function.description = Some(about + &own);
    }
    Some(tools)
}

fn one(fields: &Fields<'_>, is_custom: bool) -> Option<Tool> {
    let function = functions::function(fields);
    let schema = (
        "ResponseCustomFormat",
        "What the input of a custom tool is.",
    );
    let about = "Of a custom tool: its input. Default: any text.";
    let grammar = fields.object("format", about, schema, |format| {
        let kind = format.required("type", "What it is.", words::<CustomFormatType>());
        let syntax = format.optional("syntax", "Of a grammar.", words::<GrammarSyntax>());
        let about = "The format is a grammar. The model sees it but need not follow it.";
        let definition = format.optional("definition", about, STRING);
        match kind? {
            CustomFormatType::Text => None,
            CustomFormatType::Grammar => {
                let syntax = needed(format, "syntax", syntax);
                let definition = needed(format, "definition", definition)?;
                Some((syntax?, definition))
            }
        }
    });
    fields.neutral("defer_loading", vec![json!(false)]);
    fields.neutral("allowed_callers", vec![json!(["direct"])]);
    let of_others: &[_] = if is_custom {
        &["parameters", "strict"]
    } else {
        &["format"]
    };
    refuse(fields, of_others);
    let function = function?;
    if !is_custom {
        return Some(Tool {
            function,
            own: None,
        });
    }
    Some(custom_tool(function, grammar))
}

named_enum!(
    /// The format of an answer.
    FormatType {
        Text = "text",
        JsonObject = "json_object",
        JsonSchema = "json_schema",
    }
);

pub(super) fn format(fields: &Fields<'_>) -> Format {
    let schema = ("ResponseTextConfig", "The form of the answer.");
    let format = fields.object("text", "The answer.", schema, |config| {
        config.neutral("verbosity", vec![json!("medium")]);
        let schema = ("ResponseTextFormat", "The form of an answer.");
        config.object("format", "Its form. Default: text.", schema, |format| {
            let kind = format.required("type", "What it is.", words::<FormatType>());
            let name = format.optional("name", "Of a schema: its name, for the model.", NOT_EMPTY);
            let about = "Of a schema: what it is for, for the model.";
            let description = format.optional("description", about, STRING);
            let schema = format.optional("schema", "A JSON schema.", any_object(Json::object));
            let about = "Whether the answer must follow it. Default: the provider's.";
            let strict = format.optional("strict", about, boolean());
            match kind? {
                FormatType::Text => Some(Format::Text),
                FormatType::JsonObject => Some(Format::JsonObject),
                FormatType::JsonSchema => {
                    let name = needed(format, "name", name);
                    Some(Format::Schema(Schema {
                        schema: needed(format, "schema", schema)?,
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
