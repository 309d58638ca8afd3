//! What image, video and speech requests come to: the one arithmetic of holds and estimates.

use serde_json::json;

use super::Plan;
use crate::{
    domain::{
        catalogue::{ImageModel, Support},
        pricing::{Ceiling, ImageCeiling, SpeechCeiling, VideoCeiling},
        request::{ImageRequest, Quality, SpeechRequest, VideoRequest},
    },
    providers::ImageCall,
    service::{Service, ServiceError, auth::Caller},
};

/// The size when none is asked for.
const DEFAULT_SIZE: (u32, u32) = (1024, 1024);

/// What an image request comes to.
pub(super) struct ImagePlan<'a> {
    pub plan: Plan<'a>,
    pub call: ImageCall,
    /// Pixels to be stored.
    pub size: (u32, u32),
    pub price: ImageCeiling,
}

impl Service {
    /// What a request comes to.
    pub(super) fn plan_image(
        &self,
        caller: &Caller,
        request: ImageRequest,
    ) -> Result<ImagePlan<'_>, ServiceError> {
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
            quality,
            style: request
                .style
                .filter(|_| image.limits.style == Support::Native),
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
        Ok(ImagePlan {
            plan,
            call,
            size,
            price,
        })
    }

    /// What a request comes to.
    pub(super) fn plan_video(
        &self,
        caller: &Caller,
        request: VideoRequest,
    ) -> Result<Plan<'_>, ServiceError> {
        let (model, video) = self
            .resolve_video(caller, &request)
            .map_err(ServiceError::Invalid)?;
        let duration = request.duration.unwrap_or(video.limits.default_duration);
        let ratio = request.ratio.unwrap_or_else(|| video.default_ratio());
        Ok(Plan {
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
        })
    }

    /// What a request comes to.
    pub(super) fn plan_speech(
        &self,
        caller: &Caller,
        request: SpeechRequest,
    ) -> Result<Plan<'_>, ServiceError> {
        let (model, speech) = self
            .resolve_speech(caller, &request)
            .map_err(ServiceError::Invalid)?;
        let voice = request
            .voice
            .unwrap_or_else(|| speech.limits.default_voice.clone());
        let format = request.format.unwrap_or_else(|| speech.default_format());
        let speed = request.speed.unwrap_or(1.0);
        Ok(Plan {
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
        })
    }
}
