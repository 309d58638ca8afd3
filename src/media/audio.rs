//! Joins the parts of a recording into one valid file, and computes its duration.

mod mp3;
mod wav;

pub use mp3::mp3_from_parts;
pub use wav::{WAV_HEADER_BYTES, is_bare_pcm, wav, wav_from_parts};

pub(super) use mp3::{seconds as mp3_seconds, starts_a_frame};
pub(super) use wav::seconds as wav_seconds;

#[cfg(test)]
pub(super) mod tests;
