//! What a model thought, in a form that only its vendor reads: `encrypted_content` of reasoning.

use super::answer::referenced;
use crate::domain::conversation::{Delta, EncryptedReasoning, Part};

/// A signature of thoughts that are told, thoughts that are not told, and the signature of the
/// thoughts before a call of Gemini's.
const SIGNATURE: &str = "signature:";
const REDACTED: &str = "redacted:";
const GEMINI: &str = "gemini:";

/// Whether `encrypted_content` is of `OpenAI` itself, as it came.
pub fn is_encrypted_by_openai(content: &str) -> bool {
    let prefixes = [SIGNATURE, REDACTED, GEMINI];
    !content.is_empty() && !prefixes.iter().any(|prefix| content.starts_with(prefix))
}

/// As an answer has it; `None` where there is nothing to bring back.
pub(super) fn write(part: &Part) -> Option<String> {
    match part {
        Part::Thinking { signature, .. } if !signature.is_empty() => {
            Some(format!("{SIGNATURE}{signature}"))
        }
        Part::Redacted { data } => Some(format!("{REDACTED}{data}")),
        _ => None,
    }
}

/// The reasoning that a request sends back, with the summary that was shown. `id`: the item's.
pub(super) fn read(secret: &str, id: &str, text: String) -> Part {
    if is_encrypted_by_openai(secret) {
        // An id of ours is not the one that it was encrypted under.
        let id = referenced(id).map_or(id, |_| "");
        let content = secret;
        let signature = EncryptedReasoning { id, content }.signature();
        return Part::Thinking { text, signature };
    }
    match secret.strip_prefix(REDACTED) {
        Some(data) => Part::Redacted {
            data: data.to_owned(),
        },
        None => Part::Thinking {
            text,
            signature: secret
                .strip_prefix(SIGNATURE)
                .unwrap_or_default()
                .to_owned(),
        },
    }
}

/// A part, after the reasoning that its signature is told as.
pub(super) fn parts(part: Part) -> Vec<Part> {
    match &part {
        Part::ToolCall(call) => {
            let before = call.thought_signature.as_deref().map(before_call);
            let before = before.map(|data| Part::Redacted { data });
            before.into_iter().chain([part]).collect()
        }
        _ => vec![part],
    }
}

/// The same of a piece.
pub(super) fn pieces(delta: Delta) -> Vec<Delta> {
    match &delta {
        Delta::ToolCall(call) => {
            let before = call.thought_signature.as_deref().map(before_call);
            let before = before.map(Delta::Redacted);
            before.into_iter().chain([delta]).collect()
        }
        _ => vec![delta],
    }
}

fn before_call(signature: &str) -> String {
    format!("{GEMINI}{signature}")
}

/// Gives calls the signatures before them.
pub(super) fn give_to_calls(parts: Vec<Part>) -> Vec<Part> {
    let mut signature: Option<String> = None;
    let mut found = Vec::new();
    for mut part in parts {
        match &mut part {
            Part::Redacted { data } => {
                if let Some(own) = data.strip_prefix(GEMINI) {
                    signature = Some(own.to_owned());
                    continue;
                }
            }
            Part::ToolCall(call) => call.thought_signature = signature.take(),
            _ => {}
        }
        found.push(part);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_provider_go_back_to_it() {
        for (id, kept) in [
            ("rs_1", "rs_1"),
            ("rs_01a3185c500072abc0ffee0123456789_0", ""),
        ] {
            let part = read("gAAAA.x", id, String::new());
            let item = part.encrypted_reasoning().unwrap();
            assert_eq!((item.id, item.content), (kept, "gAAAA.x"));
        }
    }
}
