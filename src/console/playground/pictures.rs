//! Input pictures: added to the form as uploads, or as results of earlier generations.
//!
//! A form field `input` has a role and the picture: `source upl_...` or `source UUID/0`.

use std::time::Duration;

use axum::{body::Bytes, extract::Request};
use http::header;
use maud::{Markup, html};
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::{Value, json};

use crate::{
    console::{
        form::Form,
        parts::{list, option, text},
        problem::Problem,
    },
    domain::inputs::InputRole,
};

/// Maximum bytes of a form with a picture.
const MAX_BYTES: u64 = 21 << 20;

fn roles(model: &Value) -> impl Iterator<Item = &'static str> {
    let taken = model["limits"]["inputs"]["roles"].clone();
    let roles = InputRole::ALL.iter().map(|role| role.as_str());
    roles.filter(move |role| taken[role].is_u64())
}

/// Builds `inputs` of the form's request.
pub fn inputs(form: &Form) -> Vec<Value> {
    let fields = form.all("input").into_iter();
    let inputs = fields.filter_map(|field| {
        let (role, what) = field.split_once(' ')?;
        Some(match what.split_once('/') {
            Some((uuid, output)) => {
                let output: Value = output.parse::<u16>().map_or(Value::Null, Value::from);
                json!({"role": role, "generation": uuid, "output": output})
            }
            None => json!({"role": role, "upload": what}),
        })
    });
    inputs.collect()
}

/// Adds the fields of the inputs in a record.
pub fn refill(form: &mut Form, record: &Value) {
    for input in list(&record["inputs"]) {
        let role = text(&input["role"]);
        match text(&input["from"]) {
            "upload" => form.push("input", &format!("{role} {}", text(&input["upload"]))),
            "generation" => {
                let (uuid, output) = (text(&input["generation"]), &input["output"]);
                form.push("input", &format!("{role} {uuid}/{output}"));
            }
            // It was sent within the request and is not stored.
            _ => {}
        }
    }
}

/// Renders the pictures of a form, and inputs to add one; nothing if the model accepts none.
pub fn fields(kind: &str, model: &Value, form: &Form) -> Markup {
    // A video's source is a generated video, never a picture.
    let roles = roles(model).filter(|role| kind != "video" || *role != "source");
    let mut roles = roles.peekable();
    if roles.peek().is_none() {
        return html! {};
    }
    html! {
        fieldset.stack #pictures data-pictures {
            legend { "Images" }
            @for field in form.all("input") {
                label {
                    input type="checkbox" name="input" value=(field) checked;
                    " " (field.replace(' ', ": "))
                }
            }
            div.fields {
                label.field {
                    span.label { "Add as" }
                    select name="role" { @for role in roles { (option(role, "", role)) } }
                }
                label.field {
                    span.label { "PNG, JPEG or WebP" }
                    input type="file" name="picture" accept="image/png,image/jpeg,image/webp";
                }
            }
            button type="submit" name="action" value="preview" formnovalidate formenctype="multipart/form-data"
                formaction={ "/playground/" (kind) "/pictures" } { "Add image" }
        }
    }
}

/// Renders links that use an image or a video of a record as an input.
pub fn uses(record: &Value) -> Markup {
    let kind = text(&record["type"]);
    if !matches!(kind, "image" | "video") || record["status"] != "completed" {
        return html! {};
    }
    let uuid = text(&record["uuid"]);
    let count = list(&record["outputs"]).len();
    html! {
        p.small {
            @for at in 0..count {
                @let number = if count > 1 { format!(" {}", at + 1) } else { String::new() };
                "Use as input" (number) ": "
                @if kind == "video" {
                    a href={ "/playground/video?input=source+" (uuid) "/" (at) } { "extend" }
                } @else {
                    a href={ "/playground/image?input=source+" (uuid) "/" (at) } { "edit" } " · "
                    a href={ "/playground/video?input=first_frame+" (uuid) "/" (at) } { "animate" }
                }
                @if at + 1 < count { br; }
            }
        }
    }
}

/// Maximum time for a form with a picture to arrive: [`MAX_BYTES`] at 64 KiB per second.
const IN_TIME: Duration = Duration::from_secs(30 + 21 * 16);

pub struct PictureForm {
    pub form: Form,
    pub picture: Bytes,
    pub media_type: String,
}

impl PictureForm {
    /// Reads a form within [`IN_TIME`].
    pub async fn read(request: Request) -> Result<Self, Problem> {
        let reading = tokio::time::timeout(IN_TIME, Self::read_fields(request));
        reading
            .await
            .unwrap_or_else(|_elapsed| Err(Problem::slow_form()))
    }

    async fn read_fields(request: Request) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let boundary = multer::parse_boundary(content_type.unwrap_or_default());
        let boundary =
            boundary.map_err(|_| Problem::bad_form("send the form as multipart/form-data"))?;
        let limit = SizeLimit::new().whole_stream(MAX_BYTES);
        let constraints = Constraints::new().size_limit(limit);
        let mut fields =
            Multipart::with_constraints(body.into_data_stream(), boundary, constraints);
        let mut read = Self {
            form: Form::default(),
            picture: Bytes::new(),
            media_type: String::new(),
        };
        let cut = |_| Problem::large_form();
        while let Some(field) = fields.next_field().await.map_err(cut)? {
            let name = field.name().unwrap_or_default().to_owned();
            if name == "picture" {
                let media_type = field.content_type().map(ToString::to_string);
                read.media_type = media_type.unwrap_or_default();
                read.picture = field.bytes().await.map_err(cut)?;
            } else {
                let value = field.text().await.map_err(cut)?;
                read.form.push(&name, &value);
            }
        }
        Ok(read)
    }
}
