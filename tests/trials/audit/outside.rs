//! What upstreams and clients know, compared with the ledger.

use std::collections::{HashMap, HashSet};

use super::ledger::Row;
use crate::{stage::Stage, upstream};

/// Maximum submissions of one generation.
const SUBMISSIONS: u32 = 3;

/// Checks the marks of a round. `refused`: upstreams have refused connections in it, which the
/// servers count and the upstreams do not.
pub fn check(stage: &Stage, rows: &[Row], round: u32, refused: bool) {
    let tally = &stage.tally;
    let rows: HashMap<&str, &Row> = rows
        .iter()
        .filter_map(|row| Some((upstream::mark(&row.prompt)?, row)))
        .collect();
    let log = stage.upstream.log();
    let seen = stage.seen.state();
    let deleted: HashSet<&str> = seen
        .known
        .values()
        .filter(|known| known.deleted)
        .map(|known| known.mark.as_str())
        .collect();
    let prefix = format!("mk-{round}-");
    for (mark, submissions) in log.iter().filter(|(mark, _)| mark.starts_with(&prefix)) {
        let describe = || format!("{mark}: {submissions:?}");
        if submissions.started > 1 || submissions.late > 0 {
            tally.violation("submitted again after a start", describe());
        }
        // One more where a fallback follows.
        let most = SUBMISSIONS + u32::from(mark.ends_with("-or-end"));
        if submissions.all > most {
            tally.violation("submitted too often", describe());
        }
        if seen.forbidden.contains(mark) {
            tally.violation("work for a revoked key", describe());
        }
        let Some(row) = rows.get(mark.as_str()) else {
            if !deleted.contains(mark.as_str()) {
                tally.violation("work without a hold", describe());
            }
            continue;
        };
        if row.status != "completed" {
            continue;
        }
        let attempts = u32::try_from(row.attempts).unwrap_or(0);
        let more = attempts > submissions.all && !refused;
        if more || attempts < submissions.all || attempts > most {
            let detail = format!("{mark}: {} reported, {submissions:?}", row.attempts);
            tally.violation("submissions are miscounted", detail);
        }
        // A stream that was cancelled costs what was delivered of it.
        let whole = submissions.due.filter(|_| row.finish_reason.is_none());
        let price = whole.map(|due| due.min(row.estimated));
        if price.is_some() && price != row.charged {
            let detail = format!("{mark}: charged {:?}, {submissions:?}", row.charged);
            tally.violation("charged is not the price", detail);
        }
    }
    for mark in rows.keys().filter(|mark| seen.forbidden.contains(**mark)) {
        tally.violation("a hold for a revoked key", (*mark).to_owned());
    }
    for row in rows.values().filter(|row| row.status == "completed") {
        let mark = upstream::mark(&row.prompt).unwrap_or_default();
        if !log.contains_key(mark) {
            tally.violation("paid for what was never submitted", row.uuid.clone());
        }
    }
}
