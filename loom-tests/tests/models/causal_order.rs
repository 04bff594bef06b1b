//! If a post to a color happened before another post to it, its event runs first, whatever cores,
//! posters and mailboxes lie between.

use crate::support::{RUNS, SHORT, settle};
use loom::thread;
use mely::model::{Plan, World};
use mely::{Color, Cx, Stealing};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Colors of core 1.
const TARGET: Color = Color::new(1);
const BETWEEN: Color = Color::new(3);

/// Core 0 posts to the target, then to a color on core 1, whose event posts to the target, then core
/// 0 again; and a foreign thread posts to the target at any time, so that others find its poke
/// under way.
#[test]
fn three_parties() {
    Model {
        name: "causal_order::three_parties",
        preemptions_max: 4,
        iterations_min: 10_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::Off,
            ..Plan::cores(2)
        });
        let mut here = world.core(0);
        let mut there = world.core(1);
        let seen = Arc::clone(&oracle);
        let start = move |cx: &mut Cx| {
            cx.post_callback(SHORT.on(TARGET, seen.event(0, 0)));
            let effect = seen.event(1, 0);
            let between = move |cx: &mut Cx| cx.post_callback(SHORT.on(TARGET, effect));
            cx.post_callback(SHORT.on(BETWEEN, between));
            cx.post_callback(SHORT.on(TARGET, seen.event(0, 1)));
        };
        world.poster().post_callback(SHORT.on(RUNS, start)).unwrap();
        here.turn();
        let (poster, event) = (world.poster(), oracle.event(2, 0));
        let posting = thread::spawn(move || {
            poster.post_callback(SHORT.on(TARGET, event)).unwrap();
        });
        let running = thread::spawn(move || {
            for _ in 0..3 {
                there.turn();
            }
            there
        });
        here.turn();
        posting.join().unwrap();
        let mut there = running.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        oracle.assert_ran(TARGET, &[(0, 2), (1, 1), (2, 1)]);
        let log = oracle.log(TARGET);
        let at = |mark| log.iter().position(|&m| m == mark);
        assert!(
            at((0, 0)) < at((1, 0)),
            "ORACLE: an effect ran before its cause: {log:?}"
        );
        world.assert_valid();
        drop((here, there, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_mailbox_not_drained() {
    must_fail(
        "causal_order::three_parties",
        "mailbox not drained before an append",
        &["ORACLE"],
    );
}

#[test]
fn finds_an_outbox_out_of_order() {
    must_fail(
        "causal_order::three_parties",
        "outbox out of order",
        &["ORACLE"],
    );
}
