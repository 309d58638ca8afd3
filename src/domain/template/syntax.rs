//! The syntax allowed in template tags.
//!
//! A subset of MiniJinja. It excludes everything that could create new values (so that only filters
//! can produce anything larger than the given values), call something, or nest the syntax tree
//! deeper than a thread's stack allows. MiniJinja's parser checks the rest.

use std::collections::BTreeSet;

use super::{
    TemplateError,
    render::{FILTERS, TESTS},
    tags::{error, line, tags},
};

/// Maximum tokens of a tag: a chain of operators is as deep in the syntax tree as it is long.
const TAG_TOKENS: usize = 200;
/// Maximum `elif`s of a template: each is one level deeper in the syntax tree.
const ELIFS: usize = 50;
/// Names that cannot be variables.
const RESERVED: [&str; 10] = [
    "and", "elif", "else", "for", "if", "in", "is", "not", "or", "self",
];

#[derive(Debug, Default)]
pub(super) struct Reads<'a> {
    /// The names, each with its line number.
    pub names: Vec<(usize, &'a str)>,
    /// The names that the template tests (`default`, `is defined`).
    pub optional: BTreeSet<&'a str>,
}

/// Refuses anything outside the supported subset.
pub(super) fn check(source: &str) -> Result<Reads<'_>, TemplateError> {
    let mut reads = Reads::default();
    let mut elifs = 0;
    for (statement, tokens) in tags(source)? {
        let mut reader = Reader {
            source,
            tokens: &tokens,
            last: (0, ""),
            reads: &mut reads,
        };
        elifs += usize::from(statement && reader.peek(0) == "elif");
        if elifs > ELIFS {
            return Err(reader.error("more than 50 `elif` in a template"));
        }
        reader.tag(statement)?;
    }
    Ok(reads)
}

/// Parses one tag. MiniJinja parses it again; accepted tags must have the same meaning there.
struct Reader<'a, 't> {
    source: &'a str,
    /// The remaining tokens of the tag.
    tokens: &'t [(usize, &'a str)],
    last: (usize, &'a str),
    reads: &'t mut Reads<'a>,
}

type Read = Result<(), TemplateError>;

impl<'a> Reader<'a, '_> {
    fn peek(&self, n: usize) -> &'a str {
        self.tokens.get(n).map_or("", |(_, token)| *token)
    }

    fn next(&mut self) {
        if let [first, others @ ..] = self.tokens {
            (self.last, self.tokens) = (*first, others);
        }
    }

    fn take(&mut self, any: &[&str]) -> bool {
        let found = any.contains(&self.peek(0));
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Read {
        self.take(&[token])
            .then_some(())
            .ok_or_else(|| self.refused())
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        let (offset, _) = self.tokens.first().unwrap_or(&self.last);
        error(self.source, *offset, message)
    }

    /// Returns an error that names the next token as not allowed.
    fn refused(&self) -> TemplateError {
        let what = match self.peek(0) {
            "" => return self.error(format!("unexpected end of a tag after `{}`", self.last.1)),
            "(" => format!("calls like `{}()` are", self.last.1),
            "[" => "lists in `[]` are".to_owned(),
            "{" | "}" => "objects in `{}` are".to_owned(),
            "," => "lists with `,` are".to_owned(),
            ":" => "slices with `:` are".to_owned(),
            sign @ ("+" | "-" | "*" | "**" | "/" | "//" | "%" | "~" | "=") => {
                format!("the operator `{sign}` is")
            }
            other => return self.error(format!("unexpected `{other}`")),
        };
        self.error(format!("{what} not allowed in templates"))
    }

    fn tag(&mut self, statement: bool) -> Read {
        let first = self.peek(0);
        match first {
            _ if self.tokens.len() > TAG_TOKENS => return Err(self.error("a tag is too long")),
            _ if !statement => self.expression()?,
            "if" | "elif" => {
                self.next();
                self.expression()?;
            }
            "for" => {
                self.next();
                while is_name(self.peek(0)) && self.peek(0) != "in" || self.peek(0) == "," {
                    self.next();
                }
                self.expect("in")?;
                self.expression()?;
            }
            "else" | "endif" | "endfor" => self.next(),
            _ => {
                return Err(self.error(format!(
                    "`{first}` is not a statement of templates; these are: if, elif, else, endif, \
                     for, endfor, raw, endraw"
                )));
            }
        }
        if self.tokens.is_empty() {
            return Ok(());
        }
        Err(self.refused())
    }

    fn expression(&mut self) -> Read {
        loop {
            while self.take(&["not"]) {}
            self.operand()?;
            while self.comparison() {
                self.operand()?;
            }
            if !self.take(&["and", "or", "if", "else"]) {
                return Ok(());
            }
        }
    }

    fn comparison(&mut self) -> bool {
        if self.peek(0) == "not" && self.peek(1) == "in" {
            self.next();
        }
        self.take(&["in", "==", "!=", "<", "<=", ">", ">="])
    }

    fn operand(&mut self) -> Read {
        let token = self.peek(0);
        if self.take(&["("]) {
            self.expression()?;
            self.expect(")")?;
        } else if is_number(token) || token == "-" && is_number(self.peek(1)) {
            self.take(&["-"]);
            self.next();
            // MiniJinja also parses `1.` as a number, and would parse the rest differently.
            if self.take(&["."]) {
                self.number()?;
            }
        } else if token.starts_with(['\'', '"']) {
            self.next();
        } else if is_name(token) && !RESERVED.contains(&token) {
            self.read(token);
        } else {
            return Err(self.refused());
        }
        self.members()?;
        self.filters()
    }

    fn read(&mut self, name: &'a str) {
        let tested = match (self.peek(1), self.peek(2), self.peek(3)) {
            ("|", "default", _) => true,
            ("is", "not", test) | ("is", test, _) => matches!(test, "defined" | "undefined"),
            _ => false,
        };
        if tested {
            self.reads.optional.insert(name);
        }
        self.next();
        self.reads
            .names
            .push((line(self.source, self.last.0), name));
    }

    fn number(&mut self) -> Read {
        if !is_number(self.peek(0)) {
            return Err(self.refused());
        }
        self.next();
        Ok(())
    }

    fn members(&mut self) -> Read {
        loop {
            if self.take(&["["]) {
                self.expression()?;
                self.expect("]")?;
            } else if !self.take(&["."]) {
                return Ok(());
            } else if is_name(self.peek(0)) {
                self.next();
            } else {
                self.number()?;
            }
        }
    }

    fn filters(&mut self) -> Read {
        loop {
            if self.take(&["|"]) {
                self.known("filter", FILTERS)?;
                self.arguments()?;
            } else if self.take(&["is"]) {
                self.take(&["not"]);
                self.known("test", TESTS)?;
                let next = self.peek(0);
                if next.starts_with(['\'', '"']) {
                    self.next();
                } else if is_name(next) && !["and", "or", "else", "is"].contains(&next) {
                    // MiniJinja would parse it as an argument of the test.
                    return Err(self.refused());
                } else {
                    self.arguments()?;
                }
            } else {
                return Ok(());
            }
        }
    }

    fn known(&mut self, what: &str, names: &str) -> Read {
        let name = self.peek(0);
        if !names.split(", ").any(|known| known == name) {
            let message = format!("`{name}` is not a {what} of templates; these are: {names}");
            return Err(self.error(message));
        }
        self.next();
        Ok(())
    }

    fn arguments(&mut self) -> Read {
        if !self.take(&["("]) {
            return Ok(());
        }
        while !self.take(&[")"]) {
            if self.peek(1) == "=" && is_name(self.peek(0)) {
                self.next();
                self.next();
            }
            self.expression()?;
            if self.peek(0) != ")" {
                self.expect(",")?;
            }
        }
        Ok(())
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn is_number(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit())
}
