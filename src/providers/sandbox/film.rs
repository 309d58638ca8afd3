//! Makes an MP4 (H.264 baseline, 4:2:0, the index in front) of moving waves.
//!
//! The animation is a loop of four seconds; only one is encoded, and the file repeats it. Each
//! repetition begins with a key frame.

use std::num::NonZeroU32;

use bytes::Bytes;
use image::RgbImage;
use openh264::{
    OpenH264API,
    encoder::{
        Complexity, Encoder, EncoderConfig, FrameRate, Profile, RateControlMode, UsageType,
        VuiConfig,
    },
    formats::YUVSlices,
};
use shiguredo_mp4::{
    TrackKind,
    bitstream::h264::{
        H264NalUnitType, H264SampleEntryConfig, LengthSize, build_avc1_box_from_annexb,
        parse_annexb_nal_units,
    },
    boxes::SampleEntry,
    mux::{Mp4FileMuxer, Mp4FileMuxerOptions, MuxError, Sample, estimate_maximum_moov_box_size},
};
use tokio_util::sync::CancellationToken;

use super::{
    art::{Field, Mood, palette},
    edit::opening,
    seed::{Seed, broken},
};
use crate::providers::{ProviderError, VideoCall};

/// Frames per second.
const RATE: u32 = 24;
/// Frames of the loop.
const PERIOD: u32 = 4 * RATE;
/// The short side, in pixels, where the long one allows it. Small, because debug builds draw too.
const SHORT_SIDE: u32 = 180;
/// The longest long side.
const LONG_SIDE: u32 = 640;
/// The shortest short side: less than a macroblock is too small for some decoders.
const LEAST_SIDE: u32 = 16;

pub(super) fn make(
    call: &VideoCall,
    prompt: &str,
    abandoned: &CancellationToken,
) -> Result<Bytes, ProviderError> {
    let size = size(call.ratio);
    let total = call.duration.max(1).saturating_mul(RATE);
    let seed = Seed::of(&[call.model.as_bytes(), prompt.as_bytes()]);
    let opening = if call.inputs.is_empty() {
        None
    } else {
        // Frames are drawn at half the size.
        let opening = opening(&call.inputs, (size.0 / 2, size.1 / 2));
        Some(opening.map_err(|_| ProviderError::rejected("an input cannot be decoded"))?)
    };
    let frames = encode(&seed, size, total.min(PERIOD), opening.as_ref(), abandoned);
    let frames = frames.map_err(|error| broken(&error))?;
    mux(&frames, total).map_err(|error| broken(&error))
}

/// Width and height of `ratio`, both even.
fn size(ratio: (u32, u32)) -> (u32, u32) {
    let (width, height) = (ratio.0.max(1), ratio.1.max(1));
    let (more, less) = (width.max(height), width.min(height));
    let even = |side: u64| u32::try_from(side.div_ceil(2) * 2).unwrap_or(LONG_SIDE);
    let share =
        |of: u32, part: u32, whole: u32| even(u64::from(of) * u64::from(part) / u64::from(whole));
    let long = share(SHORT_SIDE, more, less);
    let (long, short) = if long <= LONG_SIDE {
        (long, SHORT_SIDE)
    } else {
        (LONG_SIDE, share(LONG_SIDE, less, more).max(LEAST_SIDE))
    };
    if width >= height {
        (long, short)
    } else {
        (short, long)
    }
}

/// `count` frames, those of the first second as `opening`, the first a key frame, each as an Annex B access unit; fewer once cancelled.
pub(super) fn encode(
    seed: &Seed,
    size: (u32, u32),
    count: u32,
    opening: Option<&RgbImage>,
    abandoned: &CancellationToken,
) -> Result<Vec<Vec<u8>>, openh264::Error> {
    // Drawn at half the size, at which chroma is stored; luma is doubled.
    let (width, height) = (size.0 / 2, size.1 / 2);
    let (columns, rows) = (
        usize::try_from(width).unwrap_or_default(),
        usize::try_from(height).unwrap_or_default(),
    );
    let field = Field::new(seed, (width, height), 3, PERIOD);
    let colours = palette(seed, Mood::Plain).map(yuv);
    let config = EncoderConfig::new()
        .profile(Profile::Baseline)
        .usage_type(UsageType::CameraVideoRealTime)
        .max_frame_rate(FrameRate::from_hz(24.0))
        .rate_control_mode(RateControlMode::Off)
        .complexity(Complexity::Low)
        .skip_frames(false)
        .scene_change_detect(false)
        .num_threads(1)
        .vui(VuiConfig::bt601());
    let mut encoder = Encoder::with_api_config(OpenH264API::from_source(), config)?;
    let mut y_plane = vec![0; columns * rows * 4];
    let mut u_plane = vec![0; columns * rows];
    let mut v_plane = u_plane.clone();
    let (mut sums, mut indices) = (Vec::new(), vec![0; columns]);
    let mut frames = Vec::new();
    for frame in (0..count).take_while(|_| !abandoned.is_cancelled()) {
        let chroma = u_plane
            .chunks_exact_mut(columns)
            .zip(v_plane.chunks_exact_mut(columns));
        let planes = y_plane.chunks_exact_mut(columns * 4).zip(chroma);
        for (y, (luma, (u_row, v_row))) in (0..).zip(planes) {
            field.row(y, frame, &mut sums, &mut indices);
            let (upper, lower) = luma.split_at_mut(columns * 2);
            for (x, (index, ((pair, u), v))) in (0..).zip(
                indices
                    .iter()
                    .zip(upper.chunks_exact_mut(2).zip(u_row).zip(v_row)),
            ) {
                let [bright, blue, red] = match opening.filter(|_| frame < RATE) {
                    Some(opening) => yuv(opening.get_pixel(x, y).0),
                    None => colours[usize::from(*index)],
                };
                pair.fill(bright);
                (*u, *v) = (blue, red);
            }
            lower.copy_from_slice(upper);
        }
        let picture = YUVSlices::new(
            (&y_plane, &u_plane, &v_plane),
            (columns * 2, rows * 2),
            (columns * 2, columns, columns),
        );
        frames.push(encoder.encode(&picture)?.to_vec());
    }
    Ok(frames)
}

/// ITU-R BT.601, limited range: what players assume for small videos.
fn yuv(rgb: [u8; 3]) -> [u8; 3] {
    let [red, green, blue] = rgb.map(i32::from);
    [
        (66 * red + 129 * green + 25 * blue + 128) / 256 + 16,
        (-38 * red - 74 * green + 112 * blue + 128) / 256 + 128,
        (112 * red - 94 * green - 18 * blue + 128) / 256 + 128,
    ]
    .map(|value| u8::try_from(value).unwrap_or(u8::MAX))
}

/// `total` frames, repeating those of `round`.
fn mux(round: &[Vec<u8>], total: u32) -> Result<Bytes, MuxError> {
    let head = round.first().map(Vec::as_slice).unwrap_or_default();
    let config = H264SampleEntryConfig {
        length_size: LengthSize::FourBytes,
    };
    let entry = build_avc1_box_from_annexb(head, &config)?;
    let samples = round
        .iter()
        .map(|unit| slices(unit))
        .collect::<Result<Vec<_>, _>>()?;
    let count = usize::try_from(total).unwrap_or_default();
    let mut muxer = Mp4FileMuxer::with_options(Mp4FileMuxerOptions {
        reserved_moov_box_size: estimate_maximum_moov_box_size(&[count]),
        ..Mp4FileMuxerOptions::default()
    })?;
    let mut file = muxer.initial_boxes_bytes().to_vec();
    let mut entry = Some(SampleEntry::Avc1(entry));
    for (index, sample) in samples.iter().enumerate().cycle().take(count) {
        muxer.append_sample(&Sample {
            track_kind: TrackKind::Video,
            sample_entry: entry.take(),
            keyframe: index == 0,
            timescale: NonZeroU32::new(RATE).unwrap_or(NonZeroU32::MIN),
            duration: 1,
            composition_time_offset: None,
            data_offset: u64::try_from(file.len()).unwrap_or(u64::MAX),
            data_size: sample.len(),
        })?;
        file.extend_from_slice(sample);
    }
    for (offset, bytes) in muxer.finalize()?.offset_and_bytes_pairs() {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(place) = file
            .get_mut(start..)
            .and_then(|rest| rest.get_mut(..bytes.len()))
        {
            place.copy_from_slice(bytes);
        }
    }
    Ok(file.into())
}

/// The slices of an access unit, each prefixed by its length. The parameter sets are in the file's
/// index instead.
fn slices(unit: &[u8]) -> Result<Vec<u8>, shiguredo_mp4::Error> {
    let mut sample = Vec::with_capacity(unit.len());
    for nal in parse_annexb_nal_units(unit)? {
        if matches!(
            nal.nal_unit_type,
            H264NalUnitType::IdrSlice | H264NalUnitType::NonIdrSlice
        ) {
            sample.extend(
                u32::try_from(nal.data.len())
                    .unwrap_or_default()
                    .to_be_bytes(),
            );
            sample.extend_from_slice(nal.data);
        }
    }
    Ok(sample)
}
