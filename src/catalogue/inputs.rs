//! Input images that a model accepts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Catalogue, Model, ModelKind};
use crate::{
    domain::{
        generation::Modality,
        inputs::InputRole,
        settings::range::Bounded,
        validate::{FieldCode, FieldError},
    },
    request::{
        GenerationRequest, InputFrom, InputRequest, MAX_ALL_INPUT_BYTES, MAX_DURATION,
        MAX_INPUT_BYTES, MAX_INPUT_PIXELS, MAX_INPUTS,
    },
};

type Count = Bounded<u32, 1, MAX_INPUTS>;
#[expect(clippy::cast_possible_truncation, reason = "far below 2^32")]
const MAX_ALL: usize = MAX_ALL_INPUT_BYTES as usize;
#[expect(clippy::cast_possible_truncation, reason = "far below 2^32")]
const MAX_PIXELS: usize = MAX_INPUT_PIXELS as usize;
const MAX_SECONDS: usize = MAX_DURATION as usize;

/// Input images that a model accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(from = "RawInputs")]
pub struct InputLimits {
    /// Maximum number of each role.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub roles: BTreeMap<InputRole, u32>,
    /// A role that every request needs; null: inputs are optional.
    pub required: Option<InputRole>,
    /// Maximum bytes of one input.
    pub max_bytes: usize,
    /// Maximum total bytes of the inputs of a request.
    pub max_total_bytes: u64,
    /// Maximum pixels of one input.
    pub max_pixels: u64,
    /// Maximum seconds of a video with a last frame; null: as for other videos.
    pub max_seconds_to_last_frame: Option<u32>,
    /// Whether the result has the aspect ratio of the source, which must match `parameters.size`.
    pub keeps_shape: bool,
    /// Whether the model extends its source by `parameters.outpaint`, which it requires. Its
    /// results have at most `max_pixels`, and one price for any size.
    pub outpaints: bool,
}

/// The configuration's format.
#[derive(Deserialize)]
struct RawInputs {
    source: Option<Count>,
    mask: Option<Count>,
    reference: Option<Count>,
    first_frame: Option<Count>,
    last_frame: Option<Count>,
    required: Option<InputRole>,
    max_bytes: Option<Bounded<usize, 1, MAX_INPUT_BYTES>>,
    max_total_bytes: Option<Bounded<u64, 1, MAX_ALL>>,
    max_pixels: Option<Bounded<u64, 1, MAX_PIXELS>>,
    max_seconds_to_last_frame: Option<Bounded<u32, 1, MAX_SECONDS>>,
    #[serde(default)]
    keeps_shape: bool,
    #[serde(default)]
    outpaints: bool,
}

impl From<RawInputs> for InputLimits {
    fn from(raw: RawInputs) -> Self {
        let counts = [
            (InputRole::Source, raw.source),
            (InputRole::Mask, raw.mask),
            (InputRole::Reference, raw.reference),
            (InputRole::FirstFrame, raw.first_frame),
            (InputRole::LastFrame, raw.last_frame),
        ];
        let roles = counts.into_iter().filter_map(|(role, n)| Some((role, *n?)));
        Self {
            roles: roles.collect(),
            required: raw.required,
            max_bytes: raw.max_bytes.map_or(MAX_INPUT_BYTES, |n| *n),
            max_total_bytes: raw.max_total_bytes.map_or(MAX_ALL_INPUT_BYTES, |n| *n),
            max_pixels: raw.max_pixels.map_or(MAX_INPUT_PIXELS, |n| *n),
            max_seconds_to_last_frame: raw.max_seconds_to_last_frame.map(|n| *n),
            keeps_shape: raw.keeps_shape,
            outpaints: raw.outpaints,
        }
    }
}

impl Model {
    pub const fn inputs(&self) -> Option<&InputLimits> {
        match &self.kind {
            ModelKind::Image(model) => model.limits.inputs.as_ref(),
            ModelKind::Video(model) => model.limits.inputs.as_ref(),
            ModelKind::Text(_) | ModelKind::Speech(_) => None,
        }
    }

    fn takes(&self, role: InputRole) -> bool {
        let limits = self.inputs();
        limits.is_some_and(|limits| limits.roles.contains_key(&role))
    }

    fn outpaints(&self) -> bool {
        self.inputs().is_some_and(|limits| limits.outpaints)
    }
}

impl Catalogue {
    /// Returns the errors in the roles of a request's inputs, naming models that accept them.
    pub fn input_violations(&self, model: &Model, request: &GenerationRequest) -> Vec<FieldError> {
        let inputs = request.inputs();
        let count = |role| inputs.iter().filter(|input| input.role == role).count();
        let mut errors = Vec::new();
        let required = model.inputs().and_then(|limits| limits.required);
        if let Some(role) = required.filter(|&role| count(role) == 0) {
            let message = format!("of role {} is required by this model", role.as_str());
            errors.push(FieldError::new("inputs", FieldCode::Required, message));
        }
        let mut seen: BTreeMap<InputRole, u32> = BTreeMap::new();
        for (at, input) in inputs.iter().enumerate() {
            let InputRequest { role, .. } = input;
            let number = *seen.entry(*role).and_modify(|n| *n += 1).or_insert(1);
            let allowed = model.inputs().and_then(|limits| limits.roles.get(role));
            let message = match allowed {
                None => format!(
                    "is not accepted by {}; {}",
                    model.id,
                    self.models_that(model, |other| other.takes(*role))
                ),
                Some(&most) if number > most => {
                    format!("has more inputs than {} accepts: {most}", model.id)
                }
                Some(_) => match missing_companion(model.modality(), *role, &count) {
                    Some(message) => message.to_owned(),
                    None => continue,
                },
            };
            let param = input.param(at, "role");
            errors.push(FieldError::new(param, FieldCode::NotSupported, message));
        }
        if model.modality() == Modality::Video {
            errors.extend(source_violations(inputs));
        }
        errors.extend(frames_violation(model, request));
        errors.extend(self.outpaint_violation(model, request));
        errors
    }

    /// Refuses `outpaint` for a model without it, and its absence for a model that requires it.
    fn outpaint_violation(&self, model: &Model, request: &GenerationRequest) -> Option<FieldError> {
        let GenerationRequest::Image(image) = request else {
            return None;
        };
        let (code, message) = match (image.outpaint, model.outpaints()) {
            (Some(_), false) => {
                let others = self.models_that(model, Model::outpaints);
                let message = format!("is not supported by {}; {others}", model.id);
                (FieldCode::NotSupported, message)
            }
            (None, true) => {
                let message = "is required by this model: set left, right, up or down";
                (FieldCode::Required, message.to_owned())
            }
            _ => return None,
        };
        Some(FieldError::new("parameters.outpaint", code, message))
    }

    /// Returns the models of the same type that accept what `model` does not, for an error.
    fn models_that(&self, model: &Model, accepts: impl Fn(&Model) -> bool) -> String {
        let others = self.models().iter();
        let accepting =
            others.filter(|other| other.modality() == model.modality() && accepts(other));
        let names: Vec<_> = accepting.map(Model::name).collect();
        if names.is_empty() {
            return format!(
                "no {} model of this server accepts it",
                model.modality().as_str()
            );
        }
        format!("use {}", names.join(", "))
    }
}

/// Refuses video sources that are not results: images cannot be extended, videos not uploaded.
fn source_violations(inputs: &[InputRequest]) -> impl Iterator<Item = FieldError> {
    let sources = inputs.iter().enumerate();
    let sources = sources.filter(|(_, input)| input.role == InputRole::Source);
    sources.filter_map(|(at, input)| {
        let field = match input.from {
            InputFrom::Output { .. } => return None,
            InputFrom::Upload(_) | InputFrom::Data(_) => input.from.field(),
        };
        let message = "must name a generated video by `generation`: an image cannot be extended";
        let param = input.param(at, field);
        Some(FieldError::new(param, FieldCode::NotAllowed, message))
    })
}

/// Refuses a video that is too long for its last frame.
fn frames_violation(model: &Model, request: &GenerationRequest) -> Option<FieldError> {
    let (ModelKind::Video(video), GenerationRequest::Video(request)) = (&model.kind, request)
    else {
        return None;
    };
    let most = model.inputs()?.max_seconds_to_last_frame?;
    let seconds = request.duration.unwrap_or(video.limits.default_duration);
    let mut roles = request.inputs.iter().map(|input| input.role);
    let has_last = roles.any(|role| role == InputRole::LastFrame);
    (has_last && seconds > most).then(|| {
        let message = format!("must be at most {most} with a last_frame for this model");
        FieldError::new("parameters.duration", FieldCode::NotSupported, message)
    })
}

/// Returns why a role cannot be combined with, or used without, another one.
fn missing_companion(
    modality: Modality,
    role: InputRole,
    count: &impl Fn(InputRole) -> usize,
) -> Option<&'static str> {
    let has = |role| count(role) > 0;
    match role {
        InputRole::Mask if !has(InputRole::Source) => Some("needs an input of role source"),
        InputRole::FirstFrame | InputRole::LastFrame if has(InputRole::Source) => {
            Some("cannot be combined with source")
        }
        InputRole::Reference if modality == Modality::Video && has(InputRole::Source) => {
            Some("cannot be combined with source")
        }
        InputRole::LastFrame if !has(InputRole::FirstFrame) => {
            Some("needs an input of role first_frame")
        }
        InputRole::Reference if has(InputRole::FirstFrame) => {
            Some("cannot be combined with first_frame")
        }
        _ => None,
    }
}
