//! Speech of the sandbox: a hummed melody whose length follows the text.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusty_mp3::{Mp3Encoder, Mp3EncoderConfig};
use tokio_util::sync::CancellationToken;

use super::{
    Faults,
    seed::{Seed, away, broken},
    voice::sing,
};
use crate::{
    domain::request::SpeechFormat,
    providers::{ProviderError, SpeechAnswer, SpeechCall, SpeechProvider},
};

/// Characters per second at speed 1.0.
const PACE: f64 = 15.0;
/// The shortest file, in seconds.
const SHORTEST: f64 = 0.3;
/// Samples per second.
const RATE: u32 = 24_000;
/// Beyond this many seconds [`LONG_RATE`] is used: 10,000 characters at speed 0.25 are 44
/// minutes, and a WAV of them at [`RATE`] would be above the limit of 100 MiB.
const LONG: Duration = Duration::from_mins(30);
/// Samples per second of long recordings.
const LONG_RATE: u32 = 16_000;
/// Of MP3, in kbit/s.
const BITRATE: u32 = 48;
/// Samples that are encoded between two checks for cancellation.
const PIECE: usize = 1 << 16;

/// The sandbox's speech adapter.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxSpeech;

#[async_trait]
impl SpeechProvider for SandboxSpeech {
    async fn generate(&self, call: &SpeechCall) -> Result<SpeechAnswer, ProviderError> {
        let faults = Faults::of(&call.text);
        if !faults.slow.is_zero() {
            tokio::time::sleep(faults.slow).await;
        }
        if let Some(fault) = faults.fault {
            return Err(fault.happen().await);
        }
        let voice = Seed::of(&[call.model.as_bytes(), call.voice.as_bytes()]);
        let request = Seed::of(&[
            call.model.as_bytes(),
            call.voice.as_bytes(),
            call.text.as_bytes(),
            &call.speed.to_le_bytes(),
        ]);
        let (speed, format, text) = (call.speed, call.format, faults.rest);
        let file = away(move |abandoned| speak(&text, &voice, speed, format, abandoned)).await?;
        Ok(SpeechAnswer {
            parts: vec![file],
            request_id: Some(request.request_id()),
        })
    }
}

fn speak(
    text: &str,
    voice: &Seed,
    speed: f64,
    format: SpeechFormat,
    abandoned: &CancellationToken,
) -> Result<Bytes, ProviderError> {
    let length = length(text, speed);
    let rate = if length > LONG { LONG_RATE } else { RATE };
    let count = (length.as_nanos() * u128::from(rate) + 500_000_000) / 1_000_000_000;
    let samples = sing(
        text,
        voice,
        rate,
        usize::try_from(count).unwrap_or_default(),
    );
    match format {
        SpeechFormat::Wav => Ok(wav(&samples, rate)),
        SpeechFormat::Mp3 => mp3(&samples, rate, abandoned).map_err(|error| broken(&error)),
    }
}

fn length(text: &str, speed: f64) -> Duration {
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let seconds = (f64::from(letters) / PACE / speed).max(SHORTEST);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Ends early when cancelled.
fn mp3(
    samples: &[i16],
    rate: u32,
    abandoned: &CancellationToken,
) -> Result<Bytes, rusty_mp3::Error> {
    let mut encoder = Mp3Encoder::new(Mp3EncoderConfig {
        bitrate_kbps: BITRATE,
        vbr_quality: None,
    });
    let pieces = samples.chunks(PIECE);
    for piece in pieces.take_while(|_| !abandoned.is_cancelled()) {
        encoder.push_pcm_s16(piece, 1, rate)?;
    }
    encoder.finish();
    let mut file = Vec::new();
    loop {
        match encoder.next_packet() {
            Ok(packet) => file.extend_from_slice(&packet),
            Err(rusty_mp3::Error::Again | rusty_mp3::Error::Eof) => return Ok(file.into()),
            Err(error) => return Err(error),
        }
    }
}

/// 16-bit mono with a 44-byte header.
fn wav(samples: &[i16], rate: u32) -> Bytes {
    let bytes = u32::try_from(samples.len() * 2).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(samples.len() * 2 + 44);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&bytes.saturating_add(36).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes());
    for half in [1_u16, 1] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    for word in [rate, rate * 2] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for half in [2_u16, 16] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(b"data");
    file.extend_from_slice(&bytes.to_le_bytes());
    for sample in samples {
        file.extend_from_slice(&sample.to_le_bytes());
    }
    file.into()
}

#[cfg(test)]
mod tests;
