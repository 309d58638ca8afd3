//! Parameters of a model: from the catalogue to inputs, and from inputs to a body.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::console::{
    form::Form,
    parts::{self, list, option, text},
    problem::Problem,
};

/// One parameter of a model.
pub struct Parameter {
    name: &'static str,
    label: &'static str,
    hint: String,
    kind: Kind,
}

enum Kind {
    /// One of these; the default if none is chosen.
    Choice(Vec<String>, String),
    /// One of these, or none.
    Optional(Vec<String>),
    Number {
        low: f64,
        high: f64,
        whole: bool,
        default: String,
    },
    Text {
        default: String,
    },
}

/// The name of a parameter's field in a form.
fn field(name: &str) -> String {
    format!("p.{name}")
}

fn strings(value: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    list(value).iter().map(text).collect()
}

fn range(value: &Value) -> Option<(f64, f64)> {
    Some((value[0].as_f64()?, value[1].as_f64()?))
}

/// Whether a model takes `negative_prompt`.
pub fn takes_negative_prompt(model: &Value) -> bool {
    let support = text(&model["limits"]["negative_prompt"]);
    !support.is_empty() && support != "unsupported"
}

/// The parameters of a model of the catalogue.
pub fn of(model: &Value) -> Vec<Parameter> {
    let limits = &model["limits"];
    let new = |name, label, hint: &str, kind| Parameter {
        name,
        label,
        hint: hint.to_owned(),
        kind,
    };
    let choice = |values: Vec<String>, default: &str| {
        let chosen = values
            .iter()
            .find(|value| *value == default)
            .or(values.first());
        let default = chosen.cloned().unwrap_or_default();
        Kind::Choice(values, default)
    };
    let number = |low, high, whole, default: &str| Kind::Number {
        low,
        high,
        whole,
        default: default.to_owned(),
    };
    let mut found = Vec::new();
    match text(&model["type"]) {
        "text" => {
            let most = limits["max_tokens"].as_f64().unwrap_or(1.0);
            let kind = number(1.0, most, true, "1024");
            found.push(new(
                "max_tokens",
                "Max tokens",
                "Of the answer, at most.",
                kind,
            ));
            if let Some((low, high)) = range(&limits["temperature"]) {
                let kind = number(low, high, false, "");
                found.push(new(
                    "temperature",
                    "Temperature",
                    "The provider's own by default.",
                    kind,
                ));
            }
        }
        "image" => {
            let sizes = strings(&limits["sizes"]);
            found.push(new("size", "Size", "", choice(sizes, "1024x1024")));
            let qualities = strings(&limits["qualities"]);
            found.push(new("quality", "Quality", "", choice(qualities, "standard")));
            if text(&limits["style"]) != "unsupported" {
                let styles = vec!["vivid".to_owned(), "natural".to_owned()];
                found.push(new("style", "Style", "", Kind::Optional(styles)));
            }
            let most = limits["max_n"].as_f64().unwrap_or(1.0);
            found.push(new(
                "n",
                "How many",
                "Billed each.",
                number(1.0, most, true, "1"),
            ));
        }
        "video" => {
            let default = limits["default_duration"].to_string();
            let durations = choice(strings(&limits["durations"]), &default);
            found.push(new("duration", "Duration in seconds", "", durations));
            let ratios = strings(&limits["ratios"]);
            let kind = if ratios.is_empty() {
                Kind::Text {
                    default: "16:9".to_owned(),
                }
            } else {
                choice(ratios, "16:9")
            };
            found.push(new("ratio", "Ratio", "Width to height.", kind));
        }
        _ => {
            let default = text(&limits["default_voice"]);
            let voices = strings(&limits["voices"]);
            let kind = if voices.is_empty() {
                Kind::Text {
                    default: default.to_owned(),
                }
            } else {
                choice(voices, default)
            };
            found.push(new("voice", "Voice", "", kind));
            if let Some((low, high)) = range(&limits["speed"]) {
                found.push(new("speed", "Speed", "", number(low, high, false, "1.0")));
            }
            let formats = strings(&limits["formats"]);
            found.push(new("format", "Format", "", choice(formats, "mp3")));
        }
    }
    found
}

impl Parameter {
    /// The value in a form, if this model accepts it.
    fn value<'a>(&self, form: &'a Form) -> &'a str {
        let value = form.word(&field(self.name));
        match &self.kind {
            Kind::Choice(values, _) | Kind::Optional(values)
                if !values.iter().any(|known| known == value) =>
            {
                ""
            }
            _ => value,
        }
    }

    /// Puts it into a request's parameters, unless it is empty.
    pub fn put(&self, parameters: &mut Map<String, Value>, form: &Form) {
        let value = self.value(form);
        if value.is_empty() {
            return;
        }
        if matches!(self.kind, Kind::Number { .. }) || self.name == "duration" {
            form.put_number(parameters, self.name, &field(self.name));
        } else {
            parameters.insert(self.name.to_owned(), Value::from(value));
        }
    }

    pub fn input(&self, form: &Form, problem: Option<&Problem>) -> Markup {
        let (name, value) = (field(self.name), self.value(form));
        let input = html! {
            @match &self.kind {
                Kind::Choice(values, default) => {
                    select name=(name) {
                        @let chosen = if value.is_empty() { default.as_str() } else { value };
                        @for known in values { (option(known, chosen, known)) }
                    }
                }
                Kind::Optional(values) => {
                    select name=(name) {
                        (option("", value, "None"))
                        @for known in values { (option(known, value, known)) }
                    }
                }
                Kind::Number { low, high, whole, default } => {
                    input type="number" name=(name) value=(value) placeholder=(default)
                        min=(low) max=(high) step=(if *whole { "1" } else { "any" });
                }
                Kind::Text { default } => {
                    input type="text" name=(name) value=(value) placeholder=(default);
                }
            }
        };
        let hint = match (&self.kind, self.hint.as_str()) {
            (Kind::Number { low, high, .. }, "") => format!("{low} to {high}."),
            (Kind::Number { low, high, .. }, hint) => format!("{low} to {high}. {hint}"),
            (_, hint) => hint.to_owned(),
        };
        parts::field(problem, self.label, &self.param(), &hint, &input)
    }

    /// Its name in an error.
    pub fn param(&self) -> String {
        format!("parameters.{}", self.name)
    }
}
