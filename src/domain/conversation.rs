//! What a text model is asked, whichever vendor's it is.
//!
//! Not here: the model and its output limit, which belong to the call.

/// Tokens that a message may take beyond its text.
const MESSAGE_TOKENS: usize = 8;

/// Instructions and the messages so far, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Instructions above the messages.
    pub system: Option<String>,
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    /// The content, in order; at least one part.
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions between the messages; those before them are [`Conversation::system`].
    System,
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
}

/// How the next token is chosen, and what ends the text. What is absent is the vendor's choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// The text ends before the first of them.
    pub stop: Vec<String>,
}

/// Why a text ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stop {
    /// The model was done, or, where a vendor does not tell, came to a stop sequence.
    #[default]
    Done,
    /// At the output limit.
    Limit,
    /// At this stop sequence.
    Sequence(String),
}

impl Conversation {
    /// A conversation of one user message.
    pub fn from_prompt(prompt: String, system: Option<String>) -> Self {
        Self {
            system,
            messages: vec![Message::text(Role::User, prompt)],
        }
    }

    /// UTF-8 bytes of every string that the model sees: what input tokens are bounded by, and
    /// estimated from where no provider counts them.
    pub fn bytes(&self) -> usize {
        let parts = self.messages.iter().flat_map(|message| &message.parts);
        self.system.as_deref().map_or(0, str::len) + parts.map(Part::bytes).sum::<usize>()
    }

    /// The input tokens that it cannot exceed, without what a vendor's template adds.
    pub fn most_tokens(&self) -> usize {
        // Some servers make a message of each part.
        let parts: usize = self.messages.iter().map(|m| m.parts.len().max(1)).sum();
        let instructions = usize::from(self.system.is_some());
        self.bytes() + MESSAGE_TOKENS * (parts + instructions)
    }

    /// The text of the last user message, its parts on lines of their own; empty when there is
    /// no such message.
    pub fn last_user_text(&self) -> String {
        let mut messages = self.messages.iter().rev();
        let last = messages.find(|message| message.role == Role::User);
        let parts = last.map(|message| message.parts.as_slice());
        let texts = parts.unwrap_or_default().iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl Message {
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            parts: vec![Part::Text(text.into())],
        }
    }
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_that_the_model_sees_is_counted() {
        let mut conversation = Conversation::from_prompt("é".to_owned(), None);
        assert_eq!(conversation.bytes(), 2);
        conversation.system = Some("be brief".to_owned());
        conversation
            .messages
            .push(Message::text(Role::Assistant, "Hello"));
        let parts = ["you", "!"].map(|text| Part::Text(text.to_owned()));
        conversation.messages.push(Message {
            role: Role::User,
            parts: parts.into(),
        });
        assert_eq!(conversation.bytes(), 2 + 8 + 5 + 3 + 1);
        assert_eq!(conversation.most_tokens(), 19 + 5 * 8);
    }

    #[test]
    fn the_last_user_message_need_not_be_the_last() {
        let mut conversation = Conversation::from_prompt("first".to_owned(), None);
        assert_eq!(conversation.last_user_text(), "first");
        let parts = ["second", "third"].map(|text| Part::Text(text.to_owned()));
        conversation.messages.extend([
            Message::text(Role::Assistant, "answer"),
            Message {
                role: Role::User,
                parts: parts.into(),
            },
            Message::text(Role::Assistant, "prefix of the answer"),
        ]);
        assert_eq!(conversation.last_user_text(), "second\nthird");
    }
}
