//! Real files, generated once.

use bytes::Bytes;
use gensvc::request::SpeechFormat;
use image::{ImageFormat, Rgb, RgbImage};

use crate::{
    picture::encoded,
    sandbox::{mp4, speech},
};

/// One of each kind.
pub struct Files {
    pub png: Vec<u8>,
    pub mp3: Bytes,
    pub wav: Bytes,
    /// Of 2, 3 and 4 seconds.
    pub mp4: [Bytes; 3],
}

impl Files {
    pub async fn make() -> Self {
        let picture = RgbImage::from_pixel(1024, 1024, Rgb([40, 80, 160]));
        Self {
            png: encoded(picture, ImageFormat::Png),
            mp3: speech(SpeechFormat::Mp3, "chaos").await,
            wav: speech(SpeechFormat::Wav, "chaos").await,
            mp4: [mp4(2).await, mp4(3).await, mp4(4).await],
        }
    }
}
