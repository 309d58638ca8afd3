//! The provider call of a generation, for any modality.

use std::sync::Arc;

use crate::{
    domain::{
        generation::Modality,
        inputs::{INPUTS, StoredInput},
        pricing::{ImageCeiling, TextPrices},
        receipt::Blank,
        request::{Ratio, SpeechFormat},
    },
    providers::{DeltaSink, ImageCall, SpeechCall, TextCall, VideoCall},
    store::jobs::Job,
};

pub enum Call {
    Text(Box<TextWork>),
    Image(ImageWork),
    Video(VideoWork),
    Speech(SpeechCall),
}

/// A text call and its prices.
pub struct TextWork {
    pub call: TextCall,
    pub prices: Arc<TextPrices>,
    /// Receives the pieces of a stream.
    pub deltas: Option<DeltaSink>,
    /// The receipt to be written once the vendor has counted the input.
    pub receipt: Option<Blank>,
    /// Bytes that the input tokens are estimated from if the vendor reports none.
    pub input_bytes: usize,
}

/// An image call and its prices.
pub struct ImageWork {
    pub call: ImageCall,
    /// Size in pixels to store; the provider may generate larger ones.
    pub size: (u32, u32),
    pub price: ImageCeiling,
    /// Inputs that are loaded when the call is submitted.
    pub inputs: Vec<StoredInput>,
}

/// A video call, and the inputs that are loaded when it is submitted.
pub struct VideoWork {
    pub call: VideoCall,
    pub inputs: Vec<StoredInput>,
}

impl Call {
    /// The call that a queued job's row describes; `None` where it does not.
    pub(super) fn of_job(job: &Job) -> Option<Self> {
        match job.modality {
            Modality::Video => video(job).map(Self::Video),
            Modality::Audio => speech(job).map(Self::Speech),
            Modality::Text | Modality::Image => None,
        }
    }
}

fn video(job: &Job) -> Option<VideoWork> {
    let inputs = match job.parameters.get(INPUTS) {
        Some(inputs) => serde_json::from_value(inputs.clone()).ok()?,
        None => Vec::new(),
    };
    let ratio = Ratio::parse(job.parameters["ratio"].as_str()?)?.reduced();
    let call = VideoCall {
        model: job.model.clone(),
        prompt: job.prompt.clone(),
        duration: u32::try_from(job.parameters["duration"].as_u64()?).ok()?,
        ratio: (ratio.width, ratio.height),
        inputs: Vec::new(),
    };
    Some(VideoWork { call, inputs })
}

fn speech(job: &Job) -> Option<SpeechCall> {
    let parameters = &job.parameters;
    Some(SpeechCall {
        model: job.model.clone(),
        text: job.prompt.clone(),
        voice: parameters["voice"].as_str()?.to_owned(),
        speed: parameters["speed"].as_f64()?,
        format: SpeechFormat::parse(parameters["format"].as_str()?)?,
    })
}
