//! Headers that announce the retirement of a model: `Deprecation` (RFC 9745) and `Sunset` (RFC
//! 8594).

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{domain::generation::Generation, service::Service};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// Returns the headers of a response; none unless its model is decided and retires soon.
pub fn retirement(service: &Service, record: &Generation) -> HeaderMap {
    let is_decided = record.route.is_none() || record.status.is_finished();
    let announced = is_decided
        .then(|| service.retirement(&record.provider, &record.model))
        .flatten();
    let headers = announced.and_then(|(deprecated, sunset)| {
        let deprecated = format!("@{}", deprecated.timestamp());
        let sunset = sunset.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Some([
            (DEPRECATION, HeaderValue::try_from(deprecated).ok()?),
            (SUNSET, HeaderValue::try_from(sunset).ok()?),
        ])
    });
    headers.into_iter().flatten().collect()
}
