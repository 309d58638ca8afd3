//! Writes the files of a generation.

use std::{
    fs::File,
    io::{self, Cursor, Write as _},
    path::{Path, PathBuf},
};

use image::ImageFormat;
use serde_json::Value;
use uuid::Uuid;

use super::connection::Connection;
use crate::cli::{
    Failure,
    output::{Output, credits},
};

/// Returns how to get the result in another way.
pub(super) fn kept(record: &Value) -> String {
    let uuid = record["uuid"].as_str().unwrap_or_default();
    format!("The generation is kept: gensvc show {uuid}")
}

/// Prints the charge on stderr.
pub(super) fn cost(record: &Value, output: Output) {
    if let Some(charged) = record["credits"]["charged"].as_str() {
        let uuid = record["uuid"].as_str().unwrap_or_default();
        output.note(&format!("{} · {uuid}", credits(charged)));
    }
}

pub(super) enum Target {
    /// None: print their links.
    Links,
    Stdout,
    /// This path. Each file is written to a new file in the same folder and renamed when it is
    /// complete. The first new file is created before anything is charged.
    Path(PathBuf, Part),
}

/// A file that is being written; removed unless it is completed.
pub(super) struct Part(PathBuf);

impl Part {
    fn next_to(target: &Path) -> Result<Self, Failure> {
        let part = target.with_file_name(format!(".gensvc-{}.part", Uuid::now_v7()));
        let made = File::options().write(true).create_new(true).open(&part);
        made.map_err(|error| unwritable(target, &error))?;
        Ok(Self(part))
    }

    async fn finish(self, bytes: &[u8], target: &Path) -> Result<(), Failure> {
        let written = async {
            tokio::fs::write(&self.0, bytes).await?;
            tokio::fs::rename(&self.0, target).await
        };
        Ok(written.await.map_err(|error| unwritable(target, &error))?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A completed one has another name.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write {} ({error})", path.display())
}

/// Returns the file extensions that a type of generation supports.
fn extensions(kind: &str) -> &'static [&'static str] {
    match kind {
        "image" => &["png", "jpg", "jpeg", "webp"],
        "video" => &["mp4"],
        _ => &["mp3", "wav"],
    }
}

/// Returns the extension of a path, in lower case.
pub(super) fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_lowercase())
}

/// Refuses a path that is unusable for files of `kind`.
fn check_path(kind: &str, path: &Path, count: usize, is_forced: bool) -> Result<(), Failure> {
    let known = extensions(kind);
    if let Some(extension) = extension(path)
        && !known.contains(&extension.as_str())
    {
        let known = known.join(", ");
        let path = path.display();
        return Err(format!("cannot write {path}: its extension must be one of {known}").into());
    }
    let mut paths = (1..=count).map(|number| numbered(path, number, count));
    match paths.find(|path| !is_forced && path.exists()) {
        Some(path) => {
            let path = path.display();
            Err(format!("{path} exists: use --force to replace it, or another name").into())
        }
        None => Ok(()),
    }
}

impl Target {
    /// Creates the destination for `count` files. An existing file is replaced only if `is_forced`.
    pub(super) fn of(
        kind: &str,
        path: Option<&Path>,
        count: usize,
        is_forced: bool,
        output: Output,
    ) -> Result<Self, Failure> {
        match path {
            None => Ok(Self::Links),
            Some(path) if path == Path::new("-") => match (count > 1, output.json) {
                (true, _) => Err("several files do not go to stdout: name a file".into()),
                (_, true) => Err("a file and --json do not both go to stdout: name a file".into()),
                _ => Ok(Self::Stdout),
            },
            Some(path) => {
                check_path(kind, path, count, is_forced)?;
                Ok(Self::Path(path.to_owned(), Part::next_to(path)?))
            }
        }
    }
}

pub(super) async fn write(
    connection: &Connection,
    record: &Value,
    target: Target,
    output: Output,
) -> Result<(), Failure> {
    let outputs = record["outputs"].as_array().map_or(&[][..], Vec::as_slice);
    let files = outputs.iter();
    let files = files.filter_map(|file| Some((file["url"].as_str()?, &file["content_type"])));
    let files: Vec<_> = files.collect();
    let urls: Vec<&str> = files.iter().map(|(url, _)| *url).collect();
    match target {
        Target::Links => {
            output.result(&urls.join("\n"), record)?;
        }
        Target::Stdout => {
            for url in urls {
                let bytes = connection.file(url).await?.bytes().await?;
                let mut out = io::stdout();
                out.write_all(&bytes)?;
                out.flush()?;
            }
        }
        Target::Path(target, first) => {
            let (mut first, mut written) = (Some(first), Vec::new());
            for (at, (url, content_type)) in files.iter().enumerate() {
                let path = numbered(&target, at + 1, files.len());
                let part = first.take().map_or_else(|| Part::next_to(&path), Ok)?;
                let bytes = connection.file(url).await?.bytes().await?;
                let converted = convert(&bytes, content_type, &path)?;
                let bytes = converted.as_deref().unwrap_or(&bytes);
                part.finish(bytes, &path).await?;
                written.push(path.display().to_string());
            }
            output.result(&written.join("\n"), record)?;
        }
    }
    cost(record, output);
    Ok(())
}

/// Converts an image to the format of the path's extension; `None` if it has that format already.
fn convert(bytes: &[u8], content_type: &Value, to: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let wanted = extension(to).and_then(ImageFormat::from_extension);
    let found = content_type.as_str().and_then(ImageFormat::from_mime_type);
    let (Some(wanted), Some(found)) = (wanted, found) else {
        return Ok(None);
    };
    if wanted == found {
        return Ok(None);
    }
    let mut image = image::load_from_memory_with_format(bytes, found)?;
    if wanted == ImageFormat::Jpeg {
        // JPEG has no transparency.
        image = image.into_rgb8().into();
    }
    let mut converted = Cursor::new(Vec::new());
    image.write_to(&mut converted, wanted)?;
    Ok(Some(converted.into_inner()))
}

/// Numbers a file name, such as `image-2.png` for `image.png`, if there are several.
fn numbered(path: &Path, number: usize, count: usize) -> PathBuf {
    if count == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_files_are_numbered_before_their_extension() {
        assert_eq!(
            numbered(Path::new("a/b.tar.png"), 2, 3),
            Path::new("a/b.tar-2.png")
        );
        assert_eq!(numbered(Path::new("b"), 1, 3), Path::new("b-1"));
        assert_eq!(numbered(Path::new("b"), 1, 1), Path::new("b"));
    }
}
