//! Short runs of the bench `response`: each peer gives the right answers, in order. No times are
//! judged.

use mely_bench::machine;
use mely_bench::response::load::{ROWS, Row, Service};
use mely_bench::response::wire::First;
use mely_bench::response::{Bench, late, peers, pipeline, posts, table};
use std::process::{Command, Output};
use std::time::Duration;

const RESPOND: &str = env!("CARGO_BIN_EXE_respond");
const REQUESTS: usize = 200;

fn bench() -> Bench {
    Bench {
        respond: RESPOND.into(),
        cores: machine::cores().min(2),
    }
}

/// A run that lost or reordered an answer is an error.
fn run(row: Row, peer: &str) {
    let outcome = table::run(&bench(), &row, peer, REQUESTS, 1);
    let outcome = outcome.unwrap_or_else(|error| panic!("{row}, {peer}: {error}"));
    assert!(outcome.responses.mean > 0.0, "{peer}: {outcome:?}");
    // The server has computed, and no other process.
    assert!(outcome.cpu_ns > 0.0, "{peer}: {outcome:?}");
}

const fn row(posts: bool, skew: bool) -> Row {
    Row {
        service: Service::Bimodal,
        mean_us: 50.0,
        load: 0.5,
        sources: 8,
        skew,
        posts,
    }
}

#[test]
fn every_server_answers_all_requests_in_order() {
    for peer in peers::PEERS {
        run(row(false, true), peer.name);
    }
}

#[test]
fn every_scheduler_runs_all_posts_in_order() {
    for peer in posts::PEERS {
        run(row(true, false), peer);
    }
}

#[test]
fn every_server_answers_whatever_its_handler_does_first() {
    let few = late::Late {
        long: Duration::from_millis(150),
        clients: 3,
        gap: Duration::from_millis(5),
    };
    for peer in peers::PEERS {
        for first in First::ALL {
            let seen = late::run(&bench(), peer.name, first, few);
            let seen = seen.unwrap_or_else(|error| panic!("{}, {first:?}: {error}", peer.name));
            assert_eq!(seen.waits.len(), 3);
            assert!(seen.at_once() <= 3 && !seen.longest().is_zero());
        }
    }
}

#[test]
fn every_server_answers_three_requests_in_one_packet() {
    for peer in peers::PEERS {
        let seen = pipeline::run(&bench(), peer.name);
        let seen = seen.unwrap_or_else(|error| panic!("{}: {error}", peer.name));
        assert_eq!(seen.answers_ms.len(), 3);
        assert!(seen.answers_ms.is_sorted(), "{}: {seen:?}", peer.name);
        assert_eq!(seen.long_ms.len(), bench().cores);
        assert!(
            (1..=3).contains(&seen.reads) && (1..=3).contains(&seen.segments),
            "{seen:?}"
        );
    }
}

fn respond(arguments: &[&str]) -> Output {
    let output = Command::new(RESPOND).args(arguments).output();
    output.expect("the program is there")
}

#[test]
fn the_program_says_what_there_is() {
    for arguments in [
        &["huh", "2"][..],
        &["mely", "0"],
        &["mely"],
        &["posts", "mely"],
    ] {
        let said = respond(arguments);
        assert_eq!(said.status.code(), Some(1), "{arguments:?}");
    }
    let said = respond(&["huh", "2"]);
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.contains("huh: no such server; there are mely, mely-epoll"),
        "{said}"
    );
    // A scheduler of the tables that is none of these rows'.
    let words = ROWS[5].words();
    let words = words.iter().map(String::as_str);
    let arguments: Vec<&str> = ["posts", "boxes", "1", "20", "1"]
        .into_iter()
        .chain(words)
        .collect();
    let said = respond(&arguments);
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("no scheduler `boxes`"), "{said}");
}
