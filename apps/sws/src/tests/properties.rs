//! Whatever bytes come, however they are cut: the answers they have to get, and nothing else.
//!
//! `PROPTEST_CASES` says how many are tried, `PROPTEST_RNG_SEED` tries others.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};

use super::driver::{Driver, End, site};
use super::generate::{Made, Told, bad, damaged, good};
use super::reference;
use crate::path;
use crate::site::{Entry, Site};
use crate::status::Status;

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

/// What is sent in answer to `input` cut at `cuts`, and whether the client knows that it is all.
fn play(site: &Site, input: &[u8], cuts: &[Index]) -> (Vec<u8>, bool) {
    let mut driver = Driver::new(site);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    cuts.push(input.len());
    cuts.sort_unstable();
    let mut at = 0;
    for cut in cuts {
        driver.bytes(&input[at..cut]);
        at = cut;
    }
    let (over, sent_bytes) = (driver.is_over(), driver.sent.len());
    driver.eof();
    assert_eq!(driver.end, End::Closed, "a connection outlives its client");
    assert_eq!(
        driver.sent.len(),
        sent_bytes,
        "the end of input is no request"
    );
    (driver.sent, over)
}

/// The answer that `made` was made for.
fn answer_to(site: &Site, made: &Made) -> Vec<u8> {
    let (close, head_only) = (made.close, made.head_only);
    let key = match made.told {
        Told::Refused(status) => return reference::refusal(status, close, head_only),
        Told::Key("/_mely") => {
            return reference::live("text/html; charset=utf-8", close, head_only);
        }
        Told::Key("/_mely/values") => {
            return reference::live("application/json", close, head_only);
        }
        Told::Key(key) => key,
    };
    match site.get(key.as_bytes()) {
        None => reference::refusal(Status::NotFound, close, head_only),
        Some(Entry::Redirect(location)) => {
            let target = made.bytes.split(|&b| b == b' ').nth(1).unwrap();
            let path_bytes = target.iter().position(|&b| b == b'?');
            let query = &target[path_bytes.unwrap_or(target.len())..];
            reference::redirect(location, query, close, head_only)
        }
        Some(Entry::File(file)) => reference::wire(Status::Ok, close, file.ok(head_only)),
    }
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop_oneof![
        1 => Just(Vec::new()),
        3 => vec(any::<Index>(), 1..5),
        1 => vec(any::<Index>(), 100..200),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// Good requests are answered in turn; a bad one ends it; half a request gets nothing.
    #[test]
    fn every_request_gets_the_answer_it_was_made_for(
        made in vec(good(), 0..5),
        bad in proptest::option::of(bad()),
        after in vec(any::<u8>(), 0..20),
        end in any::<Index>(),
        truncated in any::<bool>(),
        cuts in cuts(),
    ) {
        let site = site();
        let mut input: Vec<u8> = made.iter().flat_map(|made| made.bytes.clone()).collect();
        if let Some(bad) = &bad {
            input.extend_from_slice(&bad.bytes);
            input.extend_from_slice(&after);
        }
        if truncated {
            input.truncate(end.index(input.len() + 1));
        }
        let (mut expected, mut over, mut at) = (Vec::new(), false, 0);
        let whole = |made: &&Made, at: &mut usize| {
            let whole = *at + made.head_bytes <= input.len();
            *at += made.bytes.len();
            whole
        };
        let ends = made.iter().position(|made| made.close);
        let turns = &made[..ends.map_or(made.len(), |last| last + 1)];
        let bad = bad.filter(|_| ends.is_none());
        for made in turns.iter().chain(&bad).take_while(|made| whole(made, &mut at)) {
            expected.extend(answer_to(&site, made));
            over = made.close;
        }
        let (sent, was_over) = play(&site, &input, &cuts);
        // Half of a bad request may be bad enough.
        if let (Some(bad), true, false) = (&bad, was_over, over) {
            expected.extend(answer_to(&site, bad));
            over = true;
        }
        prop_assert_eq!(
            (sent.escape_ascii().to_string(), was_over),
            (expected.escape_ascii().to_string(), over),
            "{}", input.escape_ascii()
        );
    }

    /// What damage makes of a request is not known beforehand: the reference says what it is.
    #[test]
    fn damaged_requests_get_what_the_reference_says(input in damaged(), cuts in cuts()) {
        let site = site();
        let (sent, over) = play(&site, &input, &cuts);
        let (expected, expected_over) = reference::conversation(&site, &input);
        prop_assert_eq!(
            (sent.escape_ascii().to_string(), over),
            (expected.escape_ascii().to_string(), expected_over),
            "{}", input.escape_ascii()
        );
    }

    #[test]
    fn a_target_has_the_key_that_the_reference_says(
        start in select(&["/", "/", "/", "", "http://", "http://h", "hTTps://h/"][..]),
        parts in vec(select(&[
            "/", "//", "..", ".", "%2e", "%2E", "%2f", "%5c", "\\", "a", "%61", "%", "%0", "%00",
            "?", "#", "%25",
            "http://h", "\u{e9}", "%c3", ":", "@", "[", "]", "[::1]", "[v1.a]", "8", ",",
        ][..]), 0..10),
    ) {
        let target = [start, &parts.concat()].concat();
        let key = path::key_of(target.as_bytes()).map(|key| key.of(target.as_bytes()).to_vec());
        prop_assert_eq!(&key, &reference::key_of(target.as_bytes()));
        if let Ok(key) = key {
            prop_assert!(!key.split(|&b| b == b'/').any(|name| matches!(name, b"." | b"..")));
        }
    }
}
