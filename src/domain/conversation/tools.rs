//! Tools, the format of the answer, and reasoning effort.

use std::collections::HashMap;

use super::{Json, Parameters};
use crate::domain::named::named_enum;

/// The functions that a model may call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    pub functions: Vec<Function>,
    pub choice: ToolChoice,
    /// At most one call per answer.
    pub one_at_a_time: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub name: String,
    pub description: Option<String>,
    pub parameters: Option<Parameters>,
    /// Whether the arguments must match the schema; absent: the vendor's choice.
    pub strict: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    None,
    /// At least one call.
    Required,
    /// A call of the function with this name.
    Named(String),
}

/// The format of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Format {
    #[default]
    Text,
    JsonObject,
    Schema(Schema),
}

/// JSON that matches a schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    pub name: Option<String>,
    pub description: Option<String>,
    pub schema: Json,
    /// Absent: the vendor's choice.
    pub strict: Option<bool>,
}

/// How much the model thinks before the answer. Absent values are the vendor's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reasoning {
    pub thinking: Option<Thinking>,
    pub effort: Option<Effort>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    Off,
    /// The lowest effort of models that cannot switch thinking off.
    BetweenTools,
    /// The model decides.
    Adaptive,
    /// At most this number of tokens.
    Budget(u32),
}

named_enum!(
    /// How much effort a model puts into an answer.
    Effort {
        None = "none",
        Minimal = "minimal",
        Low = "low",
        Medium = "medium",
        High = "high",
        XHigh = "xhigh",
        Max = "max",
    }
);

/// Maximum thinking budgets of low and medium effort.
const EFFORT_BUDGETS: [(u32, Effort); 2] = [(4_096, Effort::Low), (16_384, Effort::Medium)];

impl Reasoning {
    /// Converts a budget to an effort, for vendors without budgets.
    pub fn as_effort(self) -> Option<Effort> {
        self.effort.or_else(|| match self.thinking? {
            Thinking::Off | Thinking::BetweenTools => Some(Effort::None),
            Thinking::Adaptive => None,
            Thinking::Budget(budget) => {
                let mut named = EFFORT_BUDGETS.into_iter();
                let found = named.find(|(most, _)| budget <= *most);
                Some(found.map_or(Effort::High, |(_, effort)| effort))
            }
        })
    }
}

impl Thinking {
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::BetweenTools)
    }
}

impl Tools {
    /// Returns the UTF-8 bytes of every string that the model sees.
    pub fn bytes(&self) -> usize {
        let functions = self.functions.iter().map(Function::bytes).sum::<usize>();
        let choice = match &self.choice {
            ToolChoice::Named(name) => name.len(),
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => 0,
        };
        functions + choice
    }

    /// Returns the bytes of the functions with these names, each as often as it is named.
    pub fn loaded_bytes(&self, names: &[String]) -> usize {
        let functions = self.functions.iter();
        let bytes: HashMap<&str, usize> = functions.map(|f| (f.name.as_str(), f.bytes())).collect();
        let loaded = names.iter().filter_map(|name| bytes.get(name.as_str()));
        loaded.sum()
    }
}

impl Function {
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let schema = self.parameters.as_ref().map_or(0, Parameters::bytes);
        self.name.len() + text(&self.description) + schema
    }
}

impl Format {
    /// Returns the UTF-8 bytes of every string that the model sees.
    pub fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Self::Text | Self::JsonObject => 0,
            Self::Schema(schema) => {
                text(&schema.name) + text(&schema.description) + schema.schema.as_str().len()
            }
        }
    }
}
