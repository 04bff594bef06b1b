//! Event sources that other cores visit while their own core is inside a long event: nothing that
//! comes waits for it, and what comes is brought out in order.

use crate::support::{Done, OTHER, all_has_run, beside_a_sleeper, settle};
use loom::thread;
use mely::model::{Plan, Wire, World};
use mely::{Cx, Handler};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;
use std::time::Duration;

/// So long that its core's source is watched meanwhile.
static VERY_LONG: Handler = Handler::new("very long").time(Duration::from_micros(200));

/// Something completes for a core in a long event, which waits for it: the other core sleeps, or is
/// about to, and must bring it out and run it.
#[test]
fn brought_out() {
    Model {
        name: "sources::brought_out",
        preemptions_max: 2,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let wire = Wire::new(1);
        let busy = world.core_with_wire(0, &wire);
        let done = Done::of(1);
        let event = done.after(oracle.event(0, 0));
        let completed = event.callback_of_core(&VERY_LONG, OTHER);
        let its = Arc::clone(&wire);
        let start = move |_cx: &mut Cx| {
            its.complete(completed);
            done.wait();
        };
        beside_a_sleeper(world, &oracle, busy, wire, &VERY_LONG, start);
    });
}

/// Two completions of one color, in order: their core looks, and another one visits. The second is
/// there from the beginning, or comes when the visitor has been there once.
fn in_order(second_is_there: bool) {
    let oracle = Oracle::new();
    let world = World::new(Plan::cores(2));
    let wire = Wire::new(2);
    let mut busy = world.core_with_wire(0, &wire);
    let mut visitor = world.core(1);
    let both = [0, 1].map(|number| oracle.event(0, number));
    let [first, second] = both.map(|event| event.callback_of_core(&VERY_LONG, OTHER));
    wire.complete(first);
    let mut second = Some(second);
    if second_is_there {
        second
            .take()
            .into_iter()
            .for_each(|second| wire.complete(second));
    }
    let its = Arc::clone(&wire);
    let driven = thread::spawn(move || {
        visitor.visit();
        if let Some(second) = second {
            its.complete(second);
            visitor.visit();
        }
        visitor
    });
    busy.step();
    let mut visitor = driven.join().unwrap();
    loom::stop_exploring();
    settle(&mut [&mut busy, &mut visitor]);
    oracle.assert_ran(OTHER, &[(0, 2)]);
    all_has_run(world, (busy, visitor, wire), &oracle);
}

/// A visitor takes the first, and its core the second.
#[test]
fn visited_first() {
    Model {
        name: "sources::visited_first",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| in_order(true));
}

/// The core takes the first, and a visitor the second.
#[test]
fn looked_at_first() {
    Model {
        name: "sources::looked_at_first",
        preemptions_max: 3,
        iterations_min: 100,
    }
    .explore(|| in_order(false));
}

#[test]
fn finds_no_visits() {
    must_fail(
        "sources::brought_out",
        "no visits",
        &["deadlock", "maximum number of branches"],
    );
}

#[test]
fn finds_a_sleeper_that_has_nobody_watched() {
    must_fail(
        "sources::brought_out",
        "sleeper has nobody watched",
        &["deadlock"],
    );
}

#[test]
fn finds_a_watched_core_s_fence_skipped() {
    must_fail(
        "sources::brought_out",
        "watched core's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_visit_let_go_before_it_is_published() {
    must_fail(
        "sources::visited_first",
        "visit let go before published",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_look_let_go_before_it_is_published() {
    must_fail(
        "sources::looked_at_first",
        "let go before published",
        &["ORACLE"],
    );
}
