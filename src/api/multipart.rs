//! Reads `multipart/form-data`, in which SDKs send pictures, into the members of the equivalent
//! JSON request.

use std::convert::Infallible;

use axum::body::Bytes;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::stream;
use multer::Multipart;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use crate::domain::validate::{FieldCode, FieldError};

/// Maximum fields of a form.
const MAX_FIELDS: usize = 100;
/// Fields that are numbers in JSON.
const NUMBERS: [&str; 3] = ["n", "output_compression", "partial_images"];

/// Returns the members of an image edit. Its files become data URLs in `images` and `mask`.
pub async fn members(bytes: Bytes, content_type: &str) -> Result<Map<String, Value>, ApiError> {
    let malformed = |error: multer::Error| {
        ApiError::malformed_json(format!(
            "the body is not valid multipart/form-data: {error}"
        ))
    };
    let boundary = multer::parse_boundary(content_type).map_err(malformed)?;
    let body = stream::once(async { Ok::<_, Infallible>(bytes) });
    let mut form = Multipart::new(body, boundary);
    let (mut members, mut images) = (Map::new(), Vec::new());
    let mut count = 0;
    while let Some(field) = form.next_field().await.map_err(malformed)? {
        count += 1;
        if count > MAX_FIELDS {
            let message = format!("the form has more than {MAX_FIELDS} fields");
            return Err(ApiError::malformed_json(message));
        }
        let name = field.name().unwrap_or_default().to_owned();
        let (base, _) = name.split_once('[').unwrap_or((&name, ""));
        match base {
            "image" | "mask" => {
                let file = field.bytes().await.map_err(malformed)?;
                let url = format!("data:;base64,{}", BASE64_STANDARD.encode(&file));
                let picture = json!({"image_url": url});
                if base == "image" {
                    images.push(picture);
                    continue;
                }
                insert(&mut members, "mask", picture)?;
            }
            "images" => {
                let message = "is not a field of a form, in which it is called image or image[]";
                let error = FieldError::new(base, FieldCode::UnknownField, message);
                return Err(ApiError::invalid(vec![error]));
            }
            _ => {
                let text = field.text().await.map_err(malformed)?;
                insert(&mut members, &name, value(&name, &text))?;
            }
        }
    }
    if !images.is_empty() {
        members.insert("images".to_owned(), Value::Array(images));
    }
    Ok(members)
}

/// Returns the form field of a member of [`members`], for errors.
pub fn field(member: &str) -> String {
    let name = member.split(['[', '.']).next().unwrap_or_default();
    if name == "images" { "image" } else { name }.to_owned()
}

fn insert(members: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), ApiError> {
    if members.insert(name.to_owned(), value).is_some() {
        let message = format!("the form has the field {name:?} twice");
        return Err(ApiError::malformed_json(message));
    }
    Ok(())
}

/// Converts a text to a JSON value. A text that cannot be converted stays a string, so that
/// validation refuses it by the field's name.
fn value(name: &str, text: &str) -> Value {
    match (name, text) {
        ("stream", "true") => json!(true),
        ("stream", "false") => json!(false),
        _ if NUMBERS.contains(&name) => match text.parse::<i64>() {
            Ok(number) => json!(number),
            Err(_) => json!(text),
        },
        _ => json!(text),
    }
}
