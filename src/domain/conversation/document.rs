//! Documents that a model reads: PDFs and plain texts.
//!
//! The bytes of a PDF do not bound its tokens, so the vendor counts them.

use std::fmt;

use base64::{Engine as _, display::Base64Display, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize, Serializer};

use super::{
    Detail,
    base64::{Base64Text, check_base64},
};
use crate::domain::{
    named::named_enum,
    validate::{FieldCode, Refusal},
};

/// The beginning of the base64 of every PDF: `%PDF-`.
const PDF_START: &str = "JVBERi";

named_enum!(
    /// The type of a document.
    DocumentType {
        Pdf = "application/pdf",
        Text = "text/plain",
    }
);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    pub source: DocumentSource,
    /// Title, or file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Level of detail for its pages; `None`: the vendor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentSource {
    Pdf(Base64Text),
    Text(String),
}

impl DocumentSource {
    /// Parses a document in base64.
    pub fn base64(media_type: DocumentType, data: String) -> Result<Self, Refusal> {
        let wrong = |message: &'static str| (FieldCode::InvalidFormat, message.into());
        check_base64(&data)?;
        match media_type {
            DocumentType::Pdf if data.starts_with(PDF_START) => {
                Ok(Self::Pdf(Base64Text::from(data)))
            }
            DocumentType::Pdf => Err(wrong("is not a PDF")),
            DocumentType::Text => {
                let bytes = BASE64_STANDARD.decode(data).unwrap_or_default();
                let text = String::from_utf8(bytes);
                text.map(Self::Text)
                    .map_err(|_| wrong("is not text in UTF-8"))
            }
        }
    }

    /// Parses a data URL, or a bare base64 PDF, as in files of `OpenAI`'s dialects.
    pub fn parse(data: &str) -> Result<Self, Refusal> {
        let message = "must be a data URL in base64 of one of the types application/pdf, \
                       text/plain, such as data:application/pdf;base64,JVBERi0...";
        let wrong = || (FieldCode::InvalidFormat, message.into());
        let Some(rest) = data.strip_prefix("data:") else {
            let is_pdf = data.starts_with(PDF_START);
            let pdf = is_pdf.then(|| Self::base64(DocumentType::Pdf, data.to_owned()));
            return pdf.unwrap_or_else(|| Err(wrong()));
        };
        let (head, data) = rest.split_once(',').unwrap_or_default();
        let media_type = head.strip_suffix(";base64").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default();
        let media_type = DocumentType::parse(&media_type.to_ascii_lowercase());
        Self::base64(media_type.ok_or_else(wrong)?, data.to_owned())
    }

    pub const fn media_type(&self) -> DocumentType {
        match self {
            Self::Pdf(_) => DocumentType::Pdf,
            Self::Text(_) => DocumentType::Text,
        }
    }
}

impl Document {
    /// Returns the UTF-8 bytes of its strings; 0 for the bytes of a PDF, whose tokens the vendor
    /// counts.
    pub fn bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, String::len);
        name + match &self.source {
            DocumentSource::Pdf(_) => 0,
            DocumentSource::Text(text) => text.len(),
        }
    }
}

/// A document in base64, bare or as a data URL. Data that is already base64 is not copied.
#[derive(Debug, Clone, Copy)]
pub struct DocumentData<'a> {
    pub source: &'a DocumentSource,
    pub is_url: bool,
}

impl fmt::Display for DocumentData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_url {
            write!(f, "data:{};base64,", self.source.media_type())?;
        }
        match self.source {
            DocumentSource::Pdf(data) => f.write_str(data.as_str()),
            DocumentSource::Text(text) => {
                write!(
                    f,
                    "{}",
                    Base64Display::new(text.as_bytes(), &BASE64_STANDARD)
                )
            }
        }
    }
}

impl Serialize for DocumentData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_written_alike() {
        for (data, is_pdf) in [
            ("data:application/pdf;base64,JVBERi0xLjc=", true),
            ("data:text/plain;base64,SGnDqQ==", false),
        ] {
            let source = DocumentSource::parse(data).unwrap();
            assert_eq!(matches!(source, DocumentSource::Pdf(_)), is_pdf);
            let written = DocumentData {
                source: &source,
                is_url: true,
            };
            assert_eq!(written.to_string(), data);
        }
        assert!(DocumentSource::parse("JVBERi0xLjc=").is_ok());
        let charset = "data:text/plain;charset=utf-8;base64,SGk=";
        let text = DocumentSource::Text("Hi".to_owned());
        assert_eq!(DocumentSource::parse(charset), Ok(text));
        for wrong in [
            "",
            "SGk=",
            "https://example.com/a.pdf",
            "data:application/pdf,JVBERi0xLjc=",
            "data:application/pdf;base64,SGk=",
            "data:application/pdf;base64,JVBERi0xLjc",
            "data:text/plain;base64,/w==",
            "data:application/msword;base64,SGk=",
        ] {
            assert!(DocumentSource::parse(wrong).is_err(), "{wrong}");
        }
    }
}
