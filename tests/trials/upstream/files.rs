//! Real files, generated once by the built-in sandbox.

use std::{io::Cursor, sync::Arc, time::Duration};

use chrono::DateTime;
use gensvc::{
    domain::{clock::ManualClock, request::SpeechFormat},
    providers::{
        SpeechCall, SpeechProvider as _, VideoCall, VideoOutput, VideoProvider as _, VideoStatus,
        sandbox::{SandboxSpeech, SandboxVideo},
    },
};

/// One of each kind.
pub struct Files {
    pub png: Vec<u8>,
    pub mp3: Vec<u8>,
    pub wav: Vec<u8>,
    /// Of 2, 3 and 4 seconds.
    pub mp4: Vec<Vec<u8>>,
}

impl Files {
    pub async fn make() -> Self {
        Self {
            png: png(),
            mp3: speech(SpeechFormat::Mp3).await,
            wav: speech(SpeechFormat::Wav).await,
            mp4: vec![mp4(2).await, mp4(3).await, mp4(4).await],
        }
    }
}

fn png() -> Vec<u8> {
    let picture = image::RgbImage::from_pixel(1024, 1024, image::Rgb([40, 80, 160]));
    let mut bytes = Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    bytes.into_inner()
}

async fn speech(format: SpeechFormat) -> Vec<u8> {
    let call = SpeechCall {
        model: "sandbox-speech-1".to_owned(),
        text: "chaos".to_owned(),
        voice: "aria".to_owned(),
        speed: 1.0,
        format,
    };
    SandboxSpeech.generate(&call).await.unwrap().parts[0].to_vec()
}

async fn mp4(seconds: u32) -> Vec<u8> {
    let sandbox = SandboxVideo::new(
        Arc::new(ManualClock::new(DateTime::UNIX_EPOCH)),
        Duration::ZERO,
    );
    let call = VideoCall {
        model: "sandbox-video-1".to_owned(),
        prompt: "chaos".to_owned(),
        duration: seconds,
        ratio: (16, 9),
        inputs: Vec::new(),
    };
    let task = sandbox.submit(&call).await.unwrap();
    for _ in 0..100 {
        match sandbox.poll(&task, &call).await.unwrap() {
            VideoStatus::Done(VideoOutput::Bytes(bytes)) => return bytes.to_vec(),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("the sandbox makes no film");
}
