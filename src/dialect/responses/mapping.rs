//! Maps features of this dialect to those of all vendors: custom tools (whose input is any text)
//! and namespaced tools to functions, and `encrypted_content` to signatures.

use std::collections::{BTreeMap, BTreeSet};

use super::referenced;
use crate::{
    dialect::{
        GEMINI,
        functions::{self, GrammarSyntax},
        give_signatures,
    },
    domain::conversation::{EncryptedReasoning, Function, Part, ToolCall},
};

/// The default namespace: its functions keep their names.
const PLAIN: &str = "functions";

#[derive(Debug)]
pub(super) struct Tool {
    pub function: Function,
    /// The tool that the function represents, unless it is a plain function.
    pub own: Option<OwnTool>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OwnTool {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) is_custom: bool,
}

/// The tools that are not plain functions, by the names of the functions that represent them.
pub type OwnTools = BTreeMap<String, OwnTool>;

/// Determines the form of items.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// Whether reasoning has `encrypted_content`.
    pub encrypted: bool,
    pub tools: OwnTools,
}

impl Shown {
    pub(super) fn is_custom(&self, call: &ToolCall) -> bool {
        self.tools.get(&call.name).is_some_and(|own| own.is_custom)
    }

    /// Returns the names of the custom tools; `None` if there is a namespace, which a chat cannot
    /// express.
    pub fn custom_names(&self) -> Option<BTreeSet<String>> {
        let names = self.tools.iter().map(|(name, own)| {
            let is_plain = own.is_custom && own.namespace.is_none();
            is_plain.then(|| name.clone())
        });
        names.collect()
    }
}

/// Returns the name of the function that represents a tool.
pub(super) fn function_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some(PLAIN) => name.to_owned(),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

pub(super) fn with_namespace(tool: Tool, namespace: &str) -> Tool {
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

pub(super) fn custom_tool(function: Function, grammar: Option<(GrammarSyntax, String)>) -> Tool {
    let own = OwnTool {
        namespace: None,
        name: function.name.clone(),
        is_custom: true,
    };
    Tool {
        function: functions::custom(function, grammar),
        own: Some(own),
    }
}

/// Prefixes of `encrypted_content` that is not OpenAI's: a signature of visible thinking, redacted
/// thinking, and the signature of Gemini's thinking before a call.
const SIGNATURE: &str = "signature:";
const REDACTED: &str = "redacted:";

/// Whether `encrypted_content` was written by `OpenAI` itself.
pub fn is_encrypted_by_openai(content: &str) -> bool {
    let prefixes = [SIGNATURE, REDACTED, GEMINI];
    !content.is_empty() && !prefixes.iter().any(|prefix| content.starts_with(prefix))
}

/// Returns `None` if the part has nothing that the next turn must send back.
pub(super) fn encrypted_content(part: &Part) -> Option<String> {
    match part {
        Part::Thinking { signature, .. } if !signature.is_empty() => {
            Some(format!("{SIGNATURE}{signature}"))
        }
        Part::Redacted { data } => Some(format!("{REDACTED}{data}")),
        _ => None,
    }
}

/// Returns the reasoning that a request sends back, with its visible summary. `id`: the item's.
pub(super) fn decrypted(content: &str, id: &str, text: String) -> Part {
    if is_encrypted_by_openai(content) {
        // It was encrypted under the provider's id, not ours.
        let id = referenced(id).map_or(id, |_| "");
        let signature = EncryptedReasoning { id, content }.signature();
        return Part::Thinking { text, signature };
    }
    match content.strip_prefix(REDACTED) {
        Some(data) => Part::Redacted {
            data: data.to_owned(),
        },
        None => Part::thinking(text, content.strip_prefix(SIGNATURE).unwrap_or_default()),
    }
}

/// Returns the data of the reasoning item that carries a call's signature.
pub(super) fn signature_before(call: &ToolCall) -> Option<String> {
    let signature = call.thought_signature.as_ref()?;
    Some(format!("{GEMINI}{signature}"))
}

/// Moves signatures from the reasoning items that carry them to their calls.
pub(super) fn give_to_calls(parts: Vec<Part>) -> Vec<Part> {
    give_signatures(parts, |part| match part {
        Part::Redacted { data } => data.strip_prefix(GEMINI),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_provider_go_back_to_it() {
        for (id, kept) in [
            ("rs_1", "rs_1"),
            ("rs_01a3185c500072abc0ffee0123456789_0", ""),
        ] {
            let part = decrypted("gAAAA.x", id, String::new());
            let item = part.encrypted_reasoning().unwrap();
            assert_eq!((item.id, item.content), (kept, "gAAAA.x"));
        }
    }
}
