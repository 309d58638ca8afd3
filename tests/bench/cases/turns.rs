//! Turns of an agent, on a new database and on one whose tables are analysed.

use std::time::Duration;

use crate::{
    agent::{Dialect, Size, Turn},
    cases::Run,
    compare::{Comparison, Extent},
    counters::Usage,
    load::{Load, Pace},
    postgres,
    slice::float,
    stage::{Scene, Setup},
    table::{self, number},
    work::{Kind, Work},
};

/// Accounts, each of which has its own copy of the body in the load's memory.
const ACCOUNTS: usize = 8;
/// Turns a second where the machine is to be idle.
const LOW: u64 = 10;
/// Turns that wait for the upstream while memory is measured, and how long after they were sent.
const WAITING: u64 = 64;
const SENT: Duration = Duration::from_secs(5);
const SLICES: u32 = 3;

pub async fn turns(run: &Run<'_>, size: Size) {
    let bytes = size.bytes();
    table::turns(&format!("turns of {bytes} bytes of {ACCOUNTS} accounts"));
    let many = Pace::Callers(run.args.connections);
    let setup = Setup {
        accounts: ACCOUNTS,
        ..Setup::default()
    };
    for (dialect, name) in [(Dialect::Chat, "chat"), (Dialect::Messages, "messages")] {
        let turn = Turn {
            size,
            dialect,
            stream: false,
            held: false,
        };
        let scene = run.scene(setup).await;
        row(
            run,
            &scene,
            &format!("{name}, first minute, {many}"),
            turn,
            many,
        )
        .await;
        postgres::analyze(&scene.database).await;
        row(run, &scene, &format!("{name}, later, {many}"), turn, many).await;
        let streamed = Turn {
            stream: true,
            ..turn
        };
        row(
            run,
            &scene,
            &format!("{name}, streamed, {many}"),
            streamed,
            many,
        )
        .await;
        let few = Pace::PerSecond(LOW);
        row(run, &scene, &format!("{name}, {few}"), turn, few).await;
        run.end(scene).await;
    }
    println!();
    let scene = run.scene(setup).await;
    memory(run, &scene, size).await;
    run.end(scene).await;
}

async fn row(run: &Run<'_>, scene: &Scene<'_>, name: &str, turn: Turn, pace: Pace) {
    let kind = Kind::Turn(turn);
    let ours = Load::new(scene.work(kind, ACCOUNTS), pace);
    let theirs = Load::new(Work::proxy(run.stage.proxy.1, kind), pace);
    let extent = Extent {
        slices: SLICES,
        ..run.extent()
    };
    let (both, _) = Comparison::run(scene, &[ours], &theirs, extent).await;
    table::turn(name, &both);
    run.note(&both);
}

/// What servers keep of turns whose answer has not begun.
async fn memory(run: &Run<'_>, scene: &Scene<'_>, size: Size) {
    let kind = Kind::Turn(Turn {
        size,
        dialect: Dialect::Chat,
        stream: false,
        held: true,
    });
    let proxy = run.stage.proxy.0.pid();
    let sides = [
        ("gensvc", scene.pids()[0], scene.work(kind, ACCOUNTS)),
        ("the proxy", proxy, Work::proxy(run.stage.proxy.1, kind)),
    ];
    for (name, pid, work) in sides {
        let before = Usage::of(pid).resident;
        let pace = Pace::Times {
            times: WAITING,
            callers: WAITING,
        };
        let sending = tokio::spawn(Load::new(work, pace).run(SENT * 2));
        tokio::time::sleep(SENT).await;
        let more = float(Usage::of(pid).resident.saturating_sub(before));
        let bodies = float(WAITING * u64::try_from(size.bytes()).unwrap());
        let (mib, times) = (number(more / 1_048_576.0), number(more / bodies));
        println!(
            "Memory of {name} while {WAITING} turns are under way: + {mib} MiB, {times} of the bodies."
        );
        let outcome = sending.await.unwrap();
        table::failures(name, &outcome.failures);
        run.note_bad(outcome.failed() > 0);
    }
    println!();
}
