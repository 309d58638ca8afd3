//! Translates a dialogue for a vendor of another dialect, which may refuse what the caller's
//! dialect allows.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};

use super::{TextModel, dialogue::asked};
use crate::{
    dialect::DIAGNOSTICS,
    domain::{
        conversation::{
            Conversation, Format, Function, Json, Message, Parameters, Part, ReplacedNames, Role,
            ToolCall, ToolChoice, Tools, make_enforceable, make_references_bare,
        },
        generation::Surface,
    },
    request::DialogueRequest,
};

/// The member for earlier calls' arguments that are not a JSON object.
const TRUNCATED: &str = "_truncated";
/// The user message inserted before a leading assistant message, which vendors refuse.
const NO_MESSAGE: &str = "(no message)";

impl TextModel {
    /// Changes a dialogue, without loss, so that the vendor accepts it: respells names and ids,
    /// completes schemas and, unless the body is sent unchanged, leaves out empty texts. Returns
    /// the replaced names.
    pub fn translate(&self, request: &mut DialogueRequest) -> ReplacedNames {
        self.leave_out_default_sampling(request);
        if self.passes(request) {
            return self.translate_original(request);
        }
        let conversation = Arc::make_mut(&mut request.conversation);
        self.leave_out_parts(&mut conversation.messages);
        if !self.dialogue.late_instructions {
            conversation.messages.iter_mut().for_each(tag_instructions);
            merge(&mut conversation.messages);
        } else if self.dialogue.own == Some(Surface::OpenAiChat) {
            move_results(&mut conversation.messages);
        }
        let first = conversation.messages.first();
        if self.dialogue.alternating_roles && first.is_some_and(|m| m.role == Role::Assistant) {
            let message = Message::text(Role::User, NO_MESSAGE);
            conversation.messages.insert(0, message);
        }
        for part in conversation.messages.iter_mut().flat_map(|m| &mut m.parts) {
            if let Part::ToolCall(call) = part {
                self.complete_arguments(call);
            }
        }
        for function in &mut conversation.tools.functions {
            if self.loosens(request.surface, function) {
                function.strict = None;
            }
        }
        self.complete_tools(&mut request.conversation);
        let conversation = Arc::make_mut(&mut request.conversation);
        // Callers of the vendor's dialect know which keywords the vendor enforces.
        if !self.dialogue.all_keywords && self.dialogue.own != Some(request.surface) {
            let is_strict = |function: &Function| function.strict == Some(true);
            edit_schemas(conversation, is_strict, make_enforceable);
        }
        if !self.dialogue.described_references {
            let has_reference = |function: &Function| {
                let parameters = function.parameters.as_ref();
                parameters.is_some_and(|parameters| parameters.schema.as_str().contains("$ref"))
            };
            edit_schemas(conversation, has_reference, make_references_bare);
        }
        conversation.respell_ids(self.dialogue.ids);
        conversation.respell_names(self.dialogue.names)
    }

    /// Leaves out a `top_p` or a temperature of 1 next to the other one, if the model accepts only
    /// one of them.
    fn leave_out_default_sampling(&self, request: &mut DialogueRequest) {
        let sampling = &mut request.sampling;
        if self.dialogue.top_p_with_temperature
            || sampling.top_p.and(sampling.temperature).is_none()
        {
            return;
        }
        let name = if asked(sampling.top_p).is_none() {
            sampling.top_p = None;
            "top_p"
        } else {
            // One of both is the default; other combinations were refused earlier.
            sampling.temperature = None;
            "temperature"
        };
        if let Some(original) = &mut request.original {
            original.members.remove(name);
        }
    }

    fn translate_original(&self, request: &mut DialogueRequest) -> ReplacedNames {
        let (surface, conversation) = (request.surface, &mut request.conversation);
        let are_completed = self.complete_tools(conversation);
        let is_blank = |part: &Part| matches!(part, Part::Text { text } if text.trim().is_empty());
        let is_of_blanks = |part: &Part| match part {
            Part::ToolResult(result) => result.parts.iter().any(is_blank),
            part => is_blank(part),
        };
        let is_empty = |message: &Message| message.parts.is_empty();
        let has_blanks = !self.dialogue.blank_texts
            && (conversation.messages.iter().any(is_empty)
                || conversation.parts().any(is_of_blanks));
        let is_other = |part: &Part| {
            matches!(part, Part::ToolCall(call)
                if call.arguments.trim().is_empty() || call.object().is_none())
        };
        let has_other_arguments =
            !self.dialogue.free_arguments && conversation.parts().any(is_other);
        let names = if conversation.is_spelled(self.dialogue.names) {
            ReplacedNames::default()
        } else {
            Arc::make_mut(conversation).respell_names(self.dialogue.names)
        };
        let ids = self.dialogue.ids;
        let mut calls = conversation.parts().filter_map(Part::call);
        let fits = calls.all(|call| ids.fits(&call.id));
        let loses = |part: &Part| !self.takes_back(part);
        if let Some(original) = &mut request.original {
            original.leave_out_nulls();
            if surface == Surface::AnthropicMessages {
                original.members.remove(DIAGNOSTICS);
            }
            if !self.dialogue.null_members {
                original.leave_out_empty_members();
            }
            if !self.dialogue.developer_role {
                original.rename_developer();
            }
            if !self.dialogue.blank_texts {
                original.leave_out_blank_instructions();
            }
            if has_blanks {
                original.leave_out_blank_texts();
            }
            if has_other_arguments {
                original.complete_inputs(|text| {
                    let mut call = ToolCall {
                        arguments: text,
                        ..ToolCall::default()
                    };
                    self.complete_arguments(&mut call);
                    serde_json::from_str(&call.arguments).unwrap_or_default()
                });
            }
            if surface == Surface::OpenAiResponses {
                original.leave_out_own_ids();
                if conversation.parts().any(loses) {
                    original.leave_out_foreign_reasoning();
                }
            }
            if conversation.tools.functions.is_empty() {
                original.leave_out_empty_tools();
            }
            if are_completed {
                original.complete_schemas(surface, self.dialogue.combined_schemas);
            }
            if !names.is_empty() || !fits {
                original.respell(surface, &names, ids);
            }
        }
        names
    }

    /// Leaves out texts that the vendor refuses as empty, thinking that it does not accept back,
    /// and messages that have nothing else.
    fn leave_out_parts(&self, messages: &mut Vec<Message>) {
        let can = self.dialogue;
        let is_accepted = |part: &Part| match part {
            Part::Text { text } if can.blank_texts => !text.is_empty(),
            Part::Text { text } => !text.trim().is_empty(),
            part => self.takes_back(part),
        };
        for message in &mut *messages {
            for part in &mut message.parts {
                if let Part::ToolResult(result) = part {
                    result.parts.retain(is_accepted);
                }
            }
            message.parts.retain(is_accepted);
        }
        messages.retain(|message| !message.parts.is_empty());
    }

    /// Returns whether a schema was incomplete, or null.
    fn complete_tools(&self, conversation: &mut Arc<Conversation>) -> bool {
        let Tools {
            functions,
            choice,
            one_at_a_time,
        } = &conversation.tools;
        if functions.is_empty() && (*choice != ToolChoice::Auto || *one_at_a_time) {
            Arc::make_mut(conversation).tools = Tools::default();
            return false;
        }
        let is_null = |function: &Function| function.parameters.is_none();
        let has_null = functions.iter().any(is_null);
        let completed = functions.iter().enumerate().filter_map(|(at, function)| {
            let parameters = function.parameters.as_ref()?;
            Some((at, parameters.completed(self.dialogue.combined_schemas)?))
        });
        let completed: Vec<_> = completed.collect();
        if completed.is_empty() {
            return has_null;
        }
        let functions = &mut Arc::make_mut(conversation).tools.functions;
        for (at, parameters) in completed {
            functions[at].parameters = Some(parameters);
        }
        true
    }

    /// Completes arguments that are not an object, because the model was cut off.
    fn complete_arguments(&self, call: &mut ToolCall) {
        // Some clients encode them twice.
        if call.arguments.starts_with('"')
            && let Ok(arguments) = serde_json::from_str(&call.arguments)
        {
            let decoded = ToolCall {
                arguments,
                ..ToolCall::default()
            };
            if decoded.object().is_some() {
                call.arguments = decoded.arguments;
            }
        }
        if call.arguments.trim().is_empty() {
            "{}".clone_into(&mut call.arguments);
        } else if !self.dialogue.free_arguments && call.object().is_none() {
            call.arguments = json!({ TRUNCATED: call.arguments }).to_string();
        }
    }
}

/// Edits the schemas of the functions that `is_edited` selects, and of the answer.
fn edit_schemas(
    conversation: &mut Conversation,
    is_edited: impl Fn(&Function) -> bool,
    edit: impl Fn(&mut Value),
) {
    let functions = conversation.tools.functions.iter_mut();
    for function in functions.filter(|function| is_edited(function)) {
        let mut schema = match &function.parameters {
            Some(parameters) => parameters.schema.value(),
            None => json!({"type": "object", "properties": {}}),
        };
        edit(&mut schema);
        function.parameters = schema.as_object().map(Parameters::of);
    }
    if let Format::Schema(format) = &mut conversation.format {
        let mut schema = format.schema.value();
        edit(&mut schema);
        format.schema = Json::from(&schema);
    }
}

/// Converts instructions to a user message with tagged texts.
fn tag_instructions(message: &mut Message) {
    if message.role != Role::System {
        return;
    }
    message.role = Role::User;
    for part in &mut message.parts {
        if let Part::Text { text } = part {
            *text = format!("<system>\n{text}\n</system>");
        }
    }
}

/// Merges consecutive messages of one role, with results of tools first.
fn merge(messages: &mut Vec<Message>) {
    let mut merged: Vec<Message> = Vec::new();
    for message in messages.drain(..) {
        match merged.last_mut() {
            Some(last) if last.role == message.role => last.parts.extend(message.parts),
            _ => merged.push(message),
        }
    }
    for message in &mut merged {
        let parts = &mut message.parts;
        parts
            .sort_by_key(|part| message.role == Role::User && !matches!(part, Part::ToolResult(_)));
    }
    *messages = merged;
}

/// Moves results of tools to their calls: in a chat, nothing may come between them.
fn move_results(messages: &mut Vec<Message>) {
    let mut moved: Vec<Message> = Vec::new();
    // The message for a call's results, by the call's id.
    let mut places: HashMap<String, usize> = HashMap::new();
    for mut message in messages.drain(..) {
        let is_result = |part: &mut Part| matches!(part, Part::ToolResult(_));
        for part in message.parts.extract_if(.., is_result) {
            let place = match &part {
                Part::ToolResult(result) => places.get(&result.call_id),
                _ => None,
            };
            // Results without a call were refused earlier.
            if let Some(&place) = place {
                moved[place].parts.push(part);
            }
        }
        let calls = message.parts.iter().filter_map(Part::call);
        places.extend(calls.map(|call| (call.id.clone(), moved.len() + 1)));
        let results = Message {
            role: Role::User,
            parts: Vec::new(),
        };
        moved.extend([message, results]);
    }
    moved.retain(|message| !message.parts.is_empty());
    *messages = moved;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::conversation::ToolResult;

    #[test]
    fn results_come_first_in_a_merged_message() {
        let call = ToolCall::default();
        let result = Part::ToolResult(ToolResult {
            call_id: "c".to_owned(),
            parts: Vec::new(),
            is_error: false,
        });
        let mut messages = vec![
            Message::text(Role::User, "a"),
            Message::text(Role::User, "b"),
            Message {
                role: Role::Assistant,
                parts: vec![Part::text("calling"), Part::ToolCall(call)],
            },
            Message::text(Role::User, "c"),
            Message {
                role: Role::User,
                parts: vec![result.clone()],
            },
        ];
        messages.insert(4, Message::text(Role::System, "d"));
        messages.iter_mut().for_each(tag_instructions);
        merge(&mut messages);
        let texts = |at: usize| crate::domain::conversation::texts(&messages[at].parts, "|");
        assert_eq!(
            (messages.len(), texts(0), texts(1)),
            (3, "a|b".to_owned(), "calling".to_owned())
        );
        let tagged = Part::text("<system>\nd\n</system>");
        assert_eq!(messages[2].parts, [result, Part::text("c"), tagged]);
    }

    #[test]
    fn results_move_to_their_calls() {
        let message = |role, parts: Vec<Part>| Message { role, parts };
        let call = |id: &str| {
            Part::ToolCall(ToolCall {
                id: id.to_owned(),
                ..ToolCall::default()
            })
        };
        let result = |id: &str, text: &str| {
            Part::ToolResult(ToolResult {
                call_id: id.to_owned(),
                is_error: false,
                parts: vec![Part::text(text)],
            })
        };
        let mut messages = vec![
            message(Role::Assistant, vec![call("a")]),
            message(Role::System, vec![Part::text("s")]),
            message(Role::Assistant, vec![call("b")]),
            message(
                Role::User,
                vec![result("a", "1"), result("b", "2"), Part::text("u")],
            ),
            // A repeated id.
            message(Role::Assistant, vec![call("a")]),
            message(Role::User, vec![result("a", "3")]),
        ];
        move_results(&mut messages);
        assert_eq!(
            messages,
            [
                message(Role::Assistant, vec![call("a")]),
                message(Role::User, vec![result("a", "1")]),
                message(Role::System, vec![Part::text("s")]),
                message(Role::Assistant, vec![call("b")]),
                message(Role::User, vec![result("b", "2")]),
                message(Role::User, vec![Part::text("u")]),
                message(Role::Assistant, vec![call("a")]),
                message(Role::User, vec![result("a", "3")]),
            ]
        );
    }
}
