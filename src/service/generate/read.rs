//! Parsing request bodies.
use serde_json::{Map, Value};

use crate::{
    domain::{
        generation::Modality,
        request::{
            GenerationRequest, ImageRequest, SpeechRequest, TextRequest, Unreadable, VideoRequest,
        },
        validate::{FieldCode, FieldError},
    },
    service::{Service, ServiceError, auth::Caller},
};

impl Service {
    /// Validates a body without its model: `type`, and the fields of that type.
    pub fn read_any(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<GenerationRequest, ServiceError> {
        let refuse = |code, message: &str| {
            Err(ServiceError::invalid(FieldError::new(
                "type", code, message,
            )))
        };
        let modality = match body.get("type") {
            None | Some(Value::Null) => return refuse(FieldCode::Required, "is required"),
            Some(Value::String(name)) => Modality::parse(name),
            Some(_) => return refuse(FieldCode::InvalidType, "must be a string"),
        };
        let mut body = body.clone();
        body.remove("type");
        match modality {
            Some(Modality::Text) => self.read_text(caller, &body).map(GenerationRequest::Text),
            Some(Modality::Image) => self.read_image(caller, &body).map(GenerationRequest::Image),
            Some(Modality::Video) => self.read_video(caller, &body).map(GenerationRequest::Video),
            Some(Modality::Audio) => self
                .read_speech(caller, &body)
                .map(GenerationRequest::Audio),
            None => refuse(
                FieldCode::NotAllowed,
                "must be one of text, image, video, audio",
            ),
        }
    }

    pub fn read_text(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<TextRequest, ServiceError> {
        TextRequest::read(body).map_err(|unreadable| {
            let Unreadable { mut errors, read } = unreadable;
            let more = self.violations(caller, &GenerationRequest::Text(*read));
            let known: Vec<String> = errors
                .iter()
                .map(|e: &FieldError| e.param.clone())
                .collect();
            errors.extend(more.into_iter().filter(|e| !known.contains(&e.param)));
            ServiceError::Invalid(errors)
        })
    }

    pub fn read_image(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<ImageRequest, ServiceError> {
        ImageRequest::read(body).map_err(|unreadable| {
            let Unreadable { mut errors, read } = unreadable;
            let more = self.violations(caller, &GenerationRequest::Image(*read));
            let known: Vec<String> = errors
                .iter()
                .map(|e: &FieldError| e.param.clone())
                .collect();
            errors.extend(more.into_iter().filter(|e| !known.contains(&e.param)));
            ServiceError::Invalid(errors)
        })
    }

    pub fn read_video(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<VideoRequest, ServiceError> {
        VideoRequest::read(body).map_err(|unreadable| {
            let Unreadable { mut errors, read } = unreadable;
            let more = self.violations(caller, &GenerationRequest::Video(*read));
            let known: Vec<String> = errors
                .iter()
                .map(|e: &FieldError| e.param.clone())
                .collect();
            errors.extend(more.into_iter().filter(|e| !known.contains(&e.param)));
            ServiceError::Invalid(errors)
        })
    }

    pub fn read_speech(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<SpeechRequest, ServiceError> {
        SpeechRequest::read(body).map_err(|unreadable| {
            let Unreadable { mut errors, read } = unreadable;
            let more = self.violations(caller, &GenerationRequest::Audio(*read));
            let known: Vec<String> = errors
                .iter()
                .map(|e: &FieldError| e.param.clone())
                .collect();
            errors.extend(more.into_iter().filter(|e| !known.contains(&e.param)));
            ServiceError::Invalid(errors)
        })
    }
}
