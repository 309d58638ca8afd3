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

/// A TIFF with the one tag.
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
    let webp = b"RIFF\x2c\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\0\0\0\0\0\0ANIM\x06\0\0\0\0\0\0\0\0\0ANMF\0\0\0\0";
    assert!(matches!(
        size(webp),
        Err(InvalidMedia::Animated | InvalidMedia::Damaged(_) | InvalidMedia::Cut)
    ));
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
