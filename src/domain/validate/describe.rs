//! Builds the JSON schema of a body, or the parameters of a query, from the description of fields.

use serde_json::{Map, Value, json};

/// Schemas by name, to which others refer.
pub type Schemas = Map<String, Value>;

#[derive(Debug, Default)]
pub(super) struct Description {
    pub properties: Vec<Property>,
    /// Fields that are accepted only together with another.
    pub needs: Vec<(&'static str, &'static str)>,
    pub schemas: Schemas,
    /// Whether it may have other fields.
    pub open: bool,
}

#[derive(Debug)]
pub(super) struct Property {
    pub name: &'static str,
    pub about: &'static str,
    pub required: bool,
    /// The schema of a value that is present.
    pub schema: Value,
}

/// Returns a reference to a named schema.
pub fn component(
    schemas: &mut Schemas,
    name: &str,
    schema: impl FnOnce(&mut Schemas) -> Value,
) -> Value {
    let schema = schema(schemas);
    schemas.insert(name.to_owned(), schema);
    json!({"$ref": format!("#/components/schemas/{name}")})
}

impl Description {
    /// Returns the schema of an object with these fields, and no others unless it is open.
    pub fn object(self, about: &str) -> Value {
        let mut schema = json!({"type": "object", "description": about});
        if !self.open {
            schema["additionalProperties"] = json!(false);
        }
        let required = self.properties.iter().filter(|p| p.required);
        let required: Vec<_> = required.map(|p| p.name).collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        for (field, other) in &self.needs {
            let other = self.properties.iter().find(|p| p.name == *other);
            schema["dependentSchemas"][field] =
                other.map_or(json!(false), |other| needs(field, other));
        }
        for property in self.properties {
            let name = property.name;
            schema["properties"][name] = property.member();
        }
        schema
    }

    /// Returns the parameters of a query. Parameters are absent if not sent, and never null.
    pub fn parameters(self) -> Vec<Value> {
        let parameter = |p: Property| {
            json!({"name": p.name, "in": "query", "description": p.about,
                "required": p.required, "schema": p.schema})
        };
        self.properties.into_iter().map(parameter).collect()
    }
}

impl Property {
    /// Returns the schema as a member of an object: null counts as absent.
    fn member(self) -> Value {
        let Self {
            about,
            required,
            mut schema,
            ..
        } = self;
        let absent = json!({"type": "null"});
        let by_reference = schema.get("$ref").is_some();
        schema["description"] = json!(about);
        if required {
            return schema;
        }
        if by_reference {
            return json!({"oneOf": [schema, absent]});
        }
        let typed = schema.get("type").is_some();
        match schema.get_mut("oneOf").and_then(Value::as_array_mut) {
            Some(kinds) => kinds.push(absent),
            None if typed => {
                schema["type"] = json!([schema["type"].take(), "null"]);
            }
            // Any type.
            None => {}
        }
        schema
    }
}

/// Returns the rule that `field` requires `other`; null counts as absent.
fn needs(field: &str, other: &Property) -> Value {
    let types = match other.schema["oneOf"].as_array() {
        Some(kinds) => kinds.iter().map(|kind| kind["type"].clone()).collect(),
        None => other.schema["type"].clone(),
    };
    json!({"anyOf": [
        {"properties": {field: {"type": "null"}}},
        {"properties": {other.name: {"type": types}}, "required": [other.name]},
    ]})
}
