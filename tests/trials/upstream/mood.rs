//! Faults of submissions.

use std::time::Duration;

use serde_json::json;

use super::TOO_LONG;
use crate::wire::Reply;

/// The fault of a submission. Delays are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Good {
        wait: u64,
    },
    /// A valid response, long after the caller's timeout.
    Late,
    /// Refused: nothing was started.
    Busy {
        status: u16,
        retry_after: bool,
    },
    /// A status that leaves it open whether something was started.
    Broken(u16),
    Policy,
    Reset,
    Cut {
        wait: u64,
    },
    Garbage,
    Html,
    Empty,
    /// The same response twice on one connection; in a stream, its last events twice.
    Twice,
    /// Of token counts.
    Lie(u8),
    TooFew,
    WrongFile,
    CutFile,
    /// Of tasks: never done; forgotten; failed.
    Stuck,
    Vanished,
    Failing,
}

impl Mood {
    /// What settling needs.
    pub const fn calm() -> Self {
        Self::Good { wait: 20 }
    }

    /// No fault in about six of ten.
    pub fn draw(rng: &mut fastrand::Rng, path: &str) -> Self {
        let wait = rng.u64(10..500);
        let is_text = !["/images/", "/text_to_video", "/text-to-speech/"]
            .iter()
            .any(|part| path.contains(part));
        match rng.u32(0..100) {
            0..50 => Self::Good { wait },
            50..60 => Self::Good { wait: wait * 3 },
            60..64 => Self::Late,
            64..71 => Self::Busy {
                status: [429, 503, 529][rng.usize(0..3)],
                retry_after: rng.bool(),
            },
            71..75 => Self::Broken([400, 403, 500, 502, 504][rng.usize(0..5)]),
            75..77 => Self::Policy,
            77..80 => Self::Reset,
            80..83 => Self::Cut { wait },
            83..85 => Self::Garbage,
            85 => Self::Html,
            86 => Self::Empty,
            87..91 => Self::Twice,
            _ if is_text => Self::Lie(rng.u8(0..7)),
            _ if path.contains("/text_to_video") => {
                let ends = [
                    Self::Stuck,
                    Self::Vanished,
                    Self::Failing,
                    Self::WrongFile,
                    Self::CutFile,
                ];
                ends[rng.usize(0..ends.len())]
            }
            _ => [Self::WrongFile, Self::CutFile, Self::TooFew][rng.usize(0..3)],
        }
    }

    /// Whether the caller may submit again, after 403 to another provider.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Broken(403))
    }

    /// The name that it is counted under.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Good { .. } => return None,
            Self::Late => "upstream: time-out",
            Self::Busy { .. } => "upstream: busy (429, 503, 529)",
            Self::Broken(_) => "upstream: error status",
            Self::Policy => "upstream: content policy",
            Self::Reset => "upstream: connection reset",
            Self::Cut { .. } => "upstream: answer cut off",
            Self::Garbage | Self::Html | Self::Empty => "upstream: garbage",
            Self::Twice => "upstream: answered twice",
            Self::Lie(_) => "upstream: lie about usage",
            Self::TooFew => "upstream: too few images",
            Self::WrongFile | Self::CutFile => "upstream: wrong or cut file",
            Self::Stuck => "upstream: task never ends",
            Self::Vanished => "upstream: task vanishes",
            Self::Failing => "upstream: task fails",
        })
    }

    /// The response, where it does not depend on the request.
    pub fn spoilt(self, path: &str) -> Option<Reply> {
        let error = |status, message: &str, code: &str| {
            let error =
                json!({"type": "error", "error": {"type": code, "message": message, "code": code}});
            Reply::json(status, &error)
        };
        let json = [("content-type", "application/json")];
        Some(match self {
            Self::Busy {
                status,
                retry_after: true,
            } => Reply::whole(status, &[("retry-after", "1")], b"{}"),
            Self::Busy { status, .. } => error(status, "try later", "overloaded_error"),
            Self::Broken(status) => error(status, "no", "api_error"),
            Self::Policy if path.contains("/openai") => {
                error(400, "no", "content_policy_violation")
            }
            Self::Policy => error(400, "no", "content_policy"),
            Self::Reset => Reply::reset().after(Duration::from_millis(50)),
            Self::Garbage => Reply::whole(200, &json, b"{\"choices\": [{\"message\": \xff\xfe"),
            Self::Html => Reply::whole(200, &[("content-type", "text/html")], b"<html>hi</html>"),
            Self::Empty => Reply::whole(200, &json, b""),
            _ => return None,
        })
    }

    /// When and how the response is sent.
    pub fn dress(self, reply: Reply) -> Reply {
        let millis = Duration::from_millis;
        let is_stream = reply.pieces.len() > 1;
        match self {
            // Their events are cut or repeated already, the chunks around them are valid.
            Self::Cut { wait } if is_stream => reply.after(millis(wait)),
            Self::Twice if is_stream => reply.after(millis(30)),
            Self::Good { wait } => reply.after(millis(wait)),
            Self::Late => reply.after(TOO_LONG),
            Self::Cut { wait } => reply.cut().after(millis(wait)),
            Self::Twice => reply.twice().after(millis(30)),
            _ => reply.after(millis(60)),
        }
    }
}
