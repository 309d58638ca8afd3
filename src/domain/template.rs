//! Prompt templates: a subset of MiniJinja that constructs no values, rendered with bounded time
//! and memory.
//!
//! [`syntax`] checks a template when it is saved; [`render`] limits the work that it does with its
//! variables. Includes, calls and assignments are not supported, except loop variables. Rendering
//! usually takes less than a millisecond.

mod render;
mod syntax;
mod tags;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value};

/// Characters of a template's prompt source.
pub const PROMPT_SOURCE_CHARS: usize = 10_000;
/// Characters of a template's system prompt source.
pub const SYSTEM_PROMPT_SOURCE_CHARS: usize = 5_000;
/// The variable that holds the request's own prompt.
pub const PROMPT: &str = "prompt";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// Line number from 1, if known.
    pub line: Option<usize>,
    /// Shown to the caller.
    pub message: String,
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderError {
    /// A variable or a member is missing; with the variables on that line.
    Missing(Vec<String>, TemplateError),
    /// The output is too large, or rendering takes too many steps.
    TooLarge(TemplateError),
    /// A value has the wrong type for the template.
    Invalid(TemplateError),
}

pub struct Template<'a> {
    source: &'a str,
    variables: Vec<String>,
    reads: syntax::Reads<'a>,
}

impl<'a> Template<'a> {
    pub fn parse(source: &'a str) -> Result<Self, TemplateError> {
        let reads = syntax::check(source)?;
        let env = Environment::empty();
        let parsed = env.template_from_str(source).map_err(describe)?;
        let variables: HashSet<String> = parsed.undeclared_variables(false);
        let mut variables: Vec<String> = variables.into_iter().collect();
        variables.sort_unstable();
        Ok(Self {
            source,
            variables,
            reads,
        })
    }

    /// The variables that it reads, sorted, without `prompt`.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let names = self.variables.iter().map(String::as_str);
        names.filter(|name| *name != PROMPT)
    }

    /// Returns the names that must be given, because the template does not test for them.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.variables()
            .filter(|name| !self.reads.optional.contains(name))
    }

    /// Whether it reads the request's own prompt.
    pub fn uses_prompt(&self) -> bool {
        self.variables.iter().any(|name| name == PROMPT)
    }

    pub fn render(&self, values: &Map<String, Value>) -> Result<String, RenderError> {
        render::render(self.source, values).map_err(|error| {
            let kind = error.kind();
            let error = describe(error);
            match kind {
                ErrorKind::OutOfFuel | ErrorKind::WriteFailure => RenderError::TooLarge(error),
                ErrorKind::UndefinedError => {
                    let read = |name: &&str| {
                        let mut reads = self.reads.names.iter();
                        reads.any(|(line, read)| Some(*line) == error.line && read == name)
                    };
                    let names = self.variables().filter(read).map(str::to_owned);
                    RenderError::Missing(names.collect(), error)
                }
                _ => RenderError::Invalid(error),
            }
        })
    }
}

/// Maximum characters of a MiniJinja message that is passed on.
const MESSAGE_CHARS: usize = 200;

/// Returns MiniJinja's own message, which contains only text of the template's author.
#[expect(clippy::needless_pass_by_value, reason = "reads well as a map_err")]
fn describe(error: minijinja::Error) -> TemplateError {
    let message = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_owned(),
        (ErrorKind::WriteFailure, _) => "the rendered template is too large".to_owned(),
        (_, Some(detail)) => detail.chars().take(MESSAGE_CHARS).collect(),
        (kind, None) => kind.to_string(),
    };
    TemplateError {
        line: error.line(),
        message: message.replace('\0', "\u{fffd}"),
    }
}
