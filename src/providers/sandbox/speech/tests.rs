use super::*;
use crate::providers::ProviderErrorKind;

fn call(text: &str, format: SpeechFormat) -> SpeechCall {
    SpeechCall {
        model: "sandbox-speech".to_owned(),
        text: text.to_owned(),
        voice: "calm".to_owned(),
        speed: 1.0,
        instructions: None,
        format,
    }
}

async fn one(call: &SpeechCall) -> Bytes {
    let answer = SandboxSpeech.generate(call).await.unwrap();
    assert_eq!(answer.parts.len(), 1);
    answer.parts[0].clone()
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
        ("a".repeat(10_000).as_str(), 0.25, 1_800 * 24_000),
    ] {
        let mut call = call(text, SpeechFormat::Wav);
        call.speed = speed;
        let wav = one(&call).await;
        assert_eq!(wav.len(), 44 + 2 * samples, "{text} at {speed}");
        assert!(wav.len() < 100 << 20);
        call.format = SpeechFormat::Mp3;
        let mp3 = one(&call).await;
        assert_eq!(mp3.len(), samples.div_ceil(576) * 144);
    }
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
