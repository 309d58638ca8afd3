//! Enumerated names, and lists of them.

use std::marker::PhantomData;

use serde_json::{Value, json};

use super::{
    super::{Field, FieldCode, Schemas, component},
    Kind, typed,
};
use crate::domain::{
    ability::{self, Ability},
    named::Named,
};

/// One of a fixed set of names.
#[derive(Debug)]
pub struct Words<T> {
    message: Option<&'static str>,
    value: PhantomData<T>,
}

pub fn words<T: Named>() -> Words<T> {
    Words {
        message: None,
        value: PhantomData,
    }
}

impl<T> Words<T> {
    /// Sets the message for any other name.
    pub fn or_say(self, message: &'static str) -> Self {
        Self {
            message: Some(message),
            ..self
        }
    }
}

fn one_of<T: Named>() -> String {
    let names: Vec<_> = T::ALL.iter().map(|word| word.as_str()).collect();
    format!("must be one of {}", names.join(", "))
}

fn names<T: Named>(schemas: &mut Schemas) -> Value {
    let names: Vec<_> = T::ALL.iter().map(|word| word.as_str()).collect();
    component(
        schemas,
        T::NAME,
        |_| json!({"type": "string", "enum": names}),
    )
}

impl<T: Named> Kind for Words<T> {
    type Value = T;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<T> {
        let word = T::parse(typed(at, "a string", value.as_str())?);
        if word.is_none() {
            let message = self.message.map_or_else(one_of::<T>, str::to_owned);
            at.error(FieldCode::NotAllowed, message);
        }
        word
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        names::<T>(schemas)
    }
}

fn strings<'a>(value: &'a Value, at: Field<'_>) -> Option<Vec<&'a str>> {
    let strings = value
        .as_array()
        .and_then(|items| items.iter().map(Value::as_str).collect());
    typed(at, "an array of strings", strings)
}

/// A list of names, each at most once.
#[derive(Debug)]
pub struct Set<T> {
    empty: &'static str,
    value: PhantomData<T>,
}

/// Creates a list of names, each at most once. `empty`: the error for an empty array.
pub fn set<T: Named>(empty: &'static str) -> Set<T> {
    let value = PhantomData;
    Set { empty, value }
}

impl<T: Named + PartialEq> Kind for Set<T> {
    type Value = Vec<T>;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<Vec<T>> {
        let names = strings(value, at)?;
        if names.is_empty() {
            at.error(FieldCode::NotAllowed, self.empty);
        }
        let mut set = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            let message = match T::parse(name) {
                None => one_of::<T>(),
                Some(known) if set.contains(&known) => "is named more than once".to_owned(),
                Some(known) => {
                    set.push(known);
                    continue;
                }
            };
            at.item_error(index, FieldCode::NotAllowed, message);
        }
        Some(set)
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        let items = names::<T>(schemas);
        json!({"type": "array", "items": items, "minItems": 1, "uniqueItems": true})
    }
}

#[derive(Debug)]
pub struct Abilities;

impl Kind for Abilities {
    type Value = ability::Abilities;

    fn read(&self, value: &Value, at: Field<'_>) -> Option<ability::Abilities> {
        let abilities = ability::Abilities::parse(&strings(value, at)?);
        for &(index, message) in abilities.as_ref().err().into_iter().flatten() {
            let code = FieldCode::NotAllowed;
            match index {
                Some(index) => at.item_error(index, code, message),
                None => at.error(code, message),
            }
        }
        abilities.ok()
    }

    fn schema(&self, schemas: &mut Schemas) -> Value {
        component(schemas, "Abilities", |_| {
            json!({
                "type": "array",
                "description": "What a key may call: each ability once, `*` alone.",
                "items": {"$ref": "#/components/schemas/Ability"},
                "minItems": 1, "uniqueItems": true,
                "anyOf": [{"maxItems": 1}, {"items": {"not": {"const": Ability::All.as_str()}}}],
            })
        })
    }
}
