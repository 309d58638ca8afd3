//! Stored files: from a provider's bytes to a link that a client can open.
//!
//! Contains safe downloads from untrusted URLs ([`Downloader`]), validation of file contents
//! ([`inspect`], [`read_picture`]), images at exact pixel sizes ([`fit_png`]), joining of speech
//! parts ([`mp3_from_parts`], [`wav_from_parts`]), storage ([`MediaStore`]) and signed links
//! ([`MediaSigner`]). The code does not depend on providers, the database or HTTP responses, and
//! does not read the clock: expiry checks take the time as an argument.
//!
//! The usual paths:
//! - bytes in memory: [`fit_png`] or a joiner, [`inspect`], [`MediaStore::put`];
//! - a video at a URL: [`MediaStore::spool`], [`Downloader::to_file`],
//!   [`Spooled::inspect`], [`MediaStore::put_file`]; it is never held in memory.
//!
//! Parsers assume hostile input: no panics, no unbounded loops, no allocation whose size the
//! input chooses.

mod address;
mod audio;
mod download;
mod fit;
mod info;
mod key;
mod picture;
mod probe;
mod s3;
mod sign;
mod spool;
mod store;

pub use address::is_public;
pub use audio::{WAV_HEADER_BYTES, is_bare_pcm, mp3_from_parts, wav, wav_from_parts};
pub use download::{
    AddressPolicy, BoxError, DownloadError, DownloadSettings, Downloader, NoPublicAddress,
};
pub use fit::{LONGEST_SIDE, MOST_PIXELS, fit_png, same_shape};
pub use info::{InvalidMedia, MediaInfo};
pub use key::{InvalidKey, MediaKey, MediaKind};
pub use picture::{
    MAX_DECODED_BYTES, PICTURE_KINDS, PictureHeader, is_turned, picture_header, read_picture,
};
pub use probe::inspect;
pub use s3::S3Settings;
pub use sign::{LinkError, MediaSigner, WeakSecret, hex, unhex};
pub use spool::{Spool, Spooled};
pub use store::{MediaFile, MediaHead, MediaStore, MediaStoreError};
