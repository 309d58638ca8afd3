//! What clients ask and how, as the clients of `tests/chaos` do.

#[path = "../chaos/clients/call.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod call;
#[path = "../chaos/clients/request.rs"]
mod request;

pub use self::{
    call::Call,
    request::{Answer, Http},
};
