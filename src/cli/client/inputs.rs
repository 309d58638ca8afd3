//! Input images. Files are uploaded before the request that uses them.

use std::path::Path;

use serde_json::{Value, json};

use super::{Env, args::Inputs, connection::Connection};
use crate::{
    cli::{Failure, Outcome, output::Output},
    domain::ids::{GenerationId, UploadId},
};

pub(super) async fn upload(file: &Path, env: &Env, output: Output) -> Outcome {
    let connection = Connection::open(env)?;
    let made = send(&connection, file).await?;
    output.result(made["id"].as_str().unwrap_or_default(), &made)
}

/// Builds `inputs` of a request. Uploads files.
pub(super) async fn resolve(
    connection: &Connection,
    given: &Inputs,
    default_role: &str,
) -> Result<Value, Failure> {
    if given.roles.len() > given.inputs.len() {
        return Err("there are more --role than --input options".into());
    }
    let mut inputs = Vec::with_capacity(given.inputs.len());
    for (at, input) in given.inputs.iter().enumerate() {
        let role = given.roles.get(at).map_or(default_role, String::as_str);
        let (uuid, output) = input.split_once('/').unwrap_or((input, "0"));
        inputs.push(if UploadId::parse(input).is_some() {
            json!({"role": role, "upload": input})
        } else if let (Some(id), Ok(output)) = (GenerationId::parse(uuid), output.parse::<u16>()) {
            json!({"role": role, "generation": id, "output": output})
        } else {
            let made = send(connection, Path::new(input)).await?;
            json!({"role": role, "upload": made["id"]})
        });
    }
    Ok(Value::Array(inputs))
}

async fn send(connection: &Connection, file: &Path) -> Result<Value, Failure> {
    let read = tokio::fs::read(file).await;
    let bytes = read.map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let media_type = match bytes.get(..4) {
        Some(b"\x89PNG") => "image/png",
        Some([0xff, 0xd8, ..]) => "image/jpeg",
        Some(b"RIFF") => "image/webp",
        _ => return Err(format!("{} is not a PNG, JPEG or WebP", file.display()).into()),
    };
    let answer = connection.upload("/v1/uploads", media_type, bytes).await?;
    Ok(answer.json().await?)
}
