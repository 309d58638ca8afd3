//! The built-in models of images, video and speech: complete prices and sound limits.

use super::{defaults::ALL_KEYS, *};
use gensvc::{
    catalogue::{ImageModel, ModelKind, Support},
    domain::{generation::Modality, pricing::Quality},
    providers::{
        elevenlabs::ElevenLabsModel,
        gemini::omni::OmniModel,
        openai::{images::OpenAiImageModel, speech::OpenAiSpeechModel},
        runway::RunwayModel,
        stability::{StabilityEndpoint, StabilityModel},
    },
    request::{SDK_SIZES, SIZES, SpeechFormat},
};

#[test]
fn the_vendors_serve_by_preference() {
    let catalogue = from_env(ALL_KEYS).unwrap().catalogue();
    for (modality, provider) in [
        (Modality::Image, "openai"),
        (Modality::Video, "runway"),
        (Modality::Audio, "elevenlabs"),
    ] {
        assert_eq!(catalogue.default_provider(modality), Some(provider));
    }
    for (provider, modality, model) in [
        ("openai", Modality::Image, "gpt-image-2.5-flare"),
        ("openai", Modality::Audio, "tts-1"),
        ("stability", Modality::Image, "core"),
        ("runway", Modality::Video, "gen4.5"),
        ("gemini", Modality::Video, "gemini-omni-1.2-flash"),
        ("gemini", Modality::Audio, "gemini-3.8-flash-lite-tts"),
        ("elevenlabs", Modality::Audio, "eleven_v4"),
    ] {
        let default = catalogue.default_model(provider, modality).unwrap();
        assert!(default.default);
        assert_eq!(default.id, model);
    }
    // Without OpenAI and ElevenLabs the next ones serve.
    let some = [("STABILITY_API_KEY", "s"), ("GEMINI_API_KEY", "g")];
    let catalogue = from_env(&some).unwrap().catalogue();
    for (modality, provider) in [
        (Modality::Image, "stability"),
        (Modality::Video, "gemini"),
        (Modality::Audio, "gemini"),
    ] {
        assert_eq!(catalogue.default_provider(modality), Some(provider));
    }
}

#[test]
fn every_image_model_has_a_price_for_all_it_serves() {
    for model in from_env(ALL_KEYS).unwrap().catalogue().models() {
        let (id, ModelKind::Image(image)) = (&model.id, &model.kind) else {
            continue;
        };
        let limits = &image.limits;
        let runway = model.provider == "runway";
        let most = if runway { (1_000, 1) } else { (5_000, 4) };
        assert_eq!((limits.max_prompt_chars, limits.max_n), most, "{id}");
        let units = runway.then_some(1_000);
        assert_eq!(limits.max_prompt_utf16, units, "{id}");
        let has_no_field = |support| (support == Support::Unsupported) == runway;
        assert!(has_no_field(limits.style), "{id}");
        assert!(has_no_field(limits.negative_prompt), "{id}");
        if limits
            .inputs
            .as_ref()
            .is_some_and(|inputs| inputs.outpaints)
        {
            assert!(image.native_sizes.is_empty(), "{id}");
            assert!(image.prices.per_image.keys().eq(["any"]), "{id}");
            continue;
        }
        let servable = ImageModel::servable(&SIZES, &image.native_sizes);
        let names: Vec<String> = servable.iter().map(|(w, h)| format!("{w}x{h}")).collect();
        assert_eq!(limits.sizes, names, "{id}");
        let has_hd = limits.qualities.contains(&Quality::Hd);
        let for_sdks = ImageModel::servable(&SDK_SIZES, &image.native_sizes);
        let for_sdks = for_sdks.iter().map(|(w, h)| format!("{w}x{h}"));
        let priced: Vec<String> = for_sdks.collect();
        assert_eq!(image.prices.per_image.len(), priced.len(), "{id}");
        assert_eq!(
            priced.len() > names.len(),
            model.provider == "openai",
            "{id}"
        );
        for name in &priced {
            let tiers = &image.prices.per_image[name];
            assert!(tiers.standard.micros() > 0, "{id}");
            assert_eq!(tiers.hd.is_some(), has_hd, "{id}");
            assert!(tiers.hd.is_none_or(|hd| hd > tiers.standard), "{id}");
        }
        let squares = ["256x256", "512x512", "1024x1024"];
        if runway {
            assert_eq!(names, squares, "{id}");
            assert!(!has_hd, "{id}");
        } else if model.provider == "stability" {
            assert_eq!(names, squares, "{id}");
            assert!(!has_hd, "{id}");
            let guided = id.contains("turbo");
            let native = limits.negative_prompt == Support::Native;
            assert!(guided != native, "{id}");
        } else {
            assert_eq!(servable, SIZES, "{id}");
            assert!(has_hd, "{id}");
        }
    }
}

#[test]
fn every_video_and_speech_model_is_sound() {
    for model in from_env(ALL_KEYS).unwrap().catalogue().models() {
        let (id, sandbox) = (&model.id, model.provider == "sandbox");
        match &model.kind {
            ModelKind::Video(video) => {
                let limits = &video.limits;
                assert!(video.prices.per_second.micros() > 0, "{id}");
                assert!(limits.durations.contains(&limits.default_duration), "{id}");
                assert!(limits.durations.is_sorted(), "{id}");
                assert_eq!(limits.ratios.is_none(), sandbox, "{id}");
                let runway = model.provider == "runway";
                assert_eq!(
                    video.limits.max_prompt_utf16.map(|n| *n),
                    runway.then_some(1_000),
                    "{id}"
                );
                assert_eq!(limits.max_prompt_chars == 1_000, runway, "{id}");
            }
            ModelKind::Speech(speech) => {
                let limits = &speech.limits;
                assert!(speech.prices.per_1000_characters.micros() > 0, "{id}");
                if let Some(voices) = &limits.voices {
                    assert!(voices.contains(&limits.default_voice), "{id}");
                }
                let wav_only = limits.formats == [SpeechFormat::Wav];
                assert_eq!(wav_only, model.provider == "gemini", "{id}");
                let any = model.provider == "elevenlabs";
                assert_eq!(limits.voices.is_none(), any, "{id}");
                let without = model.provider == "gemini" || id.contains("mini");
                assert_eq!(limits.speed.is_none(), without, "{id}");
                let retiring = model.retiring.map(|day| day.to_string());
                let ends = (model.provider == "openai").then(|| "2027-01-06".to_owned());
                assert_eq!(retiring, ends, "{id}");
            }
            ModelKind::Text(_) | ModelKind::Image(_) => {}
        }
    }
}

#[test]
fn some_of_the_numbers() {
    let catalogue = from_env(ALL_KEYS).unwrap().catalogue();
    let kind = |provider: &str, id: &str| catalogue.find(provider, id).unwrap().kind.clone();
    let ModelKind::Video(omni) = kind("gemini", "gemini-omni-1.2-flash") else {
        panic!()
    };
    assert_eq!(omni.prices.per_second.to_string(), "7");
    assert!(omni.limits.durations.iter().copied().eq(3..=15));
    let ModelKind::Video(gen45) = kind("runway", "gen4.5") else {
        panic!()
    };
    assert_eq!(gen45.prices.per_second.to_string(), "12");
    assert!(gen45.limits.durations.iter().copied().eq(2..=10));
    let ModelKind::Video(veo) = kind("runway", "veo3.1") else {
        panic!()
    };
    assert_eq!(veo.limits.durations, [4, 6, 8]);
    let ModelKind::Speech(lite) = kind("gemini", "gemini-3.8-flash-lite-tts") else {
        panic!()
    };
    assert_eq!(lite.limits.voices.unwrap().len(), 30);
    let ModelKind::Speech(flash) = kind("elevenlabs", "eleven_flash_v2_5") else {
        panic!()
    };
    assert_eq!(flash.prices.per_1000_characters.to_string(), "4");
    assert_eq!(flash.limits.speed, Some([0.7, 1.2]));
    let ModelKind::Video(sandbox) = kind("sandbox", "sandbox-video-1") else {
        panic!()
    };
    assert!(sandbox.limits.durations.iter().copied().eq(1..=60));
    assert_eq!(sandbox.limits.default_duration, 4);
}

#[test]
fn the_wire_settings_are_those_of_the_adapters() {
    for provider in from_env(ALL_KEYS).unwrap().enabled_providers() {
        for model in &provider.models {
            let id = model.id.as_str();
            assert!(provider.vendor.modalities.contains(&model.modality()));
            if let Some(wire) = settings_of::<OpenAiImageModel>(model) {
                assert_eq!((&*wire.standard, &*wire.hd), ("medium", "high"), "{id}");
                assert_eq!(wire.output_format.as_deref(), Some("png"), "{id}");
                assert_eq!(wire.moderation.as_deref(), Some("auto"), "{id}");
            } else if let Some(wire) = settings_of::<OpenAiSpeechModel>(model) {
                let max_chars = if id == "gpt-4o-mini-tts" {
                    1_800
                } else {
                    4_096
                };
                assert_eq!(
                    (wire.max_chars, &wire.instructions),
                    (max_chars, &None),
                    "{id}"
                );
            } else if let Some(wire) = settings_of::<StabilityModel>(model) {
                assert_eq!(wire.vivid.as_deref(), Some("cinematic"), "{id}");
                assert_eq!(wire.natural.as_deref(), Some("photographic"), "{id}");
                let sd3 = wire.standard.endpoint == StabilityEndpoint::Sd3;
                assert_eq!(wire.standard.model.as_deref(), sd3.then_some(id));
            } else if let Some(wire) = settings_of::<RunwayModel>(model) {
                assert_eq!(wire.ratios["16:9"], "1280:720", "{id}");
                assert_eq!(wire.ratios["9:16"], "720:1280", "{id}");
                let sound = id.starts_with("veo").then_some(true);
                assert_eq!((wire.audio, &wire.resolution), (sound, &None), "{id}");
            } else if let Some(wire) = settings_of::<OmniModel>(model) {
                assert_eq!(wire.resolution, "720p", "{id}");
            } else if let Some(wire) = settings_of::<ElevenLabsModel>(model) {
                assert_eq!(wire.mp3, "mp3_44100_128", "{id}");
                assert_eq!(wire.wav, "wav_24000", "{id}");
            } else {
                let kind = (provider.vendor.kind, model.modality());
                let others = [("gemini", Modality::Audio), ("runway", Modality::Image)];
                let bare = kind.0 == "sandbox" || others.contains(&kind);
                assert!(bare || kind.1 == Modality::Text, "{id}");
            }
        }
    }
}
