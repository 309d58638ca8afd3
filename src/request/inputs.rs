//! `inputs` of images and videos: files that a request contains or refers to.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::json;

use crate::domain::{
    ids::{GenerationId, UploadId},
    inputs::InputRole,
    validate::{FieldCode, Fields, List, Parsed, generation_id, integer, parsed, words},
};

/// Maximum inputs of a request.
pub const MAX_INPUTS: usize = 16;
/// Maximum bytes of an input.
pub const MAX_INPUT_BYTES: usize = 20 << 20;
/// Maximum pixels of an input.
pub const MAX_INPUT_PIXELS: u64 = 40_000_000;
/// Maximum total bytes of the inputs of a request.
pub const MAX_ALL_INPUT_BYTES: u64 = 40 << 20;
/// Maximum files of a generation.
const MAX_OUTPUTS: i64 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRequest {
    pub role: InputRole,
    pub from: InputFrom,
    /// The field of an SDK request that contains the input, for errors.
    pub sdk_field: Option<String>,
}

impl InputRequest {
    /// Returns the name of a field of the input at index `at`, for errors.
    pub fn param(&self, at: usize, field: &str) -> String {
        let own = || format!("inputs[{at}].{field}");
        self.sdk_field.clone().unwrap_or_else(own)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputFrom {
    Upload(UploadId),
    /// A file of a generation.
    Output {
        generation: GenerationId,
        output: u16,
    },
    /// The bytes of the file.
    Data(Bytes),
}

impl InputFrom {
    /// Returns the field that names the image.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Upload(_) => "upload",
            Self::Output { .. } => "generation",
            Self::Data(_) => "data",
        }
    }
}

const UPLOAD: Parsed<UploadId> = parsed(
    || json!({"type": "string", "pattern": "^upl_[0-9a-f]{32}$"}),
    |text| {
        let message = "must be an id from POST /v1/uploads: upl_ and 32 hexadecimal digits";
        UploadId::parse(text).ok_or((FieldCode::InvalidFormat, message.into()))
    },
);

const DATA: Parsed<Bytes> = parsed(
    || json!({"type": "string", "contentEncoding": "base64"}),
    |text| {
        if text.len() / 4 * 3 > MAX_INPUT_BYTES + 2 {
            let message = format!("must have at most {MAX_INPUT_BYTES} bytes");
            return Err((FieldCode::TooLong, message.into()));
        }
        let bytes = BASE64_STANDARD.decode(text);
        let message = "must be a file in base64 with padding and without line breaks";
        bytes
            .map(Bytes::from)
            .map_err(|_| (FieldCode::InvalidFormat, message.into()))
    },
);

/// Reads `inputs`; empty if absent.
pub fn read_inputs(fields: &Fields<'_>) -> Vec<InputRequest> {
    let list = List::new(
        "Input images, at most 16. `limits.inputs` of GET /v1/models lists the roles that \
                a model accepts. URLs are not fetched.",
        (
            "Input",
            "An image and its role; has exactly one of `upload`, `generation` and `data`.",
        ),
    );
    let inputs = list.read_any(fields, "inputs", read_input);
    let inputs = inputs.unwrap_or_default();
    if inputs.len() > MAX_INPUTS {
        let message = format!("must be at most {MAX_INPUTS} images");
        fields.error("inputs", FieldCode::OutOfRange, message);
    }
    inputs
}

fn read_input(input: &Fields<'_>) -> Option<InputRequest> {
    let role = input.required("role", "The role of the image.", words());
    let upload = input.optional("upload", "An id of POST /v1/uploads.", UPLOAD);
    let about = "The uuid of a completed image of this account, or of a completed video for the \
                 source of a video.";
    let generation = input.optional("generation", about, generation_id());
    let about = "Index of the file in the generation, from 0. Default 0.";
    let output = input.optional("output", about, integer(0..=MAX_OUTPUTS - 1));
    let about = "The file in base64: PNG, JPEG or WebP, at most 20 MiB and 40 megapixels.";
    let data = input.optional("data", about, DATA);
    input.needs("output", "generation", "is allowed only with generation");
    let given = ["upload", "generation", "data"].map(|name| (name, input.has(name)));
    let mut given = given.iter().filter(|(_, is_given)| *is_given);
    match (given.next(), given.next()) {
        (None, _) => {
            let message = "is required, unless generation or data is present";
            input.error("upload", FieldCode::Required, message);
            return None;
        }
        (Some((first, _)), Some((second, _))) => {
            let message = format!("must not be sent together with {first}");
            input.error(second, FieldCode::NotAllowed, message);
            return None;
        }
        _ => {}
    }
    let from = upload.map(InputFrom::Upload);
    let from = from.or_else(|| {
        generation.map(|generation| InputFrom::Output {
            generation,
            output: output.unwrap_or_default(),
        })
    });
    Some(InputRequest {
        sdk_field: None,
        role: role?,
        from: from.or_else(|| data.map(InputFrom::Data))?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::domain::validate::{Input, read_fields};

    struct Sample(Vec<InputRequest>);

    impl Input for Sample {
        fn read(fields: &Fields<'_>) -> Option<Self> {
            Some(Self(read_inputs(fields)))
        }
    }

    fn read(inputs: Value) -> Result<Vec<InputRequest>, Vec<(String, FieldCode)>> {
        let members = Map::from_iter([("inputs".to_owned(), inputs)]);
        let (sample, errors) = read_fields::<Sample>(&members);
        if errors.is_empty() {
            return Ok(sample.unwrap().0);
        }
        Err(errors.into_iter().map(|e| (e.param, e.code)).collect())
    }

    #[test]
    fn an_input_is_one_of_three() {
        let upload = format!("upl_{}", "0".repeat(32));
        let uuid = "01970000-0000-7000-8000-000000000001";
        let inputs = read(json!([
            {"role": "source", "upload": upload},
            {"role": "reference", "generation": uuid, "output": 1},
            {"role": "mask", "data": "AAAA"},
        ]))
        .unwrap();
        assert_eq!(
            inputs[0].from,
            InputFrom::Upload(UploadId::parse(&upload).unwrap())
        );
        let generation = GenerationId::parse(uuid).unwrap();
        let output = InputFrom::Output {
            generation,
            output: 1,
        };
        assert_eq!(inputs[1].from, output);
        assert_eq!(inputs[2].from, InputFrom::Data(Bytes::from_static(&[0; 3])));
        assert_eq!(read(json!([])), Ok(Vec::new()));
    }

    #[test]
    fn every_failing_field_is_named() {
        use FieldCode::{InvalidFormat, NotAllowed, OutOfRange, Required, UnknownField};
        for (input, param, code) in [
            (json!({"role": "source"}), "inputs[0].upload", Required),
            (
                json!({"role": "cover", "data": "AAAA"}),
                "inputs[0].role",
                NotAllowed,
            ),
            (json!({"data": "AAAA"}), "inputs[0].role", Required),
            (
                json!({"role": "mask", "data": "A"}),
                "inputs[0].data",
                InvalidFormat,
            ),
            (
                json!({"role": "mask", "upload": "x"}),
                "inputs[0].upload",
                InvalidFormat,
            ),
            (
                json!({"role": "mask", "data": "AAAA", "output": 0}),
                "inputs[0].output",
                NotAllowed,
            ),
            (
                json!({"role": "mask", "data": "AAAA", "url": "https://a.example"}),
                "inputs[0].url",
                UnknownField,
            ),
            (
                json!({"role": "mask", "data": "AAAA", "generation": "01970000-0000-7000-8000-000000000001"}),
                "inputs[0].data",
                NotAllowed,
            ),
        ] {
            let errors = read(json!([input])).unwrap_err();
            assert_eq!(errors[0], (param.to_owned(), code), "{input}");
        }
        let many = vec![json!({"role": "mask", "data": "AAAA"}); MAX_INPUTS + 1];
        assert_eq!(
            read(json!(many)).unwrap_err(),
            [("inputs".to_owned(), OutOfRange)]
        );
    }
}
