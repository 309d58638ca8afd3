//! POST /v1/generate/image, /video and /audio

use serde_json::{Map, Value};

use super::{
    IMAGE_PROMPT_CHARS, MAX_DURATION, NEGATIVE_PROMPT_CHARS, SPEECH_PROMPT_CHARS, SPEED, Target,
    Unreadable, VIDEO_PROMPT_CHARS, VOICE_CHARS, read_target,
};
use crate::domain::{
    credits::Credits,
    named::named_enum,
    validate::{Errors, FieldCode, Fields},
};

/// The sizes of the interface, in pixels.
pub const SIZES: [(u32, u32); 5] = [
    (256, 256),
    (512, 512),
    (1024, 1024),
    (1024, 1792),
    (1792, 1024),
];

named_enum!(
    /// The quality tier of an image.
    Quality {
        Standard = "standard",
        Hd = "hd",
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

/// An aspect ratio, as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// Width, 1 to 9999.
    pub width: u32,
    /// Height, 1 to 9999.
    pub height: u32,
}

impl Ratio {
    /// Reads `W:H`, numbers from 1 with 1 to 4 digits.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            digits
                .then(|| text.parse().ok())
                .flatten()
                .filter(|&n: &u32| n > 0)
        };
        let (width, height) = text.split_once(':')?;
        Some(Self {
            width: number(width)?,
            height: number(height)?,
        })
    }

    /// The same ratio in lowest terms: what ratios are compared by.
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

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.width, self.height)
    }
}

/// An image generation, statically valid.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageRequest {
    /// The prompt, not blank, at most 5,000 characters.
    pub prompt: String,
    /// What to avoid, at most 2,000 characters.
    pub negative_prompt: Option<String>,
    /// Provider and model asked for.
    pub target: Target,
    /// One of [`SIZES`].
    pub size: Option<(u32, u32)>,
    pub quality: Option<Quality>,
    pub style: Option<Style>,
    /// How many, 1 to 4.
    pub n: Option<u32>,
    /// The hold must not be above it.
    pub max_cost: Option<Credits>,
}

/// A video generation, statically valid.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoRequest {
    /// The prompt, not blank, at most 5,000 characters.
    pub prompt: String,
    /// Provider and model asked for.
    pub target: Target,
    /// Seconds, 1 to 60.
    pub duration: Option<u32>,
    pub ratio: Option<Ratio>,
    /// The hold must not be above it.
    pub max_cost: Option<Credits>,
}

/// A speech generation, statically valid.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechRequest {
    /// The text to speak, not blank, at most 10,000 characters.
    pub prompt: String,
    /// Provider and model asked for.
    pub target: Target,
    pub voice: Option<String>,
    /// Playback rate, 0.25 to 4.0.
    pub speed: Option<f64>,
    pub format: Option<SpeechFormat>,
    /// The hold must not be above it.
    pub max_cost: Option<Credits>,
}

impl ImageRequest {
    /// Reads and checks a body.
    pub fn read(body: &Map<String, Value>) -> Result<Self, Unreadable<Self>> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let prompt = fields.required_text("prompt", IMAGE_PROMPT_CHARS);
        let negative_prompt = fields.text("negative_prompt", NEGATIVE_PROMPT_CHARS);
        let target = read_target(&fields);
        let parameters = fields.object("parameters");
        let size = word(
            &parameters,
            "size",
            "256x256, 512x512, 1024x1024, 1024x1792, 1792x1024",
            |w| SIZES.into_iter().find(|(x, y)| w == format!("{x}x{y}")),
        );
        let quality = word(&parameters, "quality", "standard, hd", Quality::parse);
        let style = word(&parameters, "style", "vivid, natural", Style::parse);
        let n = parameters
            .integer("n", 1..=4)
            .and_then(|n| u32::try_from(n).ok());
        parameters.finish();
        let max_cost = fields.credits("max_cost");
        fields.finish();
        let read = Self {
            prompt: prompt.unwrap_or_default().to_owned(),
            negative_prompt: negative_prompt.map(str::to_owned),
            target,
            size,
            quality,
            style,
            n,
            max_cost,
        };
        Unreadable::into_result(&errors, read)
    }
}

impl VideoRequest {
    /// Reads and checks a body.
    pub fn read(body: &Map<String, Value>) -> Result<Self, Unreadable<Self>> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let prompt = fields.required_text("prompt", VIDEO_PROMPT_CHARS);
        let target = read_target(&fields);
        let parameters = fields.object("parameters");
        let duration = parameters
            .integer("duration", 1..=i64::from(MAX_DURATION))
            .and_then(|n| u32::try_from(n).ok());
        let ratio = parameters.string("ratio").and_then(|text| {
            let ratio = Ratio::parse(text);
            if ratio.is_none() {
                let message = "must be width:height, two numbers from 1 to 9999, such as 16:9";
                parameters.error("ratio", FieldCode::InvalidFormat, message);
            }
            ratio
        });
        parameters.finish();
        let max_cost = fields.credits("max_cost");
        fields.finish();
        let read = Self {
            prompt: prompt.unwrap_or_default().to_owned(),
            target,
            duration,
            ratio,
            max_cost,
        };
        Unreadable::into_result(&errors, read)
    }
}

impl SpeechRequest {
    /// Reads and checks a body.
    pub fn read(body: &Map<String, Value>) -> Result<Self, Unreadable<Self>> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let prompt = fields.required_text("prompt", SPEECH_PROMPT_CHARS);
        let target = read_target(&fields);
        let parameters = fields.object("parameters");
        let voice = parameters.text("voice", VOICE_CHARS);
        // It may become a segment of a path upstream.
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        if voice.is_some_and(|v| v.is_empty() || !v.bytes().all(sound)) {
            let message = "must be a voice id of letters, digits, - and _";
            parameters.error("voice", FieldCode::InvalidFormat, message);
        }
        let speed = parameters.number("speed", SPEED[0]..=SPEED[1]);
        let format = word(&parameters, "format", "mp3, wav", SpeechFormat::parse);
        parameters.finish();
        let max_cost = fields.credits("max_cost");
        fields.finish();
        let read = Self {
            prompt: prompt.unwrap_or_default().to_owned(),
            target,
            voice: voice.map(str::to_owned),
            speed,
            format,
            max_cost,
        };
        Unreadable::into_result(&errors, read)
    }
}

/// A string that is one of a few words.
fn word<T>(
    fields: &Fields<'_>,
    name: &'static str,
    words: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = fields.string(name)?;
    let value = parse(text);
    if value.is_none() {
        fields.error(
            name,
            FieldCode::NotAllowed,
            format!("must be one of {words}"),
        );
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn codes<T: std::fmt::Debug>(result: Result<T, Unreadable<T>>) -> Vec<(String, FieldCode)> {
        let errors = result.unwrap_err().errors;
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
    fn the_bounds_of_the_interface_hold() {
        let body = json!({"prompt": "x", "negative_prompt": "n".repeat(2_001),
            "parameters": {"size": "1x1", "quality": "best", "style": 1, "n": 5}});
        assert_eq!(
            codes(ImageRequest::read(body.as_object().unwrap())),
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
            codes(VideoRequest::read(body.as_object().unwrap())),
            [
                ("prompt".to_owned(), FieldCode::TooLong),
                ("parameters.duration".to_owned(), FieldCode::OutOfRange),
                ("parameters.ratio".to_owned(), FieldCode::InvalidFormat),
            ]
        );
        let body =
            json!({"prompt": "x", "parameters": {"voice": "../x", "speed": 0.1, "format": "ogg"}});
        assert_eq!(
            codes(SpeechRequest::read(body.as_object().unwrap())),
            [
                ("parameters.voice".to_owned(), FieldCode::InvalidFormat),
                ("parameters.speed".to_owned(), FieldCode::OutOfRange),
                ("parameters.format".to_owned(), FieldCode::NotAllowed),
            ]
        );
    }
}
