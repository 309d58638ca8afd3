//! Image, video and speech requests.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Begun, KeyedRequest, Plan};
use crate::{
    domain::{
        catalogue::{ImageModel, Model, ModelKind, SpeechModel, Support, VideoModel},
        generation::Modality,
        pricing::{Ceiling, ImageCeiling, SpeechCeiling, VideoCeiling},
        request::{ImageRequest, Quality, SpeechRequest, Style, VideoRequest},
        validate::FieldError,
    },
    jobs::ImageJob,
    providers::{ImageCall, ImageQuality, ImageStyle},
    service::{Service, ServiceError, auth::Caller},
    store::generations::Opened,
};

/// The size when none is asked for.
const DEFAULT_SIZE: (u32, u32) = (1024, 1024);

macro_rules! resolver {
    ($(#[$doc:meta])* $name:ident, $request:ty, $modality:ident, $kind:ident, $model:ty) => {
        $(#[$doc])*
        fn $name(
            &self,
            caller: &Caller,
            request: &$request,
        ) -> Result<(&Model, &$model), Vec<FieldError>> {
            let model = self.resolve_model(caller, Modality::$modality, &request.target)?;
            let ModelKind::$kind(kind) = &model.kind else {
                return Err(Vec::new());
            };
            match kind.refusals(request) {
                none if none.is_empty() => Ok((model, kind)),
                errors => Err(errors),
            }
        }
    };
}

impl Service {
    resolver!(
        /// The model that a request means, unless it refuses it.
        resolve_image, ImageRequest, Image, Image, ImageModel
    );
    resolver!(
        /// The model that a request means, unless it refuses it.
        resolve_video, VideoRequest, Video, Video, VideoModel
    );
    resolver!(
        /// The model that a request means, unless it refuses it.
        resolve_speech, SpeechRequest, Audio, Speech, SpeechModel
    );

    /// Checks a body statically, and where it fails says also what its model refuses.
    pub fn read_image(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<ImageRequest, ServiceError> {
        ImageRequest::read(body).map_err(|unreadable| {
            Self::refused_body(unreadable, |r| self.resolve_image(caller, r).map(|_| ()))
        })
    }

    /// Checks a body statically, and where it fails says also what its model refuses.
    pub fn read_video(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<VideoRequest, ServiceError> {
        VideoRequest::read(body).map_err(|unreadable| {
            Self::refused_body(unreadable, |r| self.resolve_video(caller, r).map(|_| ()))
        })
    }

    /// Checks a body statically, and where it fails says also what its model refuses.
    pub fn read_speech(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<SpeechRequest, ServiceError> {
        SpeechRequest::read(body).map_err(|unreadable| {
            Self::refused_body(unreadable, |r| self.resolve_speech(caller, r).map(|_| ()))
        })
    }

    /// Holds the price and starts the work.
    pub async fn begin_image(
        &self,
        caller: &Caller,
        request: ImageRequest,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Begun, ServiceError> {
        if let Some(id) = self.startable(caller, keyed).await? {
            return Ok(Begun::Replay(id));
        }
        let (model, image) = self
            .resolve_image(caller, &request)
            .map_err(ServiceError::Invalid)?;
        // The defaults are ours, so they may bow to what the model makes.
        let size = request.size.or_else(|| {
            let made = image.native(DEFAULT_SIZE).map(|_| DEFAULT_SIZE);
            made.or_else(|| ImageModel::servable(&image.native_sizes).first().copied())
        });
        let size = size.unwrap_or(DEFAULT_SIZE);
        let quality = request.quality.unwrap_or(Quality::Standard);
        let n = request.n.unwrap_or(1);
        let words = format!("{}x{}", size.0, size.1);
        let price = image.prices.per_image.get(&words);
        let price = price.and_then(|tiers| match quality {
            Quality::Standard => Some(tiers.standard),
            Quality::Hd => tiers.hd,
        });
        let (Some(per_image), Some(native)) = (price, image.native(size)) else {
            return Err(ServiceError::Internal(format!(
                "{} has no price for {words}",
                model.id
            )));
        };
        let price = ImageCeiling { per_image, n };
        let mut parameters = json!({"size": words, "quality": quality, "n": n});
        if let Some(style) = request.style {
            parameters["style"] = json!(style);
        }
        let negative = request.negative_prompt.as_deref();
        let call = ImageCall {
            model: model.id.clone(),
            prompt: image.guided_prompt(&request.prompt, negative, request.style),
            negative_prompt: request.negative_prompt.clone().filter(|text| {
                image.limits.negative_prompt == Support::Native && !text.trim().is_empty()
            }),
            size: native,
            quality: match quality {
                Quality::Standard => ImageQuality::Standard,
                Quality::Hd => ImageQuality::Hd,
            },
            style: request
                .style
                .filter(|_| image.limits.style == Support::Native)
                .map(|style| match style {
                    Style::Vivid => ImageStyle::Vivid,
                    Style::Natural => ImageStyle::Natural,
                }),
            n,
        };
        let plan = Plan {
            model,
            prompt: request.prompt,
            system_prompt: None,
            negative_prompt: request.negative_prompt,
            template: None,
            parameters,
            ceiling: Ceiling::Image(price),
            max_cost: request.max_cost,
        };
        let new = self.prepare(caller, &plan, keyed, false).await?;
        let provider = self.0.providers.image.get(&model.provider);
        let provider = provider
            .ok_or_else(|| ServiceError::Internal(format!("no adapter for {}", model.provider)))?;
        let job = ImageJob {
            new,
            call,
            size,
            provider: Arc::clone(provider),
            price,
        };
        let started = self.0.runner.start_image(job).await;
        self.begun(caller, started, &plan.ceiling, keyed).await
    }

    /// Holds the price and queues the work.
    pub async fn begin_video(
        &self,
        caller: &Caller,
        request: VideoRequest,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Begun, ServiceError> {
        if let Some(id) = self.startable(caller, keyed).await? {
            return Ok(Begun::Replay(id));
        }
        let (model, video) = self
            .resolve_video(caller, &request)
            .map_err(ServiceError::Invalid)?;
        let duration = request.duration.unwrap_or(video.limits.default_duration);
        let ratio = request.ratio.unwrap_or_else(|| video.default_ratio());
        let plan = Plan {
            model,
            prompt: request.prompt,
            system_prompt: None,
            negative_prompt: None,
            template: None,
            parameters: json!({"duration": duration, "ratio": ratio.to_string()}),
            ceiling: Ceiling::Video(VideoCeiling {
                per_second: video.prices.per_second,
                seconds: duration,
                durations: video.limits.durations.clone(),
            }),
            max_cost: request.max_cost,
        };
        self.queue(caller, plan, keyed).await
    }

    /// Holds the price and queues the work.
    pub async fn begin_speech(
        &self,
        caller: &Caller,
        request: SpeechRequest,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Begun, ServiceError> {
        if let Some(id) = self.startable(caller, keyed).await? {
            return Ok(Begun::Replay(id));
        }
        let (model, speech) = self
            .resolve_speech(caller, &request)
            .map_err(ServiceError::Invalid)?;
        let voice = request
            .voice
            .unwrap_or_else(|| speech.limits.default_voice.clone());
        let format = request.format.unwrap_or_else(|| speech.default_format());
        let speed = request.speed.unwrap_or(1.0);
        let plan = Plan {
            model,
            ceiling: Ceiling::Speech(SpeechCeiling {
                per_1000_characters: speech.prices.per_1000_characters,
                characters: request.prompt.chars().count() as u64,
            }),
            prompt: request.prompt,
            system_prompt: None,
            negative_prompt: None,
            template: None,
            parameters: json!({"voice": voice, "speed": speed, "format": format}),
            max_cost: request.max_cost,
        };
        self.queue(caller, plan, keyed).await
    }

    /// What the key made before; otherwise whether new work is taken at all.
    async fn startable(
        &self,
        caller: &Caller,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Option<crate::domain::ids::GenerationId>, ServiceError> {
        let replayed = self.replayed(caller, keyed).await?;
        if replayed.is_none() && self.is_draining() {
            return Err(ServiceError::ShuttingDown);
        }
        Ok(replayed)
    }

    async fn queue(
        &self,
        caller: &Caller,
        plan: Plan<'_>,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Begun, ServiceError> {
        let new = self.prepare(caller, &plan, keyed, true).await?;
        let mut record = new.record();
        // What the answer says; a lookup tells while it waits for a free worker.
        record.status = crate::domain::generation::Status::Processing;
        match self.0.runner.start_job(new).await? {
            Opened::Held => Ok(Begun::Queued(Box::new(record))),
            refused => self.refused(caller, refused, &plan.ceiling, keyed).await,
        }
    }
}
