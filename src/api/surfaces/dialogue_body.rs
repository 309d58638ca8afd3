//! Reads the body of a dialogue and keeps its original form.

use std::sync::Arc;

use crate::{
    api::{body::JsonBody, error::ApiError},
    dialect::original,
    domain::{generation::Surface, receipt::Prefixes, validate::Body},
    request::DialogueRequest,
};

/// Reads the body of a dialogue, and keeps its bytes, its original members and the digests of its
/// prefixes. `headers` belong to the body; `dialogue` finds the dialogue in the request.
pub fn read<T: Body>(
    mut body: JsonBody<T>,
    surface: Surface,
    headers: Vec<(&'static str, String)>,
    dialogue: impl FnOnce(&mut T) -> &mut DialogueRequest,
) -> Result<T, ApiError> {
    let prefixes = Prefixes::of(surface, &body.members, &headers);
    let (bytes, members) = body.take_original().unzip();
    let original = members.map(|members| original(surface, members, &body.members, headers));
    let mut request = body.read()?;
    let dialogue = dialogue(&mut request);
    if let Some(bytes) = &bytes {
        Arc::make_mut(&mut dialogue.conversation).share(bytes);
    }
    dialogue.original = original.map(Box::new);
    dialogue.prefixes = prefixes;
    Ok(request)
}
