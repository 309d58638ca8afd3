//! Settings of the image, speech and video adapters from the configuration.

use crate::{
    config::{self, Wire},
    providers::{
        elevenlabs::ElevenLabsModel,
        gemini::omni::OmniModel,
        openai::{images::OpenAiImageModel, speech::OpenAiSpeechModel},
        runway::RunwayModel,
        stability::{StabilityEndpoint, StabilityModel, StabilityTarget},
    },
};

pub(super) fn openai_image(wire: &Wire) -> Option<OpenAiImageModel> {
    let Wire::OpenAiImage(wire) = wire else {
        return None;
    };
    Some(OpenAiImageModel {
        standard: wire.standard.clone(),
        hd: wire.hd.clone(),
        output_format: wire.output_format.clone(),
        moderation: wire.moderation.clone(),
    })
}

pub(super) fn openai_speech(wire: &Wire) -> Option<OpenAiSpeechModel> {
    let Wire::OpenAiSpeech(wire) = wire else {
        return None;
    };
    Some(OpenAiSpeechModel {
        max_chars: wire.max_chars,
        instructions: wire.instructions.clone(),
    })
}

pub(super) fn omni(wire: &Wire) -> Option<OmniModel> {
    let Wire::Omni(wire) = wire else { return None };
    Some(OmniModel {
        resolution: wire.resolution.clone(),
    })
}

pub(super) fn stability(wire: &Wire) -> Option<StabilityModel> {
    let Wire::Stability(wire) = wire else {
        return None;
    };
    let target = |target: &config::StabilityTarget| StabilityTarget {
        endpoint: match target.endpoint {
            config::StabilityEndpoint::Core => StabilityEndpoint::Core,
            config::StabilityEndpoint::Ultra => StabilityEndpoint::Ultra,
            config::StabilityEndpoint::Sd3 => StabilityEndpoint::Sd3,
        },
        model: target.model.clone(),
    };
    Some(StabilityModel {
        standard: target(&wire.standard),
        hd: wire.hd.as_ref().map(target),
        vivid: wire.vivid.clone(),
        natural: wire.natural.clone(),
    })
}

pub(super) fn runway(wire: &Wire) -> Option<RunwayModel> {
    let Wire::Runway(wire) = wire else {
        return None;
    };
    Some(RunwayModel {
        ratios: wire.ratios.clone(),
        resolution: wire.resolution.clone(),
        audio: wire.audio,
    })
}

pub(super) fn elevenlabs(wire: &Wire) -> Option<ElevenLabsModel> {
    let Wire::ElevenLabs(wire) = wire else {
        return None;
    };
    Some(ElevenLabsModel {
        mp3: wire.mp3.clone(),
        wav: wire.wav.clone(),
    })
}
