//! Input pictures of a call.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;

use crate::domain::request::InputRole;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPicture {
    pub role: InputRole,
    /// `image/png`, `image/jpeg` or `image/webp`; `video/mp4` of a video to extend.
    pub content_type: String,
    pub bytes: Bytes,
}

impl InputPicture {
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.bytes)
    }

    /// Returns the picture as a `data:` URI.
    pub fn data_uri(&self) -> String {
        format!("data:{};base64,{}", self.content_type, self.base64())
    }

    /// Returns a file name with the extension of the type, which some vendors check.
    pub fn file_name(&self) -> String {
        let extension = self.content_type.trim_start_matches("image/");
        format!("{}.{extension}", self.role.as_str())
    }
}

/// Returns the pictures with a role, in order.
pub fn inputs_with_role(
    pictures: &[InputPicture],
    role: InputRole,
) -> impl Iterator<Item = &InputPicture> {
    pictures.iter().filter(move |picture| picture.role == role)
}
