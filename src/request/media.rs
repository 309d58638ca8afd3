//! POST /v1/generate/image, /video and /audio

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::json;

use super::{
    IMAGE_PROMPT_CHARS, InputRequest, MAX_DURATION, NEGATIVE_PROMPT_CHARS, SPEECH_PROMPT_CHARS,
    SPEED, Target, VIDEO_PROMPT_CHARS, VOICE_CHARS, max_cost, read_inputs,
};
use crate::domain::{
    credits::Credits,
    generation::Surface,
    named::named_enum,
    pricing::Quality,
    validate::{
        FieldCode, Fields, Object, Parsed, Refusal, SchemaName, integer, number, parsed, text,
        too_long, words,
    },
};

/// The sizes that the API offers, in pixels.
pub const SIZES: [(u32, u32); 5] = [
    (256, 256),
    (512, 512),
    (1024, 1024),
    (1024, 1792),
    (1792, 1024),
];

/// Sizes that SDKs may request: [`SIZES`] and OpenAI's own.
pub const SDK_SIZES: [(u32, u32); 7] = [
    (256, 256),
    (512, 512),
    (1024, 1024),
    (1024, 1536),
    (1024, 1792),
    (1536, 1024),
    (1792, 1024),
];

named_enum!(
    /// The background of an image.
    Background {
        Transparent = "transparent",
        Opaque = "opaque",
    }
);

named_enum!(
    /// The style of an image.
    Style {
        Vivid = "vivid",
        Natural = "natural",
    }
);

named_enum!(
    /// The file format of speech.
    SpeechFormat {
        /// MPEG layer 3.
        Mp3 = "mp3",
        Wav = "wav",
    }
);

/// A requested aspect ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// Width, 1 to 9999.
    pub width: u32,
    /// Height, 1 to 9999.
    pub height: u32,
}

impl Ratio {
    /// Parses `W:H`, numbers from 1 with 1 to 4 digits.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let number: u32 = text.parse().ok()?;
            let is_plain = text.len() <= 4 && !text.starts_with('+');
            (is_plain && number > 0).then_some(number)
        };
        let (width, height) = text.split_once(':')?;
        Some(Self {
            width: number(width)?,
            height: number(height)?,
        })
    }

    /// Returns the ratio in lowest terms, for comparisons.
    #[must_use]
    pub fn reduced(self) -> Self {
        let (mut a, mut b) = (self.width, self.height);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self {
            width: self.width / a,
            height: self.height / a,
        }
    }
}

impl Display for Ratio {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.width, self.height)
    }
}

/// Maximum pixels to add to one side.
const MAX_SIDE: i64 = 2_000;

/// Pixels to add to each side of a source. At least one side is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Outpaint {
    pub left: u32,
    pub right: u32,
    pub up: u32,
    pub down: u32,
}

impl Outpaint {
    /// Returns the size of the result for a source of this size.
    pub const fn extended(self, (width, height): (u32, u32)) -> (u32, u32) {
        let width = width.saturating_add(self.left + self.right);
        (width, height.saturating_add(self.up + self.down))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ImageRequest {
    pub surface: Surface,
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub inputs: Vec<InputRequest>,
    pub target: Target,
    pub size: Option<(u32, u32)>,
    pub outpaint: Option<Outpaint>,
    pub quality: Option<Quality>,
    pub style: Option<Style>,
    /// `None`: the model decides.
    pub background: Option<Background>,
    pub n: Option<u32>,
    /// The maximum permitted hold.
    pub max_cost: Option<Credits>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VideoRequest {
    pub prompt: String,
    pub inputs: Vec<InputRequest>,
    pub target: Target,
    /// Seconds of video.
    pub duration: Option<u32>,
    pub ratio: Option<Ratio>,
    /// The maximum permitted hold.
    pub max_cost: Option<Credits>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SpeechRequest {
    pub surface: Surface,
    /// The text to speak.
    pub prompt: String,
    pub target: Target,
    pub voice: Option<String>,
    pub speed: Option<f64>,
    /// Speaking style; not blank.
    pub instructions: Option<String>,
    pub format: Option<SpeechFormat>,
    /// Whether only the samples of a WAV are requested.
    pub is_pcm: bool,
    /// The maximum permitted hold.
    pub max_cost: Option<Credits>,
}

/// Lists sizes, separated by `separator`.
pub fn size_names(sizes: &[(u32, u32)], separator: &str) -> String {
    let names = sizes
        .iter()
        .map(|(width, height)| format!("{width}x{height}"));
    names.collect::<Vec<_>>().join(separator)
}

const SIZE: Parsed<(u32, u32)> = parsed(
    || json!({"type": "string", "pattern": format!("^({})$", size_names(&SIZES, "|"))}),
    |text| size(text, &SIZES),
);

/// Reads one of `sizes`.
pub fn size(text: &str, sizes: &[(u32, u32)]) -> Result<(u32, u32), Refusal> {
    let size = sizes.iter().find(|(x, y)| text == format!("{x}x{y}"));
    size.copied().ok_or_else(|| {
        let message = format!("must be one of {}", size_names(sizes, ", "));
        (FieldCode::NotAllowed, message.into())
    })
}

const RATIO: Parsed<Ratio> = parsed(
    || {
        let number = "([1-9][0-9]{0,3}|0[1-9][0-9]{0,2}|00[1-9][0-9]?|000[1-9])";
        json!({"type": "string", "pattern": format!("^{number}:{number}$")})
    },
    |text| {
        let message = "must be width:height, two numbers from 1 to 9999, such as 16:9";
        Ratio::parse(text).ok_or((FieldCode::InvalidFormat, message.into()))
    },
);

/// The form of voice ids: ASCII letters, digits and `signs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoiceIds {
    pub signs: &'static str,
    pub max_chars: usize,
}

impl VoiceIds {
    /// Everything that the API accepts.
    pub const ALL: Self = Self {
        signs: "_-",
        max_chars: VOICE_CHARS,
    };

    pub fn accept(&self, voice: &str) -> bool {
        let is_accepted = |b: u8| b.is_ascii_alphanumeric() || self.signs.as_bytes().contains(&b);
        (1..=self.max_chars).contains(&voice.len()) && voice.bytes().all(is_accepted)
    }
}

impl Display for VoiceIds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let max = self.max_chars;
        match self.signs {
            "" => write!(f, "a voice id of at most {max} letters and digits"),
            _ => write!(f, "a voice id of at most {max} letters, digits, - and _"),
        }
    }
}

/// The name of a voice, which may become a segment of a path upstream.
pub const VOICE: Parsed<String> = parsed(
    || json!({"type": "string", "pattern": format!("^[A-Za-z0-9_-]{{1,{VOICE_CHARS}}}$")}),
    |text| {
        if text.chars().count() > VOICE_CHARS {
            return Err((FieldCode::TooLong, too_long(VOICE_CHARS).into()));
        }
        if !VoiceIds::ALL.accept(text) {
            let message = format!("must be {}", VoiceIds::ALL);
            return Err((FieldCode::InvalidFormat, message.into()));
        }
        Ok(text.to_owned())
    },
);

const IMAGE_PARAMETERS: (&str, &str) = ("ImageParameters", "Parameters of an image generation.");
const OUTPAINT: (&str, &str) = ("Outpaint", "Pixels to add to each side of the source.");
const VIDEO_PARAMETERS: (&str, &str) = ("VideoParameters", "Parameters of a video generation.");
const SPEECH_PARAMETERS: (&str, &str) = ("SpeechParameters", "Parameters of a speech generation.");

/// Reads `outpaint` of an image's parameters.
fn read_outpaint(parameters: &Fields<'_>) -> Option<Outpaint> {
    let about = "Extends the source by pixels on its sides, which sets the size of the result. Only \
                 for models whose `limits.inputs.outpaints` is true; they require it.";
    let outpaint = parameters.object("outpaint", about, OUTPAINT, |sides| {
        let side = |name| {
            let side = sides.optional(name, "Default 0.", integer(0..=MAX_SIDE));
            side.unwrap_or_default()
        };
        Outpaint {
            left: side("left"),
            right: side("right"),
            up: side("up"),
            down: side("down"),
        }
    });
    if !parameters.has("outpaint") || parameters.failed("outpaint") {
        return None;
    }
    if outpaint.extended((0, 0)) == (0, 0) {
        let message = "must add pixels to a side: left, right, up or down";
        parameters.error("outpaint", FieldCode::Required, message);
    }
    if parameters.has("size") && !parameters.failed("size") {
        let message = "must not be sent together with outpaint, which sets the size";
        parameters.error("size", FieldCode::NotAllowed, message);
    }
    Some(outpaint)
}

impl Object for ImageRequest {
    const SCHEMA: SchemaName = ("ImageGenerationRequest", "An image generation.");
    const EXAMPLE: &'static str =
        r#"{"prompt": "A lighthouse at dusk", "parameters": {"size": "512x512"}}"#;
    const HAS_PICTURES: bool = true;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let prompt = fields.required("prompt", "Not blank.", text(IMAGE_PROMPT_CHARS).not_blank());
        let limit = text(NEGATIVE_PROMPT_CHARS);
        let negative_prompt = fields.optional("negative_prompt", "What to avoid.", limit);
        let inputs = read_inputs(fields);
        let target = Target::read(fields);
        let tier = "Quality tier; hd costs more. Default standard.";
        let request = fields.object("parameters", "Parameters.", IMAGE_PARAMETERS, |p| Self {
            surface: Surface::Generate,
            prompt: prompt.unwrap_or_default(),
            negative_prompt,
            inputs,
            target,
            size: p.optional("size", "Pixels. Default 1024x1024.", SIZE),
            outpaint: read_outpaint(p),
            quality: p.optional("quality", tier, words()),
            style: p.optional("style", "Style. Default none.", words()),
            background: None,
            n: p.optional("n", "How many; billed each. Default 1.", integer(1..=4)),
            max_cost: None,
        });
        Some(Self {
            max_cost: max_cost(fields),
            ..request
        })
    }
}

impl Object for VideoRequest {
    const SCHEMA: SchemaName = ("VideoGenerationRequest", "A video generation.");
    const EXAMPLE: &'static str =
        r#"{"prompt": "Waves on a pebble beach", "parameters": {"duration": 4, "ratio": "16:9"}}"#;
    const HAS_PICTURES: bool = true;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let prompt = fields.required("prompt", "Not blank.", text(VIDEO_PROMPT_CHARS).not_blank());
        let inputs = read_inputs(fields);
        let target = Target::read(fields);
        let seconds = "Seconds; billed each. Default: the model's.";
        let request = fields.object("parameters", "Parameters.", VIDEO_PARAMETERS, |p| Self {
            prompt: prompt.unwrap_or_default(),
            inputs,
            target,
            duration: p.optional("duration", seconds, integer(1..=i64::from(MAX_DURATION))),
            ratio: p.optional("ratio", "Aspect ratio, width:height. Default 16:9.", RATIO),
            max_cost: None,
        });
        Some(Self {
            max_cost: max_cost(fields),
            ..request
        })
    }
}

impl Object for SpeechRequest {
    const SCHEMA: SchemaName = ("SpeechGenerationRequest", "A speech generation.");
    const EXAMPLE: &'static str = r#"{"prompt": "Good morning.", "parameters": {"format": "mp3"}}"#;

    fn read(fields: &Fields<'_>) -> Option<Self> {
        let about = "The text to speak; not blank.";
        let prompt = fields.required("prompt", about, text(SPEECH_PROMPT_CHARS).not_blank());
        let target = Target::read(fields);
        let rate = "Playback rate. Default 1.0. Not every model takes one.";
        let request = fields.object("parameters", "Parameters.", SPEECH_PARAMETERS, |p| Self {
            surface: Surface::Generate,
            prompt: prompt.unwrap_or_default(),
            target,
            voice: p.optional("voice", "Voice id. Default: the model's.", VOICE),
            speed: p.optional("speed", rate, number(SPEED[0]..=SPEED[1])),
            format: p.optional("format", "File format. Default mp3.", words()),
            instructions: None,
            is_pcm: false,
            max_cost: None,
        });
        Some(Self {
            max_cost: max_cost(fields),
            ..request
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::validate::{Body, FieldError};

    fn codes<T>((_, errors): (T, Vec<FieldError>)) -> Vec<(String, FieldCode)> {
        errors.into_iter().map(|e| (e.param, e.code)).collect()
    }

    #[test]
    fn ratios_are_compared_in_lowest_terms() {
        let ratio = |text| Ratio::parse(text).map(Ratio::reduced);
        assert_eq!(ratio("1920:1080"), Ratio::parse("16:9"));
        for bad in [
            "16", "0:9", "16:", "16:9:1", "10000:1", "-1:1", "1.5:1", "16x9", "+1:1",
        ] {
            assert_eq!(ratio(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_voice_id_has_no_other_characters() {
        let plain = VoiceIds {
            signs: "",
            max_chars: 64,
        };
        for (voice, by_all, by_plain) in [
            ("21m00Tcm4TlvDq8ikWAM", true, true),
            ("a-b_c", true, false),
            (&"a".repeat(65), true, false),
            (&"a".repeat(101), false, false),
            ("", false, false),
            ("a/b", false, false),
            ("../v1", false, false),
            ("a?b=c", false, false),
            ("a%2fb", false, false),
            ("a b", false, false),
            ("é", false, false),
        ] {
            let accepted = (VoiceIds::ALL.accept(voice), plain.accept(voice));
            assert_eq!(accepted, (by_all, by_plain), "{voice}");
        }
    }

    #[test]
    fn the_bounds_of_the_interface_hold() {
        let body = json!({"prompt": "x", "negative_prompt": "n".repeat(2_001),
            "parameters": {"size": "1x1", "quality": "best", "style": 1, "n": 5}});
        assert_eq!(
            codes(ImageRequest::parse(body.as_object().unwrap())),
            [
                ("negative_prompt".to_owned(), FieldCode::TooLong),
                ("parameters.size".to_owned(), FieldCode::NotAllowed),
                ("parameters.quality".to_owned(), FieldCode::NotAllowed),
                ("parameters.style".to_owned(), FieldCode::InvalidType),
                ("parameters.n".to_owned(), FieldCode::OutOfRange),
            ]
        );
        let body =
            json!({"prompt": "v".repeat(5_001), "parameters": {"duration": 61, "ratio": "wide"}});
        assert_eq!(
            codes(VideoRequest::parse(body.as_object().unwrap())),
            [
                ("prompt".to_owned(), FieldCode::TooLong),
                ("parameters.duration".to_owned(), FieldCode::OutOfRange),
                ("parameters.ratio".to_owned(), FieldCode::InvalidFormat),
            ]
        );
        let body =
            json!({"prompt": "x", "parameters": {"voice": "../x", "speed": 0.1, "format": "ogg"}});
        assert_eq!(
            codes(SpeechRequest::parse(body.as_object().unwrap())),
            [
                ("parameters.voice".to_owned(), FieldCode::InvalidFormat),
                ("parameters.speed".to_owned(), FieldCode::OutOfRange),
                ("parameters.format".to_owned(), FieldCode::NotAllowed),
            ]
        );
    }
}
