//! The load: clients that create, poll, cancel and delete generations, disconnect, and retry;
//! owners and operators who change what these depend on.

mod call;
mod keys;
mod load;
mod operator;
mod owner;
mod request;
mod suspend;

use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::{operator::grant, owner::template, request::Http, suspend::resume_all};
use crate::stage::Stage;

/// Starts all clients of a round. They end when the stage is over.
pub async fn start(stage: &Arc<Stage>, http: &Http, round: u32) -> JoinSet<()> {
    let keys = owner::keys(stage, http, round).await;
    let mut clients = JoinSet::new();
    for n in 0..stage.args.clients {
        let at = usize::try_from(n).unwrap();
        let (account, which) = (at % keys.len(), at / keys.len() % 3);
        let token = keys[account][which].clone();
        let own = load::Own { n, account, token };
        clients.spawn(load::run(Arc::clone(stage), http.clone(), round, own));
    }
    clients.spawn(keys::run(Arc::clone(stage), http.clone(), round));
    clients.spawn(operator::run(Arc::clone(stage), round));
    clients.spawn(suspend::run(Arc::clone(stage), http.clone(), round));
    clients.spawn(owner::edit(Arc::clone(stage), http.clone(), round));
    clients
}
