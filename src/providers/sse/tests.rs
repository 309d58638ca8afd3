//! Event framing in every form that upstreams send, and the limits.

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
};

use super::*;

const IDLE: Duration = Duration::from_secs(5);

/// Reads the events of a body that arrives in these pieces.
async fn read(
    pieces: &[&[u8]],
    cap: usize,
) -> Result<Vec<(Option<String>, String)>, ProviderError> {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|p| Ok(Bytes::copy_from_slice(p)))
        .collect();
    let mut events = Events::new(stream::iter(pieces), IDLE, cap, EVENT_CAP);
    let mut all = Vec::new();
    while let Some(event) = events.next().await? {
        all.push((event.name, event.data));
    }
    Ok(all)
}

#[tokio::test]
async fn framing() {
    let named = |name: &str, data: &str| (Some(name.to_owned()), data.to_owned());
    let data = |data: &str| (None, data.to_owned());
    for (body, want) in [
        ("data: a\n\ndata: b\n\n", vec![data("a"), data("b")]),
        ("data: a\r\n\r\ndata: b\r\n\r\n", vec![data("a"), data("b")]),
        ("data: a\r\rdata: b\r\r", vec![data("a"), data("b")]),
        (
            "event: x\ndata: {\"a\":\ndata: 1}\n\n",
            vec![named("x", "{\"a\":\n1}")],
        ),
        ("data:no space\n\n", vec![data("no space")]),
        (
            ": OPENROUTER PROCESSING\n\n:\ndata: a\n: in between\n\n",
            vec![data("a")],
        ),
        ("id: 7\nretry: 10\n\ndata: a\n\n", vec![data("a")]),
        ("event: ping\n\ndata:\n\ndata: a\n\n", vec![data("a")]),
        ("unknown: x\ndata: a\n\n", vec![data("a")]),
        ("\u{feff}data: a\n\n", vec![data("a")]),
        (
            "data: \u{2713}\u{1f40b} ü\n\n",
            vec![data("\u{2713}\u{1f40b} ü")],
        ),
        ("data: [DONE]\n\n", vec![data("[DONE]")]),
        // The end of the body ends the last event.
        ("data: a\n\ndata: last\n", vec![data("a"), data("last")]),
        ("data: a\n\ndata: last", vec![data("a"), data("last")]),
        (
            "data: a\r\n\r\ndata: last\r\n",
            vec![data("a"), data("last")],
        ),
        ("event: end\r\ndata: last\r", vec![named("end", "last")]),
        ("", vec![]),
        ("<html>502</html>", vec![]),
    ] {
        let bytes = body.as_bytes();
        assert_eq!(read(&[bytes], 1000).await.unwrap(), want, "{body:?}");
        // One byte at a time: every character and line end is split once.
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(
            read(&single, 1000).await.unwrap(),
            want,
            "{body:?} bytewise"
        );
        let three: Vec<&[u8]> = bytes.chunks(3).collect();
        assert_eq!(read(&three, 1000).await.unwrap(), want, "{body:?} by three");
    }
}

#[tokio::test]
async fn bad_bytes_and_the_cap() {
    for (pieces, cap, detail) in [
        (
            &[b"data: \xff\xfe\n\n".as_slice()][..],
            1000,
            "stream is not UTF-8",
        ),
        (
            &[b"data: aaaa\n\n", b"data: bbbb\n\n"],
            20,
            "stream over the cap",
        ),
        (
            &[b": a comment without an end", b" and more"],
            30,
            "stream over the cap",
        ),
    ] {
        let error = read(pieces, cap).await.unwrap_err();
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (ProviderErrorKind::Failed, detail)
        );
    }
}

#[tokio::test]
async fn an_error_of_the_body_keeps_its_kind_and_completes_no_event() {
    let timed_out = ProviderError::new(ProviderErrorKind::Timeout, "x");
    let pieces = vec![
        Ok(Bytes::from_static(b"data: a\n\ndata: half")),
        Err(timed_out),
    ];
    let mut events = Events::new(stream::iter(pieces), IDLE, 1000, EVENT_CAP);
    assert_eq!(events.next().await.unwrap().unwrap().data, "a");
    assert_eq!(
        events.next().await.unwrap_err().kind,
        ProviderErrorKind::Timeout
    );
    assert_eq!(events.next().await.unwrap(), None);
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let first = stream::iter([Ok(Bytes::from_static(b"data: a\n\n"))]);
    let bytes = first.chain(stream::pending());
    let mut events = Events::new(bytes, Duration::from_millis(20), 1000, EVENT_CAP);
    assert_eq!(events.next().await.unwrap().unwrap().data, "a");
    assert_eq!(
        events.next().await.unwrap_err().kind,
        ProviderErrorKind::Timeout
    );
}

proptest! {
    /// The result does not depend on where the network splits a body.
    #[test]
    fn pieces_of_any_size_are_the_same_events(
        parts in vec(select(vec![
            "data: a", "data:", "data", ": note", "event: x", "id: 1", "retry: 9999999999999999999999",
            "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\u{feff}", "é", "\0", "[DONE]", "{\"a\":1}",
        ]), 0..24),
        noise in option::weighted(0.2, vec(any::<u8>(), 0..6)),
        at in vec(any::<Index>(), 0..4),
    ) {
        let mut body = parts.concat().into_bytes();
        body.extend(noise.unwrap_or_default());
        let mut ends: Vec<usize> = at.iter().map(|at| at.index(body.len() + 1)).collect();
        ends.extend([0, body.len()]);
        ends.sort_unstable();
        let pieces: Vec<&[u8]> = ends.windows(2).map(|w| &body[w[0]..w[1]]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (whole, cut) = runtime.block_on(async {
            (read(&[&body], 10_000).await, read(&pieces, 10_000).await)
        });
        match (whole, cut) {
            (Ok(whole), Ok(cut)) => prop_assert_eq!(whole, cut),
            (whole, cut) => prop_assert!(whole.is_err() && cut.is_err(), "{body:?}"),
        }
    }
}

#[test]
fn the_length_of_events_is_counted_across_chunks() {
    for end in ["\n", "\r\n", "\r"] {
        let event = format!("event: x{end}data: {}{end}{end}", "a".repeat(100));
        let body = event.repeat(5);
        for size in [1, 2, 7, 64, 1_000] {
            let mut length = EventLength::default();
            let largest = body
                .as_bytes()
                .chunks(size)
                .map(|chunk| length.add(chunk))
                .max();
            // A line feed may be counted with the next event.
            let largest = largest.unwrap();
            assert!(
                (event.len()..event.len() + 2).contains(&largest),
                "{end:?} {size} {largest}"
            );
        }
    }
    let mut length = EventLength::default();
    let lines = "data: a\n".repeat(1_000);
    assert_eq!(length.add(lines.as_bytes()), lines.len());
}
