//! What must come of a stream, by the rules of the documentation.

use std::ops::Range;

use super::{
    Case,
    wire::{Ask, BY_ITSELF, Event, PROMPT, Vendor},
};

/// How the bytes of a stream end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the vendor's last event, if it has one.
    Whole,
    /// Without it.
    Clean,
    /// With the connection.
    Cut,
}

/// How a generation ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With one of these codes.
    Failed(&'static [&'static str]),
    Completed {
        reason: Option<&'static str>,
        input: i64,
        output: i64,
    },
}

const CANCELLED: Option<&str> = Some("cancelled");
const BROKEN: Ended = Ended::Failed(&["provider_error"]);

/// What is known after some of the events.
#[derive(Debug, Clone)]
pub struct Expected {
    ask: Ask,
    is_delivered: bool,
    has_content: bool,
    /// Bytes of all pieces, and of those that were delivered.
    bytes: usize,
    delivered: usize,
    /// Bytes that were delivered since the last counts.
    uncounted: usize,
    counted: Option<i64>,
    has_input: bool,
    reason: Option<&'static str>,
    early: Option<&'static str>,
    pub ended: Option<Ended>,
}

impl Expected {
    pub fn new(ask: &Ask) -> Self {
        Self {
            ask: ask.clone(),
            is_delivered: false,
            has_content: false,
            bytes: 0,
            delivered: 0,
            uncounted: 0,
            counted: None,
            has_input: ask.vendor == Vendor::Anthropic,
            reason: None,
            early: None,
            ended: None,
        }
    }

    pub fn is_visible(&self, event: &Event) -> bool {
        self.ask.shows(event)
    }

    /// `at`: the place of the event.
    pub fn read(&mut self, at: usize, event: &Event) {
        match event {
            Event::Usage(more) => {
                self.has_input = true;
                self.counted = Some(self.counted.unwrap_or(0) + i64::from(*more));
                self.uncounted = 0;
            }
            Event::Error => self.ended = Some(BROKEN),
            Event::Reason(n) => match self.ask.reason(*n) {
                None => self.ended = Some(BROKEN),
                Some(early @ ("content_filter" | "malformed_function_call")) => {
                    if self.is_delivered {
                        self.early.get_or_insert(early);
                        self.reason = Some(early);
                    } else {
                        self.ended = Some(Ended::Failed(if early == "content_filter" {
                            &["content_policy"]
                        } else {
                            &["provider_error"]
                        }));
                    }
                }
                reason => self.reason = reason,
            },
            piece => self.add(at, piece),
        }
    }

    fn add(&mut self, at: usize, piece: &Event) {
        // A call has a name and arguments, too.
        let more = if matches!(piece, Event::Call(_)) {
            "f{}"
        } else {
            ""
        };
        let marker = piece.marker(at).len() + more.len();
        self.has_content |= matches!(piece, Event::Text(_) | Event::Call(_));
        self.bytes += marker;
        if self.is_visible(piece) {
            self.is_delivered = true;
            self.delivered += marker;
            self.uncounted += marker;
        }
    }

    fn completed(&self, reason: Option<&'static str>, bytes: usize, uncounted: usize) -> Ended {
        let estimate = |bytes: usize| i64::try_from(bytes.div_ceil(4)).unwrap();
        Ended::Completed {
            reason,
            input: if self.has_input {
                100
            } else {
                estimate(PROMPT.len())
            },
            output: match self.counted {
                Some(counted) => counted + estimate(uncounted),
                None => estimate(bytes),
            },
        }
    }

    fn whole(mut self, end: End) -> Self {
        let is_whole = match end {
            End::Whole => true,
            End::Clean => self.ask.ends_anyhow(),
            End::Cut => false,
        };
        // Fewer tokens are those of an answer of nothing.
        let thought = if self.bytes > 0 { 1 } else { 4 };
        let is_billed = self
            .counted
            .is_some_and(|n| n >= thought || self.early.or(self.reason) == Some("length"));
        let is_empty = !self.has_content && !is_billed && !self.is_delivered;
        self.ended = Some(match self.reason {
            Some(reason) if is_whole && !is_empty => {
                let reason = self.early.unwrap_or(reason);
                let shown = (reason != BY_ITSELF).then_some(reason);
                self.completed(shown, self.bytes, 0)
            }
            _ => BROKEN,
        });
        self
    }

    /// The ends that are right. `self`: after the events before the cancel; `states`: what may have
    /// been read of them when it came.
    pub fn ends(
        &self,
        case: &Case,
        states: &[Self],
        is_cancelled: bool,
        before: usize,
    ) -> Vec<Ended> {
        if is_cancelled && !self.is_delivered {
            return vec![Ended::Failed(&["cancelled"])];
        }
        if is_cancelled && !self.ask.hides {
            let cut = states.iter();
            return cut
                .map(|s| s.completed(CANCELLED, s.delivered, s.uncounted))
                .collect();
        }
        // A cut connection may take the events before it along.
        let all = case.events.len();
        let least = if case.end == End::Cut { before } else { all };
        let upto = least..=all;
        upto.map(|upto| self.end_after(case, before..upto, is_cancelled))
            .collect()
    }

    /// The end where these of the events are read, without a delivery after a cancel.
    fn end_after(&self, case: &Case, read: Range<usize>, is_cancelled: bool) -> Ended {
        let mut last = self.clone();
        for at in read {
            if last.ended.is_some() {
                break;
            }
            if is_cancelled {
                last.read_on(at, &case.events[at]);
            } else {
                last.read(at, &case.events[at]);
            }
        }
        if last.ended.is_none() {
            last = last.whole(case.end);
        }
        let end = last.ended.clone().unwrap();
        if !is_cancelled {
            return end;
        }
        let uncounted = match end {
            Ended::Completed { .. } => 0,
            Ended::Failed(_) => last.uncounted,
        };
        last.completed(CANCELLED, self.delivered, uncounted)
    }

    /// After a cancel nothing more is delivered.
    fn read_on(&mut self, at: usize, event: &Event) {
        let (delivered, uncounted) = (self.delivered, self.uncounted);
        self.read(at, event);
        self.delivered = delivered;
        if !matches!(event, Event::Usage(_)) {
            self.uncounted = uncounted;
        }
    }
}
