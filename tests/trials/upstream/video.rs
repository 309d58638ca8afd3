//! The tasks of Runway.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{TOO_LONG, files::Files, mood::Mood};
use crate::wire::Reply;

/// All tasks.
#[derive(Default)]
pub struct Tasks(Mutex<HashMap<String, Task>>);

struct Task {
    seconds: i64,
    done_at: Instant,
    mood: Mood,
    cancelled: bool,
    rng: fastrand::Rng,
}

/// A response, and its fault.
type Look = (Reply, Option<&'static str>);

impl Tasks {
    /// Creates one and returns its id.
    pub fn begin(&self, mark: &str, seconds: i64, mood: Mood, mut rng: fastrand::Rng) -> String {
        let mut tasks = self.0.lock().unwrap();
        // A second one for the same mark must not be mistaken for the first.
        let id = format!("task-{mark}-{}", tasks.len());
        let task = Task {
            seconds,
            done_at: Instant::now() + Duration::from_millis(rng.u64(100..2_500)),
            mood,
            cancelled: false,
            rng,
        };
        tasks.insert(id.clone(), task);
        id
    }

    pub fn cancel(&self, id: &str) {
        if let Some(task) = self.0.lock().unwrap().get_mut(id) {
            task.cancelled = true;
        }
    }

    /// The state of a task.
    pub fn look(&self, id: &str, calm: bool, address: &str) -> Look {
        let mut tasks = self.0.lock().unwrap();
        let Some(task) = tasks.get_mut(id).filter(|task| task.mood != Mood::Vanished) else {
            return (Reply::json(404, &json!({"error": "no such task"})), None);
        };
        let running = Reply::json(
            200,
            &json!({"id": id, "status": "RUNNING", "progress": 0.5}),
        );
        let draw = if calm { 99 } else { task.rng.u32(0..100) };
        let wait = Duration::from_millis(if calm { 10 } else { task.rng.u64(5..800) });
        match draw {
            0..3 => {
                return (
                    Reply::json(500, &json!({"error": "no"})),
                    Some("upstream: look fails"),
                );
            }
            3..5 => return (Reply::reset(), Some("upstream: look fails")),
            5..7 => return (running.after(TOO_LONG), Some("upstream: look fails")),
            7..9 => {
                return (
                    Reply::whole(200, &[], b"{\"status\":"),
                    Some("upstream: look fails"),
                );
            }
            _ => {}
        }
        let status = match task.mood {
            _ if task.cancelled => json!({"id": id, "status": "CANCELLED"}),
            Mood::Stuck => return (running.after(wait), None),
            _ if Instant::now() < task.done_at => return (running.after(wait), None),
            Mood::Failing => json!({"id": id, "status": "FAILED", "failureCode": "INTERNAL.BAD"}),
            _ => {
                json!({"id": id, "status": "SUCCEEDED", "output": [format!("{address}/files/{id}")]})
            }
        };
        (Reply::json(200, &status).after(wait), None)
    }

    /// The file of a task.
    pub fn file(&self, id: &str, calm: bool, files: &Files) -> Look {
        let mut tasks = self.0.lock().unwrap();
        let Some(task) = tasks.get_mut(id) else {
            return (Reply::json(404, &json!({})), None);
        };
        let film = &files.mp4[usize::try_from(task.seconds - 2).unwrap_or(0).min(2)];
        let bytes = match task.mood {
            Mood::WrongFile => &b"<html>no film</html>"[..],
            Mood::CutFile => &film[..film.len() / 2],
            _ => film,
        };
        let reply = Reply::whole(200, &[("content-type", "video/mp4")], bytes);
        let wait = Duration::from_millis(if calm { 10 } else { task.rng.u64(5..1_500) });
        if !calm && task.rng.u32(0..100) < 8 {
            return (reply.cut().after(wait), Some("upstream: download cut off"));
        }
        (reply.after(wait), None)
    }
}
