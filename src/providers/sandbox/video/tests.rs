use std::sync::Arc;

use chrono::TimeDelta;
use image::{Rgb, RgbImage};

use super::*;
use crate::{domain::clock::ManualClock, providers::ProviderErrorKind};

const RED: Rgb<u8> = Rgb([255, 0, 0]);
const BLUE: Rgb<u8> = Rgb([0, 0, 255]);

fn call(prompt: &str, duration: u32, ratio: (u32, u32)) -> VideoCall {
    VideoCall {
        model: "sandbox-video".to_owned(),
        prompt: prompt.to_owned(),
        duration,
        ratio,
        inputs: Vec::new(),
    }
}

fn provider(work: Duration) -> (Arc<ManualClock>, SandboxVideo) {
    let start = DateTime::from_timestamp(1_700_000_000, 5_000).unwrap();
    let clock = Arc::new(ManualClock::new(start));
    (clock.clone(), SandboxVideo::new(clock, work))
}

async fn film(call: &VideoCall) -> bytes::Bytes {
    let (_, provider) = provider(Duration::ZERO);
    let task = provider.submit(call).await.unwrap();
    match provider.poll(&task, call).await.unwrap() {
        VideoStatus::Done(VideoOutput::Bytes(file)) => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn size_follows_the_ratio() {
    for (ratio, size) in [
        ((16, 9), (320, 180)),
        ((9, 16), (180, 320)),
        ((21, 9), (420, 180)),
        ((1, 1), (180, 180)),
        ((5, 4), (226, 180)),
        ((9999, 1), (640, 16)),
        ((1, 40), (16, 640)),
    ] {
        assert_eq!(film::size(ratio), size, "{ratio:?}");
    }
}

#[tokio::test]
async fn same_call_same_film() {
    let lake = call("a lake", 1, (4, 3));
    assert_eq!(film(&lake).await, film(&lake).await);
    assert_ne!(film(&lake).await, film(&call("a fire", 1, (4, 3))).await);
}

#[test]
fn film_begins_with_the_picture() {
    let picture = RgbImage::from_fn(18, 20, |x, _| if x < 8 { RED } else { BLUE });
    let file = film::make(&picture, 1);
    let place = |name: &[u8]| file.windows(4).position(|four| four == name).unwrap();
    assert!(place(b"moov") < place(b"mdat"));
    // After the name: the unit's length, its header of 5 bytes and 2 bits, 9 bits of the type.
    let samples = &file[place(b"mdat") + 4 + 4 + 6..];
    let luma = [[82; 8], [41; 8]].concat();
    assert_eq!(samples[..16], luma);
    assert_eq!(samples[15 * 16..16 * 16], luma);
    let chroma = [[91; 4], [240; 4]].concat();
    assert_eq!(samples[256..256 + 8], chroma);
}

#[tokio::test]
async fn progress_by_the_clock_and_across_restarts() {
    let (clock, provider) = provider(Duration::from_secs(2));
    let call = call("waves [[slow:2]]", 1, (50, 1));
    let task = provider.submit(&call).await.unwrap();
    // Another process, configured with another duration.
    let restarted = SandboxVideo::new(clock.clone(), Duration::from_secs(99));
    for progress in [0, 25, 50, 75] {
        let status = restarted.poll(&task, &call).await.unwrap();
        assert!(
            matches!(status, VideoStatus::Running { progress: Some(got) } if got == progress),
            "{status:?} instead of {progress}"
        );
        clock.advance(TimeDelta::seconds(1));
    }
    provider.cancel(&task).await.unwrap();
    let status = restarted.poll(&task, &call).await.unwrap();
    assert!(matches!(status, VideoStatus::Done(_)), "{status:?}");
    for unknown in ["", "zzz", "e30", "\u{e9}"] {
        let status = provider.poll(unknown, &call).await.unwrap();
        assert!(matches!(status, VideoStatus::Gone), "{unknown}");
    }
}

#[tokio::test]
async fn faults() {
    let (clock, provider) = provider(Duration::from_secs(1));
    for (marker, kind) in [
        ("[[reject]]", ProviderErrorKind::Rejected),
        ("[[rate_limit]]", ProviderErrorKind::Overloaded),
    ] {
        let error = provider.submit(&call(marker, 1, (1, 1))).await.unwrap_err();
        assert_eq!(error.kind, kind);
    }
    for (marker, kind) in [
        ("[[fail]]", ProviderErrorKind::Failed),
        ("[[timeout]]", ProviderErrorKind::Timeout),
    ] {
        let call = call(marker, 1, (1, 1));
        let task = provider.submit(&call).await.unwrap();
        let status = provider.poll(&task, &call).await.unwrap();
        assert!(matches!(status, VideoStatus::Running { .. }), "{status:?}");
        clock.advance(TimeDelta::seconds(1));
        match provider.poll(&task, &call).await.unwrap() {
            VideoStatus::Failed(error) => assert_eq!(error.kind, kind),
            other => panic!("{other:?}"),
        }
    }
}
