use image::{
    ExtendedColorType, ImageEncoder as _, ImageFormat, RgbImage, codecs::jpeg::JpegEncoder,
};

use super::*;

fn encoded(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = RgbImage::new(width, height);
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn size(bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    read_picture(bytes).map(|info| (info.width.unwrap(), info.height.unwrap()))
}

/// Builds a TIFF with only this tag.
fn exif(orientation: u8) -> Vec<u8> {
    let tag = [1, 18, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0];
    [b"MM\0\x2a\0\0\0\x08\0\x01", &tag[..], &[0; 4]].concat()
}

#[test]
fn every_format_is_read_by_its_header() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        assert_eq!(size(&encoded(format, 30, 20)), Ok((30, 20)), "{format:?}");
    }
}

#[test]
fn a_turned_picture_has_the_size_in_which_it_is_displayed() {
    for (orientation, expected) in [(1, (30, 20)), (3, (30, 20)), (6, (20, 30)), (8, (20, 30))] {
        let mut jpeg = Vec::new();
        let mut encoder = JpegEncoder::new(&mut jpeg);
        encoder.set_exif_metadata(exif(orientation)).unwrap();
        let pixels = RgbImage::new(30, 20);
        encoder
            .write_image(&pixels, 30, 20, ExtendedColorType::Rgb8)
            .unwrap();
        assert_eq!(size(&jpeg), Ok(expected), "{orientation}");
    }
}

#[test]
fn a_cut_file_is_refused_at_every_length() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        let whole = encoded(format, 30, 20);
        for length in 0..whole.len() {
            assert!(size(&whole[..length]).is_err(), "{format:?} at {length}");
        }
    }
}

#[test]
fn a_decompression_bomb_is_refused_by_its_header() {
    let mut png = encoded(ImageFormat::Png, 30, 20);
    png[16..20].copy_from_slice(&50_000_u32.to_be_bytes());
    png[20..24].copy_from_slice(&50_000_u32.to_be_bytes());
    let (width, height) = (50_000, 50_000);
    assert_eq!(size(&png), Err(InvalidMedia::Pixels { width, height }));
}

#[test]
fn an_animation_is_refused() {
    let still = encoded(ImageFormat::Png, 30, 20);
    let control = [&b"acTL"[..], &[0, 0, 0, 2, 0, 0, 0, 0]].concat();
    let sum = crc32fast::hash(&control).to_be_bytes();
    // After the header.
    let png = [&still[..33], &[0, 0, 0, 8], &control, &sum, &still[33..]].concat();
    assert_eq!(size(&png), Err(InvalidMedia::Animated));
    // The animation bit of an extended header; the frame is that of the still picture.
    let still = encoded(ImageFormat::WebP, 30, 20);
    let chunk = |name: &[u8; 4], body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        [&name[..], &length, body].concat()
    };
    let sides = [29, 0, 0, 19, 0, 0];
    let frame = [&[0; 6][..], &sides, &[100, 0, 0, 0], &still[12..]].concat();
    let chunks = [
        chunk(b"VP8X", &[&[2, 0, 0, 0][..], &sides].concat()),
        chunk(b"ANIM", &[0; 6]),
        chunk(b"ANMF", &frame),
    ]
    .concat();
    let webp = chunk(b"RIFF", &[&b"WEBP"[..], &chunks].concat());
    assert_eq!(size(&webp), Err(InvalidMedia::Animated));
}

#[test]
fn a_strip_or_a_deep_picture_that_nobody_can_scale_is_refused() {
    for (width, height) in [(20_000, 1_500), (1_500, 20_000), (210, 10), (10, 210)] {
        let bytes = encoded(ImageFormat::Png, width, height);
        assert_eq!(size(&bytes), Err(InvalidMedia::Sides { width, height }));
    }
    assert_eq!(size(&encoded(ImageFormat::Png, 200, 10)), Ok((200, 10)));
    // 16 bits of four channels.
    let mut deep = encoded(ImageFormat::Png, 30, 20);
    deep[16..20].copy_from_slice(&6_000_u32.to_be_bytes());
    deep[20..24].copy_from_slice(&6_000_u32.to_be_bytes());
    deep[24..26].copy_from_slice(&[16, 6]);
    let sum = crc32fast::hash(&deep[12..29]).to_be_bytes();
    deep[29..33].copy_from_slice(&sum);
    assert_eq!(size(&deep), Err(InvalidMedia::TooLarge));
}

#[test]
fn transparency_and_rotation_are_read_from_the_header() {
    let clear = image::RgbaImage::new(4, 4);
    let mut bytes = Cursor::new(Vec::new());
    clear.write_to(&mut bytes, ImageFormat::Png).unwrap();
    let clear = picture_header(MediaKind::Png, bytes.get_ref()).unwrap();
    assert!(clear.has_alpha && !clear.is_rotated());
    let mut jpeg = Vec::new();
    let mut encoder = JpegEncoder::new(&mut jpeg);
    encoder.set_exif_metadata(exif(3)).unwrap();
    let pixels = RgbImage::new(4, 4);
    encoder
        .write_image(&pixels, 4, 4, ExtendedColorType::Rgb8)
        .unwrap();
    let turned = picture_header(MediaKind::Jpeg, &jpeg).unwrap();
    assert!(!turned.has_alpha && turned.is_rotated());
}

#[test]
fn other_files_are_refused_by_their_content() {
    assert_eq!(size(b""), Err(InvalidMedia::Empty));
    assert_eq!(size(b"<svg/>"), Err(InvalidMedia::Unknown));
    assert_eq!(
        size(b"GIF89a\x01\0\x01\0\0\0\0"),
        Err(InvalidMedia::Unknown)
    );
    let found = MediaKind::Wav;
    assert_eq!(
        size(b"RIFF\x24\0\0\0WAVEfmt "),
        Err(InvalidMedia::WrongType { found })
    );
}
