//! Recognizes errors about a request that does not fit the model's context.
//!
//! Vendors have no common code for it. Sources: messages of OpenAI, Anthropic, Gemini, Groq,
//! Mistral, Together, `DeepSeek`, xAI, Kimi, Cerebras and Fireworks as reported by users, and the
//! source code of vLLM, `SGLang`, llama.cpp, Ollama and LM Studio.

use serde_json::Value;

use crate::domain::context::ContextOverflow;

const CODES: [&str; 4] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
];
/// Parts of messages, in lower case.
const PHRASES: [&str; 27] = [
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context window",
    "exceeds model context window",
    "context window exceeds limit",
    "exceeds the available context size",
    "exceeds the context length",
    "exceeds maximum context length",
    "exceeded max context length",
    "longer than the model's context length",
    "greater than the context length",
    "maximum context length",
    "model's context length",
    "maximum prompt length is",
    "exceeds the maximum number of tokens allowed",
    "input tokens exceed the configured limit",
    "exceeded model token limit",
    "`max_new_tokens` must be <=",
    "reduce the length of the messages",
    "too long to fit into the model",
    "number of tokens in the prompt cannot exceed",
    "context length of only",
    "context length exceeded",
    // Zhipu and Alibaba.
    "prompt exceeds max length",
    "range of input length should be",
];
/// Words directly before a number that is the maximum.
const LIMITS: [&str; 11] = [
    "maximum",
    "limit",
    "context length",
    "context size",
    "context window",
    "must be",
    "cannot exceed",
    "allowed",
    "n_ctx",
    "max context",
    "max_model_len",
];

/// Returns the token counts of an error about a request that is too long; `None` for other errors.
pub fn find(error: &Value, message: &str) -> Option<ContextOverflow> {
    let codes = ["/code", "/type", "/details/error_code"];
    let mut codes = codes.iter().filter_map(|at| error.pointer(at)?.as_str());
    let message = message.to_lowercase();
    let has_code = codes.any(|code| CODES.contains(&code));
    if !has_code && !PHRASES.iter().any(|phrase| message.contains(phrase)) {
        return None;
    }
    let (tokens, maximum) = numbers(&message);
    // llama.cpp
    let member = |name: &str| error.get(name).and_then(Value::as_u64);
    Some(ContextOverflow {
        tokens: member("n_prompt_tokens").or(tokens),
        maximum: member("n_ctx").or(maximum),
    })
}

/// Returns the request's tokens and their maximum from a lower-case message.
fn numbers(message: &str) -> (Option<u64>, Option<u64>) {
    let mut found: Vec<(&str, u64)> = Vec::new();
    let mut rest = message;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_digit() && c != ',');
        let (digits, after) = from.split_at(end.unwrap_or(from.len()));
        // Skips digits that are part of a name such as `gpt-4`.
        let is_part = before.ends_with(|c: char| c.is_alphanumeric() || "-_.".contains(c))
            || after.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
        if let (false, Ok(number)) = (is_part, digits.parse()) {
            found.push((before, number));
        }
        rest = after;
    }
    let compared = |before: &str| {
        let before = before.trim_end();
        before.ends_with('>') || before.ends_with("<=")
    };
    let limited =
        |before: &str| !before.ends_with("by ") && LIMITS.iter().any(|word| before.contains(word));
    let limit = found.iter().position(|(before, _)| compared(before));
    let limit = limit.or_else(|| found.iter().position(|(before, _)| limited(before)));
    let after_last = || rest.trim_start().starts_with("maximum");
    let limit = limit.or_else(|| after_last().then(|| found.len().checked_sub(1)).flatten());
    let Some(limit) = limit else {
        return (None, None);
    };
    let maximum = found.remove(limit).1;
    // vLLM repeats each number.
    if found.len() > 2 {
        found.sort_by_key(|(_, number)| *number);
        found.dedup_by_key(|(_, number)| *number);
        found.retain(|(_, number)| *number != maximum);
    }
    let above = found.iter().map(|(_, number)| *number);
    let above = above.clone().find(|number| *number > maximum).or_else(|| {
        let sum = above.fold(0_u64, u64::saturating_add);
        (sum > maximum).then_some(sum)
    });
    (above, Some(maximum))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Messages, each with its tokens and maximum.
    const MESSAGES: [(&str, u64, u64); 16] = [
        (
            "prompt is too long: 210000 tokens > 200000 maximum",
            210_000,
            200_000,
        ),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, \
             decrease input length or `max_tokens` and try again",
            210_000,
            200_000,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages \
             resulted in 10000 tokens. Please reduce the length of the messages.",
            10_000,
            8_192,
        ),
        (
            "This model's maximum context length is 4,096 tokens. However, you requested 4,097 \
             tokens (97 in the messages, 4000 in the completion).",
            4_097,
            4_096,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum \
             context length is 4096 tokens and your request has 100 input tokens (5000 > 4096 \
             - 100).",
            5_000,
            4_096,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 400. This model's maximum \
             context length is 4096 tokens and your request has 4000 input tokens (400 > 4096 \
             - 4000).",
            4_400,
            4_096,
        ),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed \
             (1048576).",
            1_200_000,
            1_048_576,
        ),
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 \
             maximum context length",
            40_000,
            32_768,
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 \
             tokens.",
            537_812,
            131_072,
        ),
        (
            "Please reduce the length of the messages or completion. Current length is 10000 \
             while limit is 8192",
            10_000,
            8_192,
        ),
        (
            "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
            9_000,
            8_192,
        ),
        (
            "The prompt is too long: 100000, model maximum context length: 65535",
            100_000,
            65_535,
        ),
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: \
             3800 `inputs` tokens and 512 `max_new_tokens`",
            4_312,
            4_097,
        ),
        (
            "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
            40_000,
            32_768,
        ),
        (
            "request (12345 tokens) exceeds the available context size (8192 tokens), try \
             increasing it",
            12_345,
            8_192,
        ),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted \
             in 300000 tokens.",
            300_000,
            272_000,
        ),
    ];

    #[test]
    fn every_vendor_says_it_in_its_own_way() {
        for (message, tokens, maximum) in MESSAGES {
            let found = find(&json!({ "message": message }), message).unwrap();
            assert_eq!(
                (found.tokens, found.maximum),
                (Some(tokens), Some(maximum)),
                "{message}"
            );
        }
    }

    #[test]
    fn codes_and_members_say_it_too() {
        let error = json!({"code": 400, "type": "exceed_context_size_error",
            "message": "the request exceeds the available context size, try increasing it",
            "n_prompt_tokens": 12_345, "n_ctx": 8_192});
        let found = find(&error, error["message"].as_str().unwrap()).unwrap();
        assert_eq!((found.tokens, found.maximum), (Some(12_345), Some(8_192)));
        for (error, message) in [
            (json!({"code": "context_length_exceeded"}), "no"),
            (
                json!({}),
                "Your input exceeds the context window of this model.",
            ),
            (
                json!({}),
                "prompt too long; exceeded max context length by 120 tokens",
            ),
        ] {
            let found = find(&error, message);
            assert_eq!(found, Some(ContextOverflow::default()), "{message}");
        }
        for message in [
            "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
            "max_tokens is too large: 200000. This model supports at most 16384 completion tokens",
            "messages.0: text is empty",
            "Request too large for gpt-4 on tokens per min (TPM): Limit 6000, Requested 8000",
        ] {
            assert_eq!(
                find(&json!({"type": "invalid_request_error"}), message),
                None
            );
        }
    }
}
