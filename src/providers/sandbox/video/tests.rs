use std::sync::Arc;

use chrono::TimeDelta;
use openh264::{decoder::Decoder, formats::YUVSource};
use shiguredo_mp4::{
    boxes::SampleEntry,
    demux::{Input, Mp4FileDemuxer},
};
use tokio_util::sync::CancellationToken;

use super::{super::seed::Seed, *};
use crate::{domain::clock::ManualClock, providers::ProviderErrorKind};

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

/// Width, height, milliseconds and samples, as another part of the library reads them.
fn read(file: &[u8]) -> ((u16, u16), u128, Vec<Vec<u8>>) {
    let mut demuxer = Mp4FileDemuxer::new();
    demuxer.handle_input(Input {
        position: 0,
        data: file,
    });
    let tracks = demuxer.tracks().unwrap();
    assert_eq!(tracks.len(), 1);
    let length = Duration::from_secs(tracks[0].duration) / tracks[0].timescale.get();
    let (mut size, mut samples) = ((0, 0), Vec::new());
    while let Some(sample) = demuxer.next_sample().unwrap() {
        if let Some(SampleEntry::Avc1(entry)) = sample.sample_entry {
            size = (entry.visual.width, entry.visual.height);
        }
        let start = usize::try_from(sample.data_offset).unwrap();
        samples.push(file[start..start + sample.data_size].to_vec());
    }
    (size, length.as_millis(), samples)
}

#[tokio::test]
async fn length_and_shape() {
    for (duration, ratio, size) in [
        (1, (16, 9), (320, 180)),
        (1, (9, 16), (180, 320)),
        (1, (21, 9), (420, 180)),
        (1, (1, 1), (180, 180)),
        (5, (9999, 1), (640, 16)),
        (60, (1, 40), (16, 640)),
    ] {
        let file = film(&call("waves", duration, ratio)).await;
        let (got, length, samples) = read(&file);
        assert_eq!(got, size, "{ratio:?}");
        assert_eq!(length, u128::from(duration) * 1_000);
        assert_eq!(samples.len(), usize::try_from(duration * 24).unwrap());
        // The index is in front of the pictures.
        let place = |name: &[u8]| file.windows(4).position(|four| four == name).unwrap();
        assert!(place(b"moov") < place(b"mdat"));
        assert!(file.len() < 400_000 * usize::try_from(duration).unwrap());
    }
}

#[tokio::test]
async fn pictures_move_and_differ() {
    let mut firsts = Vec::new();
    for prompt in ["a lake", "a fire"] {
        let call = call(prompt, 1, (4, 3));
        let file = film(&call).await;
        assert_eq!(file, film(&call).await);
        let seed = Seed::of(&[b"sandbox-video", prompt.as_bytes()]);
        let units = film::encode(&seed, (480, 360), 24, None, &CancellationToken::new()).unwrap();
        let mut decoder = Decoder::new().unwrap();
        let mut pictures = Vec::new();
        for unit in units {
            let picture = decoder.decode(&unit).unwrap().unwrap();
            assert_eq!(picture.dimensions(), (480, 360));
            pictures.push(picture.y().to_vec());
        }
        assert_ne!(pictures[0], pictures[23]);
        firsts.push(pictures.swap_remove(0));
    }
    assert_ne!(firsts[0], firsts[1]);
}

#[tokio::test]
async fn progress_by_the_clock_and_across_restarts() {
    let (clock, provider) = provider(Duration::from_secs(2));
    let call = call("waves [[slow:2]]", 1, (50, 1));
    let task = provider.submit(&call).await.unwrap();
    // Another process with another idea of how long things take.
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

#[tokio::test]
async fn work_that_nobody_waits_for_ends() {
    let (begun, running) = tokio::sync::oneshot::channel();
    let (told, ended) = tokio::sync::oneshot::channel();
    let work = away(move |abandoned| {
        begun.send(()).unwrap();
        while !abandoned.is_cancelled() {
            std::thread::yield_now();
        }
        told.send(()).unwrap();
        Ok(())
    });
    tokio::select! {
        _ = work => panic!("it ended by itself"),
        _ = running => {}
    }
    ended.await.unwrap();

    let seed = Seed::of(&[b"x"]);
    let abandoned = CancellationToken::new();
    abandoned.cancel();
    let frames = film::encode(&seed, (480, 360), 24, None, &abandoned).unwrap();
    assert!(frames.is_empty());
}
