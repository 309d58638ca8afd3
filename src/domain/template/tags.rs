//! A look at a template's tags before they are read: the tree must not nest so deep that
//! walking it takes much stack.

use minijinja::machinery::{Token, tokenize};

use super::{Fault, vet::at};

/// Words, signs and values between the braces of one tag.
const TAG_TOKENS: usize = 200;
/// Brackets within each other.
const BRACKETS: usize = 16;
/// `elif` in a template.
const ELIFS: usize = 50;
/// Blocks within each other.
const BLOCKS: usize = 30;

/// Refuses what would nest the tree so deep that walking it takes much stack.
pub(super) fn check(source: &str) -> Result<(), Fault> {
    let (mut tokens, mut brackets, mut elifs, mut blocks) = (0_usize, 0_usize, 0, 0_usize);
    let mut first = false;
    for token in tokenize(source, false, minijinja::syntax::SyntaxConfig::default()) {
        let (token, span) = token.map_err(super::fault)?;
        tokens += 1;
        match &token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => brackets += 1,
            Token::BracketClose | Token::ParenClose | Token::BraceClose => {
                brackets = brackets.saturating_sub(1);
            }
            Token::Ident("elif") => elifs += 1,
            Token::Ident("if" | "for" | "with" | "filter") if first => blocks += 1,
            Token::Ident("endif" | "endfor" | "endwith" | "endfilter") if first => {
                blocks = blocks.saturating_sub(1);
            }
            _ => {}
        }
        first = matches!(token, Token::BlockStart);
        let wrong = if tokens > TAG_TOKENS {
            "a tag is too long; take it apart"
        } else if brackets > BRACKETS {
            "too many brackets within each other"
        } else if elifs > ELIFS {
            "more than 50 elif in a template"
        } else if blocks > BLOCKS {
            "more than 30 blocks within each other"
        } else {
            continue;
        };
        return Err(at(span.start_line, wrong));
    }
    Ok(())
}
