//! The data of a playground form, and its request.

use serde_json::{Map, Value, json};

use super::{
    parameters::{self, Parameter},
    pictures,
};
use crate::console::{
    form::Form,
    models::name,
    operations::{self as op, Operation},
    parts::{list, served, text},
    problem::Problem,
    session::Session,
};

pub fn operation(kind: &str) -> Result<Operation, Problem> {
    match kind {
        "text" => Ok(op::GENERATE_TEXT),
        "image" => Ok(op::GENERATE_IMAGE),
        "video" => Ok(op::GENERATE_VIDEO),
        "audio" => Ok(op::GENERATE_AUDIO),
        _ => Err(Problem::not_found()),
    }
}

/// The data of the form of a type.
pub struct Bench {
    pub kind: String,
    pub operation: Operation,
    pub models: Value,
    /// The chosen model.
    pub model: Value,
    pub parameters: Vec<Parameter>,
    /// The account's templates; for texts only.
    pub templates: Value,
    pub template: Value,
    pub form: Form,
}

/// The page's content besides the form.
pub struct Outcome<'a> {
    pub estimate: Option<Result<Value, Problem>>,
    /// Why the form generated nothing.
    pub problem: Option<&'a Problem>,
    /// The generation of the form, or the previous one.
    pub record: Option<Value>,
    /// Other generations of the console that have not ended.
    pub running: Vec<Value>,
}

impl Bench {
    pub async fn set_up(session: &Session, kind: &str, form: Form) -> Result<Self, Problem> {
        let operation = operation(kind)?;
        let templates = async {
            match kind {
                "text" => session.long_pages(op::TEMPLATES).json().await,
                _ => Ok(Value::Null),
            }
        };
        let (models, providers, account, templates) = tokio::try_join!(
            session.call(op::MODELS, &[]).query("type", kind).json(),
            session.get(op::PROVIDERS, &[]),
            session.get(op::ACCOUNT, &[]),
            templates,
        )?;
        let model = chosen(kind, form.get("model"), &models, &providers, &account);
        let id: Option<i64> = form.word("template_id").parse().ok();
        let mut all = list(&templates["data"]).iter();
        let template = all.find(|template| template["id"].as_i64() == id);
        Ok(Self {
            kind: kind.to_owned(),
            operation,
            parameters: parameters::of(&model),
            template: template.cloned().unwrap_or_default(),
            templates,
            models,
            model,
            form,
        })
    }

    /// Builds the form's request.
    pub fn body(&self) -> Value {
        let (form, kind) = (&self.form, &*self.kind);
        let mut body = body(kind, &self.model, &self.parameters, form);
        if parameters::takes_negative_prompt(&self.model) {
            form.put_text(&mut body, "negative_prompt");
        }
        let inputs = pictures::inputs(form);
        if !inputs.is_empty() && matches!(kind, "image" | "video") {
            body.insert("inputs".to_owned(), Value::Array(inputs));
        }
        if self.template.is_object() {
            body.insert("template_id".to_owned(), self.template["id"].clone());
            let mut variables = Map::new();
            for name in list(&self.template["variables"]).iter().map(text) {
                let value = form.get(&format!("v.{name}"));
                if !value.is_empty() {
                    variables.insert(name.to_owned(), Value::from(value));
                }
            }
            if !variables.is_empty() {
                body.insert("template_variables".to_owned(), Value::Object(variables));
            }
        }
        Value::Object(body)
    }

    /// Finds the unfinished generations of this type that the console started, newest first.
    /// Returns none on an error, because the rest of the page works without them.
    pub async fn running(&self, session: &Session) -> Vec<Value> {
        let with_status = |status| {
            let call = session.call(op::HISTORY, &[]).query("type", &self.kind);
            call.query("api_key", "none").query("status", status).json()
        };
        let (pending, processing) = tokio::join!(with_status("pending"), with_status("processing"));
        let pages = [pending, processing].into_iter().flatten();
        pages
            .flat_map(|page| list(&page["data"]).to_vec())
            .collect()
    }

    /// Estimates the cost; `None` without a prompt.
    pub async fn estimate(&self, session: &Session) -> Option<Result<Value, Problem>> {
        if self.form.word("prompt").is_empty() {
            return None;
        }
        Some(estimate(session, &self.kind, self.body()).await)
    }
}

/// Builds the request of a form for one model.
pub fn body(
    kind: &str,
    model: &Value,
    parameters: &[Parameter],
    form: &Form,
) -> Map<String, Value> {
    let mut body = Map::new();
    for (field, name) in [("provider", "provider"), ("model", "id")] {
        body.insert(field.to_owned(), model[name].clone());
    }
    form.put_text(&mut body, "prompt");
    if kind == "text" {
        form.put_text(&mut body, "system_prompt");
    }
    let mut given = Map::new();
    for parameter in parameters {
        parameter.put(&mut given, form);
    }
    if !given.is_empty() {
        body.insert("parameters".to_owned(), Value::Object(given));
    }
    body
}

pub async fn estimate(session: &Session, kind: &str, mut body: Value) -> Result<Value, Problem> {
    body["type"] = json!(kind);
    session.send(op::ESTIMATE, &[], body).await
}

/// Returns the model of a form, else the account's default, else the server's. A retired one is
/// replaced.
pub fn chosen(
    kind: &str,
    asked: &str,
    models: &Value,
    providers: &Value,
    account: &Value,
) -> Value {
    let all = list(&models["data"]);
    let find = |provider: &str, id: Option<&str>| {
        let fits = |model: &&Value| {
            model["provider"] == provider
                && id.map_or(model["default"] == true, |id| model["id"] == id)
        };
        let mut model = all.iter().find(fits)?;
        // A replacement may be retired too.
        for _ in all {
            if model["retired"] != true {
                return Some(model);
            }
            let replacement = text(&model["replacement"]);
            model = all.iter().find(|model| name(model) == replacement)?;
        }
        None
    };
    let default = &account["defaults"][kind];
    let mut providers = list(&providers["data"]).iter();
    let server = providers.find(|p| list(&p["default_for"]).iter().any(|t| t == kind));
    let found = asked
        .split_once('/')
        .and_then(|(provider, id)| find(provider, Some(id)));
    found
        .or_else(|| find(default["provider"].as_str()?, default["model"].as_str()))
        .or_else(|| find(server?["id"].as_str()?, None))
        .or_else(|| served(models).first().copied())
        .cloned()
        .unwrap_or_default()
}
