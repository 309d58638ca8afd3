//! A serde deserializer for TOML values.
//!
//! It is strict, because accepting 3.7 as 4 or 1 as `true` would be dangerous for prices and
//! timeouts. It refuses unknown keys of a struct, parses text if another type is expected, and adds
//! the location to errors.

use std::iter::{Enumerate, Peekable};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};
use toml::{Table, Value};

use super::{ConfigError, shown};

pub(super) struct Reader(pub(super) Value);

impl Reader {
    fn is_not<T>(&self, wanted: &str) -> Result<T, ConfigError> {
        let bad = shown(&self.0);
        Err(ConfigError::new("", format!("is {bad}: must be {wanted}")))
    }

    fn table<'de, V: Visitor<'de>>(
        self,
        wanted: &str,
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self.0 {
            Value::Table(table) => visitor.visit_map(Entries::new(table)),
            // It may be a misplaced secret.
            Value::String(_) => {
                let problem = format!("is text (not shown): must be {wanted}");
                Err(ConfigError::new("", problem))
            }
            _ => self.is_not(wanted),
        }
    }
}

impl<'de> Deserializer<'de> for Reader {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(flag) => visitor.visit_bool(flag),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(items) => visitor.visit_seq(Items(items.into_iter().enumerate())),
            Value::Table(table) => visitor.visit_map(Entries::new(table)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let flag = match &self.0 {
            Value::Boolean(flag) => Some(*flag),
            Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        match flag {
            Some(flag) => visitor.visit_bool(flag),
            None => self.is_not("true or false"),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let number = match &self.0 {
            Value::Float(number) => Some(*number),
            // No setting accepts more than an `i32`: larger numbers become infinite, which is out
            // of every range.
            Value::Integer(number) => Some(i32::try_from(*number).map_or(f64::INFINITY, f64::from)),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => visitor.visit_f64(number),
            None => self.is_not("a number"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match &self.0 {
            Value::String(text) => visitor.visit_str(text.trim()),
            _ => self.is_not("text in quotes"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        self.deserialize_string(visitor)
    }

    /// Splits text at commas, so that an environment variable can hold a list.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        let items = match self.0 {
            Value::Array(items) => items,
            Value::String(text) => text
                .split(',')
                .filter(|item| !item.trim().is_empty())
                .map(Value::from)
                .collect(),
            _ => return self.is_not("a list"),
        };
        visitor.visit_seq(Items(items.into_iter().enumerate()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        self.table("a table with keys", visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        let mut keys = self.0.as_table().into_iter().flat_map(Table::keys);
        if let Some(key) = keys.find(|key| !fields.contains(&key.as_str())) {
            return Err(ConfigError::unknown_field(key, fields));
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match &self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => self.is_not(&format!("one of {}", names.join(", "))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf
        unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Items(Enumerate<std::vec::IntoIter<Value>>);

impl<'de> SeqAccess<'de> for Items {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ConfigError> {
        let item = self.0.next().map(|(index, value)| {
            seed.deserialize(Reader(value))
                .map_err(|error| error.under(&format!("[{index}]")))
        });
        item.transpose()
    }
}

struct Entries(Peekable<toml::map::IntoIter<String, Value>>);

impl Entries {
    fn new(table: Table) -> Self {
        Self(table.into_iter().peekable())
    }
}

impl<'de> MapAccess<'de> for Entries {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ConfigError> {
        let key = self.0.peek().map(|(key, _)| key.as_str());
        key.map(|key| seed.deserialize(key.into_deserializer()))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, ConfigError> {
        let Some((key, value)) = self.0.next() else {
            return Err(ConfigError::custom("has a key without a value"));
        };
        seed.deserialize(Reader(value))
            .map_err(|error| error.under(&key))
    }
}
