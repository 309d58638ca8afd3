//! Converts a configured base URL to the URLs of endpoints.
//!
//! The SDKs disagree about whether the variable contains the version path (`OPENAI_BASE_URL`
//! ends in `/v1`, `ANTHROPIC_BASE_URL` is a host), so both are accepted.

use url::Url;

/// Why a base URL cannot be used. Does not contain the URL, which may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    #[error("the base URL is not an absolute http or https URL")]
    Invalid,
    /// `https://user:password@host`: the key belongs in its own variable.
    #[error("the base URL must not hold credentials")]
    Credentials,
}

/// Where a version path is recognized in the base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionPath {
    /// Anywhere: OpenAI-compatible servers have it inside the path (`/v1beta/openai`,
    /// `/api/paas/v4`).
    Anywhere(&'static str),
    /// Only as the last segment: a gateway's own `/v1/account/anthropic` is not the vendor's
    /// version.
    Last(&'static str),
}

/// Parses `base` and completes its version. Ignores a trailing slash, adds a missing version, keeps
/// a given one, and keeps the last of a doubled one (`/v1/v1`).
pub fn base_url(base: &str, version: VersionPath) -> Result<Url, BaseUrlError> {
    let mut url = Url::parse(base.trim()).map_err(|_| BaseUrlError::Invalid)?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(BaseUrlError::Invalid);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BaseUrlError::Credentials);
    }
    url.set_query(None);
    url.set_fragment(None);
    let mut segments: Vec<String> = url
        .path_segments()
        .into_iter()
        .flatten()
        .filter(|segment| !segment.is_empty())
        .map(str::to_owned)
        .collect();
    while let [.., before, last] = segments.as_slice()
        && is_version(before)
        && is_version(last)
    {
        segments.remove(segments.len() - 2);
    }
    let (given, default) = match version {
        VersionPath::Anywhere(default) => (segments.iter().any(|s| is_version(s)), default),
        VersionPath::Last(default) => (segments.last().is_some_and(|s| is_version(s)), default),
    };
    if !given {
        segments.push(default.to_owned());
    }
    // Parsed segments are already encoded.
    url.set_path(&segments.join("/"));
    Ok(url)
}

/// Appends `path` to `base`, percent-encoded, so that a model id cannot reach another endpoint.
pub fn endpoint(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    // Every HTTP URL has segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.extend(path);
    }
    url
}

/// Whether a segment is a version: `v1`, `v1beta`, `v4`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_too_many_and_too_few() {
        use VersionPath::{Anywhere, Last};
        let chat = ["chat", "completions"];
        for (base, version, want) in [
            (
                "https://a.test",
                Anywhere("v1"),
                "https://a.test/v1/chat/completions",
            ),
            (
                "https://a.test/",
                Anywhere("v1"),
                "https://a.test/v1/chat/completions",
            ),
            (
                "https://a.test/v1",
                Anywhere("v1"),
                "https://a.test/v1/chat/completions",
            ),
            (
                " https://a.test/v1/ ",
                Anywhere("v1"),
                "https://a.test/v1/chat/completions",
            ),
            (
                "https://a.test/v1/v1//",
                Anywhere("v1"),
                "https://a.test/v1/chat/completions",
            ),
            (
                "http://a.test:8/openai/v1?k=1#f",
                Anywhere("v1"),
                "http://a.test:8/openai/v1/chat/completions",
            ),
            (
                "https://a.test/v1beta/openai",
                Anywhere("v1"),
                "https://a.test/v1beta/openai/chat/completions",
            ),
            (
                "https://a.test/api/paas/v4",
                Anywhere("v1"),
                "https://a.test/api/paas/v4/chat/completions",
            ),
            (
                "https://a.test/v1/acc/anthropic",
                Last("v1"),
                "https://a.test/v1/acc/anthropic/v1/chat/completions",
            ),
            (
                "https://a.test/v1",
                Last("v1beta"),
                "https://a.test/v1/chat/completions",
            ),
            (
                "https://a.test",
                Last("v1beta"),
                "https://a.test/v1beta/chat/completions",
            ),
            (
                "https://a.test/x%20y",
                Last("v1"),
                "https://a.test/x%20y/v1/chat/completions",
            ),
        ] {
            let url = endpoint(&base_url(base, version).unwrap(), &chat);
            assert_eq!(url.as_str(), want, "{base}");
        }
    }

    #[test]
    fn a_model_id_stays_one_segment() {
        let base = base_url("http://a.test", VersionPath::Last("v1")).unwrap();
        let url = endpoint(&base, &["models", "a/../b?c:go"]);
        assert_eq!(url.path(), "/v1/models/a%2F..%2Fb%3Fc:go");
    }

    #[test]
    fn unusable_urls() {
        for (base, want) in [
            ("", BaseUrlError::Invalid),
            ("localhost:11434", BaseUrlError::Invalid),
            ("ftp://a.test", BaseUrlError::Invalid),
            ("http://", BaseUrlError::Invalid),
            ("https://u:p@a.test", BaseUrlError::Credentials),
        ] {
            let url = base_url(base, VersionPath::Last("v1"));
            assert_eq!(url, Err(want), "{base}");
        }
    }
}
