//! Splits a long text into pieces that are spoken separately.
//!
//! Cuts at the end of a sentence if possible, else at whitespace, else between two characters. The
//! pieces concatenate to the text.

/// Returns pieces of at most `max` characters (Unicode scalar values), in order. Omits blank
/// pieces, which no provider speaks.
pub fn split(text: &str, max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((over, _)) = rest.char_indices().nth(max.max(1)) {
        let (piece, next) = rest.split_at(cut(&rest[..over], &rest[over..]));
        pieces.push(piece);
        rest = next;
    }
    pieces.push(rest);
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// Returns where to cut `window`, a piece of maximum length that is followed by `next`.
fn cut(window: &str, next: &str) -> usize {
    let mut sentence = None;
    let mut blank = None;
    let mut ending = Ending::None;
    for (at, c) in window.char_indices() {
        let after = at + c.len_utf8();
        ending = match c {
            '.' | '!' | '?' | '…' | '؟' | '।' => Ending::Plain,
            '。' | '！' | '？' | '｡' => Ending::Wide,
            '"' | '\'' | ')' | ']' | '»' | '”' | '’' | '」' | '』' if ending != Ending::Over => {
                ending
            }
            '\n' => Ending::Over,
            c if c.is_whitespace() && ending == Ending::None => ending,
            c if c.is_whitespace() => Ending::Over,
            _ => Ending::None,
        };
        if c.is_whitespace() {
            blank = Some(after);
        }
        if matches!(ending, Ending::Wide | Ending::Over) {
            sentence = Some(after);
        }
    }
    // A sentence or word may end exactly with the window.
    let clean = next.starts_with(char::is_whitespace);
    if clean && ending == Ending::Plain {
        return window.len();
    }
    sentence
        .or(clean.then_some(window.len()))
        .or(blank)
        .unwrap_or(window.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    /// A mark that ends a sentence only before whitespace (not in "3.14").
    Plain,
    /// A mark that always ends a sentence.
    Wide,
    /// Whitespace after a mark: a following quote opens the next sentence.
    Over,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn where_it_is_cut() {
        for (text, max, want) in [
            ("", 5, &[][..]),
            ("  ", 1, &[]),
            ("Hi.", 5, &["Hi."]),
            ("Hi. You", 4, &["Hi. ", "You"]),
            ("Hi. You", 3, &["Hi.", "You"]),
            ("One two. Three four.", 12, &["One two. ", "Three four."]),
            ("No. \"Oh my\" he", 9, &["No. ", "\"Oh my\" ", "he"]),
            ("He said \"No.\" Then", 15, &["He said \"No.\" ", "Then"]),
            ("It is 3.14 or so", 12, &["It is 3.14 ", "or so"]),
            ("Really?! Yes", 10, &["Really?! ", "Yes"]),
            ("one\ntwo three", 9, &["one\n", "two three"]),
            ("abcdefgh", 3, &["abc", "def", "gh"]),
            ("ab cd ef", 5, &["ab cd", " ef"]),
            ("你好。再见吧", 4, &["你好。", "再见吧"]),
            ("「你好。」再见", 6, &["「你好。」", "再见"]),
            ("😀😀😀", 2, &["😀😀", "😀"]),
            ("abc", 0, &["a", "b", "c"]),
        ] {
            assert_eq!(split(text, max), want, "{text:?} at {max}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(text in "[a-c.!? \n。😀é]{0,200}", max in 1_usize..20) {
            let pieces = split(&text, max);
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&pieces.concat()), bare(&text));
            for piece in pieces {
                prop_assert!(piece.chars().count() <= max);
            }
        }
    }
}
