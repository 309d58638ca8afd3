//! Reads one object.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use serde_json::{Map, Value, json};

use super::{
    Errors, FieldCode, Kind, MAX_ERRORS, SchemaName, Schemas, component,
    describe::{Description, Property},
    only,
};
use crate::domain::{
    likeness::suggestion,
    receipt::{MARKER, is_unread},
};

/// Initial capacity for names: as many as most objects have.
const KNOWN_CAPACITY: usize = 16;
/// Maximum members that are compared one by one, which is faster than hashing a name.
const MAX_SCANNED: usize = 16;

/// A reader of one object. Every name that is read is known; other members are reported at the end.
#[derive(Debug)]
pub struct Fields<'a> {
    /// `None` if the object is absent.
    pub(super) members: Option<&'a Map<String, Value>>,
    pub(super) prefix: String,
    pub(super) known: RefCell<Vec<&'static str>>,
    pub(super) unsupported: RefCell<Vec<&'static str>>,
    /// The known names of the objects within this one, with the name of the object.
    pub(super) nested: RefCell<Vec<(&'static str, Vec<&'static str>)>>,
    pub(super) errors: &'a Errors,
    pub(super) is_query: bool,
    /// Collects unknown members, if they are allowed.
    pub(super) others: RefCell<Option<Rc<RefCell<Others>>>>,
    /// Whether unknown null members count as absent: SDKs send every field that they know.
    pub(super) takes_nulls: Cell<bool>,
    /// Collects the description of the fields, if they are described instead of read.
    pub(super) description: Option<RefCell<Description>>,
}

/// Unknown members, at any depth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Others {
    /// Their paths, as far as an error names them.
    pub names: Vec<String>,
    /// Bytes of their values in JSON that a model may read.
    pub bytes: usize,
    /// Whether there are cache markers, which are not included.
    pub has_markers: bool,
}

impl Others {
    /// Returns the name of cache markers, if any. Providers that do not know them do not get them.
    pub fn marker(&self) -> Option<&'static str> {
        self.has_markers.then_some(MARKER)
    }

    fn add(&mut self, prefix: &str, name: &str, value: &Value) {
        if !is_unread(prefix, name, value) {
            self.bytes += name.len() + value.to_string().len();
        }
        if name == MARKER && (value.is_object() || value.is_null()) {
            self.has_markers |= value.is_object();
            return;
        }
        if self.names.len() < MAX_ERRORS {
            let shown: String = name.chars().take(100).collect();
            let path = format!("{prefix}{shown}");
            self.names.push(path.replace('\0', "\u{fffd}"));
        }
    }
}

/// The path of a value, for its errors.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    pub(super) fields: &'a Fields<'a>,
    name: &'static str,
}

impl Field<'_> {
    pub fn error(&self, code: FieldCode, message: impl Into<String>) {
        self.fields.error(self.name, code, message);
    }

    /// Reports an error of an item of an array.
    pub fn item_error(&self, at: usize, code: FieldCode, message: impl Into<String>) {
        let name = format!("{}[{at}]", self.name);
        self.fields.error(&name, code, message);
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(members: Option<&'a Map<String, Value>>, errors: &'a Errors) -> Self {
        Self {
            members,
            prefix: String::new(),
            known: RefCell::new(Vec::with_capacity(KNOWN_CAPACITY)),
            unsupported: RefCell::default(),
            nested: RefCell::default(),
            errors,
            is_query: false,
            others: RefCell::default(),
            takes_nulls: Cell::new(false),
            description: None,
        }
    }

    /// Reads an optional field; null counts as absent.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a kind is made where it is used"
    )]
    pub fn optional<K: Kind>(
        &self,
        name: &'static str,
        about: &'static str,
        kind: K,
    ) -> Option<K::Value> {
        self.describe(name, about, false, |schemas| kind.schema(schemas));
        let value = self.value(name)?;
        kind.read(value, Field { fields: self, name })
    }

    /// Reads a field that is required if the object is present.
    pub fn required<K: Kind>(
        &self,
        name: &'static str,
        about: &'static str,
        kind: K,
    ) -> Option<K::Value> {
        self.required_or(name, about, kind, "is required")
    }

    /// Like [`Self::required`], with the message for a missing value.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a kind is made where it is used"
    )]
    pub fn required_or<K: Kind>(
        &self,
        name: &'static str,
        about: &'static str,
        kind: K,
        missing: &str,
    ) -> Option<K::Value> {
        self.describe(name, about, true, |schemas| kind.schema(schemas));
        let Some(value) = self.value(name) else {
            if self.members.is_some() {
                self.error(name, FieldCode::Required, missing);
            }
            return None;
        };
        kind.read(value, Field { fields: self, name })
    }

    /// Reads an optional object, with the name and the description of its schema. An absent object
    /// has no fields.
    pub fn object<T>(
        &self,
        name: &'static str,
        about: &'static str,
        schema: SchemaName,
        read: impl FnOnce(&Fields<'_>) -> T,
    ) -> T {
        let value = self.value(name);
        let members = value.and_then(Value::as_object);
        if value.is_some() && members.is_none() {
            self.error(name, FieldCode::InvalidType, "must be an object");
        }
        let fields = self.inner(members, format!("{}{name}.", self.prefix));
        let read = read(&fields);
        let outer = self.prefix.is_empty().then(|| self.known.borrow());
        fields.finish_within(outer.as_deref().map_or(&[][..], Vec::as_slice));
        drop(outer);
        let known = fields.known.take();
        self.nested.borrow_mut().push((name, known));
        if let Some(inner) = fields.description {
            self.describe(name, about, false, |schemas| {
                let mut inner = inner.into_inner();
                schemas.append(&mut inner.schemas);
                component(schemas, schema.0, |_| inner.object(schema.1))
            });
        }
        read
    }

    /// Returns a reader of an object within this one.
    pub(super) fn inner<'b>(
        &self,
        members: Option<&'b Map<String, Value>>,
        prefix: String,
    ) -> Fields<'b>
    where
        'a: 'b,
    {
        Fields {
            prefix,
            is_query: self.is_query,
            others: RefCell::new(self.others.borrow().clone()),
            takes_nulls: self.takes_nulls.clone(),
            description: self.description.as_ref().map(|outer| {
                RefCell::new(Description {
                    open: outer.borrow().open,
                    ..Description::default()
                })
            }),
            ..Fields::new(members, self.errors)
        }
    }

    /// Refuses `field` without `other`; both must have been read before.
    pub fn needs(&self, field: &'static str, other: &'static str, message: &str) {
        if let Some(description) = &self.description {
            description.borrow_mut().needs.push((field, other));
        }
        if self.has(field) && !self.failed(field) && !self.has(other) {
            self.error(field, FieldCode::NotAllowed, message);
        }
    }

    pub fn error(&self, name: &str, code: FieldCode, message: impl Into<String>) {
        let path = format!("{}{name}", self.prefix);
        self.errors.add(path, code, message);
    }

    /// Whether a field has failed, or one within it.
    pub fn failed(&self, name: &str) -> bool {
        self.errors.has(&format!("{}{name}", self.prefix))
    }

    /// Whether a field is present and not null.
    pub fn has(&self, name: &str) -> bool {
        self.member(name).is_some_and(|v| !v.is_null())
    }

    /// Whether a field is present and null.
    pub fn is_null(&self, name: &str) -> bool {
        self.member(name).is_some_and(Value::is_null)
    }

    fn member(&self, name: &str) -> Option<&'a Value> {
        let members = self.members?;
        if members.len() > MAX_SCANNED {
            return members.get(name);
        }
        let mut members = members.iter();
        let found = members.find(|(member, _)| *member == name);
        found.map(|(_, value)| value)
    }

    /// Returns a member unchanged, without describing it; null counts as absent.
    pub fn value(&self, name: &'static str) -> Option<&'a Value> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&name) {
            known.push(name);
        }
        self.member(name).filter(|v| !v.is_null())
    }

    /// Refuses fields that a dialect has and this server does not support, by name.
    pub fn unsupported(&self, names: &[&'static str]) {
        for name in names {
            if self.has(name) {
                self.error(name, FieldCode::NotSupported, "is not supported here");
            }
        }
        self.unsupported.borrow_mut().extend(names);
    }

    /// Keeps unknown members instead of refusing them, from this call on, also in inner objects.
    pub fn keep_others(&self) {
        *self.others.borrow_mut() = Some(Rc::default());
        if let Some(description) = &self.description {
            description.borrow_mut().open = true;
        }
    }

    /// Counts unknown null members as absent, from this call on, also in inner objects.
    pub fn take_unknown_nulls(&self) {
        self.takes_nulls.set(true);
    }

    /// Returns the unknown members, after all known fields were read.
    pub fn others(&self) -> Others {
        self.finish();
        let others = self.others.borrow_mut().take();
        // The end of the whole body must not report them as unknown.
        *self.others.borrow_mut() = Some(Rc::default());
        others.map_or_else(Others::default, |others| others.borrow().clone())
    }

    /// Adds to the bytes that a model may read although this server does not.
    pub fn count_others(&self, bytes: usize) {
        if let Some(others) = &*self.others.borrow() {
            others.borrow_mut().bytes += bytes;
        }
    }

    /// Accepts a field with these values only, which change nothing; others count as unknown.
    pub fn neutral(&self, name: &'static str, values: Vec<Value>) {
        let about = "A value that changes nothing; others only if the provider knows the field.";
        self.describe(name, about, false, |_| json!({}));
        let Some(value) = self.value(name) else {
            return;
        };
        if only(values).has(value) {
            return;
        }
        match &*self.others.borrow() {
            Some(others) => others.borrow_mut().add(&self.prefix, name, value),
            None => self.error(name, FieldCode::NotSupported, "is not supported here"),
        }
    }

    /// Returns those of `names` that are present. They change no answer.
    pub fn hints(&self, names: &[&'static str]) -> Vec<&'static str> {
        self.unsupported.borrow_mut().extend(names);
        let given = names.iter().copied().filter(|name| self.has(name));
        given.collect()
    }

    pub(super) fn describe(
        &self,
        name: &'static str,
        about: &'static str,
        required: bool,
        schema: impl FnOnce(&mut Schemas) -> Value,
    ) {
        let Some(description) = &self.description else {
            return;
        };
        let mut description = description.borrow_mut();
        let schema = schema(&mut description.schemas);
        description.properties.push(Property {
            name,
            about,
            required,
            schema,
        });
    }

    /// Reports every unknown member, with the names that exist.
    pub(super) fn finish(&self) {
        self.finish_within(&[]);
    }

    /// As [`Self::finish`]. `outer`: the known names of the body, if this object is a member of it.
    fn finish_within(&self, outer: &[&'static str]) {
        let (known, unsupported) = (self.known.borrow(), self.unsupported.borrow());
        let unknown = self.members.into_iter().flatten().filter(|(name, _)| {
            !known.contains(&name.as_str()) && !unsupported.contains(&name.as_str())
        });
        if let Some(others) = &*self.others.borrow() {
            for (name, value) in unknown.filter(|(_, value)| !value.is_null()) {
                others.borrow_mut().add(&self.prefix, name, value);
            }
            return;
        }
        let noun = if self.is_query {
            "a query parameter of this route"
        } else {
            "a field of this request"
        };
        for (name, value) in unknown {
            if value.is_null() && self.takes_nulls.get() {
                continue;
            }
            if self.errors.are_full() {
                break;
            }
            let shown: String = name.chars().take(100).collect();
            let meant = suggestion(&shown, known.iter().copied());
            let meant = meant.map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
            let message = if let Some(object) = self.nested_with(name) {
                format!("belongs in `{}{object}`", self.prefix)
            } else if outer.contains(&name.as_str()) {
                let object = self.prefix.trim_end_matches('.');
                format!("belongs at the top of the body, not in `{object}`")
            } else if known.is_empty() {
                format!("is not {noun}, which takes none")
            } else {
                format!("is not {noun}{meant}; it takes {}", known.join(", "))
            };
            let name = shown.replace('\0', "\u{fffd}");
            self.error(&name, FieldCode::UnknownField, message);
        }
    }

    /// Returns the object within this one that has a member of this name.
    fn nested_with(&self, name: &str) -> Option<&'static str> {
        let nested = self.nested.borrow();
        let found = nested.iter().find(|(_, known)| known.contains(&name));
        found.map(|(object, _)| *object)
    }
}
