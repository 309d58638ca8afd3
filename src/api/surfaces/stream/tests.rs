//! The order of events, with any interleaving.

use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::sync::oneshot;

use super::*;
use crate::domain::{
    conversation::{Part, Stop, Visibility},
    usage::{TextUsage, TokenCounts},
};
use crate::providers::DeltaSink;

/// Writes a letter for each event.
struct Letters;

impl Writer for Letters {
    fn whole(&self, answer: &Answer) -> String {
        answer.text()
    }

    fn begin(&mut self) -> String {
        "(".to_owned()
    }

    fn piece(&mut self, delta: &Delta) -> String {
        match delta {
            Delta::Text(text) => text.clone(),
            other => format!("{other:?}"),
        }
    }

    fn keep_alive(&mut self) -> String {
        ".".to_owned()
    }

    fn end(&mut self, _: &Answer) -> String {
        ")".to_owned()
    }

    fn failed(&mut self, error: &str, _: Option<&TextUsage>) -> String {
        format!("!{error}")
    }
}

fn letters() -> WriterEvents<Letters> {
    WriterEvents {
        writer: Letters,
        sdk: Sdk::OpenAi,
        request: RequestId("req_1".to_owned()),
    }
}

fn answer() -> Answer {
    Answer {
        parts: vec![Part::text("ab")],
        stop: Stop::Done,
        usage: TextUsage::from_counts(TokenCounts::default(), 1, 1),
        own: serde_json::Map::new(),
    }
}

fn text(text: &str) -> Delta {
    Delta::Text(text.to_owned())
}

const LONG: Duration = Duration::from_hours(1);

#[tokio::test]
async fn pieces_come_before_the_end_whichever_is_seen_first() {
    for ended in [Ok(answer()), Err(ApiError::cancelled())] {
        let is_complete = ended.is_ok();
        let (sender, pieces) = DeltaSink::channel(Visibility::TEXT);
        sender.push(text("b"));
        sender.push(text("c"));
        let end = async move { ended };
        let events = events(letters(), Some(text("a")), pieces, end, LONG);
        let all: Vec<String> = events.try_collect().await.unwrap();
        let last = all.concat();
        let last = last.strip_prefix("(abc").unwrap();
        assert_eq!(last == ")", is_complete, "{last}");
        assert_eq!(last.starts_with("!{"), !is_complete, "{last}");
    }
}

#[tokio::test]
async fn silence_is_filled_and_disturbs_nothing() {
    let (sender, pieces) = DeltaSink::channel(Visibility::TEXT);
    let (ending, ended) = oneshot::channel();
    let end = async move { Ok(ended.await.unwrap()) };
    let short = Duration::from_millis(1);
    let events = events(letters(), None, pieces, end, short).map(Result::unwrap);
    let mut events = Box::pin(events);
    assert_eq!(events.next().await.unwrap(), "(");
    assert_eq!(events.next().await.unwrap(), ".");
    sender.push(text("a"));
    assert_eq!(events.next().await.unwrap(), "a");
    assert_eq!(events.next().await.unwrap(), ".");
    // The channel may close before the end is known.
    drop(sender);
    assert_eq!(events.next().await.unwrap(), ".");
    assert!(ending.send(answer()).is_ok());
    assert_eq!(events.next().await.unwrap(), ")");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn what_is_told_only_at_its_end_shows_signs_of_life_until_then() {
    let request = || RequestId("req_1".to_owned());
    let (sender, pieces) = DeltaSink::channel(Visibility::TEXT);
    let (ending, ended) = oneshot::channel();
    let end = async move {
        ended.await.unwrap();
        sender.push(text("ab"));
        Ok(answer())
    };
    let short = Duration::from_millis(1);
    let events = live(Sdk::OpenAi, request(), end, pieces, Letters, short);
    let (events, has_begun) = events.await.unwrap();
    assert!(!has_begun);
    let mut events = Box::pin(events.map(Result::unwrap));
    assert_eq!(events.next().await.unwrap(), "(");
    assert_eq!(events.next().await.unwrap(), ".");
    assert!(ending.send(()).is_ok());
    let rest: String = events.collect().await;
    assert_eq!(rest.trim_start_matches('.'), "ab)");
    // A failure before that has its own status.
    let (_sender, pieces) = DeltaSink::channel(Visibility::TEXT);
    let end = async { Err(ApiError::cancelled()) };
    let events = live(Sdk::OpenAi, request(), end, pieces, Letters, LONG);
    assert!(events.await.is_err());
}
