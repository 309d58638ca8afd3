//! The errors of a request's fields.

use std::{borrow::Cow, cell::RefCell};

use serde::Serialize;
use utoipa::ToSchema;

/// Maximum failing fields in one response.
pub const MAX_ERRORS: usize = 100;

/// An error of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldCode {
    /// Missing, null, or blank.
    Required,
    /// More characters than allowed.
    TooLong,
    /// A number or a count outside its bounds.
    OutOfRange,
    /// A value that is not among the allowed ones.
    NotAllowed,
    /// Another JSON type.
    InvalidType,
    /// The right type, but not of the right form.
    InvalidFormat,
    /// A field that does not exist.
    UnknownField,
    /// A provider that is not on this server.
    UnknownProvider,
    /// A model that the resolved provider does not have.
    UnknownModel,
    /// A value or modality that the resolved model or provider does not support.
    NotSupported,
    /// A template that does not exist.
    UnknownTemplate,
    /// A template variable without a value.
    MissingVariable,
    /// A model that is retired.
    ModelRetired,
}

/// One failing field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Path of the field, such as `parameters.max_tokens`.
    pub param: String,
    /// The error's code, for programs.
    pub code: FieldCode,
    /// The error's message, for people. It continues the sentence that the path begins.
    pub message: String,
    /// The model that replaces a retired one.
    #[serde(skip)]
    pub replacement: Option<String>,
}

impl FieldError {
    pub fn new(param: impl Into<String>, code: FieldCode, message: impl Into<String>) -> Self {
        Self {
            param: param.into(),
            code,
            message: message.into(),
            replacement: None,
        }
    }
}

/// Collects the errors of a whole request.
#[derive(Debug, Default)]
pub struct Errors(RefCell<Vec<FieldError>>);

impl Errors {
    /// Adds an error, up to [`MAX_ERRORS`], so that responses are not much larger than requests.
    pub fn add(&self, param: impl Into<String>, code: FieldCode, message: impl Into<String>) {
        let mut errors = self.0.borrow_mut();
        if errors.len() < MAX_ERRORS {
            errors.push(FieldError::new(param, code, message));
        }
    }

    /// Whether no more errors are kept.
    pub fn are_full(&self) -> bool {
        self.0.borrow().len() >= MAX_ERRORS
    }

    /// Whether the field at this path has failed, or one within it.
    pub fn has(&self, param: &str) -> bool {
        self.0.borrow().iter().any(|error| {
            let rest = error.param.strip_prefix(param);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Removes and returns all errors.
    pub fn take(&self) -> Vec<FieldError> {
        self.0.take()
    }
}

/// Why a value is refused: the code, and the text that continues the sentence after the path.
pub type Refusal = (FieldCode, Cow<'static, str>);
