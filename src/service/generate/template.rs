//! Applies a request's template.

use serde_json::{Map, Value};

use crate::{
    domain::{
        generation::TemplateUse,
        ids::TemplateId,
        template::{PROMPT, RenderError, Template},
        validate::{Errors, FieldCode, FieldError, too_long},
    },
    request::{
        GenerationRequest, SYSTEM_PROMPT_CHARS, TEXT_PROMPT_CHARS, TemplatePreview, TemplateText,
    },
    service::{Result, Service, ServiceError, auth::Caller},
};

/// Maximum characters of a variable name in an error.
const SHOWN_CHARS: usize = 100;

/// The prompts as sent to the model.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RenderedPrompt {
    pub prompt: String,
    pub system_prompt: Option<String>,
    pub template: Option<TemplateUse>,
}

/// A rendered prompt, or the failing fields.
pub(super) type Rendered = Result<RenderedPrompt, Vec<FieldError>>;

impl Service {
    /// Returns the prompts of a text, rendered from its template if it has one.
    pub(super) async fn rendered(
        &self,
        caller: &Caller,
        request: &GenerationRequest,
    ) -> Result<Rendered> {
        let GenerationRequest::Text(request) = request else {
            return Ok(Ok(RenderedPrompt::default()));
        };
        let Some(wanted) = &request.template else {
            return Ok(Ok(RenderedPrompt {
                prompt: request.prompt.clone(),
                system_prompt: request.system_prompt.clone(),
                template: None,
            }));
        };
        let id = TemplateId(wanted.id);
        let Some(record) = self.0.store.template(caller.account_id, id).await? else {
            let message = "is not a template of this account";
            let error = FieldError::new("template_id", FieldCode::UnknownTemplate, message);
            return Ok(Err(vec![error]));
        };
        let version = record.version;
        let preview = TemplatePreview {
            text: TemplateText {
                name: record.name,
                prompt: record.prompt,
                system_prompt: record.system_prompt,
                variables: record.variables,
            },
            values: wanted.variables.clone(),
            request_prompt: request.prompt.clone(),
        };
        let system_prompt = request.system_prompt.clone();
        let applied = self.render(caller, preview, system_prompt).await?;
        Ok(applied.map(|rendered| RenderedPrompt {
            template: Some(TemplateUse { id, version }),
            ..rendered
        }))
    }

    /// Renders a template, which need not be stored.
    pub async fn preview_template(
        &self,
        caller: &Caller,
        preview: TemplatePreview,
    ) -> Result<RenderedPrompt> {
        let rendered = self.render(caller, preview, None).await?;
        rendered.map_err(|mut errors| {
            for error in errors.iter_mut().filter(|e| e.param == "template_id") {
                PROMPT.clone_into(&mut error.param);
            }
            ServiceError::Invalid(errors)
        })
    }

    /// `system_prompt`: of the request, which replaces the template's.
    async fn render(
        &self,
        caller: &Caller,
        preview: TemplatePreview,
        system_prompt: Option<String>,
    ) -> Result<Rendered> {
        // Rendering takes milliseconds of CPU: keep it off the async threads.
        let permit = self.0.renderings.acquire(caller.account_id).await;
        let permit = permit.ok_or(ServiceError::Overloaded)?;
        let applied = tokio::task::spawn_blocking(move || {
            let applied = apply(&preview, system_prompt);
            // Released when the thread is free again, even if the caller has disconnected.
            drop(permit);
            applied
        });
        let applied = applied.await;
        applied.map_err(|error| ServiceError::Internal(error.to_string()))
    }
}

fn apply(preview: &TemplatePreview, system_prompt: Option<String>) -> Rendered {
    let text = &preview.text;
    let errors = Errors::default();
    let param = |name: &str| {
        let shown: String = name.chars().take(SHOWN_CHARS).collect();
        format!("template_variables.{}", shown.replace('\0', "\u{fffd}"))
    };
    // Null means absent.
    let mut values: Map<String, Value> = preview.values.clone();
    values.retain(|_, value| !value.is_null());
    for name in preview.values.keys() {
        if !text.variables.contains(name) {
            let message = match text.variables.join(", ") {
                none if none.is_empty() => {
                    "is not a variable of this template, which has none".to_owned()
                }
                names => format!("is not a variable of this template; its variables are {names}"),
            };
            errors.add(param(name), FieldCode::UnknownField, message);
        }
    }
    // A system prompt of the request replaces the template's, which then needs no variables.
    let system_source = text
        .system_prompt
        .as_deref()
        .filter(|_| system_prompt.is_none());
    let parse = |source| Template::parse(source);
    let (prompt, system) = match (parse(&text.prompt), system_source.map(parse).transpose()) {
        (Ok(prompt), Ok(system)) => (prompt, system),
        // The template was valid by the rules when it was saved.
        (Err(error), _) | (_, Err(error)) => {
            let message = format!("is no longer a valid template: {error}");
            errors.add("template_id", FieldCode::InvalidFormat, message);
            return Err(errors.take());
        }
    };
    let templates = || std::iter::once(&prompt).chain(&system);
    for name in templates().flat_map(Template::required) {
        if !values.contains_key(name) && !errors.has(&param(name)) {
            let message = "is required by the template";
            errors.add(param(name), FieldCode::MissingVariable, message);
        }
    }
    if let error @ [_, ..] = &errors.take()[..] {
        return Err(error.to_vec());
    }
    values.insert(PROMPT.to_owned(), preview.request_prompt.clone().into());
    let render = |template: &Template<'_>| {
        template
            .render(&values)
            .inspect_err(|error| explain(error, &values, &errors))
            .ok()
    };
    let system_prompt = match &system {
        Some(system) => render(system),
        None => system_prompt,
    };
    let rendered = render(&prompt).map(|rendered| {
        if prompt.uses_prompt() {
            rendered
        } else if rendered.trim().is_empty() {
            preview.request_prompt.clone()
        } else {
            format!("{rendered}\n\n{}", preview.request_prompt)
        }
    });
    let checks = [
        (PROMPT, &rendered, TEXT_PROMPT_CHARS),
        ("system_prompt", &system_prompt, SYSTEM_PROMPT_CHARS),
    ];
    for (field, text, most) in checks {
        let Some(text) = text else { continue };
        if text.chars().count() > most {
            let message = format!("{}, as the template renders it", too_long(most));
            errors.add(field, FieldCode::TooLong, message);
        }
        if text.contains('\0') {
            let message = "must not contain U+0000, as the template renders it";
            errors.add(field, FieldCode::InvalidFormat, message);
        }
        if field == PROMPT && text.trim().is_empty() {
            let message = "must not be blank, as the template renders it";
            errors.add(field, FieldCode::Required, message);
        }
    }
    match (rendered, errors.take()) {
        (Some(prompt), errors) if errors.is_empty() => Ok(RenderedPrompt {
            prompt,
            system_prompt,
            template: None,
        }),
        (_, errors) => Err(errors),
    }
}

/// Reports the field that a rendering failed for.
fn explain(error: &RenderError, values: &Map<String, Value>, errors: &Errors) {
    match error {
        RenderError::Missing(names, error) => {
            // Absent variables; otherwise one of them lacks a member.
            let absent = names.iter().filter(|name| !values.contains_key(*name));
            let mut blamed: Vec<&String> = absent.collect();
            if blamed.is_empty() {
                blamed.extend(names);
            }
            let at = error
                .line
                .map_or_else(String::new, |l| format!(" in line {l}"));
            let message = format!("is missing a value that the template reads{at}");
            for name in &blamed {
                let param = format!("template_variables.{name}");
                errors.add(param, FieldCode::MissingVariable, &message);
            }
            if blamed.is_empty() {
                errors.add("template_variables", FieldCode::MissingVariable, message);
            }
        }
        RenderError::TooLarge(error) => {
            let message = format!("cannot be rendered with these values: {error}");
            errors.add("template_id", FieldCode::TooLong, message);
        }
        RenderError::Invalid(error) => {
            let message = format!("do not match the template: {error}");
            errors.add("template_variables", FieldCode::InvalidFormat, message);
        }
    }
}
