//! Models of images, video and speech in a file: what they become, and every error.

use super::*;
use gensvc::{
    catalogue::{ImageModel, Support},
    domain::pricing::Quality,
    providers::{openai::images::OpenAiImageModel, runway::RunwayModel},
    request::SpeechFormat,
};

/// A file in which the models of a built-in provider are one with these lines.
fn model(provider: &str, kind: &str, lines: &str) -> String {
    format!("[[providers.{provider}.models]]\nid = \"m\"\ntype = \"{kind}\"\n{lines}\n")
}

fn the_model(provider: &str, kind: &str, lines: &str) -> ModelConfig {
    let c = from_file(&model(provider, kind, lines), &[]).unwrap();
    let found = c.providers.iter().find(|p| p.name == provider).unwrap();
    found.models[0].clone()
}

fn image(provider: &str, lines: &str) -> (ImageModel, ModelConfig) {
    let model = the_model(provider, "image", lines);
    match model.kind.clone() {
        ModelKind::Image(image) => (image, model),
        other => panic!("{other:?}"),
    }
}

/// Each of these lines, as a model of that provider, fails with that sentence.
pub(super) fn refused(provider: &str, kind: &str, cases: &[(&str, &str)]) {
    for (lines, want) in cases {
        let want = format!("providers.{provider}.models[0].{want}");
        check(&model(provider, kind, lines), &[], &want);
    }
}

#[test]
fn a_smaller_size_costs_what_its_native_size_costs() {
    let (image, _) = image(
        "sandbox",
        "limits.native_sizes = [\"1024x1024\", \"512x512\", \"3584x2048\"]\n\
         prices.per_image.1024x1024 = { standard = \"4\" }\n\
         prices.per_image.512x512 = { standard = 2 }\n\
         prices.per_image.3584x2048 = { standard = \"9\" }",
    );
    let prices: Vec<(String, String)> = image
        .prices
        .per_image
        .iter()
        .map(|(size, tiers)| (size.clone(), tiers.standard.to_string()))
        .collect();
    let want = [
        ("1024x1024", "4"),
        ("1792x1024", "9"),
        ("256x256", "2"),
        ("512x512", "2"),
    ];
    assert_eq!(
        prices,
        want.map(|(size, price)| (size.into(), price.into()))
    );
    assert_eq!(
        image.limits.sizes,
        ["256x256", "512x512", "1024x1024", "1792x1024"]
    );
    assert_eq!(image.limits.qualities, [Quality::Standard]);
    assert_eq!(
        (image.limits.max_n, image.limits.max_prompt_chars),
        (4, 5_000)
    );
    assert_eq!(image.limits.style, Support::Guided);
}

#[test]
fn a_size_that_is_listed_has_its_own_price() {
    let (image, model) = image(
        "openai",
        "limits = { native_sizes = [\"1024x1024\"], style = \"unsupported\", max_n = 1 }\n\
         prices.per_image = { 1024x1024 = { standard = \"4\", hd = \"8\" }, \
         256x256 = { standard = \"1\", hd = \"0\" } }\n\
         wire = { standard = \"low\", output_format = \"\", moderation = \"low\" }",
    );
    let price = |size: &str| {
        let tiers = image.prices.per_image[size];
        (tiers.standard.to_string(), tiers.hd.unwrap().to_string())
    };
    assert_eq!(price("256x256"), ("1".into(), "0".into()));
    assert_eq!(price("512x512"), ("4".into(), "8".into()));
    assert_eq!(image.limits.qualities, [Quality::Standard, Quality::Hd]);
    assert_eq!(image.limits.style, Support::Unsupported);
    let wire = settings_of::<OpenAiImageModel>(&model).unwrap();
    assert_eq!((&*wire.standard, &*wire.hd), ("low", "high"));
    assert_eq!(
        (wire.output_format.as_deref(), wire.moderation.as_deref()),
        (None, Some("low"))
    );
}

#[test]
fn video_and_speech() {
    let model = the_model(
        "runway",
        "video",
        "prices.per_second = \"1\"\n\
         limits = { durations = [5, 10], default_duration = 10, ratios = [\"21:9\"] }\n\
         wire = { ratios = { \"21:9\" = \"1584:672\" }, resolution = \"768p\", audio = false }",
    );
    let ModelKind::Video(video) = &model.kind else {
        panic!("{model:?}")
    };
    assert_eq!(video.limits.ratios.as_ref().unwrap()[..], ["21:9"]);
    assert_eq!(
        (video.limits.max_prompt_chars, video.limits.max_prompt_utf16),
        (5_000, None)
    );
    let wire = settings_of::<RunwayModel>(&model).unwrap();
    // In lowest terms, as the adapter is asked.
    assert_eq!(wire.ratios["7:3"], "1584:672");
    assert_eq!(
        (wire.resolution.as_deref(), wire.audio),
        (Some("768p"), Some(false))
    );
    let price = "prices.per_1000_characters = \"1\"\nlimits.default_voice = \"a-b_c\"";
    for (provider, formats) in [
        ("gemini", &[SpeechFormat::Wav] as &[_]),
        ("openai", &[SpeechFormat::Mp3, SpeechFormat::Wav]),
    ] {
        let model = the_model(provider, "audio", price);
        let ModelKind::Speech(speech) = model.model.kind else {
            panic!()
        };
        assert_eq!(speech.limits.formats, formats);
        assert_eq!((speech.limits.voices, speech.limits.speed), (None, None));
        assert_eq!(speech.limits.max_prompt_chars, 10_000);
    }
}

#[test]
fn each_kind_has_its_types() {
    for (provider, kind, want) in [
        ("openai", "video", r#""text" or "image" or "audio""#),
        ("anthropic", "image", r#""text""#),
        ("gemini", "image", r#""text" or "video" or "audio""#),
        ("stability", "text", r#""image""#),
        ("runway", "audio", r#""image" or "video""#),
        ("elevenlabs", "text", r#""audio""#),
    ] {
        let want =
            format!("type is \"{kind}\": must be {want} for a provider of kind \"{provider}\"");
        refused(provider, kind, &[("", &want)]);
    }
    let file = "[[providers.openai.models]]\nid = \"m\"\n";
    let want =
        r#"providers.openai.models[0].type is missing: write type = "text" or "image" or "audio""#;
    check(file, &[], want);
}

const UNPRICED: &str = "a model without a complete price is not served";

#[test]
fn of_images() {
    let native = "limits.native_sizes = [\"1024x1024\", \"1024x1792\"]\n";
    let missing =
        |key: &str| format!("{key} is missing: {UNPRICED}; add it or set enabled = false");
    for (prices, want) in [
        ("", missing("prices.per_image")),
        ("prices.per_image = {}", missing("prices.per_image.1024x1024")),
        (
            "prices.per_image.1024x1024 = { standard = \"1\" }",
            missing("prices.per_image.1024x1792"),
        ),
        (
            "prices.per_image = { 1024x1024 = { hd = \"1\" }, 1024x1792 = { hd = \"1\" } }",
            missing("prices.per_image.1024x1024.standard"),
        ),
        (
            "prices.per_image = { 1024x1024 = { standard = \"1\", hd = \"1\" }, 1024x1792 = { standard = \"1\" } }",
            missing("prices.per_image.1024x1792.hd"),
        ),
        (
            "prices.per_image.1792x1024 = { standard = \"1\" }",
            "prices.per_image.1792x1024 is for a size that the model does not make: use 1024x1024, 1024x1792, 256x256, 512x512".to_owned(),
        ),
        (
            "prices.per_image.1024x1024 = { standard = 1.5 }",
            r#"prices.per_image.1024x1024.standard is 1.5: write credits in quotes, such as "10.5", so that no digit is lost"#.to_owned(),
        ),
        (
            "prices.per_image.1024x1024 = { low = \"1\" }",
            "prices.per_image.1024x1024.low is not a known key: remove it or use one of standard, hd".to_owned(),
        ),
        (
            "prices.per_image.1024x1024 = \"1\"",
            "prices.per_image.1024x1024 is text (not shown): must be a table with keys".to_owned(),
        ),
    ] {
        refused("sandbox", "image", &[(&format!("{native}{prices}"), &want)]);
    }
    refused(
        "sandbox",
        "image",
        &[
            (
                "",
                "limits.native_sizes is missing: list the sizes that the model makes itself, such as [\"1024x1024\"]",
            ),
            (
                "limits.native_sizes = []",
                "limits.native_sizes is empty: name at least one",
            ),
            (
                "limits.native_sizes = [\"512x512\", \"512x512\"]",
                r#"limits.native_sizes holds "512x512" twice: keep one"#,
            ),
            (
                "limits.native_sizes = [\"512\"]",
                r#"limits.native_sizes holds "512": must be sizes in pixels, such as "1024x1024""#,
            ),
            (
                "limits.native_sizes = [\"+512x512\"]",
                r#"limits.native_sizes holds "+512x512": must be sizes in pixels, such as "1024x1024""#,
            ),
            (
                "limits.native_sizes = [\"9999x9999\"]",
                r#"limits.native_sizes holds "9999x9999": must be sizes in pixels, such as "1024x1024""#,
            ),
            (
                "limits.native_sizes = [\"1344x768\"]",
                r#"limits.native_sizes holds "1344x768", from which no size of the API can be made: remove it"#,
            ),
            (
                "limits.max_n = 5",
                "limits.max_n is 5: must be a whole number from 1 to 4",
            ),
            (
                "limits.max_prompt_chars = 5001",
                "limits.max_prompt_chars is 5001: must be a whole number from 1 to 5000",
            ),
            (
                "limits.style = \"no\"",
                r#"limits.style is "no": must be one of native, guided, unsupported"#,
            ),
            (
                "limits.max_tokens = 5",
                "limits.max_tokens is not a known key: remove it or use one of max_prompt_chars, max_prompt_utf16, native_sizes, max_n, style, negative_prompt, inputs",
            ),
            (
                "overhead_tokens = 5",
                "overhead_tokens is not used by a model of type image: remove it",
            ),
            ("wire = {}", "wire is not used by the sandbox: remove it"),
        ],
    );
}
