//! Whatever a server sends, however it is cut: what it has to be taken for, and nothing else.
//!
//! `PROPTEST_CASES` says how many are tried, `PROPTEST_RNG_SEED` tries others.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};

use super::reference;
use crate::response::{Progress, Reader, Wrong};
use crate::work::Check;

/// The same cases on every run, unless the environment asks for others. A failing case becomes a
/// test of its own, not a line in a file.
fn config() -> Config {
    Config {
        cases: 8192,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Config::default()
    }
}

type Result = std::result::Result<Progress, Wrong>;

/// What the reader says of `input` cut at `cuts`, until it says something else than that there is
/// more to come; and how much it had read by then.
fn play(input: &[u8], cuts: &[Index], expected: &[u8], check: Check) -> (Result, usize) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    cuts.push(input.len());
    cuts.sort_unstable();
    let (mut reader, mut at, mut last) = (Reader::default(), 0, Ok(Progress::More));
    for cut in cuts {
        if last == Ok(Progress::More) {
            last = reader.advance(&input[at..cut], expected, check);
            at = cut;
        }
    }
    (last, at)
}

/// A response to a request for `body`, up to the body, and what it has to be taken for.
fn head(body: &[u8]) -> impl Strategy<Value = (String, Result)> + use<> {
    let length = body.len();
    let done = |close| Ok(Progress::Done { close });
    // What stands for `Server: x` in a good head of HTTP/1.1, and what it makes of the response.
    let field = select(vec![
        ("X:".to_owned(), done(false)),
        (format!("Content-Length:\t00{length} "), done(false)),
        ("Connection: keep-alive".to_owned(), done(false)),
        ("CONNECTION: x,Close".to_owned(), done(true)),
        (
            "Transfer-Encoding: identity".to_owned(),
            Err(Wrong::Framing),
        ),
        (
            format!("Content-Length: {}", length + 1),
            Err(Wrong::Framing),
        ),
        (format!("Content-Length: -{length}"), Err(Wrong::Framing)),
        (
            format!("Content-Length: {length}, {length}"),
            Err(Wrong::Framing),
        ),
        (
            "Content-Length: 99999999999999999999".to_owned(),
            Err(Wrong::Framing),
        ),
        ("no colon".to_owned(), Err(Wrong::Framing)),
        ("X: \0".to_owned(), Err(Wrong::Framing)),
        (" folded".to_owned(), Err(Wrong::Framing)),
        ("X: y\r\n".repeat(64) + "X: y", Err(Wrong::Framing)),
        (format!("X: {}", "y".repeat(16_384)), Err(Wrong::Framing)),
    ]);
    let line = select(vec![
        ("HTTP/1.1 200 OK", None),
        ("HTTP/1.1 200", None),
        ("HTTP/1.1 200 \u{e9}\t!", None),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive", None),
        ("HTTP/1.0 200 OK", Some(done(true))),
        ("HTTP/1.1 404 Not Found", Some(Err(Wrong::Status))),
        ("HTTP/1.1 100 Continue", Some(Err(Wrong::Status))),
        ("HTTP/1.1 2000 OK", Some(Err(Wrong::Framing))),
        ("HTTP/2.0 200 OK", Some(Err(Wrong::Framing))),
        ("HTTP/1.1  200 OK", Some(Err(Wrong::Framing))),
        ("SSH-2.0-x", Some(Err(Wrong::Framing))),
    ]);
    (line, field, any::<bool>()).prop_map(move |((line, told), (field, its), first)| {
        let length = format!("Content-Length: {length}");
        let fields = if first {
            [length, field.clone()]
        } else {
            [field.clone(), length]
        };
        let told = match (told, its) {
            (Some(Err(Wrong::Framing)), _) | (_, Err(_)) => Err(Wrong::Framing),
            (Some(Ok(_)), _) if field.ends_with("keep-alive") => done(false),
            (Some(told), _) => told,
            (None, its) => its,
        };
        let head = format!("{line}\r\n{}\r\n\r\n", fields.join("\r\n"));
        (head, told)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_response_is_taken_for_what_it_was_made_as(
        (body, (head, told)) in vec(any::<u8>(), 0..40)
            .prop_flat_map(|body| (Just(body.clone()), head(&body))),
        // A byte changed, some missing, one too many.
        damage in prop_oneof![Just(0), 1..4_u8],
        place in any::<Index>(),
        cuts in vec(any::<Index>(), 0..9),
    ) {
        let mut input = [head.as_bytes(), &body].concat();
        let mut told = told;
        match (damage, told) {
            (1, Ok(_)) if !body.is_empty() => {
                input[head.len() + place.index(body.len())] ^= 1;
                told = Err(Wrong::Body);
            }
            (2, Ok(_)) => {
                input.truncate(place.index(input.len()));
                told = Ok(Progress::More);
            }
            (3, Ok(_)) => {
                input.push(b'!');
                told = Err(Wrong::Framing);
            }
            _ => {}
        }
        let (found, read) = play(&input, &cuts, &body, Check::Bytes);
        if read == input.len() {
            prop_assert_eq!(found, told, "{}", input.escape_ascii());
        } else {
            // Over before its end: it had gone wrong by then, or the rest came after it.
            let over = matches!((found, told), (Ok(Progress::Done { .. }), Err(Wrong::Framing)));
            prop_assert!(over || found == told, "{found:?} {told:?} {}", input.escape_ascii());
        }
    }

    /// What damage makes of a response is not known beforehand: the reference says what it is, of
    /// each part that has arrived.
    #[test]
    fn a_damaged_response_is_taken_for_what_the_reference_says(
        (head, _) in head(b"hello"),
        body in select(&["hello", "hell", "hello!", "", "hallo"][..]),
        edits in vec((any::<Index>(), 0..16_usize, select(&[
            "", "\r\n", "\n", "\r\n\r\n", "\n\n", "\r", "\0", " ", "\t", ":", "5", "HTTP/1.0 ",
            "200", "\u{e9}",
            "Content-Length: 5\r\n", "Connection: close\r\n",
        ][..])), 0..4),
        cuts in vec(any::<Index>(), 0..9),
        check in select(&[Check::None, Check::Length, Check::Bytes][..]),
    ) {
        let mut input = (head + body).into_bytes();
        for (place, remove, word) in edits {
            let at = place.index(input.len() + 1);
            input.splice(at..input.len().min(at + remove), word.bytes());
        }
        let (found, read) = play(&input, &cuts, b"hello", check);
        let told = reference::read(&input[..read], b"hello", check);
        prop_assert_eq!(found, told, "{}", input.escape_ascii());
    }
}
