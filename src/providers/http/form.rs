//! Writes `multipart/form-data` with texts and pictures.
//!
//! Source: RFC 7578; RFC 2046 section 5.1.1 for the boundary.

use bytes::Bytes;

use crate::{
    domain::token::{self, RandomError},
    providers::InputPicture,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    fields: Vec<(&'static str, String)>,
    files: Vec<(&'static str, InputPicture)>,
}

impl Form {
    /// Adds a field. Names are ours and need no quoting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    #[must_use]
    pub fn with_file(mut self, name: &'static str, picture: &InputPicture) -> Self {
        self.files.push((name, picture.clone()));
        self
    }

    /// Returns content type and body. The boundary is random, so that prompts cannot inject fields.
    pub fn encoded(&self) -> Result<(String, Bytes), RandomError> {
        let random = u128::from_be_bytes(token::random()?);
        let boundary = format!("gensvc-form-{random:032x}");
        let files = self.files.iter().map(|(_, file)| file.bytes.len());
        let mut body = Vec::with_capacity(files.sum::<usize>() + (4 << 10));
        for (name, value) in &self.fields {
            let field = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
            body.extend_from_slice(field.as_bytes());
        }
        for (name, file) in &self.files {
            let head = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; \
                 filename=\"{}\"\r\nContent-Type: {}\r\n\r\n",
                file.file_name(),
                file.content_type
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(&file.bytes);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let kind = format!("multipart/form-data; boundary={boundary}");
        Ok((kind, body.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::inputs::InputRole;

    #[test]
    fn fields_in_order() {
        let form = Form::default()
            .with("prompt", "A \"fox\"\r\n✓")
            .with_some("seed", None)
            .with_some("model", Some("m"));
        let (kind, body) = form.encoded().unwrap();
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        assert_eq!(
            body,
            format!(
                "--{boundary}\r\n\
                 Content-Disposition: form-data; name=\"prompt\"\r\n\r\nA \"fox\"\r\n✓\r\n\
                 --{boundary}\r\n\
                 Content-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
                 --{boundary}--\r\n"
            )
        );
    }

    #[test]
    fn files_follow_the_fields() {
        let picture = InputPicture {
            role: InputRole::Mask,
            content_type: "image/png".to_owned(),
            bytes: Bytes::from_static(b"\x89PNG\0"),
        };
        let form = Form::default().with("model", "m");
        let form = form.with_file("mask", &picture);
        let (kind, body) = form.encoded().unwrap();
        let boundary = kind.split_once('=').unwrap().1;
        let text = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"mask\"; \
             filename=\"mask.png\"\r\nContent-Type: image/png\r\n\r\n"
        );
        let end = format!("\r\n--{boundary}--\r\n");
        let expected = [text.as_bytes(), &picture.bytes, end.as_bytes()].concat();
        assert_eq!(body, expected);
        assert_ne!(form.encoded().unwrap().0, kind);
    }

    #[test]
    fn a_value_cannot_end_its_field() {
        let first = Form::default().encoded().unwrap().0;
        let word = first.split_once('=').unwrap().1;
        let evil = format!(
            "x\r\n--{word}\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ndear\r\n"
        );
        let (kind, body) = Form::default().with("prompt", evil).encoded().unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let used = kind.split_once('=').unwrap().1;
        assert_ne!(used, word);
        assert_eq!(body.matches(used).count(), 2);
    }
}
