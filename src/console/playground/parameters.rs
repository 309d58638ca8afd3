//! Parameters of a model: the inputs for them, and the body from these inputs.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::console::{
    form::Form,
    parts::{self, list, option, plain, text},
    problem::Problem,
};

pub struct Parameter {
    name: &'static str,
    label: &'static str,
    hint: &'static str,
    kind: Kind,
}

enum Kind {
    /// One of these values, with the default; an empty default selects none of them.
    Choice(Vec<String>, String),
    Number {
        low: f64,
        high: f64,
        step: &'static str,
        default: &'static str,
    },
    Text(String),
}

/// The parameters in `outpaint`, with their labels.
const SIDES: [(&str, &str); 4] = [
    ("outpaint.left", "Left"),
    ("outpaint.right", "Right"),
    ("outpaint.up", "Up"),
    ("outpaint.down", "Down"),
];

/// Returns the name of a parameter's form field.
fn field(name: &str) -> String {
    format!("p.{name}")
}

fn strings(value: &Value) -> Vec<String> {
    list(value).iter().map(plain).collect()
}

/// Whether a model supports `negative_prompt`.
pub fn takes_negative_prompt(model: &Value) -> bool {
    let support = text(&model["limits"]["negative_prompt"]);
    !support.is_empty() && support != "unsupported"
}

pub fn of(model: &Value) -> Vec<Parameter> {
    let limits = &model["limits"];
    let choice = |values: Vec<String>, default: &str| {
        let chosen = values.iter().find(|value| *value == default);
        let default = chosen.or(values.first()).cloned().unwrap_or_default();
        Kind::Choice(values, default)
    };
    let choice_or_text = |values: Vec<String>, default: &str| {
        if values.is_empty() {
            Kind::Text(default.to_owned())
        } else {
            choice(values, default)
        }
    };
    let number = |low, high, step, default| Kind::Number {
        low,
        high,
        step,
        default,
    };
    let up_to = |most: &Value, default| number(1.0, most.as_f64().unwrap_or(1.0), "1", default);
    let within = |range: &Value, default| {
        let (low, high) = range[0].as_f64().zip(range[1].as_f64())?;
        Some(number(low, high, "any", default))
    };
    let mut found = Vec::new();
    let mut add = |name, label, hint, kind| {
        found.push(Parameter {
            name,
            label,
            hint,
            kind,
        });
    };
    match text(&model["type"]) {
        "text" => {
            let kind = up_to(&limits["max_tokens"], "1024");
            add("max_tokens", "Max tokens", "Of the answer, at most.", kind);
            if let Some(kind) = within(&limits["temperature"], "") {
                let hint = "The provider's own by default.";
                add("temperature", "Temperature", hint, kind);
            }
        }
        "image" => {
            if limits["inputs"]["outpaints"] == true {
                for (name, label) in SIDES {
                    let pixels = number(0.0, 2_000.0, "1", "0");
                    add(name, label, "Pixels to add to the source.", pixels);
                }
            } else {
                let sizes = choice(strings(&limits["sizes"]), "1024x1024");
                add("size", "Size", "", sizes);
            }
            let qualities = choice(strings(&limits["qualities"]), "standard");
            add("quality", "Quality", "", qualities);
            if text(&limits["style"]) != "unsupported" {
                let styles = ["vivid", "natural"].map(str::to_owned).into();
                add("style", "Style", "", Kind::Choice(styles, String::new()));
            }
            let n = up_to(&limits["max_n"], "1");
            add("n", "How many", "Billed each.", n);
        }
        "video" => {
            let default = limits["default_duration"].to_string();
            let durations = choice(strings(&limits["durations"]), &default);
            add("duration", "Duration in seconds", "", durations);
            let ratios = choice_or_text(strings(&limits["ratios"]), "16:9");
            add("ratio", "Ratio", "Width to height.", ratios);
        }
        _ => {
            let default = text(&limits["default_voice"]);
            let voices = choice_or_text(strings(&limits["voices"]), default);
            add("voice", "Voice", "", voices);
            if let Some(kind) = within(&limits["speed"], "1.0") {
                add("speed", "Speed", "", kind);
            }
            let formats = choice(strings(&limits["formats"]), "mp3");
            add("format", "Format", "", formats);
        }
    }
    found
}

/// Returns the parameters that all of these models have. They are sent only if a value was chosen.
/// Models without limits are unknown to the server.
pub fn shared(models: &[Value]) -> Vec<Parameter> {
    let known = models.iter().filter(|model| model["limits"].is_object());
    let mut all = known.map(of);
    let mut shared = all.next().unwrap_or_default();
    for other in all {
        shared.retain(|own| other.iter().any(|other| other.name == own.name));
    }
    for parameter in &mut shared {
        if let Kind::Choice(_, default) = &mut parameter.kind {
            default.clear();
        }
    }
    shared
}

impl Parameter {
    /// Returns the value in a form, if this model accepts it.
    fn value<'a>(&self, form: &'a Form) -> &'a str {
        let value = form.word(&field(self.name));
        match &self.kind {
            Kind::Choice(values, _) if !values.iter().any(|known| known == value) => "",
            _ => value,
        }
    }

    /// Adds the value to a request's parameters, unless it is empty.
    pub fn put(&self, parameters: &mut Map<String, Value>, form: &Form) {
        let value = self.value(form);
        if value.is_empty() {
            return;
        }
        if let Some((name, side)) = self.name.split_once('.') {
            let object = parameters.entry(name).or_insert_with(|| Map::new().into());
            if let Some(object) = object.as_object_mut() {
                form.put_number(object, side, &field(self.name));
            }
        } else if matches!(self.kind, Kind::Number { .. }) || self.name == "duration" {
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
                        @if default.is_empty() && !values.is_empty() { (option("", chosen, "Default")) }
                        @for known in values { (option(known, chosen, known)) }
                    }
                }
                Kind::Number { low, high, step, default } => {
                    input type="number" name=(name) value=(value) placeholder=(default)
                        min=(low) max=(high) step=(step);
                }
                Kind::Text(default) => {
                    input type="text" name=(name) value=(value) placeholder=(default);
                }
            }
        };
        let hint = match (&self.kind, self.hint) {
            (Kind::Number { low, high, .. }, "") => format!("{low} to {high}."),
            (Kind::Number { low, high, .. }, hint) => format!("{low} to {high}. {hint}"),
            (_, hint) => hint.to_owned(),
        };
        parts::field(problem, self.label, &self.param(), &hint, &input)
    }

    /// Returns its name in errors.
    pub fn param(&self) -> String {
        format!("parameters.{}", self.name)
    }
}
