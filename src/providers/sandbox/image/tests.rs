use bytes::Bytes;

use super::*;
use crate::{domain::pricing::Quality, providers::ProviderErrorKind, request::Style};

fn call(prompt: &str, size: (u32, u32)) -> ImageCall {
    ImageCall {
        model: "sandbox-image".to_owned(),
        prompt: prompt.to_owned(),
        negative_prompt: None,
        size,
        outpaint: None,
        quality: Quality::Standard,
        style: None,
        background: None,
        n: 1,
        inputs: Vec::new(),
    }
}

async fn one(call: &ImageCall) -> Bytes {
    let answer = SandboxImage.generate(call).await.unwrap();
    assert_eq!(answer.images.len(), 1);
    answer.images[0].clone()
}

fn decode(file: &Bytes) -> image::RgbImage {
    image::load_from_memory(file).unwrap().into_rgb8()
}

#[tokio::test]
async fn sizes() {
    for size in [(256, 256), (512, 512), (1024, 1792), (1792, 1024)] {
        let file = one(&call("a red fox", size)).await;
        let picture = decode(&file);
        assert_eq!(picture.dimensions(), size);
        let first = picture.get_pixel(0, 0);
        assert!(picture.pixels().any(|pixel| pixel != first));
        assert!(file.len() < 500_000, "{size:?}: {} bytes", file.len());
    }
}

#[tokio::test]
async fn same_call_same_images() {
    let mut call = call("a red fox", (256, 256));
    call.n = 4;
    let answer = SandboxImage.generate(&call).await.unwrap();
    assert_eq!(answer, SandboxImage.generate(&call).await.unwrap());
    assert_eq!(answer.images.len(), 4);
    for (index, image) in answer.images.iter().enumerate() {
        assert!(!answer.images[..index].contains(image));
    }
    assert!(answer.request_id.is_some());
}

#[tokio::test]
async fn every_parameter_changes_the_picture() {
    let plain = call("a red fox", (256, 256));
    let mut seen = vec![decode(&one(&plain).await).into_raw()];
    for change in [
        |call: &mut ImageCall| call.prompt.push('!'),
        |call: &mut ImageCall| call.model.push('2'),
        |call: &mut ImageCall| call.negative_prompt = Some("blur".to_owned()),
        |call: &mut ImageCall| call.quality = Quality::Hd,
        |call: &mut ImageCall| call.style = Some(Style::Vivid),
        |call: &mut ImageCall| call.style = Some(Style::Natural),
    ] {
        let mut call = plain.clone();
        change(&mut call);
        let pixels = decode(&one(&call).await).into_raw();
        for other in &seen {
            let same = pixels.iter().zip(other).filter(|(a, b)| a == b).count();
            assert!(same < pixels.len() / 2, "{call:?}: {same} values alike");
        }
        seen.push(pixels);
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
        let error = SandboxImage
            .generate(&call(&format!("a fox {marker}"), (256, 256)))
            .await
            .unwrap_err();
        assert_eq!(error.kind, kind);
    }
    let begin = std::time::Instant::now();
    let slow = one(&call("a red fox[[slow:0.3]]", (256, 256))).await;
    assert!(begin.elapsed().as_millis() >= 300);
    assert_eq!(slow, one(&call("a red fox", (256, 256))).await);
}
