//! POST /v1/generate/text

use serde_json::Map;

use super::{
    MAX_TOKENS, SYSTEM_PROMPT_CHARS, TEXT_PROMPT_CHARS, Target, TemplateRequest, max_cost,
};
use crate::domain::{
    credits::Credits,
    route::FallbackOn,
    validate::{Fields, Object, SchemaName, any_object, boolean, integer, number, text, words},
};

#[derive(Debug, Clone, PartialEq)]
pub struct TextRequest {
    pub prompt: String,
    pub system_prompt: Option<String>,
    pub target: Target,
    pub fallback_on: FallbackOn,
    pub template: Option<TemplateRequest>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub stream: bool,
    /// The maximum permitted hold.
    pub max_cost: Option<Credits>,
}

const PARAMETERS: (&str, &str) = ("TextParameters", "Parameters of a text generation.");

impl Object for TextRequest {
    const SCHEMA: SchemaName = ("TextGenerationRequest", "A text generation.");
    const EXAMPLE: &'static str =
        r#"{"prompt": "A haiku about exactness", "parameters": {"max_tokens": 64}}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let prompt = fields.required("prompt", "Not blank.", text(TEXT_PROMPT_CHARS).not_blank());
        let about = "Instructions above the prompt.";
        let system_prompt = fields.optional("system_prompt", about, text(SYSTEM_PROMPT_CHARS));
        let target = Target::read(fields);
        let about = "When the next model of a route or of `fallbacks` is called. `not_started` \
                     (default): the provider is known not to have started. `unknown`: also if its \
                     answer is lost and no text was delivered, which you are not charged for.";
        let fallback_on = fields.optional("fallback_on", about, words());
        let template = TemplateRequest::read(fields);
        let max_cost = max_cost(fields);
        let about = "Whether the answer is an event stream.";
        let stream = fields.optional("stream", about, boolean());
        let tokens = "Upper bound of output tokens. Default 1024.";
        let sampling = "Sampling temperature. Default: the provider's. Not every model takes one.";
        let request = fields.object("parameters", "Parameters.", PARAMETERS, |p| Self {
            prompt: prompt.unwrap_or_default(),
            system_prompt,
            target,
            fallback_on: fallback_on.unwrap_or(FallbackOn::NotStarted),
            template,
            max_tokens: p.optional("max_tokens", tokens, integer(1..=i64::from(MAX_TOKENS))),
            temperature: p.optional("temperature", sampling, number(0.0..=2.0)),
            stream: stream.unwrap_or(false),
            max_cost,
        });
        Some(request)
    }
}

impl TemplateRequest {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let about = "A saved prompt template. It is rendered before anything is held: what it \
                     renders is what is sent, held for, billed and kept as the record's `prompt`. \
                     `{{ prompt }}` in it is the request's prompt; where a template does not use \
                     it, the prompt is appended after a blank line. The rendered prompt keeps the \
                     limit of `prompt`, and so does the system prompt. A `system_prompt` in the \
                     request wins over the template's.";
        let id = fields.optional("template_id", about, integer(1..=i64::MAX));
        let about = "Values for the template's placeholders, by name; null counts as absent. Needs \
                     `template_id`. A name that the template does not have is refused.";
        let variables = fields.optional("template_variables", about, any_object(Map::clone));
        fields.needs("template_variables", "template_id", "needs a template_id");
        Some(Self {
            id: id?,
            variables: variables.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::validate::{Body, FieldCode};

    fn read(body: &Value) -> Result<TextRequest, Vec<(String, FieldCode)>> {
        let (request, errors) = TextRequest::parse(body.as_object().unwrap());
        if errors.is_empty() {
            return Ok(request.unwrap());
        }
        Err(errors.into_iter().map(|e| (e.param, e.code)).collect())
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
