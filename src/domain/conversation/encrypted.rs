//! Reasoning that only `OpenAI` can read, as the signature of thinking.

use super::Part;

/// Marks a signature as one of `OpenAI`'s reasoning items, which no other vendor accepts.
const MARK: &str = "openai:";

/// The parts of a reasoning item that `OpenAI` needs back. It refuses encrypted content under
/// another item's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncryptedReasoning<'a> {
    /// Empty if the client did not send it back.
    pub id: &'a str,
    pub content: &'a str,
}

impl<'a> EncryptedReasoning<'a> {
    /// Returns the signature of thinking that represents this item.
    pub fn signature(self) -> String {
        let id = if self.id.contains(':') { "" } else { self.id };
        format!("{MARK}{id}:{}", self.content)
    }

    pub fn from_signature(signature: &'a str) -> Option<Self> {
        let (id, content) = signature.strip_prefix(MARK)?.split_once(':')?;
        Some(Self { id, content })
    }
}

impl Part {
    /// Returns the reasoning item that this thinking represents; `None` for other parts.
    pub fn encrypted_reasoning(&self) -> Option<EncryptedReasoning<'_>> {
        match self {
            Self::Thinking { signature, .. } => EncryptedReasoning::from_signature(signature),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_survives_its_signature() {
        for (id, content) in [("rs_1", "gAAA:=="), ("", "x"), ("rs_1", "")] {
            let item = EncryptedReasoning { id, content };
            let signature = item.signature();
            assert_eq!(EncryptedReasoning::from_signature(&signature), Some(item));
        }
        let odd = EncryptedReasoning {
            id: "a:b",
            content: "c",
        };
        let signature = odd.signature();
        let read = EncryptedReasoning::from_signature(&signature).unwrap();
        assert_eq!((read.id, read.content), ("", "c"));
        for other in ["", "sig", "openai:", "chat:reasoning", "gemini:x"] {
            assert_eq!(EncryptedReasoning::from_signature(other), None, "{other}");
        }
    }
}
