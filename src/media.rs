//! Stored files: from a provider's bytes to a link that a client can open.
//!
//! Here: fetching from a foreign address without being led astray ([`Downloader`]), checking
//! that bytes are what they claim ([`inspect`]), images at exact pixels ([`fit_png`]), speech
//! in one piece ([`mp3_from_parts`], [`wav_from_parts`]), keeping files ([`MediaStore`]) and
//! signing links to them ([`MediaSigner`]). Not here: which provider made a file, the
//! database, HTTP answers, or reading the time (every check of an expiry is told the time).
//!
//! The usual ways through:
//! - bytes in memory: [`fit_png`] or a joiner, [`inspect`], [`MediaStore::put`];
//! - a video at an address: [`MediaStore::spool`], [`Downloader::to_file`],
//!   [`Spooled::inspect`], [`MediaStore::put_file`]; it never lies in memory.
//!
//! Everything that reads foreign bytes is written for hostile ones: no panic, no loop that
//! the input can prolong, no allocation that the input can size.

mod address;
mod audio;
mod bad;
mod download;
mod fit;
mod info;
mod key;
mod probe;
mod s3;
mod sign;
mod spool;
mod store;

pub use address::is_public;
pub use audio::{mp3_from_parts, wav_from_parts};
pub use bad::InvalidMedia;
pub use download::{
    AddressPolicy, BoxError, DownloadError, DownloadSettings, Downloader, NoPublicAddress, Resolver,
};
pub use fit::fit_png;
pub use info::MediaInfo;
pub use key::{InvalidKey, MediaKey, MediaKind};
pub use probe::inspect;
pub use s3::S3Settings;
pub use sign::{LinkError, MediaSigner, WeakSecret};
pub use spool::{Spool, Spooled};
pub use store::{MediaFile, MediaHead, MediaStore, MediaStoreError};
