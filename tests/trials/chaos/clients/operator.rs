//! The operator, who grants credits and, not knowing whether it worked, repeats the grant with the
//! same reference.

use std::{sync::Arc, time::Duration};

use super::super::scene::Scene;
use crate::seen::Grant;

/// Grants credits to the accounts that run short, until the scene is over.
pub async fn run(scene: Arc<Scene>, round: u32) {
    let mut rng = scene.args.rng(&format!("operator {round}"));
    let mut n = 0;
    while !scene.is_over() {
        n += 1;
        let made = Grant {
            account: rng.usize(2..4),
            reference: format!("grant-{round}-{n}"),
            amount: rng.i64(1..40),
        };
        scene.seen.state().grants.push(made.clone());
        // Both concurrently: the second one must find the first.
        let _ = tokio::join!(grant(&scene, &made), grant(&scene, &made));
        scene.tally.deed("granted twice under one reference");
        tokio::time::sleep(Duration::from_millis(rng.u64(1_000..2_500))).await;
    }
}

/// Requests a grant once.
pub async fn grant(scene: &Scene, grant: &Grant) -> Result<(), String> {
    let email = &scene.accounts[grant.account].email;
    let amount = grant.amount.to_string();
    let base = ["credits", "grant", "--email", email, "--amount", &amount];
    let args = [&base[..], &["--reference", &grant.reference]].concat();
    scene.command(&args).await.map(|_| ())
}
