//! Speech of the sandbox: a melody whose length depends on the text, and whose notes on the call.
//!
//! The notes are files made by `assets/make.sh`, cut to length.

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Faults,
    seed::{Seed, offloaded},
};
use crate::{
    providers::{ProviderError, SpeechAnswer, SpeechCall, SpeechProvider},
    request::SpeechFormat,
};

/// Six notes at 48 kbit/s and 24 kHz.
const MP3: &[u8] = include_bytes!("assets/notes.mp3");
/// The same notes, after a header of 44 bytes.
const WAV: &[u8] = include_bytes!("assets/notes.wav");
const NOTES: u8 = 6;
/// Characters per second at speed 1.0.
const PACE: f64 = 15.0;
/// Minimum and maximum seconds of a file. A longer WAV would exceed the limit of 100 MiB.
const LENGTHS: (f64, f64) = (0.3, 1_800.0);

#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxSpeech;

#[async_trait]
impl SpeechProvider for SandboxSpeech {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        let faults = Faults::of(&call.text);
        faults.happen().await?;
        let seed = Seed::of(&[
            call.model.as_bytes(),
            call.voice.as_bytes(),
            faults.rest.as_bytes(),
            &call.speed.to_le_bytes(),
        ]);
        let request_id = Some(seed.request_id());
        let (seconds, format) = (seconds(&faults.rest, call.speed), call.format);
        let file = offloaded(move || play(&seed, seconds, format)).await?;
        Ok(SpeechAnswer {
            parts: vec![file],
            request_id,
        })
    }
}

fn seconds(text: &str, speed: f64) -> f64 {
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    (f64::from(letters) / PACE / speed).clamp(LENGTHS.0, LENGTHS.1)
}

fn play(seed: &Seed, seconds: f64, format: SpeechFormat) -> Bytes {
    // A unit is a frame of 24 ms (MP3) or a sample (WAV).
    let (header, notes, unit, units_per_second) = match format {
        SpeechFormat::Mp3 => (&[][..], MP3, 144, 1_000.0 / 24.0),
        SpeechFormat::Wav => {
            let (header, notes) = WAV.split_at(44);
            (header, notes, 2, 24_000.0)
        }
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the seconds are bounded"
    )]
    let length = (seconds * units_per_second).ceil() as usize * unit;
    let note = notes.len() / usize::from(NOTES);
    let mut file = header.to_vec();
    for place in 0..length.div_ceil(note) {
        let start = usize::from(seed.choice(place, NOTES)) * note;
        file.extend(&notes[start..start + note]);
    }
    file.truncate(header.len() + length);
    if format == SpeechFormat::Wav {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        file[4..8].copy_from_slice(&(length + 36).to_le_bytes());
        file[40..44].copy_from_slice(&length.to_le_bytes());
    }
    file.into()
}

#[cfg(test)]
mod tests;
