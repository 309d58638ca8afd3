//! Names of functions and ids of calls that a vendor accepts.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
};

use sha2::{Digest as _, Sha256};

use super::{Conversation, Part, ToolChoice};

/// Hexadecimal digits of the digest that ends a replaced name.
const DIGEST_DIGITS: usize = 8;

/// The format of the names or ids that a vendor accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spelling {
    /// Accepted characters besides ASCII letters and digits; `None`: any character.
    pub symbols: Option<&'static str>,
    pub max_chars: usize,
    /// Whether the first character must be a letter or an underscore.
    pub starts_with_letter: bool,
}

impl Spelling {
    pub const ANY: Self = Self {
        symbols: None,
        max_chars: usize::MAX,
        starts_with_letter: false,
    };

    fn takes(&self, c: char) -> bool {
        self.symbols
            .is_none_or(|symbols| c.is_ascii_alphanumeric() || symbols.contains(c))
    }

    fn takes_start(&self, name: &str) -> bool {
        !self.starts_with_letter || name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }

    pub fn fits(&self, name: &str) -> bool {
        self.takes_start(name)
            && name.chars().all(|c| self.takes(c))
            && name.chars().take(self.max_chars.saturating_add(1)).count() <= self.max_chars
    }

    /// Returns the name itself if it is accepted, or its replacement.
    pub fn spelled<'a>(&self, name: &'a str) -> Cow<'a, str> {
        self.spell(name, 0)
    }

    /// Returns the name itself if it is accepted. Otherwise returns a readable prefix of it and a
    /// digest of `salt` and the name: the same in every turn, so that the vendor's cache still
    /// matches.
    fn spell<'a>(&self, name: &'a str, salt: usize) -> Cow<'a, str> {
        if salt == 0 && self.fits(name) {
            return Cow::Borrowed(name);
        }
        let mut hash = Sha256::new();
        hash.update(salt.to_le_bytes());
        hash.update(name);
        let digest = hash.finalize();
        let digest = digest
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let mut spelled = String::new();
        if !self.takes_start(name) {
            spelled.push('_');
        }
        let replaced = name.chars().map(|c| {
            if self.takes(c) && c.is_ascii() {
                c
            } else {
                '_'
            }
        });
        spelled.extend(replaced);
        spelled.truncate(self.max_chars.min(64) - DIGEST_DIGITS - 1);
        spelled.push('_');
        spelled.push_str(&digest[..DIGEST_DIGITS]);
        Cow::Owned(spelled)
    }

    /// Returns the first spelling of a name that is not in `taken`, and adds it.
    fn spell_unique(&self, name: &str, taken: &mut HashSet<String>) -> String {
        let mut salt = 0;
        loop {
            let spelled = self.spell(name, salt).into_owned();
            if taken.insert(spelled.clone()) {
                return spelled;
            }
            salt += 1;
        }
    }
}

/// Function names that a vendor does not accept, by the names that it gets instead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplacedNames(BTreeMap<String, String>);

impl ReplacedNames {
    /// Returns the caller's name of a function that the vendor calls.
    pub fn original(&self, name: String) -> String {
        self.0.get(&name).cloned().unwrap_or(name)
    }

    /// Returns the name that the vendor gets instead; `None` if it accepts the caller's.
    pub fn replacement(&self, original: &str) -> Option<&str> {
        let mut names = self.0.iter();
        let found = names.find(|(_, name)| *name == original);
        found.map(|(replacement, _)| replacement.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Conversation {
    /// Returns the names of declared and called functions.
    fn names(&self) -> impl Iterator<Item = &String> {
        let called = self.parts().filter_map(Part::call).map(|call| &call.name);
        let declared = self.tools.functions.iter().map(|function| &function.name);
        declared.chain(called)
    }

    /// Whether `spelling` accepts all names of functions.
    pub fn is_spelled(&self, spelling: Spelling) -> bool {
        self.names().all(|name| spelling.fits(name))
    }

    /// Replaces the names that `spelling` does not accept, everywhere in the conversation.
    pub fn respell_names(&mut self, spelling: Spelling) -> ReplacedNames {
        let (kept, other): (Vec<&String>, Vec<&String>) =
            self.names().partition(|name| spelling.fits(name));
        if other.is_empty() {
            return ReplacedNames::default();
        }
        let mut taken: HashSet<String> = kept.into_iter().cloned().collect();
        let mut new: HashMap<String, String> = HashMap::new();
        for name in other {
            if new.contains_key(name) {
                continue;
            }
            new.insert(name.clone(), spelling.spell_unique(name, &mut taken));
        }
        let replace = |name: &mut String| {
            if let Some(spelled) = new.get(name) {
                name.clone_from(spelled);
            }
        };
        for function in &mut self.tools.functions {
            replace(&mut function.name);
        }
        if let ToolChoice::Named(name) = &mut self.tools.choice {
            replace(name);
        }
        for part in self.parts_mut() {
            if let Part::ToolCall(call) = part {
                replace(&mut call.name);
            }
        }
        ReplacedNames(new.into_iter().map(|(name, new)| (new, name)).collect())
    }

    /// Replaces the ids of calls that `spelling` does not accept or that an earlier call already
    /// has; results get the ids of their calls.
    pub fn respell_ids(&mut self, spelling: Spelling) {
        let mut taken: HashSet<String> = HashSet::new();
        // For each original id, the new ids of its calls and whether each has a result.
        let mut calls: HashMap<String, Vec<(String, bool)>> = HashMap::new();
        for part in self.parts_mut() {
            match part {
                Part::ToolCall(call) => {
                    let id = spelling.spell_unique(&call.id, &mut taken);
                    let given = std::mem::replace(&mut call.id, id.clone());
                    calls.entry(given).or_default().push((id, false));
                }
                Part::ToolResult(result) => {
                    let Some(ids) = calls.get_mut(&result.call_id) else {
                        continue;
                    };
                    // Results of calls with the same id are in the order of the calls.
                    let open = ids.iter().position(|(_, has_result)| !has_result);
                    let at = open.unwrap_or(ids.len() - 1);
                    ids[at].1 = true;
                    result.call_id.clone_from(&ids[at].0);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::conversation::{Function, Message, Role, ToolCall, ToolResult};

    const NAMES: Spelling = Spelling {
        symbols: Some("_-"),
        max_chars: 64,
        starts_with_letter: true,
    };

    fn call(id: &str, name: &str) -> Part {
        Part::ToolCall(ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            ..ToolCall::default()
        })
    }

    fn conversation(names: &[&str], parts: Vec<Part>) -> Conversation {
        let mut conversation = Conversation::from_prompt("x".to_owned(), None);
        let functions = names.iter().map(|name| Function {
            name: (*name).to_owned(),
            description: None,
            parameters: None,
            strict: None,
        });
        conversation.tools.functions = functions.collect();
        let role = Role::Assistant;
        conversation.messages.push(Message { role, parts });
        conversation
    }

    fn declared(conversation: &Conversation) -> Vec<&str> {
        let functions = conversation.tools.functions.iter();
        functions.map(|function| function.name.as_str()).collect()
    }

    #[test]
    fn replaced_names_are_accepted_distinct_and_reversible() {
        let long = "x".repeat(65);
        let names = ["a.b", "a/b", "é", &long, "plain", "1st", "a b"];
        let mut first = conversation(&names, vec![call("1", "a.b"), call("2", "gone.now")]);
        first.tools.choice = ToolChoice::Named("a/b".to_owned());
        let replaced = first.respell_names(NAMES);
        let spelled = declared(&first);
        assert!(
            spelled
                .iter()
                .all(|name| NAMES.fits(name) && name.is_ascii()),
            "{spelled:?}"
        );
        let distinct: HashSet<&&str> = spelled.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(spelled[4], "plain");
        assert_eq!(first.tools.choice, ToolChoice::Named(spelled[1].to_owned()));
        for (spelled, name) in spelled.iter().zip(names) {
            assert_eq!(replaced.original((*spelled).to_owned()), name);
        }
        // A name that happens to equal another one's replacement is not changed.
        let taken = spelled[0].to_owned();
        let mut second = conversation(&["a.b", &taken], Vec::new());
        let replaced = second.respell_names(NAMES);
        assert_ne!(declared(&second)[0], taken);
        assert_eq!(replaced.original(taken.clone()), taken);
        // The next turn spells them in the same way.
        let mut again = conversation(&names, Vec::new());
        again.respell_names(NAMES);
        assert_eq!(declared(&again), declared(&first));
    }

    #[test]
    fn results_follow_the_ids_of_their_calls() {
        let result = |id: &str| {
            Part::ToolResult(ToolResult {
                call_id: id.to_owned(),
                parts: Vec::new(),
                is_error: false,
            })
        };
        let ids = Spelling {
            symbols: Some("_-"),
            max_chars: usize::MAX,
            starts_with_letter: false,
        };
        let parts = vec![
            call("f:0", "f"),
            call("same", "f"),
            call("same", "g"),
            result("same"),
            result("f:0"),
            result("same"),
            call("f:0", "f"),
            result("f:0"),
        ];
        let mut conversation = conversation(&[], parts);
        conversation.respell_ids(ids);
        let found: Vec<&str> = conversation.messages[1]
            .parts
            .iter()
            .map(|part| match part {
                Part::ToolCall(call) => call.id.as_str(),
                Part::ToolResult(result) => result.call_id.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(found.iter().all(|id| ids.fits(id)), "{found:?}");
        assert_eq!((found[1], found[3]), ("same", "same"));
        assert_eq!((found[2], found[0]), (found[5], found[4]));
        assert_ne!(found[1], found[2]);
        assert_ne!(found[0], found[6]);
    }
}
