//! Fairness: what quiet accounts feel of a busy one.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _};
use tokio::task::JoinSet;

use crate::{
    accounts::Account,
    cases::Run,
    load::{Load, Pace},
    outcome::Outcome,
    postgres,
    stage::{Scene, Setup},
    table::{self, number},
    work::{Kind, Work},
};

/// Accounts so quiet that none of them waits for itself, even where a commit takes long.
const QUIET: usize = 10;
/// Their texts a second, of all together.
const RATE: u64 = 20;
/// How long the busy account's row is locked, whatever length a slice has.
const LOCKED: Duration = Duration::from_secs(30);
/// How long the quiet accounts are at it before.
const LEAD: Duration = Duration::from_secs(1);
/// How long the busy account is at it before the quiet ones are measured: all of its streams have
/// begun by then.
const BUSY_LEAD: Duration = Duration::from_secs(4);
/// Microseconds that a commit takes at least.
const DELAYS: [u32; 3] = [0, 10_000, 50_000];
/// Servers on the database.
const SERVERS: [usize; 2] = [1, 3];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noise {
    Nothing,
    Texts,
    Locked,
    Streams,
    Videos,
}

const NOISES: [(Noise, &str); 5] = [
    (Noise::Nothing, "does nothing"),
    (Noise::Texts, "sends 64 parallel texts"),
    (
        Noise::Locked,
        "sends 64 parallel texts and its row is locked",
    ),
    (Noise::Streams, "has 1,000 streams open"),
    (Noise::Videos, "queues 1,000 videos"),
];

pub async fn quiet(run: &Run<'_>) {
    println!("### quiet: {RATE} texts a second of {QUIET} quiet accounts, while another…\n");
    println!("| servers | commit delay ms | the other | p50 ms | p99 ms | × its p99 without |");
    println!("|---:|---:|---|---:|---:|---:|");
    for servers in SERVERS {
        for delay in DELAYS {
            run.stage.postgres.delay_commits(delay).await;
            let mut alone = f64::NAN;
            for (noise, name) in NOISES {
                let outcome = measure(run, servers, noise).await;
                let [p50, p99] = [0.5, 0.99].map(|part| outcome.latency(part));
                if noise == Noise::Nothing {
                    alone = p99;
                }
                let figures = [p50, p99, p99 / alone].map(number).join(" | ");
                println!("| {servers} | {} | {name} | {figures} |", delay / 1000);
                table::failures("the quiet accounts", &outcome.failures);
                run.note_bad(outcome.failed() > 0);
            }
        }
    }
    run.stage.postgres.delay_commits(0).await;
    println!();
}

/// On a database and servers of its own: what one noise leaves behind is not the next one's.
async fn measure(run: &Run<'_>, servers: usize, noise: Noise) -> Outcome {
    let setup = Setup {
        accounts: QUIET + 1,
        servers,
        generations: 0,
    };
    let scene = run.scene(setup).await;
    let keys = scene.keys(QUIET + 1);
    let quiet = Work::gensvc(&scene.addresses(), Kind::Text, &keys[..QUIET]);
    let quiet = Load::new(quiet, Pace::PerSecond(RATE));
    // What is prepared at the first request is no part of it.
    quiet.at(Pace::PerSecond(RATE)).run(LEAD).await;
    let length = match noise {
        Noise::Locked => LOCKED,
        _ => run.extent().length * run.extent().slices,
    };
    // Its answers are no matter: it may be refused what is beyond its share.
    let mut noises = JoinSet::new();
    if let Some(load) = busy(&scene, noise, &keys[QUIET..]) {
        noises.spawn(load.run(BUSY_LEAD + length));
    }
    tokio::time::sleep(BUSY_LEAD).await;
    let lock = match noise {
        Noise::Locked => Some(lock(&scene.database, &scene.accounts[QUIET]).await),
        _ => None,
    };
    let outcome = quiet.run(length).await;
    if let Some(connection) = lock {
        connection.close().await.unwrap();
    }
    noises.shutdown().await;
    run.end(scene).await;
    outcome
}

fn busy(scene: &Scene<'_>, noise: Noise, keys: &[String]) -> Option<Load> {
    let addresses = scene.addresses();
    let generations = |kind| Work::gensvc(&addresses, kind, keys);
    Some(match noise {
        Noise::Nothing => return None,
        Noise::Texts | Noise::Locked => Load::new(generations(Kind::Text), Pace::Callers(64)),
        Noise::Streams => Load::new(generations(Kind::LongStream), Pace::Callers(1000)),
        Noise::Videos => {
            let pace = Pace::Times {
                times: 1000,
                callers: 8,
            };
            Load::new(Work::videos(&addresses, keys, 60), pace)
        }
    })
}

/// Locks an account's row until the connection is closed.
async fn lock(database: &str, account: &Account) -> sqlx::PgConnection {
    let mut connection = postgres::connect(database).await;
    let lock = format!(
        "begin; select from accounts where id = {} for update",
        account.id
    );
    sqlx::raw_sql(AssertSqlSafe(lock))
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}
