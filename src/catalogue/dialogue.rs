//! The features of dialogues that text models support.

use std::{borrow::Cow, collections::HashMap};

use serde_json::Value;

use super::{TextModel, Vision, text::NOT_TAKEN};
use crate::{
    dialect::{DIAGNOSTICS, SEED, SHARED, TOOL_CHOICE, TOP_K, VERBOSITY, allowed_tools},
    domain::{
        conversation::{
            Conversation, Detail, Effort, Format, Function, Image, ImageSource, ImageType,
            MAX_IMAGES, Message, Part, Role, Sampling, Spelling, Thinking, ToolChoice, Tools,
            is_strict,
        },
        generation::Surface,
        pricing::CacheWrites,
        validate::{FieldCode, FieldError},
    },
    request::DialogueRequest,
};

/// The features of dialogues that a vendor's models support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Dialogue {
    /// Instructions between the messages. Without them, such instructions become user texts, and
    /// consecutive messages of one role are merged.
    pub late_instructions: bool,
    /// The role `developer`. Without it, instructions have the role `system`.
    pub developer_role: bool,
    /// Null members in a chat's messages.
    pub null_members: bool,
    /// `top_p` together with a temperature.
    pub top_p_with_temperature: bool,
    /// Thinking of earlier turns, sent back.
    pub thinking: bool,
    /// A budget of thinking in tokens. Without it, the budget becomes an effort.
    pub thinking_budgets: bool,
    /// Thinking that a chat server reported in a field of its own, brought back.
    pub reasoning_fields: bool,
    /// Reasoning that OpenAI encrypted, sent back.
    pub encrypted_reasoning: bool,
    /// A limit of one call per answer. Without it, the answer is cut if one function is forced.
    pub one_at_a_time: bool,
    /// Arguments that must follow their schema.
    pub strict_tools: bool,
    /// Arguments of earlier calls that are not JSON objects.
    pub free_arguments: bool,
    /// Texts of only white space.
    pub blank_texts: bool,
    /// Whether user and assistant messages must alternate, beginning with the user.
    pub alternating_roles: bool,
    /// Instructions without any other message.
    pub instructions_only: bool,
    /// `anyOf`, `oneOf`, `allOf` and `$ref` at the root of a schema of arguments.
    pub combined_schemas: bool,
    /// All keywords in schemas that answers and strict arguments must follow.
    pub all_keywords: bool,
    /// Other members of a schema next to its `$ref`.
    pub described_references: bool,
    pub names: Spelling,
    pub ids: Spelling,
    /// Maximum number of stop sequences.
    pub max_stops: usize,
    pub json_object: bool,
    pub image_urls: bool,
    pub result_images: bool,
    /// The level of detail at which an image is read.
    pub image_detail: bool,
    pub gifs: bool,
    /// Documents: PDFs, whose tokens the vendor counts first, and plain texts.
    pub documents: bool,
    /// A free count of the input without an answer.
    pub counts_tokens: bool,
    /// Web searches that the vendor runs, requested in its own dialect.
    pub searches: bool,
    /// Custom tools of Chat Completions. Without them, functions represent them.
    pub custom_tools: bool,
    /// Signatures of Gemini's thoughts, with the calls after them.
    pub thought_signatures: bool,
    /// [`SEED`] and [`TOP_K`].
    pub seed_and_top_k: bool,
    /// Minimum of the output limit; lower requested limits are raised to it.
    pub min_output_tokens: u32,
    /// The surface whose bodies the vendor accepts unchanged.
    pub own: Option<Surface>,
    /// Cache writes that the vendor bills without a request for them.
    pub cache_writes: CacheWrites,
}

impl Dialogue {
    pub const ALL: Self = Self {
        late_instructions: true,
        developer_role: true,
        null_members: true,
        top_p_with_temperature: true,
        thinking: true,
        thinking_budgets: false,
        reasoning_fields: true,
        encrypted_reasoning: false,
        one_at_a_time: true,
        strict_tools: true,
        free_arguments: true,
        blank_texts: true,
        alternating_roles: false,
        instructions_only: false,
        combined_schemas: true,
        all_keywords: true,
        described_references: true,
        names: Spelling::ANY,
        ids: Spelling::ANY,
        max_stops: usize::MAX,
        json_object: true,
        image_urls: true,
        result_images: true,
        image_detail: true,
        gifs: true,
        documents: false,
        counts_tokens: false,
        searches: false,
        custom_tools: false,
        thought_signatures: true,
        seed_and_top_k: false,
        min_output_tokens: 1,
        own: None,
        cache_writes: CacheWrites::None,
    };
}

fn has_content(message: &Message) -> bool {
    message.parts.iter().any(|part| match part {
        Part::Text { text } => !text.trim().is_empty(),
        Part::Thinking { .. } | Part::Redacted { .. } => false,
        _ => true,
    })
}

/// Filters out a temperature or `top_p` of 1, every vendor's default, which some SDKs always send.
pub(super) fn asked(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.to_bits() != 1.0_f64.to_bits())
}

/// Whether a request limits a choice between several calls to one. If one function is forced, a
/// second call of it adds nothing and can be left out.
fn asks_for_one_of_several(tools: &Tools) -> bool {
    let may_choose = match tools.choice {
        ToolChoice::None | ToolChoice::Named(_) => false,
        ToolChoice::Required => tools.functions.len() > 1,
        ToolChoice::Auto => !tools.functions.is_empty(),
    };
    tools.one_at_a_time && may_choose
}

impl TextModel {
    /// Whether the vendor gets the unchanged body: it speaks its dialect, and the body has no parts
    /// of another dialect. Other vendors' thinking is removed from a Responses body. A chat with
    /// custom tools is translated for servers that do not support them.
    pub fn passes(&self, request: &DialogueRequest) -> bool {
        request.original.is_some()
            && self.dialogue.own == Some(request.surface)
            && (self.dialogue.custom_tools || !request.has_custom_tools)
            && (request.surface != Surface::AnthropicMessages
                || !request.conversation.parts().any(|part| {
                    part.has_thought_signature()
                        || part.is_unsigned_thinking()
                        || part.reasoning_field().is_some()
                        || part.encrypted_reasoning().is_some()
                }))
    }

    /// Returns the members of a body that are also sent with its translation.
    pub fn shared_members(&self, request: &DialogueRequest) -> Vec<&'static str> {
        let own = self.dialogue.own;
        if request.original.is_none() {
            return Vec::new();
        }
        if request.surface == Surface::OpenAiChat && own == Some(Surface::OpenAiResponses) {
            return [&SHARED[..], &[VERBOSITY, TOOL_CHOICE]].concat();
        }
        let sampling = if self.dialogue.seed_and_top_k {
            &[SEED, TOP_K][..]
        } else {
            &[]
        };
        sampling.to_vec()
    }

    /// Bytes of those of them that the model may read.
    pub fn shared_bytes(&self, request: &DialogueRequest) -> usize {
        let is_shared = request.others.names.iter().any(|name| name == TOOL_CHOICE)
            && self.shared_members(request).contains(&TOOL_CHOICE);
        let original = request.original.as_ref().filter(|_| is_shared);
        let choice = original.and_then(|original| original.members.get(TOOL_CHOICE));
        choice.map_or(0, bytes::Bytes::len)
    }

    /// Refuses a seed, a `top_k` or a choice of tools that the vendor does not take.
    fn wrong_in_shared(&self, request: &DialogueRequest, name: &str) -> Option<FieldError> {
        let original = request.original.as_ref()?;
        let value = original.members.get(name)?;
        let (fits, message) = match name {
            TOP_K if self.limits.temperature.is_none() => (false, NOT_TAKEN),
            TOP_K => (
                serde_json::from_slice::<i32>(value).is_ok_and(|k| k > 0),
                "must be a positive integer of 32 bits for this model",
            ),
            SEED => (
                serde_json::from_slice::<i32>(value).is_ok(),
                "must be an integer of 32 bits for this model",
            ),
            TOOL_CHOICE => {
                let choice: Value = serde_json::from_slice(value).unwrap_or_default();
                let functions = &request.conversation.tools.functions;
                let is_known = |name: &&str| functions.iter().any(|f| f.name == *name);
                let allowed = allowed_tools(&choice);
                (
                    allowed
                        .is_some_and(|(_, names)| !names.is_empty() && names.iter().all(is_known)),
                    "must be of a type that this model knows, and name functions among tools",
                )
            }
            _ => return None,
        };
        (!fits).then(|| FieldError::new(name, FieldCode::NotSupported, message))
    }

    /// Whether the vendor speaks one of OpenAI's dialects.
    fn is_openai(&self) -> bool {
        let own = self.dialogue.own;
        matches!(own, Some(Surface::OpenAiChat | Surface::OpenAiResponses))
    }

    /// Whether `strict` of a function is not sent: that of Messages accepts more schemas than OpenAI's.
    pub(super) fn loosens(&self, surface: Surface, function: &Function) -> bool {
        let parameters = function.parameters.as_ref();
        function.strict == Some(true)
            && surface == Surface::AnthropicMessages
            && self.is_openai()
            && !parameters.is_some_and(|parameters| is_strict(&parameters.schema.value()))
    }

    /// Whether the vendor takes a part back that may be thinking.
    pub(super) fn takes_back(&self, part: &Part) -> bool {
        let can = self.dialogue;
        match part {
            part if part.reasoning_field().is_some() => can.reasoning_fields,
            part if part.encrypted_reasoning().is_some() => can.encrypted_reasoning,
            Part::Thinking { .. } => can.thinking && !part.is_unsigned_thinking(),
            Part::Redacted { .. } => can.thinking,
            _ => true,
        }
    }

    /// Returns the cache writes that the vendor may bill.
    pub fn dialogue_writes(&self, request: &DialogueRequest) -> CacheWrites {
        let original = request.original.as_ref();
        let asked = original.filter(|_| self.passes(request));
        // Anthropic writes its cache between searches, even if not requested.
        let searches = request.search.is_some() && request.surface == Surface::AnthropicMessages;
        let asked = asked.map(|original| match original.cache_writes {
            CacheWrites::None if searches => CacheWrites::Short,
            writes => writes,
        });
        self.dialogue
            .cache_writes
            .max(asked.unwrap_or(CacheWrites::None))
    }

    /// Returns every field of a dialogue that this model does not support.
    pub fn dialogue_violations(&self, request: &DialogueRequest) -> Vec<FieldError> {
        let unsupported = |param: &str, message: &str| {
            FieldError::new(param, FieldCode::NotSupported, message.to_owned())
        };
        let can = self.dialogue;
        let Sampling {
            temperature, top_p, ..
        } = request.sampling;
        let conversation = &request.conversation;
        let own = self.passes(request);
        let mut errors = Vec::new();
        let none_taken = self.limits.temperature.is_none();
        if !(none_taken && asked(temperature).is_none()) {
            errors.extend(self.temperature_violation("temperature", temperature));
        }
        if asked(top_p).is_some() && none_taken {
            errors.push(unsupported("top_p", NOT_TAKEN));
        } else if !none_taken
            && !can.top_p_with_temperature
            && asked(top_p).and(asked(temperature)).is_some()
        {
            let message = "is not supported by this model together with temperature; leave one out";
            errors.push(unsupported("top_p", message));
        }
        let wrong = self.wrong_in_images(conversation);
        errors.extend(wrong.map(|message| unsupported("messages", &message)));
        let documents = conversation.documents().count();
        if documents > 0 && !can.documents {
            let message = "has a document, which this model does not accept; send its text";
            errors.push(unsupported("messages", message));
        } else if documents > MAX_IMAGES {
            let message = format!("has {documents} documents; {MAX_IMAGES} are the most");
            errors.push(unsupported("messages", &message));
        }
        errors.extend(self.wrong_in_search(request));
        // The vendor itself validates an unchanged body.
        let has_enough = can.instructions_only && (own || conversation.system.is_some());
        if !has_enough && !conversation.messages.iter().any(has_content) {
            let message = "must have a message of the user or the assistant that is not empty";
            errors.push(FieldError::new("messages", FieldCode::Required, message));
        }
        if own {
            if self.always_thinks && request.sampling.reasoning.thinking == Some(Thinking::Off) {
                let message = "cannot be disabled with this model; leave it out";
                errors.push(unsupported("thinking", message));
            }
            return errors;
        }
        if request.max_tokens == Some(0) {
            let message = "is 0, which only fills the cache and is supported only by Anthropic's \
                           models; set at least 1";
            errors.push(unsupported("max_tokens", message));
        }
        if request.choices > 1 {
            let message = "is supported above 1 only by models that are called by Chat \
                           Completions; send one request for each";
            errors.push(unsupported("n", message));
        }
        let shared = self.shared_members(request);
        for name in &request.others.names {
            if shared.contains(&name.as_str()) {
                errors.extend(self.wrong_in_shared(request, name));
                continue;
            }
            errors.push(unsupported(
                name,
                "is not understood by this model's provider",
            ));
        }
        let (format, one_at_a_time, stop) = match request.surface {
            Surface::AnthropicMessages => (
                "output_config.format",
                "tool_choice.disable_parallel_tool_use",
                "stop_sequences",
            ),
            _ => ("response_format", "parallel_tool_calls", "stop"),
        };
        if conversation.format == Format::JsonObject && !can.json_object {
            let message = "is supported by this model only with a schema";
            errors.push(unsupported(format, message));
        }
        if !can.one_at_a_time && asks_for_one_of_several(&conversation.tools) {
            errors.push(unsupported(one_at_a_time, NOT_TAKEN));
        }
        let (stops, most) = (request.sampling.stop.len(), can.max_stops);
        if stops > most {
            let message = format!("has {stops} sequences; this model takes at most {most}");
            errors.push(unsupported(stop, &message));
        }
        let wrong = self.wrong_in_messages(&conversation.messages);
        errors.extend(wrong.map(|message| unsupported("messages", message)));
        // Only some of OpenAI's models and compatible servers know this detail.
        let is_original = |image: &Image| image.detail == Some(Detail::Original);
        let has_original = self.limits.images.is_none_or(Vision::has_original);
        if self.is_openai() && !has_original && conversation.images().any(is_original) {
            let message = "has an image of detail original, which this model does not know; \
                           ask for high";
            errors.push(unsupported("messages", message));
        }
        errors
    }

    /// Refuses a search that is disabled, and more searches than the operator allows.
    fn wrong_in_search(&self, request: &DialogueRequest) -> Option<FieldError> {
        let search = request.search.filter(|_| self.passes(request))?;
        let most = self.limits.searches;
        let code = FieldCode::NotSupported;
        if most == 0 {
            let message =
                "has a web search at the provider, which is off for this model; remove it";
            return Some(FieldError::new("tools", code, message));
        }
        search.most.filter(|asked| *asked > most)?;
        let message = format!("must be at most {most} web searches for this model");
        let of_tool = search.tool.map(|at| format!("tools[{at}].max_uses"));
        let param = of_tool.unwrap_or_else(|| "max_tool_calls".to_owned());
        Some(FieldError::new(param, code, message))
    }

    /// Returns the first error of the images.
    fn wrong_in_images(&self, conversation: &Conversation) -> Option<Cow<'static, str>> {
        let can = self.dialogue;
        let count = conversation.images().count();
        if count > 0 && self.limits.images.is_none() {
            return Some("has an image, which this model does not take".into());
        }
        if count > MAX_IMAGES {
            return Some(format!("has {count} images; {MAX_IMAGES} are the most").into());
        }
        conversation.images().find_map(|image| match image.source {
            ImageSource::Url(_) if !can.image_urls => Some(
                "has an image by URL, which this model does not support; send its bytes".into(),
            ),
            ImageSource::Base64 {
                media_type: ImageType::Gif,
                ..
            } if !can.gifs => {
                Some("has a GIF, which this model does not support; send a PNG".into())
            }
            _ => None,
        })
    }

    /// Returns the first error of the messages.
    fn wrong_in_messages(&self, messages: &[Message]) -> Option<&'static str> {
        let can = self.dialogue;
        let without_result = Some("has a call of a tool without its result");
        // Not every server with Chat Completions requires it.
        let is_strict = can.own != Some(Surface::OpenAiChat);
        // Calls without a result so far, by id and in total.
        let mut calls: HashMap<&str, usize> = HashMap::new();
        let mut open = 0_usize;
        let mut last_role = None;
        for message in messages {
            let role = message.role;
            if can.alternating_roles && has_content(message) {
                let is_next = last_role.replace(role).is_some_and(|last| last != role);
                if is_next && role == Role::Assistant && open > 0 {
                    return without_result;
                }
            }
            for part in &message.parts {
                match part {
                    Part::ToolCall(call) => {
                        open += 1;
                        *calls.entry(&call.id).or_default() += 1;
                    }
                    Part::ToolResult(result) => {
                        match calls.get_mut(result.call_id.as_str()) {
                            Some(count) if *count > 0 => {
                                open -= 1;
                                *count -= 1;
                            }
                            Some(_) if !is_strict => {}
                            _ => {
                                return Some(
                                    "has the result of a call that is not there before it, or has a \
                                     result",
                                );
                            }
                        }
                        let image =
                            |part: &Part| matches!(part, Part::Image(_) | Part::Document(_));
                        if !can.result_images && result.parts.iter().any(image) {
                            return Some(
                                "has an image or a document in the result of a tool, which this model \
                                 does not support",
                            );
                        }
                    }
                    _ => {}
                }
            }
        }
        without_result.filter(|_| is_strict && open > 0)
    }

    /// Returns the names of the parts that change no answer and are not sent to the provider.
    pub fn left_out(&self, request: &DialogueRequest) -> Vec<&'static str> {
        let mut left_out = if self.passes(request) {
            let is_lost = |part: &Part| !self.takes_back(part);
            let edited = request.surface == Surface::OpenAiResponses;
            let loses = edited && request.conversation.parts().any(is_lost);
            let has_diagnostics = request.left_out.contains(&DIAGNOSTICS);
            let names = [
                loses.then_some("thinking"),
                has_diagnostics.then_some(DIAGNOSTICS),
            ];
            names.into_iter().flatten().collect()
        } else {
            self.lost_in_translation(request)
        };
        let tools = &request.conversation.tools;
        if request.search.is_some() {
            left_out.push(match request.surface {
                Surface::AnthropicMessages => "citations",
                _ => "annotations",
            });
        } else if tools.functions.is_empty()
            && (tools.choice != ToolChoice::Auto || tools.one_at_a_time)
        {
            left_out.push("tool_choice");
        }
        let mut parts = request.conversation.parts();
        if !self.dialogue.thought_signatures && parts.any(Part::has_thought_signature) {
            let name = match request.surface {
                Surface::OpenAiChat => "extra_content",
                _ => "thinking",
            };
            if !left_out.contains(&name) {
                left_out.push(name);
            }
        }
        left_out
    }

    fn lost_in_translation(&self, request: &DialogueRequest) -> Vec<&'static str> {
        let can = self.dialogue;
        let mut left_out = request.left_out.clone();
        let shared = self.shared_members(request);
        left_out.retain(|name| !shared.contains(name));
        let is_lost = |part: &Part| !self.takes_back(part);
        if !left_out.contains(&"thinking") && request.conversation.parts().any(is_lost) {
            left_out.push("thinking");
        }
        let functions = &request.conversation.tools.functions;
        // The vendor enforces a schema only on request, which is not possible for this one.
        let is_loose = request.surface == Surface::AnthropicMessages
            && self.is_openai()
            && matches!(&request.conversation.format, Format::Schema(schema) if schema.strict.is_none());
        let is_loosened = |function: &Function| {
            !can.strict_tools && function.strict == Some(true)
                || self.loosens(request.surface, function)
        };
        if is_loose || functions.iter().any(is_loosened) {
            left_out.push("strict");
        }
        let detailed = |detail: Option<Detail>| detail.is_some_and(|d| d != Detail::Auto);
        let images = request.conversation.images().map(|image| image.detail);
        let documents = request.conversation.documents();
        let mut details = images.chain(documents.map(|document| document.detail));
        // A chat has no field for it, so the next turn does not send it back.
        let may_reason = request.sampling.reasoning.effort != Some(Effort::None);
        if can.encrypted_reasoning && may_reason && request.surface == Surface::OpenAiChat {
            left_out.push("reasoning.encrypted_content");
        }
        if !can.image_detail && details.any(detailed) {
            left_out.push("detail");
        }
        left_out
    }
}
