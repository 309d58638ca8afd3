//! Token counts of images, by text model.
//!
//! Every count is an upper bound: sides are rounded up even if a vendor may round them down.
//! Source: litellm 1.109.1 (`PyPI`) `litellm/litellm_core_utils/token_counter.py`, and the vendors'
//! pages on vision.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use utoipa::ToSchema;

use crate::domain::{
    conversation::{Detail, Image, ImageSource},
    settings::range::bounded,
};

/// Default longest edge of an image, in pixels.
const EDGE: usize = 2_048;
/// Maximum patches at high detail.
const CLOSE_PATCHES: usize = 2_500;
/// Maximum tokens of a patch.
const MAX_FACTOR: f64 = 100.0;
/// Maximum of settings in pixels and in tokens.
const MOST: usize = 1_000_000;

/// How a text model counts an image's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Vision {
    Patch32(Patch32),
    Patch28(Patch28),
    Tile512(Tile512),
    Flat(Flat),
}

/// By patches of 32 pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Patch32 {
    /// Tokens of a patch.
    #[serde(deserialize_with = "factor")]
    pub factor: f64,
    /// Longest edge in pixels; larger images are scaled down.
    #[serde(deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub max_edge: usize,
    /// Maximum patches; images with more are scaled down.
    #[serde(deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub max_patches: usize,
    /// Longest edge at `detail` `low`.
    #[serde(default = "edge", deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub low_edge: usize,
    /// Longest edge at `detail` `high`, with at most 2,500 patches.
    #[serde(default = "edge", deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub high_edge: usize,
}

/// By patches of 28 pixels, each one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Patch28 {
    /// Longest edge in pixels; larger images are scaled down.
    #[serde(deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub max_edge: usize,
    /// Maximum tokens; images with more are scaled down.
    #[serde(deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub max_tokens: usize,
}

/// By tiles of 512 pixels, after scaling to at most 2,048 by 768.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tile512 {
    /// Tokens of any image; at `detail` `low` these are all.
    #[serde(deserialize_with = "bounded::<_, 0, MOST, _>")]
    pub base: usize,
    /// Tokens of a tile.
    #[serde(deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub tile: usize,
}

/// The same number for every image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flat {
    /// Tokens of an image.
    #[serde(deserialize_with = "bounded::<_, 1, MOST, _>")]
    pub tokens: usize,
}

const fn edge() -> usize {
    EDGE
}

fn factor<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(source)?;
    if factor > 0.0 && factor <= MAX_FACTOR {
        return Ok(factor);
    }
    Err(D::Error::custom(format_args!(
        "is {factor}: must be a number above 0, at most {MAX_FACTOR}"
    )))
}

impl Vision {
    /// Whether `detail` may be `original`: more patches than at high detail.
    pub const fn has_original(self) -> bool {
        matches!(self, Self::Patch32(own) if own.max_patches > CLOSE_PATCHES)
    }

    /// Returns the maximum tokens of an image: by its size, or of any image if that is unknown.
    pub fn most_tokens(self, image: &Image) -> usize {
        let size = match image.source {
            ImageSource::Base64 { size, .. } => size,
            ImageSource::Url(_) => None,
        };
        let size = size.map(|(width, height)| (width as usize, height as usize));
        match self {
            Self::Patch32(own) => own.tokens(size, image.detail),
            Self::Patch28(own) => patches(size, 28, own.max_edge).min(own.max_tokens),
            Self::Tile512(own) if image.detail == Some(Detail::Low) => own.base,
            Self::Tile512(own) => own.base + own.tile * tiles(size),
            Self::Flat(own) => own.tokens,
        }
    }
}

impl Patch32 {
    fn tokens(self, size: Option<(usize, usize)>, detail: Option<Detail>) -> usize {
        let (max_edge, max_patches) = match detail {
            Some(Detail::Low) => (self.low_edge, self.max_patches),
            Some(Detail::High) => (self.high_edge, self.max_patches.min(CLOSE_PATCHES)),
            // The vendor may choose any detail.
            Some(Detail::Original | Detail::Auto) | None => (self.max_edge, self.max_patches),
        };
        times(patches(size, 32, max_edge).min(max_patches), self.factor)
    }
}

/// Converts a number of tokens, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most a million patches, of at most a hundred tokens each"
)]
fn times(patches: usize, factor: f64) -> usize {
    (patches as f64 * factor).ceil() as usize
}

/// Returns the patches of an image scaled down to a longest edge; of a square without a size.
fn patches(size: Option<(usize, usize)>, patch: usize, max_edge: usize) -> usize {
    let (width, height) = size.unwrap_or((max_edge, max_edge));
    let longest = width.max(height);
    let fitted = |side: usize| {
        if longest > max_edge {
            (side * max_edge).div_ceil(longest)
        } else {
            side
        }
    };
    fitted(width).div_ceil(patch) * fitted(height).div_ceil(patch)
}

/// Returns the tiles of an image whose edges are scaled down to 2,048 and 768 pixels.
fn tiles(size: Option<(usize, usize)>) -> usize {
    const SHORT: usize = 768;
    const TILE: usize = 512;
    let (width, height) = size.unwrap_or((EDGE, SHORT));
    let (long, short) = (width.max(height), width.min(height));
    let fitted_long = long.min(EDGE).min((long * SHORT).div_ceil(short));
    let fitted_short = short.min(SHORT).min((short * EDGE).div_ceil(long));
    fitted_long.div_ceil(TILE) * fitted_short.div_ceil(TILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::conversation::ImageType;

    const ORIGINAL: Vision = patch32(65_535, 30_000);

    const fn patch32(max_edge: usize, max_patches: usize) -> Vision {
        Vision::Patch32(Patch32 {
            factor: 1.2,
            max_edge,
            max_patches,
            low_edge: 512,
            high_edge: EDGE,
        })
    }

    fn image(size: Option<(u32, u32)>, detail: Option<Detail>) -> Image {
        let source = match size {
            Some(_) => ImageSource::Base64 {
                media_type: ImageType::Png,
                size,
                data: String::new().into(),
            },
            None => ImageSource::Url("https://example.com/a.png".to_owned()),
        };
        Image { source, detail }
    }

    fn count(vision: Vision, size: (u32, u32), detail: Option<Detail>) -> usize {
        vision.most_tokens(&image(Some(size), detail))
    }

    fn ceiling(vision: Vision, detail: Option<Detail>) -> usize {
        vision.most_tokens(&image(None, detail))
    }

    /// OpenAI's examples of images counted by tiles.
    #[test]
    fn by_tiles() {
        let tiles = |base, tile| Vision::Tile512(Tile512 { base, tile });
        let gpt_4o = tiles(85, 170);
        for (size, tokens) in [
            ((1024, 1024), 765),
            ((2048, 4096), 1105),
            ((512, 512), 255),
            ((1, 1), 255),
            // Images are never scaled up.
            ((513, 512), 425),
            ((65_535, 1), 85 + 4 * 170),
            ((8_000, 3_000), 85 + 8 * 170),
        ] {
            for detail in [None, Some(Detail::High), Some(Detail::Auto)] {
                assert_eq!(count(gpt_4o, size, detail), tokens, "{size:?}");
            }
            assert_eq!(count(gpt_4o, size, Some(Detail::Low)), 85);
        }
        assert_eq!(ceiling(gpt_4o, None), 85 + 170 * 8);
        assert_eq!(ceiling(tiles(70, 140), None), 70 + 140 * 8);
        assert_eq!(ceiling(tiles(75, 150), Some(Detail::Low)), 75);
    }

    /// OpenAI's examples of images counted by patches, and the maxima of its model families.
    #[test]
    fn by_patches_of_32() {
        let mini = Vision::Patch32(Patch32 {
            factor: 1.0,
            max_edge: 65_535,
            max_patches: 1_536,
            low_edge: EDGE,
            high_edge: EDGE,
        });
        assert_eq!(count(mini, (1024, 1024), None), 1_024);
        // 1,452 after scaling that stays below the maximum.
        assert_eq!(count(mini, (1800, 2400), None), 1_536);
        for (size, detail, tokens) in [
            ((1024, 1024), None, 1_229),
            ((32, 32), None, 2),
            ((33, 32), Some(Detail::Auto), 3),
            ((4000, 3000), Some(Detail::Original), 14_100),
            ((4000, 3000), Some(Detail::High), 3_000),
            ((2048, 1024), Some(Detail::High), 2_458),
            ((4096, 2048), Some(Detail::High), 2_458),
            ((4000, 3000), Some(Detail::Low), 231),
            ((65_535, 65_535), None, 36_000),
        ] {
            assert_eq!(count(ORIGINAL, size, detail), tokens, "{size:?} {detail:?}");
        }
        assert_eq!(ceiling(ORIGINAL, None), 36_000);
        assert_eq!(ceiling(ORIGINAL, Some(Detail::Original)), 36_000);
        assert_eq!(ceiling(ORIGINAL, Some(Detail::High)), 3_000);
        assert_eq!(ceiling(ORIGINAL, Some(Detail::Low)), 308);
        assert_eq!(ceiling(patch32(6_000, 10_000), None), 12_000);
    }

    /// Anthropic's examples, and the maxima of both resolutions.
    #[test]
    fn by_patches_of_28() {
        let older = Vision::Patch28(Patch28 {
            max_edge: 1_568,
            max_tokens: 1_568,
        });
        let newer = Vision::Patch28(Patch28 {
            max_edge: 2_576,
            max_tokens: 4_784,
        });
        for (size, of_older, of_newer) in [
            ((200, 200), 64, 64),
            ((1000, 1000), 1_296, 1_296),
            ((1092, 1092), 1_521, 1_521),
            // 1,560 after scaling that stays below the maximum.
            ((1920, 1080), 1_568, 2_691),
            ((2000, 1500), 1_568, 3_888),
            ((3840, 2160), 1_568, 4_784),
            ((8000, 100), 56, 184),
        ] {
            let found = [older, newer].map(|vision| count(vision, size, None));
            assert_eq!(found, [of_older, of_newer], "{size:?}");
        }
        let found = [older, newer].map(|vision| ceiling(vision, Some(Detail::Low)));
        assert_eq!(found, [1_568, 4_784]);
    }

    #[test]
    fn no_size_is_above_the_ceiling() {
        let flat = Vision::Flat(Flat { tokens: 1_120 });
        let tiles = Vision::Tile512(Tile512 {
            base: 85,
            tile: 170,
        });
        let patch28 = Vision::Patch28(Patch28 {
            max_edge: 2_576,
            max_tokens: 4_784,
        });
        let details = Detail::ALL.iter().copied().map(Some).chain([None]);
        for detail in details {
            for vision in [flat, tiles, patch28, ORIGINAL, patch32(6_000, 10_000)] {
                let most = ceiling(vision, detail);
                for width in [1, 27, 511, 769, 2_049, 6_001, u32::MAX] {
                    for height in [1, 29, 768, 2_577, 65_535, u32::MAX] {
                        let tokens = count(vision, (width, height), detail);
                        assert!(tokens <= most, "{vision:?} {width}x{height} {detail:?}");
                        assert!(tokens > 0);
                    }
                }
            }
        }
    }
}
