//! What a dialogue can ask of a text model.

use std::collections::HashSet;

use super::{TextModel, text::NOT_TAKEN};
use crate::domain::{
    conversation::{Detail, Format, ImageSource, Message, Part, Role, Sampling, ToolCall},
    generation::Surface,
    request::DialogueRequest,
    validate::{FieldCode, FieldError},
};

/// What a dialogue can ask of a vendor's models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Dialogue {
    /// Instructions between the messages.
    pub late_instructions: bool,
    /// `top_p` beside a temperature.
    pub top_p_with_temperature: bool,
    /// Thoughts of earlier turns, brought back.
    pub thinking: bool,
    /// An answer of at most one call.
    pub one_at_a_time: bool,
    /// Arguments that must follow their schema.
    pub strict_tools: bool,
    /// Arguments of earlier calls that are no JSON object.
    pub free_arguments: bool,
    /// Any JSON object as the answer.
    pub json_object: bool,
    /// Images that are not sent with the request.
    pub image_urls: bool,
    /// Images in the results of tools.
    pub result_images: bool,
    /// How closely to look at an image.
    pub image_detail: bool,
}

impl Dialogue {
    pub const ALL: Self = Self {
        late_instructions: true,
        top_p_with_temperature: true,
        thinking: true,
        one_at_a_time: true,
        strict_tools: true,
        free_arguments: true,
        json_object: true,
        image_urls: true,
        result_images: true,
        image_detail: true,
    };
}

/// What some dialects call differently.
struct Names {
    format: &'static str,
    one_at_a_time: &'static str,
}

impl Names {
    const fn of(surface: Surface) -> Self {
        match surface {
            Surface::AnthropicMessages => Self {
                format: "output_config.format",
                one_at_a_time: "tool_choice.disable_parallel_tool_use",
            },
            _ => Self {
                format: "response_format",
                one_at_a_time: "parallel_tool_calls",
            },
        }
    }
}

impl TextModel {
    /// Every field of a dialogue that this model does not support.
    pub fn dialogue_violations(&self, request: &DialogueRequest) -> Vec<FieldError> {
        let unsupported = |param: &str, message: &str| {
            FieldError::new(param, FieldCode::NotSupported, message.to_owned())
        };
        let can = self.dialogue;
        let names = Names::of(request.surface);
        let Sampling {
            temperature, top_p, ..
        } = request.sampling;
        let conversation = &request.conversation;
        let mut errors = Vec::from_iter(self.temperature_violation("temperature", temperature));
        if top_p.is_some() && self.limits.temperature.is_none() {
            errors.push(unsupported("top_p", NOT_TAKEN));
        } else if top_p.and(temperature).is_some() && !can.top_p_with_temperature {
            let message = "is not supported by this model beside temperature; leave one out";
            errors.push(unsupported("top_p", message));
        }
        if conversation.format == Format::JsonObject && !can.json_object {
            let message = "is supported by this model only with a schema";
            errors.push(unsupported(names.format, message));
        }
        if conversation.tools.one_at_a_time && !can.one_at_a_time {
            errors.push(unsupported(names.one_at_a_time, NOT_TAKEN));
        }
        if conversation.images().next().is_some() {
            errors.push(unsupported(
                "messages",
                "has an image; images are not supported yet",
            ));
        }
        let wrong = self.wrong_in_messages(&conversation.messages);
        errors.extend(wrong.map(|message| unsupported("messages", message)));
        errors
    }

    /// What is wrong with the messages, first of all.
    fn wrong_in_messages(&self, messages: &[Message]) -> Option<&'static str> {
        let can = self.dialogue;
        let mut calls = HashSet::new();
        for (part, role) in messages
            .iter()
            .flat_map(|message| message.parts.iter().map(|part| (part, message.role)))
        {
            if role == Role::System && !can.late_instructions {
                return Some(
                    "has instructions after the first message, which this model does not support; \
                     put them first",
                );
            }
            match part {
                Part::ToolCall(call) => {
                    if !can.free_arguments && ToolCall::object(call).is_none() {
                        return Some("has a call whose arguments are no JSON object");
                    }
                    calls.insert(call.id.as_str());
                }
                Part::ToolResult(result) => {
                    if !calls.contains(result.call_id.as_str()) {
                        return Some("has the result of a call that is not there before it");
                    }
                    let image = |part: &Part| matches!(part, Part::Image(_));
                    if !can.result_images && result.parts.iter().any(image) {
                        return Some(
                            "has an image in the result of a tool, which this model does not \
                             support",
                        );
                    }
                }
                Part::Image(image) => {
                    let by_url = matches!(image.source, ImageSource::Url(_));
                    if by_url && !can.image_urls {
                        return Some(
                            "has an image by URL, which this model does not support; send its \
                             bytes",
                        );
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// What a dialogue asks that changes no answer, and that the provider is not sent.
    pub fn left_out(&self, request: &DialogueRequest) -> Vec<&'static str> {
        let can = self.dialogue;
        let mut left_out = request.left_out.clone();
        let thought = |part: &Part| matches!(part, Part::Thinking { .. } | Part::Redacted { .. });
        if !can.thinking && request.conversation.parts().any(thought) {
            left_out.push("thinking");
        }
        let functions = &request.conversation.tools.functions;
        if !can.strict_tools && functions.iter().any(|f| f.strict == Some(true)) {
            left_out.push("strict");
        }
        let detailed = |detail: Option<Detail>| detail.is_some_and(|d| d != Detail::Auto);
        let mut images = request.conversation.images();
        if !can.image_detail && images.any(|image| detailed(image.detail)) {
            left_out.push("detail");
        }
        left_out
    }
}
