//! The tools of a dialogue, the format of its answer, and its reasoning.

use serde_json::{Map, Value, json};

use super::{MAX_LIMIT, Noted, note};
use crate::{
    dialect::{MAX_TOOLS, NOT_EMPTY, STRING, needed},
    domain::{
        conversation::{
            Effort, Format, Function, Json, Parameters, Reasoning, Schema, Thinking, ToolChoice,
            Tools, is_strict,
        },
        named::named_enum,
        validate::{FieldCode, Fields, List, any_object, boolean, integer, words},
    },
};

named_enum!(
    /// The type of a tool.
    MessageToolType {
        Custom = "custom",
    }
);

named_enum!(
    /// Which tool the model uses.
    ToolChoiceType {
        Auto = "auto",
        Any = "any",
        Tool = "tool",
        None = "none",
    }
);

named_enum!(
    /// Whether the model thinks before the answer.
    ThinkingType {
        Disabled = "disabled",
        Adaptive = "adaptive",
        Enabled = "enabled",
        /// Only between tool uses.
        BetweenTools = "between_tools",
    }
);

named_enum!(
    /// How much of the thinking is shown.
    ThinkingDisplay {
        Summarized = "summarized",
        Omitted = "omitted",
    }
);

named_enum!(
    /// The format of an answer.
    OutputFormatType {
        JsonSchema = "json_schema",
    }
);

pub(super) fn read(fields: &Fields<'_>, noted: &Noted) -> Tools {
    let tools = List::new("What the model may use.", ("MessageTool", "A tool."));
    let functions = tools.read_any(fields, "tools", |tool| function(tool, noted));
    let functions: Vec<Function> = functions.into_iter().flatten().flatten().collect();
    if functions.len() > MAX_TOOLS {
        let message = format!("must be at most {MAX_TOOLS} tools");
        fields.error("tools", FieldCode::OutOfRange, message);
    }
    // A choice of the search is passed on together with it.
    let has_search = !noted.searches.borrow().is_empty();
    let about = "Which of them it uses. Default: `auto`.";
    let schema = ("ToolChoiceParam", "Which tool the model uses.");
    let choice = fields.object("tool_choice", about, schema, |choice| {
        let kind = choice.required("type", "What it is.", words::<ToolChoiceType>());
        let name = choice.optional("name", "Of type `tool`.", NOT_EMPTY);
        let about = "Whether one answer has at most one use of a tool. Default: false.";
        let one = choice.optional("disable_parallel_tool_use", about, boolean());
        let choice = match kind? {
            ToolChoiceType::Auto => ToolChoice::Auto,
            ToolChoiceType::Any if has_search => ToolChoice::Auto,
            ToolChoiceType::Any => ToolChoice::Required,
            ToolChoiceType::None => ToolChoice::None,
            ToolChoiceType::Tool => {
                let name = needed(choice, "name", name)?;
                if has_search && name == SEARCH_NAME {
                    return Some((ToolChoice::Auto, one.unwrap_or(false)));
                }
                if !functions.iter().any(|function| function.name == name) {
                    let message = "names a tool that is not among tools";
                    choice.error("name", FieldCode::NotAllowed, message);
                }
                ToolChoice::Named(name)
            }
        };
        Some((choice, one.unwrap_or(false)))
    });
    let (choice, one_at_a_time) = choice.unwrap_or_default();
    if choice == ToolChoice::Required && functions.is_empty() {
        fields.error("tool_choice", FieldCode::NotAllowed, "needs tools");
    }
    Tools {
        functions,
        choice,
        one_at_a_time,
    }
}

/// The search tool that runs at Anthropic. Later versions also run code there.
pub const SEARCH: &str = "web_search_20250305";
/// The only valid name of the tool.
const SEARCH_NAME: &str = "web_search";

/// Type prefixes of tools that the caller runs and Anthropic describes to the model. A date
/// follows.
const CLIENT_TOOLS: [&str; 3] = ["bash_", "memory_", "text_editor_"];
/// Maximum tokens of one description. Anthropic documents 245 for bash and 700 for the text editor.
const CLIENT_TOOL_TOKENS: usize = 2_000;

fn is_client_tool(kind: &str) -> bool {
    let mut dates = CLIENT_TOOLS
        .iter()
        .filter_map(|name| kind.strip_prefix(name));
    dates.any(|date| date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a tool; the inner `None` for a search, which is no function.
#[expect(clippy::option_option, reason = "the outer one is an error")]
fn function(fields: &Fields<'_>, noted: &Noted) -> Option<Option<Function>> {
    if fields.value("type").is_some_and(|kind| kind == SEARCH) {
        // Other vendors do not know the search tool.
        fields.neutral("type", Vec::new());
        fields.required("name", "Its name.", NOT_EMPTY);
        let about = "Maximum number of searches of a web search tool.";
        let most = fields.optional("max_uses", about, integer(1..=MAX_LIMIT));
        fields.neutral("allowed_callers", vec![json!(["direct"])]);
        noted.searches.borrow_mut().push(most);
        return Some(None);
    }
    let kind = fields.value("type").and_then(Value::as_str);
    if kind.is_some_and(is_client_tool) {
        // Refused for other vendors, which do not know the tool.
        fields.neutral("type", Vec::new());
        let name = fields.required("name", "Its name.", NOT_EMPTY)?;
        noted.add_tokens(CLIENT_TOOL_TOKENS);
        return Some(Some(Function {
            name,
            description: None,
            parameters: json!({"type": "object", "properties": {}})
                .as_object()
                .map(Parameters::of),
            strict: None,
        }));
    }
    fields.optional("type", "What it is.", words::<MessageToolType>());
    let name = fields.required("name", "Its name.", NOT_EMPTY);
    let description = fields.optional("description", "What it does, for the model.", STRING);
    let about = "A JSON schema of its arguments.";
    let schema = fields.required("input_schema", about, any_object(Parameters::of));
    let about = "Whether the arguments must follow the schema. Default: the provider's.";
    let strict = fields.optional("strict", about, boolean());
    fields.neutral("defer_loading", vec![json!(false)]);
    note(noted, fields.hints(&["eager_input_streaming"]));
    Some(Some(Function {
        name: name?,
        description,
        parameters: Some(schema?),
        strict,
    }))
}

/// `thinking`, `output_config` and the older `output_format`.
pub(super) fn reasoning(fields: &Fields<'_>, noted: &Noted) -> (Reasoning, Format) {
    let about = "Whether the model thinks before the answer. Default: the provider's.";
    let schema = ("ThinkingConfig", "Whether the model thinks.");
    let thinking = fields.object("thinking", about, schema, |thinking| {
        let kind = thinking.required("type", "What it is.", words::<ThinkingType>());
        let about = "Of type `enabled`: at most so many tokens of it.";
        // Some SDKs send 0 with the other types.
        let least = i64::from(kind.is_none_or(|kind| kind == ThinkingType::Enabled));
        let budget = thinking.optional("budget_tokens", about, integer(least..=MAX_LIMIT));
        let about = "Passed to Anthropic, and left out for other providers.";
        let display = thinking.optional("display", about, words::<ThinkingDisplay>());
        note(
            noted,
            display.map(|_| "thinking.display").into_iter().collect(),
        );
        Some(match kind? {
            ThinkingType::Disabled => Thinking::Off,
            ThinkingType::BetweenTools => Thinking::BetweenTools,
            ThinkingType::Adaptive => Thinking::Adaptive,
            ThinkingType::Enabled => Thinking::Budget(needed(thinking, "budget_tokens", budget)?),
        })
    });
    let about = "How the answer is made.";
    let schema = ("OutputConfig", "How an answer is made.");
    let (effort, named) = fields.object("output_config", about, schema, |output| {
        let about = "How much effort goes into it. Default: the provider's.";
        let effort = output.optional("effort", about, words::<Effort>());
        (effort, format(output, "format"))
    });
    let older = format(fields, "output_format");
    let reasoning = Reasoning { thinking, effort };
    (reasoning, named.or(older).unwrap_or_default())
}

fn format(fields: &Fields<'_>, name: &'static str) -> Option<Format> {
    let about = "The form of the answer. Default: text.";
    let schema = ("OutputFormat", "The form of an answer.");
    fields.object(name, about, schema, |format| {
        format.required("type", "What it is.", words::<OutputFormatType>());
        let schema = format.required("schema", "A JSON schema.", any_object(Map::clone));
        let schema = Value::Object(schema?);
        // Here an answer always follows it. Where that is to be asked for, not every schema may be.
        let strict = is_strict(&schema).then_some(true);
        Some(Format::Schema(Schema {
            name: None,
            description: None,
            schema: Json::from(&schema),
            strict,
        }))
    })
}
