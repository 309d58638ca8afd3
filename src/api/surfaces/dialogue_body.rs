//! The parts of a body that a dialogue keeps in addition to its values.

use std::sync::Arc;

use axum::body::Bytes;

use crate::{
    api::body::JsonBody,
    domain::{
        dialect::original,
        generation::Surface,
        receipt::Prefixes,
        request::{DialogueRequest, Original},
        validate::Body,
    },
};

/// The bytes of a body, and the digests of its beginnings.
pub struct DialogueBody {
    bytes: Option<Bytes>,
    original: Option<Box<Original>>,
    prefixes: Option<Prefixes>,
}

impl DialogueBody {
    /// `headers`: those that belong to the body.
    pub fn new<T: Body>(
        body: &mut JsonBody<T>,
        surface: Surface,
        headers: Vec<(&'static str, String)>,
    ) -> Self {
        let prefixes = Prefixes::of(surface, body.members(), &headers);
        let (bytes, members) = body.take_original().unzip();
        let original = members.map(|members| original(surface, members, body.members(), headers));
        Self {
            bytes,
            original: original.map(Box::new),
            prefixes,
        }
    }

    /// Adds them to the dialogue that was read from the body.
    pub fn attach_to(self, dialogue: &mut DialogueRequest) {
        if let Some(bytes) = &self.bytes {
            Arc::make_mut(&mut dialogue.conversation).share(bytes);
        }
        dialogue.original = self.original;
        dialogue.prefixes = self.prefixes;
    }
}
