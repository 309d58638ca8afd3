use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
};

use super::*;

/// A numbered test item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    key: char,
    kind: u8,
    number: usize,
}

/// The number of an item whose caller is gone.
const ABANDONED: usize = 999;

/// A running statement or lane. Sending locked keys to `end` ends it.
struct Begun {
    lane: bool,
    numbers: Vec<usize>,
    end: oneshot::Sender<&'static str>,
}

struct Recorder(mpsc::UnboundedSender<Begun>);

impl Item for Note {
    type Key = char;

    fn key(&self) -> char {
        self.key
    }

    fn kind(&self) -> u8 {
        self.kind
    }

    fn is_abandoned(&self) -> bool {
        self.number == ABANDONED
    }

    fn bytes(&self) -> usize {
        // Only one large item fits into a statement.
        if self.number >= 1_000 { MOST_BYTES } else { 1 }
    }
}

impl Recorder {
    async fn record(&self, lane: bool, items: &[Note]) -> &'static str {
        let numbers = items.iter().map(|item| item.number).collect();
        let (end, ended) = oneshot::channel();
        let _ = self.0.send(Begun { lane, numbers, end });
        ended.await.unwrap_or_default()
    }
}

impl Writer for Recorder {
    type Item = Note;

    async fn together(&self, items: Vec<Note>) -> Vec<Note> {
        let locked = self.record(false, &items).await;
        items
            .into_iter()
            .filter(|item| locked.contains(item.key))
            .collect()
    }

    async fn in_lane(&self, items: Vec<Note>) {
        assert_ne!(self.record(true, &items).await, "panic");
    }
}

struct Stage {
    groups: Groups<Recorder>,
    begun: mpsc::UnboundedReceiver<Begun>,
}

impl Stage {
    /// Allows one statement and one lane at once.
    fn new() -> Self {
        Self::within(1, Duration::MAX)
    }

    fn within(statements: usize, hurry: Duration) -> Self {
        let (sender, begun) = mpsc::unbounded_channel();
        let bounds = Bounds {
            statements,
            lanes: 1,
            hurry,
        };
        let groups = Groups::within(Recorder(sender), bounds);
        Self { groups, begun }
    }

    /// Submits items: lower-case keys for holds, upper-case keys for the other kind.
    fn submit(&self, numbers: &[(char, usize)]) {
        for &(letter, number) in numbers {
            self.groups.submit(Note {
                key: letter.to_ascii_lowercase(),
                kind: u8::from(letter.is_ascii_uppercase()),
                number,
            });
        }
    }

    async fn next(&mut self) -> Begun {
        self.begun.recv().await.unwrap()
    }

    /// Waits for the next statement or lane and ends it at once.
    async fn ends(&mut self) -> (bool, Vec<usize>) {
        let Begun { lane, numbers, end } = self.next().await;
        let _ = end.send("");
        (lane, numbers)
    }

    /// Asserts that nothing else begins.
    async fn nothing(&mut self) {
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(self.begun.try_recv().is_err());
    }
}

#[tokio::test]
async fn what_arrives_under_way_goes_with_the_next() {
    let mut stage = Stage::within(4, Duration::MAX);
    stage.submit(&[('a', 0), ('x', 1)]);
    let first = stage.next().await;
    assert_eq!(first.numbers, [0, 1]);
    stage.submit(&[('b', 2), ('b', ABANDONED), ('c', 3), ('a', 4)]);
    stage.nothing().await;
    first.end.send("").unwrap();
    assert_eq!(stage.ends().await, (false, vec![2, 3, 4]));
    stage.nothing().await;
}

#[tokio::test]
async fn the_next_does_not_wait_for_a_statement_of_one_key() {
    let mut stage = Stage::within(3, Duration::MAX);
    stage.submit(&[('a', 1), ('a', 2)]);
    let of_one = stage.next().await;
    assert_eq!(of_one.numbers, [1, 2]);
    // The statement for the other kind does not wait either, but only two run at once.
    stage.submit(&[('a', 3), ('b', 4), ('C', 5)]);
    let second = stage.next().await;
    assert_eq!(second.numbers, [4]);
    stage.nothing().await;
    second.end.send("").unwrap();
    let third = stage.next().await;
    assert_eq!(third.numbers, [5]);
    stage.submit(&[('d', 6), ('e', 7)]);
    stage.nothing().await;
    third.end.send("").unwrap();
    let shared = stage.next().await;
    assert_eq!(shared.numbers, [6, 7]);
    // All others wait for a shared statement.
    stage.submit(&[('f', 8)]);
    of_one.end.send("").unwrap();
    stage.nothing().await;
    shared.end.send("").unwrap();
    assert_eq!(stage.ends().await, (false, vec![3, 8]));
}

#[tokio::test]
async fn once_a_statement_is_slow_others_do_not_wait_for_it_but_its_keys_do() {
    let mut stage = Stage::within(2, Duration::ZERO);
    stage.submit(&[('a', 1), ('x', 0)]);
    let slow = stage.next().await;
    stage.submit(&[('a', 2), ('b', 3)]);
    let second = stage.next().await;
    assert_eq!(second.numbers, [3]);
    stage.submit(&[('c', 4)]);
    stage.nothing().await;
    second.end.send("").unwrap();
    assert_eq!(stage.ends().await, (false, vec![4]));
    slow.end.send("").unwrap();
    assert_eq!(stage.ends().await, (false, vec![2]));
}

/// With busy threads the statement may start late, and repeated checks would keep them busy.
#[tokio::test]
async fn no_check_while_a_statement_is_about_to_start() {
    let mut stage = Stage::within(2, Duration::ZERO);
    stage.submit(&[('a', 1)]);
    assert!(!lock(&stage.groups.0.state).watched);
    assert_eq!(stage.ends().await, (false, vec![1]));
}

#[tokio::test]
async fn a_statement_has_one_kind_and_its_bounds() {
    let mut stage = Stage::new();
    stage.submit(&[('z', 0)]);
    let first = stage.next().await;
    let of_one: Vec<_> = (1..=MOST_OF_KEY + 1).map(|n| ('a', n)).collect();
    stage.submit(&of_one);
    stage.submit(&[('A', 100), ('b', 101), ('B', 102)]);
    let more: Vec<_> = (200..200 + MOST).map(|n| ('c', n)).collect();
    stage.submit(&more);
    stage.submit(&[('d', 1_000), ('d', 1_001)]);
    first.end.send("").unwrap();
    // First one item of each key, then more up to the limit per key, then up to the statement's
    // limit.
    let (_, numbers) = stage.ends().await;
    assert_eq!(numbers.len(), MOST);
    assert_eq!(numbers[..4], [1, 101, 200, 2]);
    assert_eq!(numbers[MOST_OF_KEY + 2], 201);
    // The last item of a, and the rest of c.
    let (_, numbers) = stage.ends().await;
    assert_eq!(
        numbers[..2],
        [MOST_OF_KEY + 1, 200 + MOST - MOST_OF_KEY - 1]
    );
    assert_eq!(numbers.len(), 1 + MOST_OF_KEY);
    assert_eq!(stage.ends().await, (false, vec![100, 102]));
    assert_eq!(stage.ends().await, (false, vec![200 + MOST - 1]));
    assert_eq!(stage.ends().await, (false, vec![1_000]));
    assert_eq!(stage.ends().await, (false, vec![1_001]));
    stage.nothing().await;
}

#[tokio::test]
async fn a_statement_is_filled_by_one_key_where_nobody_shares_it() {
    let mut stage = Stage::new();
    stage.submit(&[('z', 0)]);
    let first = stage.next().await;
    let of_one: Vec<_> = (1..=MOST + 1).map(|n| ('a', n)).collect();
    stage.submit(&of_one);
    stage.submit(&[('B', 100)]);
    first.end.send("").unwrap();
    assert_eq!(stage.ends().await, (false, (1..=MOST).collect()));
    assert_eq!(stage.ends().await, (false, vec![100]));
    assert_eq!(stage.ends().await, (false, vec![MOST + 1]));
    stage.nothing().await;
}

#[tokio::test]
async fn no_kind_is_passed_over_twice() {
    let mut stage = Stage::new();
    stage.submit(&[('Z', 0)]);
    let first = stage.next().await;
    let plenty: Vec<_> = (1..=4 * MOST).map(|n| (['A', 'B'][n % 2], n)).collect();
    stage.submit(&plenty);
    stage.submit(&[('c', 998)]);
    first.end.send("").unwrap();
    assert_eq!(stage.ends().await.1.len(), MOST);
    assert_eq!(stage.ends().await, (false, vec![998]));
    for _ in 1..4 {
        assert_eq!(stage.ends().await.1.len(), MOST);
    }
    stage.nothing().await;
}

#[tokio::test]
async fn what_is_locked_takes_all_of_its_key_to_a_lane_and_nobody_else() {
    let mut stage = Stage::new();
    stage.submit(&[('x', 0)]);
    let first = stage.next().await;
    stage.submit(&[('a', 1), ('b', 2), ('c', 3)]);
    first.end.send("").unwrap();
    let shared = stage.next().await;
    assert_eq!(shared.numbers, [1, 2, 3]);
    stage.submit(&[('A', 4), ('b', 5), ('d', 6)]);
    shared.end.send("a").unwrap();
    let lane = stage.next().await;
    assert_eq!((lane.lane, lane.numbers), (true, vec![1, 4]));
    // Other keys continue; new items of the locked key wait for the lane.
    assert_eq!(stage.ends().await, (false, vec![5, 6]));
    stage.submit(&[('a', 7), ('b', 8)]);
    assert_eq!(stage.ends().await, (false, vec![8]));
    stage.groups.submit_to_lane(Note {
        key: 'e',
        kind: 0,
        number: 9,
    });
    stage.submit(&[('e', ABANDONED), ('e', 10), ('e', 1_000), ('e', 1_001)]);
    stage.nothing().await;
    lane.end.send("").unwrap();
    assert_eq!(stage.ends().await, (true, vec![9, 10]));
    // Items that exceed the lane's limit are written later.
    assert_eq!(stage.ends().await, (false, vec![7]));
    assert_eq!(stage.ends().await, (false, vec![1_000]));
    assert_eq!(stage.ends().await, (false, vec![1_001]));
    stage.nothing().await;
}

#[tokio::test]
async fn a_panic_frees_its_place_and_its_key() {
    let mut stage = Stage::new();
    stage.groups.submit_to_lane(Note {
        key: 'a',
        kind: 0,
        number: 1,
    });
    let lane = stage.next().await;
    stage.groups.submit_to_lane(Note {
        key: 'a',
        kind: 0,
        number: 2,
    });
    lane.end.send("panic").unwrap();
    assert_eq!(stage.ends().await, (true, vec![2]));
}
