//! A form of text fields as `multipart/form-data`.
//!
//! Written by hand: without files it is thirty lines. Source: RFC 7578; RFC 2046 section 5.1.1
//! for the boundary.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    fields: Vec<(&'static str, String)>,
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

    /// The content type and the body.
    pub fn encoded(&self) -> (String, String) {
        let boundary = self.boundary();
        let mut body = String::new();
        for (name, value) in &self.fields {
            for piece in [
                "--",
                &boundary,
                "\r\nContent-Disposition: form-data; name=\"",
                name,
                "\"\r\n\r\n",
                value,
                "\r\n",
            ] {
                body.push_str(piece);
            }
        }
        body.push_str("--");
        body.push_str(&boundary);
        body.push_str("--\r\n");
        (format!("multipart/form-data; boundary={boundary}"), body)
    }

    /// The first candidate that no value contains, so that a prompt cannot inject a field.
    fn boundary(&self) -> String {
        let mut number = 0_u64;
        loop {
            let word = format!("gensvc-form-{number:08}-end");
            if self.fields.iter().all(|(_, value)| !value.contains(&word)) {
                return word;
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_in_order() {
        let form = Form::default()
            .with("prompt", "A \"fox\"\r\n✓")
            .with_some("seed", None)
            .with_some("model", Some("m"));
        let (kind, body) = form.encoded();
        assert_eq!(
            kind,
            "multipart/form-data; boundary=gensvc-form-00000000-end"
        );
        assert_eq!(
            body,
            "--gensvc-form-00000000-end\r\n\
             Content-Disposition: form-data; name=\"prompt\"\r\n\r\nA \"fox\"\r\n✓\r\n\
             --gensvc-form-00000000-end\r\n\
             Content-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
             --gensvc-form-00000000-end--\r\n"
        );
    }

    #[test]
    fn a_value_cannot_end_its_field() {
        let first = Form::default().encoded().0;
        let word = first.split_once('=').unwrap().1;
        let evil = format!(
            "x\r\n--{word}\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ndear\r\n"
        );
        let (kind, body) = Form::default().with("prompt", evil).encoded();
        let used = kind.split_once('=').unwrap().1;
        assert_ne!(used, word);
        assert_eq!(body.matches(used).count(), 2);
    }
}
