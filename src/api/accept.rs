//! Content negotiation.

use http::{HeaderMap, HeaderName, header};

/// Returns the weight of a name in a header such as `Accept`, 0 to 1; 0 if it is not listed.
pub fn weight(headers: &HeaderMap, header: &HeaderName, name: &str) -> f32 {
    let values = headers.get_all(header).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let weights = values.flat_map(|value| value.split(',')).map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_it = parts
            .next()
            .is_some_and(|range| range.eq_ignore_ascii_case(name));
        match parts.find_map(|part| part.strip_prefix("q=")) {
            _ if !is_it => 0.0,
            None => 1.0,
            Some(weight) => weight.parse().unwrap_or(0.0),
        }
    });
    weights.fold(0.0, f32::max)
}

/// Whether the client, usually a browser, prefers HTML to JSON.
pub fn accepts_html(headers: &HeaderMap) -> bool {
    let wish = |name| weight(headers, &header::ACCEPT, name);
    wish("text/html") > wish("application/json")
}
