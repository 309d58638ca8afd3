//! Formats and names of stored files.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use crate::domain::{ids::GenerationId, named::named_enum};

named_enum!(
    /// The formats of stored files, by media type.
    MediaKind {
        /// The only format of generated images.
        Png = "image/png",
        Jpeg = "image/jpeg",
        Webp = "image/webp",
        /// Speech: MPEG layer 3.
        Mp3 = "audio/mpeg",
        /// Speech: RIFF with PCM.
        Wav = "audio/wav",
        /// A video: MP4.
        Mp4 = "video/mp4",
    }
);

impl MediaKind {
    /// The media type for `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        self.as_str()
    }

    /// Returns the file name's extension, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Webp => "webp",
            Self::Mp3 => "mp3",
            Self::Wav => "wav",
            Self::Mp4 => "mp4",
        }
    }
}

/// The name of a stored file: `<generation uuid>/<index>.<ext>`. Only the canonical form parses, so
/// that a parsed key is safe to use as a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MediaKey {
    pub generation: GenerationId,
    /// The file's index within its generation, from 0.
    pub index: u16,
    pub kind: MediaKind,
}

impl MediaKey {
    /// Creates the key of a generation's file number `index`, from 0.
    pub const fn new(generation: GenerationId, index: u16, kind: MediaKind) -> Self {
        Self {
            generation,
            index,
            kind,
        }
    }
}

impl fmt::Display for MediaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extension = self.kind.extension();
        write!(f, "{}/{}.{extension}", self.generation.0, self.index)
    }
}

/// The error for a text that is not a [`MediaKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a stored file")]
pub struct InvalidKey;

impl FromStr for MediaKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let (uuid, file) = text.split_once('/').ok_or(InvalidKey)?;
        let (index, extension) = file.split_once('.').ok_or(InvalidKey)?;
        let key = Self {
            generation: GenerationId(Uuid::try_parse(uuid).map_err(|_| InvalidKey)?),
            index: index.parse().map_err(|_| InvalidKey)?,
            kind: *MediaKind::ALL
                .iter()
                .find(|kind| kind.extension() == extension)
                .ok_or(InvalidKey)?,
        };
        // Only the canonical form: no upper case, braces, signs or leading zeros.
        if key.to_string() == text {
            Ok(key)
        } else {
            Err(InvalidKey)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "01970000-0000-7000-8000-000000000001";

    #[test]
    fn one_spelling() {
        for &kind in MediaKind::ALL {
            let text = format!("{UUID}/3.{}", kind.extension());
            let key: MediaKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
            assert_eq!((key.index, key.kind), (3, kind));
            assert_eq!(key.generation.0.to_string(), UUID);
        }
    }

    #[test]
    fn nothing_else() {
        let upper = UUID.to_uppercase();
        let bare = UUID.replace('-', "");
        for text in [
            String::new(),
            format!("{UUID}/0"),
            format!("{UUID}/.png"),
            format!("{UUID}/00.png"),
            format!("{UUID}/+1.png"),
            format!("{UUID}/-1.png"),
            format!("{UUID}/65536.png"),
            format!("{UUID}/0.jpeg"),
            format!("{UUID}/0.PNG"),
            format!("{UUID}/0.png/"),
            format!("/{UUID}/0.png"),
            format!("{UUID}/../0.png"),
            format!("{UUID}//0.png"),
            format!("{UUID}/0.png\0"),
            format!("{bare}/0.png"),
            format!("{{{UUID}}}/0.png"),
            "../../etc/passwd.png".to_owned(),
            "ABCDEF00-0000-7000-8000-000000000001/0.png".to_owned(),
        ] {
            assert_eq!(text.parse::<MediaKey>(), Err(InvalidKey), "{text:?}");
        }
        assert_eq!(
            upper, UUID,
            "digits only, so that upper case is shown above"
        );
    }

    proptest! {
        #[test]
        fn a_name_is_its_own_only_spelling(
            text in "01970000-0000-7000-8000-00000000000[0-9a-fA-F]/[0-9+-]{0,6}[.](png|jpg|webp|mp3|wav|mp4|PNG|p)|.{0,60}",
        ) {
            if let Ok(key) = text.parse::<MediaKey>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
