//! Every configuration error of media models and of the requests to their vendors.

use super::media_models::refused;

const UNPRICED: &str = "is missing: a model without a complete price is not served; add it or \
                        set enabled = false";

#[test]
fn of_video() {
    let priced = "prices.per_second = \"1\"\n";
    let seconds =
        "must be seconds from 1 to 60, ascending such as [4, 6, 8], or { min = 2, max = 10 }";
    refused(
        "runway",
        "video",
        &[("", &format!("prices.per_second {UNPRICED}"))],
    );
    for durations in ["[]", "[0]", "[61]", "[4, 4]", "[6, 4]", "[1.5]"] {
        let lines = format!("{priced}limits.durations = {durations}");
        refused(
            "runway",
            "video",
            &[(&lines, &format!("limits.durations is a list: {seconds}"))],
        );
    }
    for durations in [
        "{ min = 5, max = 4 }",
        "{ min = 1 }",
        "{ min = 1, max = 2, step = 1 }",
    ] {
        let lines = format!("{priced}limits.durations = {durations}");
        refused(
            "runway",
            "video",
            &[(&lines, &format!("limits.durations is a table: {seconds}"))],
        );
    }
    let timed = format!("{priced}limits.durations = [4, 6]\nlimits.default_duration = 4\n");
    for (lines, want) in [
        (
            "",
            "ratios is missing: list those that the model takes, such as [\"16:9\", \"9:16\"]",
        ),
        ("limits.ratios = []", "ratios is empty: name at least one"),
        (
            "limits.ratios = [\"wide\"]",
            r#"ratios holds "wide": must be ratios, such as "16:9""#,
        ),
        (
            "limits.ratios = [\"16:9\", \"32:18\"]",
            r#"ratios holds "16:9" twice: keep one"#,
        ),
        (
            "limits.ratios = [\"1:1\"]",
            r#"ratios holds "1:1", which wire.ratios does not have: add it there"#,
        ),
        (
            "limits.max_prompt_utf16 = 10001",
            "max_prompt_utf16 is 10001: must be a whole number from 1 to 10000",
        ),
    ] {
        refused(
            "runway",
            "video",
            &[(&format!("{timed}{lines}"), &format!("limits.{want}"))],
        );
    }
    refused(
        "gemini",
        "video",
        &[
            (
                priced,
                "limits.durations is missing: list the seconds that the model takes, such as [4, 6, 8]",
            ),
            (
                &format!("{priced}limits.durations = [4]"),
                "limits.default_duration is missing: name the seconds of a request that names none",
            ),
            (
                &format!("{priced}limits = {{ durations = [4], default_duration = 5 }}"),
                "limits.default_duration is 5: must be one of limits.durations",
            ),
            (
                &format!("{timed}limits.ratios = [\"1:1\"]"),
                r#"limits.ratios holds "1:1": Gemini Omni makes 16:9 and 9:16 only"#,
            ),
            (
                "wire = { resolution = \"8k\" }",
                r#"wire.resolution is "8k": must be one of 360p, 720p, 1080p, 4k"#,
            ),
        ],
    );
}

#[test]
fn of_the_wire_of_video() {
    refused(
        "runway",
        "video",
        &[
            (
                "wire.ratios = { wide = \"1:1\" }",
                r#"wire.ratios holds "wide": must be ratios, such as "16:9""#,
            ),
            (
                "wire.ratios = { \"16:9\" = \" \" }",
                r#"wire.ratios has nothing for "16:9": name the model's word"#,
            ),
            (
                "wire.ratios = { \"16:9\" = \"a\", \"32:18\" = \"b\" }",
                r#"wire.ratios has the ratio of "32:18" twice: keep one"#,
            ),
            ("wire.audio = 1", "wire.audio is 1: must be true or false"),
        ],
    );
}

#[test]
fn of_speech() {
    let priced = "prices.per_1000_characters = \"1\"\n";
    refused(
        "elevenlabs",
        "audio",
        &[("", &format!("prices.per_1000_characters {UNPRICED}"))],
    );
    for (lines, want) in [
        (
            "",
            "default_voice is missing: name the voice of a request that names none",
        ),
        (
            "limits.default_voice = \"a-b\"",
            r#"default_voice is "a-b": must be a voice id of at most 64 letters and digits"#,
        ),
        (
            "limits = { voices = [\"a/b\"], default_voice = \"b\" }",
            r#"voices holds "a/b": each must be a voice id of at most 64 letters and digits"#,
        ),
        (
            "limits = { voices = [], default_voice = \"b\" }",
            "voices is empty: name at least one",
        ),
        (
            "limits = { voices = [\"a\", \"a\"], default_voice = \"a\" }",
            r#"voices holds "a" twice: keep one"#,
        ),
        (
            "limits = { voices = [\"a\"], default_voice = \"b\" }",
            r#"default_voice is "b": must be one of limits.voices"#,
        ),
        (
            "limits = { default_voice = \"b\", formats = [\"ogg\"] }",
            r#"formats[0] is "ogg": must be one of mp3, wav"#,
        ),
        (
            "limits = { default_voice = \"b\", formats = [] }",
            "formats is empty: name at least one",
        ),
        (
            "limits = { default_voice = \"b\", speed = [0.5, 1.2] }",
            "speed is [0.5, 1.2]: must be the lowest and the highest value within 0.7 to 1.2, with 1.0 between them; leave it out for a model without speed",
        ),
        (
            "limits.max_prompt_chars = 10001",
            "max_prompt_chars is 10001: must be a whole number from 1 to 10000",
        ),
    ] {
        refused(
            "elevenlabs",
            "audio",
            &[(&format!("{priced}{lines}"), &format!("limits.{want}"))],
        );
    }
    let voiced = format!("{priced}limits.default_voice = \"b\"\n");
    for (provider, lines, want) in [
        (
            "gemini",
            "limits.formats = [\"mp3\"]",
            r#"limits.formats holds "mp3": must be wav for a provider of kind "gemini""#,
        ),
        (
            "gemini",
            "limits.speed = [1, 1]",
            "limits.speed is [1.0, 1.0]: Gemini has no field for it; leave it out",
        ),
        (
            "gemini",
            "wire = {}",
            "wire is not used by Gemini's speech: remove it",
        ),
        (
            "openai",
            "limits.speed = [1.5, 2]",
            "limits.speed is [1.5, 2.0]: must be the lowest and the highest value within 0.25 to 4, with 1.0 between them; leave it out for a model without speed",
        ),
        (
            "openai",
            "limits.speed = [nan, 2]",
            "limits.speed is [NaN, 2.0]: must be the lowest and the highest value within 0.25 to 4, with 1.0 between them; leave it out for a model without speed",
        ),
        (
            "openai",
            "wire.max_chars = 4097",
            "wire.max_chars is 4097: must be a whole number from 1 to 4096",
        ),
        (
            "elevenlabs",
            "wire.mp3 = \"mp3\"",
            r#"wire.mp3 is "mp3": must be one of mp3_22050_32, mp3_24000_48, mp3_44100_32, mp3_44100_64, mp3_44100_96, mp3_44100_128, mp3_44100_192"#,
        ),
        (
            "elevenlabs",
            "wire.wav = \"wav\"",
            r#"wire.wav is "wav": must be one of wav_8000, wav_16000, wav_22050, wav_24000, wav_32000, wav_44100, wav_48000"#,
        ),
    ] {
        refused(provider, "audio", &[(&format!("{voiced}{lines}"), want)]);
    }
}

#[test]
fn of_vendors_of_images() {
    let one =
        "limits.native_sizes = [\"512x512\"]\nprices.per_image.512x512 = { standard = \"1\" }\n";
    let two = one.replace("\"1\" }", "\"1\", hd = \"2\" }");
    let core = "wire.standard.endpoint = \"core\"\n";
    for (lines, want) in [
        (
            one.to_owned(),
            "wire.standard.endpoint is missing: write one of core, ultra, sd3, inpaint, outpaint",
        ),
        (
            "wire.standard.endpoint = \"sdxl\"".to_owned(),
            r#"wire.standard.endpoint is "sdxl": must be one of core, ultra, sd3, inpaint, outpaint"#,
        ),
        (
            format!("{core}wire.standard.model = \"x\""),
            "wire.standard.model is used by the endpoint sd3 only: remove it",
        ),
        (
            format!("{core}wire.hd.model = \"x\""),
            "wire.hd.endpoint is missing: write one of core, ultra, sd3, inpaint, outpaint",
        ),
        (
            format!("{core}wire.vivid = \"bright\""),
            r#"wire.vivid is "bright": must be one of 3d-model, analog-film, anime, cinematic, comic-book, digital-art, enhance, fantasy-art, isometric, line-art, low-poly, modeling-compound, neon-punk, origami, photographic, pixel-art, tile-texture"#,
        ),
        (
            format!("{two}{core}"),
            "wire.hd is missing: prices have a tier hd; say what makes it",
        ),
        (
            format!("{one}{core}wire.hd.endpoint = \"ultra\""),
            "wire.hd is not used: prices have no tier hd; add it or remove this",
        ),
        (
            format!("{one}{core}limits.style = \"native\"\nwire.vivid = \"enhance\""),
            r#"wire.natural is missing: limits.style is "native"; name the preset"#,
        ),
    ] {
        refused("stability", "image", &[(&lines, want)]);
    }
    for (lines, want) in [
        (
            "limits.style = \"native\"",
            r#"limits.style is "native": OpenAI has no field for it; use guided or unsupported"#,
        ),
        (
            "limits.negative_prompt = \"native\"",
            r#"limits.negative_prompt is "native": OpenAI has no field for it; use guided or unsupported"#,
        ),
        (
            "wire.hd = \"best\"",
            r#"wire.hd is "best": must be one of low, medium, high, xhigh, max"#,
        ),
        (
            "wire.output_format = \"gif\"",
            r#"wire.output_format is "gif": must be one of png, jpeg, webp"#,
        ),
        (
            "wire.moderation = \"off\"",
            r#"wire.moderation is "off": must be one of auto, low"#,
        ),
    ] {
        refused("openai", "image", &[(&format!("{one}{lines}"), want)]);
    }
}

#[test]
fn of_inputs() {
    let image = "prices.per_image.1024x1024 = { standard = \"1\" }\n\
                 limits.native_sizes = [\"1024x1024\"]\nwire.standard.endpoint = \"ultra\"\n";
    let shape = "limits.inputs must have source = 1 and keeps_shape = true: results have the \
                 source's shape";
    let free = "prices.per_input_image = \"0\"\n";
    let unpriced = "prices.per_input_image is missing: a model without a complete price is not \
                    served; add it or set enabled = false";
    let unused = "prices.per_input_image is not used: the model takes no inputs; add \
                  limits.inputs or remove it";
    for (lines, want) in [
        ("limits.inputs = { source = 1 }".to_owned(), unpriced),
        (free.to_owned(), unused),
        (
            format!("{free}limits.inputs = {{}}"),
            "limits.inputs has no role: add one, such as { source = 1 }, or remove limits.inputs",
        ),
        (
            format!("{free}limits.inputs = {{ first_frame = 1 }}"),
            "limits.inputs.first_frame is not a role of this type: use source, mask, reference",
        ),
        (
            format!("{free}limits.inputs = {{ source = 1, required = \"mask\" }}"),
            "limits.inputs.required is \"mask\", which has no maximum here: add mask = 1",
        ),
        (format!("{free}limits.inputs = {{ source = 1 }}"), shape),
        (
            format!("{free}limits.inputs = {{ source = 1, mask = 1, keeps_shape = true }}"),
            "limits.inputs has mask, which only the endpoint inpaint supports: remove it",
        ),
    ] {
        refused("stability", "image", &[(&format!("{image}{lines}"), want)]);
    }
    let source = "prices = { per_second = \"1\", per_input_image = \"0\" }\n\
                  limits.durations = [4]\nlimits.default_duration = 4\n\
                  limits.ratios = [\"16:9\"]\nlimits.inputs.source = 1";
    let want = "limits.inputs.source is not a role of this type: use first_frame, last_frame, \
                reference";
    refused("gemini", "video", &[(source, want)]);
}

#[test]
fn of_models_that_extend_pictures() {
    let outpaint = "wire.standard.endpoint = \"outpaint\"\nprices.per_input_image = \"0\"\n";
    let any = "prices.per_image.any = { standard = \"1\" }\n";
    let sized = "prices.per_image.512x512 = { standard = \"1\" }\n";
    let extends = "limits.inputs = { source = 1, required = \"source\", outpaints = true }\n";
    let native = "limits.native_sizes = [\"512x512\"]\n";
    for (lines, want) in [
        (
            format!("{any}{extends}{native}"),
            "limits.native_sizes is not used with limits.inputs.outpaints: remove it",
        ),
        (
            format!("{sized}{extends}"),
            "prices.per_image.512x512 is not used with limits.inputs.outpaints: write \
             per_image.any",
        ),
        (
            format!("prices.per_image = {{}}\n{extends}"),
            "prices.per_image.any is missing: a model without a complete price is not served; add \
             it or set enabled = false",
        ),
        (
            format!("{any}limits.inputs = {{ source = 1, outpaints = true }}"),
            "limits.inputs.required must be \"source\" with outpaints",
        ),
        (
            format!(
                "{any}limits.inputs = {{ source = 1, mask = 1, required = \"source\", \
                 outpaints = true }}"
            ),
            "limits.inputs.mask is not used with limits.inputs.outpaints: only source is",
        ),
        (
            format!("{sized}{native}limits.inputs = {{ source = 1, keeps_shape = true }}"),
            "limits.inputs must have outpaints = true exactly for the endpoint outpaint",
        ),
    ] {
        let lines = format!("{outpaint}{lines}");
        refused("stability", "image", &[(&lines, want)]);
    }
    let lines = format!("{any}{extends}prices.per_input_image = \"0\"");
    let want = "limits.inputs.outpaints is not supported: OpenAI's API has no endpoint for it";
    refused("openai", "image", &[(&lines, want)]);
}

#[test]
fn of_images_of_runway() {
    let one = "prices.per_image.1024x1024 = { standard = \"1\" }\nprices.per_input_image = \"0\"\n";
    let limits = "limits.max_n = 1\nlimits.native_sizes = [\"1024x1024\"]\n";
    for (lines, want) in [
        (
            "limits.inputs.reference = 1\nlimits.max_n = 1\nlimits.native_sizes = [\"2048x2048\"]\nprices.per_image.2048x2048 = { standard = \"1\" }"
                .to_owned(),
            "limits.native_sizes holds a size that the model does not make: use 720x720, \
             1024x1024, 1080x1080",
        ),
        (
            "limits.inputs.reference = 1\nlimits.native_sizes = [\"1024x1024\"]".to_owned(),
            "limits.max_n must be 1: a task makes one image",
        ),
        (
            format!("{limits}limits.inputs.reference = 1\nlimits.style = \"native\""),
            "limits.style must be \"guided\" or \"unsupported\": there is no such field",
        ),
        (
            format!("{limits}limits.inputs.reference = 4"),
            "limits.inputs must have only reference, at most 3",
        ),
        (
            format!("{limits}limits.inputs = {{ source = 1, reference = 3 }}"),
            "limits.inputs must have only reference, at most 3",
        ),
    ] {
        refused("runway", "image", &[(&format!("{one}{lines}"), want)]);
    }
}
