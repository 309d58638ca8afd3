//! The requests, shared with the clients of `tests/chaos`.

#[path = "../chaos/clients/call.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod call;
#[path = "../chaos/clients/request.rs"]
mod request;

pub use self::{
    call::Call,
    request::{Answer, Http},
};
