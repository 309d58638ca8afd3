use image::{ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};

use super::*;
use crate::media::inspect;

fn picture(format: ImageFormat, width: u32, height: u32) -> Bytes {
    let image = RgbImage::from_fn(width, height, |x, _| {
        if x < width / 2 {
            Rgb([250, 10, 10])
        } else {
            Rgb([10, 10, 250])
        }
    });
    written(&image.into(), format)
}

fn written(image: &DynamicImage, format: ImageFormat) -> Bytes {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner().into()
}

fn pixels(png: &Bytes) -> DynamicImage {
    image::load_from_memory_with_format(png, ImageFormat::Png).unwrap()
}

#[test]
fn exactly_the_asked_pixels() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        for (width, height) in [(64, 64), (32, 32), (100, 100), (7, 7), (50, 51)] {
            let fitted = fit_png(&picture(format, 64, 64), width, height).unwrap();
            let info = inspect(&fitted, &[MediaKind::Png]).unwrap();
            assert_eq!((info.width, info.height), (Some(width), Some(height)));
            let image = pixels(&fitted).into_rgb8();
            let left = image.get_pixel(1, height / 2).0;
            let right = image.get_pixel(width - 2, height / 2).0;
            assert!(left[0] > 200 && left[2] < 60, "{format:?} {left:?}");
            assert!(right[2] > 200 && right[0] < 60, "{format:?} {right:?}");
        }
    }
}

#[test]
fn a_png_that_fits_is_left_alone() {
    let png = picture(ImageFormat::Png, 40, 30);
    assert_eq!(fit_png(&png, 40, 30).unwrap(), png);
}

#[test]
fn another_shape_is_refused() {
    let png = picture(ImageFormat::Png, 64, 64);
    for (width, height) in [(64, 32), (32, 64), (64, 60), (0, 0), (0, 64)] {
        let shape = InvalidMedia::Shape {
            width: 64,
            height: 64,
        };
        assert_eq!(fit_png(&png, width, height), Err(shape), "{width}x{height}");
    }
    // 1792x1024 is 7:4; some vendors return 1280x720 for it, nearly two percent off.
    assert!(same_shape((1_280, 720), (1_792, 1_024)));
    assert!(!same_shape((1_280, 704), (1_792, 1_024)));
    assert!(same_shape((u32::MAX, u32::MAX), (1, 1)));
    assert!(!same_shape((0, 0), (1, 1)));
}

#[test]
fn what_cannot_be_seen_does_not_bleed() {
    // Visible red next to invisible green.
    let image = RgbaImage::from_fn(40, 40, |x, _| {
        if x < 20 {
            Rgba([255, 0, 0, 255])
        } else {
            Rgba([0, 255, 0, 0])
        }
    });
    let fitted = fit_png(&written(&image.into(), ImageFormat::Png), 10, 10).unwrap();
    let fitted = pixels(&fitted).into_rgba8();
    assert_eq!(fitted.get_pixel(1, 5).0, [255, 0, 0, 255]);
    assert_eq!(fitted.get_pixel(8, 5).0[3], 0);
    assert!(
        fitted.pixels().all(|pixel| pixel.0[1] == 0),
        "no green shows"
    );
}

#[test]
fn a_bomb_is_not_lit() {
    // A header that claims 60,000 pixels a side, with only a few bytes.
    let mut bomb = picture(ImageFormat::Png, 64, 64).to_vec();
    bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    assert_eq!(fit_png(&bomb.into(), 64, 64), Err(InvalidMedia::TooLarge));
    let long = picture(ImageFormat::Png, 8_193, 1);
    assert_eq!(fit_png(&long, 8_193, 1), Err(InvalidMedia::TooLarge));
}

#[test]
fn damage_is_found_though_the_size_fits() {
    let png = picture(ImageFormat::Png, 64, 64).to_vec();
    let name = png.windows(4).position(|name| name == b"IDAT").unwrap();
    let mut damaged = png.clone();
    damaged[name + 12] ^= 0x55;
    fit_png(&damaged.into(), 64, 64).unwrap_err();
    // A whole container with only half of the pixels' data.
    for other in [b"RIFF".as_slice(), b"GIF89a", b"", b"<html>"] {
        fit_png(&Bytes::copy_from_slice(other), 64, 64).unwrap_err();
    }
}
