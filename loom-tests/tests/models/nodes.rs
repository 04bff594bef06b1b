//! Event memory goes round: a core spills what it has run, and posters refill from that.

use crate::support::{RUNS, SHORT, settle, steps};
use loom::thread;
use mely::Color;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Another color of the core.
const OTHER: Color = Color::new(1);

/// Nodes that a model's pools exchange at once, and half of what each keeps.
const BATCH: u32 = 4;

/// Events of each in the end: more than there are nodes that went round.
const AT_ONCE: u32 = 4 * BATCH;

/// Two foreign threads, whose common stock is empty, post while the core runs what fills its own
/// over.
#[test]
fn through_the_depot() {
    Model {
        name: "nodes::through_the_depot",
        preemptions_max: 2,
        iterations_min: 100,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let poster = world.poster();
        for number in 0..2 * BATCH {
            oracle.event(0, number).post_from(&poster, &SHORT, RUNS);
        }
        settle(&mut [&mut core]);
        for number in 2 * BATCH..3 * BATCH {
            oracle.event(0, number).post_from(&poster, &SHORT, RUNS);
        }
        let running = steps(core, 2);
        let (other, event) = (world.poster(), oracle.event(1, 0));
        let posting = thread::spawn(move || event.post_from(&other, &SHORT, OTHER));
        oracle.event(2, 0).post_from(&poster, &SHORT, OTHER);
        posting.join().unwrap();
        let mut core = running.join().unwrap();
        settle(&mut [&mut core]);
        // Whatever went round is used by one event at a time: of the core, and of foreign threads.
        let seen = Arc::clone(&oracle);
        let last = oracle.event(0, 3 * BATCH).then(move |cx| {
            for number in 0..AT_ONCE {
                seen.event(4, number).post(cx, &SHORT, OTHER);
            }
        });
        last.post_from(&poster, &SHORT, RUNS);
        for number in 0..AT_ONCE {
            oracle.event(3, number).post_from(&poster, &SHORT, OTHER);
        }
        settle(&mut [&mut core]);
        oracle.assert_ran(RUNS, &[(0, 3 * BATCH + 1)]);
        oracle.assert_ran(OTHER, &[(1, 1), (2, 1), (3, AT_ONCE), (4, AT_ONCE)]);
        world.assert_at_rest();
        drop((core, poster, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_node_spilled_and_kept() {
    must_fail(
        "nodes::through_the_depot",
        "spilled and kept",
        &["ORACLE", "Causality violation"],
    );
}
