//! Prompt templates: MiniJinja in a sandbox that bounds time and memory.
//!
//! How the bounds are kept. MiniJinja's fuel bounds the steps, not what a step makes: one
//! `"x" * 10**9` is one step. So a template is parsed to its syntax tree, everything that is
//! not on a list is refused ([`vet`]), and the tree is rewritten before it is compiled: every
//! value that an operator, a literal or a filter makes passes a check of its size, every value
//! that goes in is paid for by its size, and all text, captured or not, passes one counter
//! ([`sandbox`]). Nothing is loaded, included, inherited, imported, escaped or called but
//! `range`.
//!
//! A rendering takes below a millisecond as a rule and some 10 ms at the very worst (50,000
//! steps over 4 MiB), so it may run on the thread of the request.

mod filters;
mod sandbox;
mod tags;
#[cfg(test)]
mod tests;
mod vet;

use std::collections::BTreeMap;

use minijinja::machinery::ast;
use serde_json::{Map, Value};

/// Characters of a template's prompt, as written.
pub const PROMPT_SOURCE_CHARS: usize = 10_000;
/// Characters of a template's system prompt, as written.
pub const SYSTEM_PROMPT_SOURCE_CHARS: usize = 5_000;
/// The name of the request's own prompt in a template.
pub const PROMPT: &str = "prompt";

/// What is wrong with a template, or with what it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1, where known.
    pub line: Option<usize>,
    /// For people.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Why a rendering failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderError {
    /// A value is missing, or a member of one. The variables that its line names.
    Missing(Vec<String>, Fault),
    /// It makes too much, or takes too many steps.
    TooMuch(Fault),
    /// A value is not of the kind that the template needs.
    Unfit(Fault),
}

/// Where a variable is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Reads {
    /// The lines.
    lines: Vec<usize>,
    /// Whether the template asks if it is there (`default`, `is defined`).
    optional: bool,
}

/// A template that keeps the rules.
pub struct Template<'a> {
    tree: ast::Stmt<'a>,
    source: &'a str,
    reads: BTreeMap<&'a str, Reads>,
}

impl<'a> Template<'a> {
    /// Reads a template.
    pub fn parse(source: &'a str) -> Result<Self, Fault> {
        tags::check(source)?;
        let config = minijinja::syntax::SyntaxConfig::default();
        let tree = minijinja::machinery::parse(source, "template", config).map_err(fault)?;
        let (tree, reads) = vet::vet(&tree)?;
        Ok(Self {
            tree,
            source,
            reads,
        })
    }

    /// The names that it reads and does not set itself, sorted, without `prompt`.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.reads.keys().copied().filter(|name| *name != PROMPT)
    }

    /// Those of them that must be given: whose absence it does not ask for.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.variables()
            .filter(|name| self.reads.get(name).is_some_and(|reads| !reads.optional))
    }

    /// Whether it reads the request's own prompt.
    pub fn uses_prompt(&self) -> bool {
        self.reads.contains_key(PROMPT)
    }

    /// Renders it.
    pub fn render(&self, values: &Map<String, Value>) -> Result<String, RenderError> {
        sandbox::render(&self.tree, self.source, values).map_err(|error| {
            let fault = fault(error.0);
            match error.1 {
                sandbox::Kind::TooMuch => RenderError::TooMuch(fault),
                sandbox::Kind::Unfit => RenderError::Unfit(fault),
                sandbox::Kind::Missing => {
                    let here = |reads: &Reads| {
                        let line = fault.line.unwrap_or_default();
                        reads.lines.contains(&line)
                    };
                    let names = self.reads.iter().filter(|(_, reads)| here(reads));
                    let names = names.map(|(name, _)| (*name).to_owned());
                    RenderError::Missing(names.filter(|n| n != PROMPT).collect(), fault)
                }
            }
        })
    }
}

/// Characters of a message of the engine that are passed on.
const MESSAGE_CHARS: usize = 200;

/// The engine's error, in its own words: it names only what the template's author wrote.
#[expect(clippy::needless_pass_by_value, reason = "reads well as a map_err")]
fn fault(error: minijinja::Error) -> Fault {
    let kind = error.kind().to_string();
    let message = match error.detail() {
        Some(detail) => detail.chars().take(MESSAGE_CHARS).collect(),
        None => kind,
    };
    Fault {
        line: error.line(),
        message: message.replace('\0', "\u{fffd}"),
    }
}
