//! Images in a conversation: source, type and size.
//!
//! Only the header in the base64 is decoded. The vendor decodes the same bytes, so it counts the
//! size in the header.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use super::base64::{Base64Text, check_base64};
use crate::domain::{
    image_header::{ImageType, ReadAt, read_header},
    named::named_enum,
    validate::{FieldCode, Refusal},
};

/// Maximum images per conversation, as at vendors.
pub const MAX_IMAGES: usize = 500;
/// Maximum bytes per image, as at vendors.
const MAX_BYTES: usize = 20 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub source: ImageSource,
    /// `None`: the vendor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    Base64 {
        /// The format of the image's bytes, whatever type was declared.
        media_type: ImageType,
        /// Width and height in pixels; `None` if the header does not bound them.
        size: Option<(u32, u32)>,
        data: Base64Text,
    },
    Url(String),
}

named_enum!(
    /// The resolution at which a model reads an image.
    Detail {
        Auto = "auto",
        Low = "low",
        High = "high",
        Original = "original",
    }
);

impl ImageSource {
    /// Parses an http, https or data URL.
    pub fn parse(url: &str) -> Result<Self, Refusal> {
        let wrong = |message: &'static str| (FieldCode::InvalidFormat, message.into());
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        if ["http", "https"]
            .iter()
            .any(|s| scheme.eq_ignore_ascii_case(s))
        {
            return Ok(Self::Url(url.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("data") {
            return Err(wrong("must be an https URL, or a data URL in base64"));
        }
        let (head, data) = rest.split_once(',').unwrap_or_default();
        let Some(head) = head.strip_suffix(";base64") else {
            return Err(wrong("must be base64 where it is a data URL"));
        };
        let media_type = head.split(';').next().unwrap_or_default();
        let media_type = media_type.to_ascii_lowercase();
        // This type is common, though not registered.
        if media_type != "image/jpg" && ImageType::parse(&media_type).is_none() {
            let names: Vec<_> = ImageType::ALL.iter().map(|one| one.as_str()).collect();
            let message = format!("must be of one of the types {}", names.join(", "));
            return Err((FieldCode::NotAllowed, message.into()));
        }
        Self::base64(data.to_owned())
    }

    /// Checks base64 and reads the header.
    pub fn base64(data: String) -> Result<Self, Refusal> {
        let wrong = |message: &'static str| (FieldCode::InvalidFormat, message.into());
        if data.len() / 4 * 3 > MAX_BYTES {
            let message = format!("must have at most {MAX_BYTES} bytes");
            return Err((FieldCode::TooLong, message.into()));
        }
        check_base64(&data)?;
        let (media_type, size) = read_header(&Encoded(&data))
            .ok_or_else(|| wrong("is no PNG, JPEG, GIF or WebP whose header can be read"))?;
        Ok(Self::Base64 {
            media_type,
            size,
            data: Base64Text::from(data),
        })
    }

    /// Returns its bytes in the request.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Base64 { data, .. } => data.len(),
            Self::Url(url) => url.len(),
        }
    }
}

/// Base64 of which only requested bytes are decoded.
struct Encoded<'a>(&'a str);

impl ReadAt for Encoded<'_> {
    fn read_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let groups = self.0.get(offset / 3 * 4..(offset + N).div_ceil(3) * 4)?;
        let bytes = BASE64_STANDARD.decode(groups).ok()?;
        bytes.get(offset % 3..)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{ImageFormat, RgbImage};

    use super::*;

    fn encoded(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let image = RgbImage::new(width, height);
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn read(bytes: &[u8]) -> Option<(ImageType, Option<(u32, u32)>)> {
        match ImageSource::base64(BASE64_STANDARD.encode(bytes)) {
            Ok(ImageSource::Base64 {
                media_type, size, ..
            }) => Some((media_type, size)),
            _ => None,
        }
    }

    #[test]
    fn kind_and_size_are_those_of_the_header() {
        for (format, media_type) in [
            (ImageFormat::Png, ImageType::Png),
            (ImageFormat::Jpeg, ImageType::Jpeg),
            (ImageFormat::WebP, ImageType::Webp),
        ] {
            for (width, height) in [(1, 1), (640, 479), (3, 1_000)] {
                let found = read(&encoded(format, width, height));
                assert_eq!(found, Some((media_type, Some((width, height)))));
            }
        }
        assert_eq!(
            read(b"GIF89a\x01\0\x01\0\0\0\0"),
            Some((ImageType::Gif, None))
        );
        let lossy = b"RIFF\x1a\0\0\0WEBPVP8 \x0e\0\0\0\0\0\0\x9d\x01\x2a\x80\x42\xe0\x01";
        assert_eq!(read(lossy), Some((ImageType::Webp, Some((0x280, 480)))));
        let extended = b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\0\x0f\0\x01";
        let size = (0x1_0000, 0x1_0010);
        assert_eq!(read(extended), Some((ImageType::Webp, Some(size))));
    }

    #[test]
    fn a_jpeg_may_have_much_before_its_frame() {
        let plain = encoded(ImageFormat::Jpeg, 20, 10);
        let segment = [&b"\xff\xe1\xff\xff"[..], &vec![0; 65_533]].concat();
        let long = |n| {
            [
                &plain[..2],
                &segment.repeat(n),
                b"\xff\xff\xff",
                &plain[2..],
            ]
            .concat()
        };
        assert_eq!(read(&long(3)), Some((ImageType::Jpeg, Some((20, 10)))));
        // The search is bounded.
        let fill = [&plain[..2], &vec![0xff; 1 << 20], &plain[2..]].concat();
        assert_eq!(read(&fill), None);
        assert_eq!(read(&segment), None);
    }

    #[test]
    fn second_header_in_skipped_bytes_is_refused() {
        let jpeg = encoded(ImageFormat::Jpeg, 20, 10);
        // A comment that contains a frame header of 1 x 1.
        let junk = b"\xff\x00\x00\x0b\xff\xc0\x00\x0b\x08\x00\x01\x00\x01\x01";
        assert_eq!(read(&[&jpeg[..2], junk, &jpeg[2..]].concat()), None);
        let png = encoded(ImageFormat::Png, 20, 10);
        assert_eq!(read(&[&png[..33], &png[8..]].concat()), None);
    }

    #[test]
    fn bytes_without_an_image_header_are_refused() {
        let png = encoded(ImageFormat::Png, 4, 4);
        for length in 0..24 {
            assert_eq!(read(&png[..length]), None, "{length}");
        }
        let mut empty = png.clone();
        empty[16..20].fill(0);
        assert_eq!(read(&empty), None);
        assert_eq!(read(b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>"), None);
        let text = BASE64_STANDARD.encode(&png);
        for data in [
            &text[..text.len() - 1],
            &format!("{text}===="),
            &format!("{}\n{}", &text[..40], &text[40..]),
            &text.replace('A', "_"),
            "",
        ] {
            let (code, message) = ImageSource::base64(data.to_owned()).unwrap_err();
            assert_eq!(code, FieldCode::InvalidFormat, "{message}");
        }
        let large = "A".repeat((MAX_BYTES / 3 + 1) * 4);
        assert_eq!(
            ImageSource::base64(large).unwrap_err().0,
            FieldCode::TooLong
        );
    }

    #[test]
    fn only_web_and_data_urls_are_accepted() {
        let data = BASE64_STANDARD.encode(encoded(ImageFormat::Png, 4, 4));
        for head in ["image/png", "image/jpg", "IMAGE/JPEG", "image/png;name=a"] {
            let source = ImageSource::parse(&format!("Data:{head};base64,{data}")).unwrap();
            let ImageSource::Base64 { media_type, .. } = source else {
                panic!("{source:?}")
            };
            // The type follows from the bytes.
            assert_eq!(media_type, ImageType::Png);
        }
        for url in ["https://example.com/a", "HTTP://example.com/a"] {
            assert_eq!(
                ImageSource::parse(url).unwrap(),
                ImageSource::Url(url.to_owned())
            );
        }
        for (url, code) in [
            (
                format!("data:image/svg+xml;base64,{data}"),
                FieldCode::NotAllowed,
            ),
            (
                format!("data:application/pdf;base64,{data}"),
                FieldCode::NotAllowed,
            ),
            (format!("data:;base64,{data}"), FieldCode::NotAllowed),
            (format!("data:image/png,{data}"), FieldCode::InvalidFormat),
            ("file:///etc/passwd".to_owned(), FieldCode::InvalidFormat),
            ("gs://bucket/a".to_owned(), FieldCode::InvalidFormat),
            (data, FieldCode::InvalidFormat),
        ] {
            assert_eq!(ImageSource::parse(&url).unwrap_err().0, code, "{url}");
        }
    }
}
