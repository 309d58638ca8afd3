use super::*;
use crate::providers::ProviderErrorKind;

fn call(text: &str, format: SpeechFormat) -> SpeechCall {
    SpeechCall {
        model: "sandbox-speech".to_owned(),
        text: text.to_owned(),
        voice: "calm".to_owned(),
        speed: 1.0,
        format,
    }
}

async fn one(call: &SpeechCall) -> Bytes {
    let answer = SandboxSpeech.generate(call).await.unwrap();
    assert_eq!(answer.parts.len(), 1);
    answer.parts[0].clone()
}

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

/// Rate and samples, by the header.
fn wav_of(file: &[u8]) -> (u32, Vec<i16>) {
    assert_eq!((&file[..4], &file[8..16]), (&b"RIFF"[..], &b"WAVEfmt "[..]));
    assert_eq!(usize::try_from(word(file, 4)).unwrap() + 8, file.len());
    assert_eq!(usize::try_from(word(file, 40)).unwrap() + 44, file.len());
    let samples = file[44..].chunks_exact(2);
    let samples = samples.map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
    (word(file, 24), samples.collect())
}

/// Rate and number of samples, as the frames say.
fn mp3_of(file: &[u8]) -> (u32, usize) {
    let mut decoder = rusty_mp3::Mp3Decoder::new();
    decoder.push(file);
    decoder.flush();
    let (mut rate, mut count) = (0, 0);
    while let Ok(frame) = decoder.next_frame() {
        rate = frame.sample_rate;
        count += frame.samples.len();
    }
    (rate, count)
}

#[tokio::test]
async fn length_follows_the_text() {
    let text = "Thirty characters make two sec";
    for (text, speed, samples) in [
        (text, 1.0, 48_000),
        (text, 0.5, 96_000),
        (text, 4.0, 12_000),
        ("Hi", 1.0, 7_200),
        ("", 1.0, 7_200),
        ("漢字かな交じり文です。漢字かな", 1.0, 24_000),
    ] {
        let mut call = call(text, SpeechFormat::Wav);
        call.speed = speed;
        let (rate, wav) = wav_of(&one(&call).await);
        assert_eq!((rate, wav.len()), (24_000, samples), "{text} at {speed}");
        call.format = SpeechFormat::Mp3;
        let (rate, count) = mp3_of(&one(&call).await);
        assert_eq!(rate, 24_000);
        // The encoder's delay and the last frame's filling come on top.
        assert!((samples..samples + 3_000).contains(&count), "{count}");
    }
}

#[tokio::test]
async fn audible_and_calm() {
    let (_, samples) = wav_of(&one(&call("Good morning, my friend.", SpeechFormat::Wav)).await);
    let peak = samples.iter().map(|sample| sample.unsigned_abs()).max();
    assert!((4_000..28_000).contains(&peak.unwrap()), "{peak:?}");
    // No clicks: neighbours are near each other, and both ends are quiet.
    let jump = samples.windows(2).map(|two| two[0].abs_diff(two[1])).max();
    assert!(jump.unwrap() < 9_000, "{jump:?}");
    assert!(samples[0].abs() < 200 && samples[samples.len() - 1].abs() < 1_500);
}

#[tokio::test]
async fn same_call_same_file() {
    let first = call("Good morning", SpeechFormat::Mp3);
    let file = one(&first).await;
    assert_eq!(file, one(&first).await);
    for change in [
        |call: &mut SpeechCall| call.text = "Good evening".to_owned(),
        |call: &mut SpeechCall| call.voice = "bright".to_owned(),
    ] {
        let mut other = first.clone();
        change(&mut other);
        assert_ne!(file, one(&other).await);
    }
}

#[test]
fn longest_wav_is_below_the_cap() {
    let length = length(&"a".repeat(10_000), 0.25);
    assert_eq!(length.as_secs(), 2_666);
    assert!(length > LONG);
    let bytes = length.as_secs() * u64::from(LONG_RATE) * 2;
    assert!(bytes < 100 << 20);
    assert!(LONG.as_secs() * u64::from(RATE) * 2 < 100 << 20);
}

#[tokio::test]
async fn faults() {
    for (marker, kind) in [
        ("[[fail]]", ProviderErrorKind::Failed),
        ("[[reject]]", ProviderErrorKind::Rejected),
        ("[[timeout]]", ProviderErrorKind::Timeout),
        ("[[rate_limit]]", ProviderErrorKind::Overloaded),
    ] {
        let call = call(&format!("Hello {marker}"), SpeechFormat::Mp3);
        let error = SandboxSpeech.generate(&call).await.unwrap_err();
        assert_eq!(error.kind, kind);
    }
    let begin = std::time::Instant::now();
    let slow = one(&call("[[slow:0.3]]Hello", SpeechFormat::Wav)).await;
    assert!(begin.elapsed().as_millis() >= 300);
    assert_eq!(slow, one(&call("Hello", SpeechFormat::Wav)).await);
}
