//! The load: clients that create, poll, cancel and delete generations, disconnect, and retry;
//! owners and operators who change what these depend on.

mod keys;
mod load;
mod operator;
mod owner;
mod sdk;
mod suspend;

use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::{operator::grant, owner::template, suspend::resume_all};
use super::scene::Scene;
use crate::http::Http;

/// Clients that retry like the SDKs.
const SDK_CLIENTS: u32 = 6;

/// Starts all clients of a round. They end when the scene is over.
pub async fn start(scene: &Arc<Scene>, http: &Http, round: u32) -> JoinSet<()> {
    let keys = owner::keys(scene, http, round).await;
    let mut clients = JoinSet::new();
    for n in 0..scene.args.clients {
        let at = usize::try_from(n).unwrap();
        let (account, which) = (at % keys.len(), at / keys.len() % 3);
        let token = keys[account][which].clone();
        let own = load::Own { n, account, token };
        clients.spawn(load::run(Arc::clone(scene), http.clone(), round, own));
    }
    for n in 0..SDK_CLIENTS {
        clients.spawn(sdk::run(Arc::clone(scene), http.clone(), round, n));
    }
    clients.spawn(keys::run(Arc::clone(scene), http.clone(), round));
    clients.spawn(operator::run(Arc::clone(scene), round));
    clients.spawn(suspend::run(Arc::clone(scene), http.clone(), round));
    clients.spawn(owner::edit(Arc::clone(scene), http.clone(), round));
    clients
}
