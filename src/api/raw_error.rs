//! Whole answers as bytes, for connections that are refused before there is a request: the
//! same envelope, and the connection's end.

use http::StatusCode;
use uuid::Uuid;

use super::error::ApiError;

/// The answer to a connection that is not served: 503 for one too many, another status for a
/// request whose head cannot be read. With its own request id, which is nowhere else.
pub fn raw_error_response(status: StatusCode) -> Vec<u8> {
    let (error, retry) = if status == StatusCode::SERVICE_UNAVAILABLE {
        (ApiError::overloaded(), "retry-after: 1\r\n")
    } else {
        (ApiError::from_status(status), "")
    };
    let id = Uuid::now_v7();
    let body = error.body(&id.to_string());
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         x-request-id: {id}\r\nx-content-type-options: nosniff\r\n{retry}connection: close\r\n\r\n{body}",
        body.len(),
    )
    .into_bytes()
}
