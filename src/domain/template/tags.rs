//! Splits a template into tags and tokens as MiniJinja's lexer does.

use super::TemplateError;

/// The tokens of a tag, each with its offset in the source.
pub(super) type Tokens<'a> = Vec<(usize, &'a str)>;

pub(super) fn error(source: &str, offset: usize, message: impl Into<String>) -> TemplateError {
    TemplateError {
        line: Some(line(source, offset)),
        message: message.into(),
    }
}

pub(super) fn line(source: &str, offset: usize) -> usize {
    source[..offset].matches('\n').count() + 1
}

/// Returns the tags, each with whether it is a statement.
pub(super) fn tags(source: &str) -> Result<Vec<(bool, Tokens<'_>)>, TemplateError> {
    let mut tags = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        let start = at + found;
        let unclosed = |what| error(source, start, format!("{what} is not closed"));
        let [mark @ (b'{' | b'%' | b'#'), ..] = source.as_bytes()[start + 1..] else {
            at = start + 1;
            continue;
        };
        let inside = without_sign(&source[start + 2..]);
        let after = if mark == b'#' {
            let end = inside.find("#}").ok_or_else(|| unclosed("a comment"))?;
            &inside[end + 2..]
        } else if let Some(raw) = (mark == b'%').then(|| bare_tag(inside, "raw")).flatten() {
            let mut tags = raw.match_indices("{%").map(|(at, _)| &raw[at + 2..]);
            tags.find_map(|tag| bare_tag(without_sign(tag), "endraw"))
                .ok_or_else(|| unclosed("a raw block"))?
        } else {
            let statement = mark == b'%';
            let (tokens, after) = tokens(source, inside, if statement { "%}" } else { "}}" })?;
            tags.push((statement, tokens));
            after.ok_or_else(|| unclosed("a tag"))?
        };
        at = source.len() - after.len();
    }
    Ok(tags)
}

/// Removes the whitespace control sign.
fn without_sign(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

/// Returns the text after a statement that consists of `name` only.
fn bare_tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let trim = |text: &'a str| text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    without_sign(trim(trim(text).strip_prefix(name)?)).strip_prefix("%}")
}

/// Returns the tokens up to the end of a tag, and the rest.
fn tokens<'a>(
    source: &'a str,
    inside: &'a str,
    end: &str,
) -> Result<(Tokens<'a>, Option<&'a str>), TemplateError> {
    let mut tokens = Vec::new();
    let mut brackets = 0_usize;
    let mut rest = inside;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        if let (0, Some(after)) = (brackets, without_sign(rest).strip_prefix(end)) {
            return Ok((tokens, Some(after)));
        }
        let offset = source.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            return Ok((tokens, None));
        };
        let run = |part: fn(&char) -> bool| rest.chars().take_while(part).count();
        let length = match first {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => {
                run(|c| c.is_ascii_alphanumeric() || *c == '_')
            }
            '\'' | '"' => match string(rest, first) {
                Some(length) => length,
                None => return Err(error(source, offset, "a string is not closed")),
            },
            '/' if rest.starts_with("//") => 2,
            '*' if rest.starts_with("**") => 2,
            '=' | '!' | '<' | '>' if rest[1..].starts_with('=') => 2,
            _ if "+-*/%.,:~|=<>()[]{}".contains(first) => 1,
            _ => {
                let message = format!("unexpected character `{}`", first.escape_debug());
                return Err(error(source, offset, message));
            }
        };
        match first {
            '(' | '[' => brackets += 1,
            // An unmatched bracket is refused when the tag is parsed.
            ')' | ']' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        tokens.push((offset, &rest[..length]));
        rest = &rest[length..];
    }
}

/// Returns the length of a string, including its quotes.
fn string(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    let end = text[1..].find(|c| {
        let ends = !escaped && c == quote;
        escaped = !escaped && c == '\\';
        ends
    });
    end.map(|end| end + 2)
}
