//! Examples of responses. A test recorded the successes from a server (`openapi_walk::examples`);
//! errors are created by the code that creates the real ones.

use serde_json::{Map, Value, json};

use super::{
    super::error::{ApiError, Code},
    operations,
};
use crate::domain::generation::FailureCode;

pub(super) const REQUEST_ID: &str = "01995c8e-7a40-7c3f-9d52-6b1f0e8a4d27";

/// The recorded response of a synchronous generation that failed.
const FAILED: &str = "failed";

/// The recorded answers by operation and status, with the version of this program.
pub(super) fn recorded() -> Result<Value, serde_json::Error> {
    let mut recorded: Value = serde_json::from_str(include_str!("answers.json"))?;
    for (_, answer) in recorded["health_health"]
        .as_object_mut()
        .into_iter()
        .flatten()
    {
        answer["version"] = json!(env!("CARGO_PKG_VERSION"));
    }
    Ok(recorded)
}

/// Adds the recorded answers to the operations.
pub(super) fn add(paths: &mut Value, recorded: &Value) {
    for operation in operations(paths) {
        let answers = recorded[operation["operationId"].as_str().unwrap_or_default()].as_object();
        for (status, answer) in answers.into_iter().flatten() {
            operation["responses"][status]["content"]["application/json"]["example"] =
                answer.clone();
        }
    }
}

/// Returns one example of each error, by code.
pub(super) fn errors(recorded: &Value) -> Result<Value, serde_json::Error> {
    let mut examples = Map::new();
    for &code in Code::ALL {
        let mut example = error_example(&ApiError::example(code, None))?;
        let value = &mut example["value"];
        let is_failure = FailureCode::parse(code.as_str()).is_some();
        // The response also has the record of the failed generation.
        if is_failure && code != Code::StorageUnavailable {
            let mut generation = recorded[FAILED]["generation"].clone();
            for member in ["code", "message", "retryable"] {
                generation["error"][member] = value["error"][member].clone();
            }
            value["generation"] = generation;
        }
        examples.insert(code.as_str().to_owned(), example);
    }
    Ok(examples.into())
}

pub(super) fn error_example(error: &ApiError) -> Result<Value, serde_json::Error> {
    let body: Value = serde_json::from_str(&error.body(REQUEST_ID))?;
    Ok(json!({ "value": body }))
}
