//! POST /v1/generate/text

use serde_json::{Map, Value};

use super::{
    MAX_TOKENS, SYSTEM_PROMPT_CHARS, TEXT_PROMPT_CHARS, Target, TemplateUse, Unreadable,
    read_target,
};
use crate::domain::{
    credits::Credits,
    validate::{Errors, FieldCode, Fields},
};

/// A text generation, statically valid.
#[derive(Debug, Clone, PartialEq)]
pub struct TextRequest {
    /// The prompt, not blank, 1 to 10,000 characters.
    pub prompt: String,
    /// Instructions above the prompt, at most 5,000 characters.
    pub system_prompt: Option<String>,
    /// Provider and model asked for.
    pub target: Target,
    pub template: Option<TemplateUse>,
    /// 1 to 4096; [`DEFAULT_MAX_TOKENS`] when absent.
    pub max_tokens: Option<u32>,
    /// 0.0 to 2.0; the provider's own default when absent.
    pub temperature: Option<f64>,
    /// Whether the answer is an event stream.
    pub stream: bool,
    /// The hold must not be above it.
    pub max_cost: Option<Credits>,
}

impl TextRequest {
    /// Reads and checks a body. On failure: every failing field, and what could be read, so
    /// that what the model refuses can be named in the same answer.
    pub fn read(body: &Map<String, Value>) -> Result<Self, Unreadable<Self>> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let prompt = fields.required_text("prompt", TEXT_PROMPT_CHARS);
        let system_prompt = fields.text("system_prompt", SYSTEM_PROMPT_CHARS);
        let target = read_target(&fields);
        let template = read_template(&fields);
        let max_cost = fields.credits("max_cost");
        let stream = fields.boolean("stream");
        let parameters = fields.object("parameters");
        let max_tokens = parameters.integer("max_tokens", 1..=i64::from(MAX_TOKENS));
        let temperature = parameters.number("temperature", 0.0..=2.0);
        parameters.finish();
        fields.finish();

        let read = Self {
            prompt: prompt.unwrap_or_default().to_owned(),
            system_prompt: system_prompt.map(str::to_owned),
            target,
            template,
            max_tokens: max_tokens.and_then(|n| u32::try_from(n).ok()),
            temperature,
            stream: stream.unwrap_or(false),
            max_cost,
        };
        Unreadable::into_result(&errors, read)
    }
}

fn read_template(fields: &Fields<'_>) -> Option<TemplateUse> {
    let id = fields.integer("template_id", 1..=i64::MAX);
    let variables = fields.value("template_variables").and_then(|value| {
        let object = value.as_object();
        if object.is_none() {
            fields.error(
                "template_variables",
                FieldCode::InvalidType,
                "must be an object",
            );
        }
        object.cloned()
    });
    if variables.is_some() && fields.value("template_id").is_none() {
        fields.error(
            "template_variables",
            FieldCode::NotAllowed,
            "needs a template_id",
        );
    }
    id.map(|id| TemplateUse {
        id,
        variables: variables.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<TextRequest, Vec<(String, FieldCode)>> {
        TextRequest::read(body.as_object().unwrap())
            .map_err(|e| e.errors.into_iter().map(|e| (e.param, e.code)).collect())
    }

    #[test]
    fn the_bounds_of_the_interface_hold() {
        let ok = json!({"prompt": "é".repeat(10_000), "system_prompt": "s".repeat(5_000),
            "parameters": {"max_tokens": 4096, "temperature": 2}});
        assert!(read(&ok).is_ok());
        let bad = json!({"prompt": "é".repeat(10_001), "system_prompt": "s".repeat(5_001),
            "parameters": {"max_tokens": 0, "temperature": 2.1}, "promt": ""});
        assert_eq!(
            read(&bad).unwrap_err(),
            [
                ("prompt".to_owned(), FieldCode::TooLong),
                ("system_prompt".to_owned(), FieldCode::TooLong),
                ("parameters.max_tokens".to_owned(), FieldCode::OutOfRange),
                ("parameters.temperature".to_owned(), FieldCode::OutOfRange),
                ("promt".to_owned(), FieldCode::UnknownField),
            ]
        );
    }

    #[test]
    fn variables_without_a_template_are_a_mistake() {
        let body = json!({"prompt": "x", "template_variables": {"a": 1}});
        assert_eq!(
            read(&body).unwrap_err(),
            [("template_variables".to_owned(), FieldCode::NotAllowed)]
        );
    }
}
