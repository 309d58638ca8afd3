//! The load: clients that make, look at, cancel and delete generations, hang up, and try again.

mod keys;
mod load;
mod operator;
mod request;

use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::{operator::grant, request::Http};
use crate::stage::Stage;

/// Starts all clients of a round. They end when the stage is over.
pub fn start(stage: &Arc<Stage>, http: &Http, round: u32) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for n in 0..stage.args.clients {
        clients.spawn(load::run(Arc::clone(stage), http.clone(), round, n));
    }
    clients.spawn(keys::run(Arc::clone(stage), http.clone(), round));
    clients.spawn(operator::run(Arc::clone(stage), round));
    clients
}
