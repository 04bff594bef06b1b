//! The table of handlers, which posters add to while others read it.

use crate::support::{SHORT, settle, steps};
use loom::thread;
use mely::model::{Plan, World};
use mely::runtime::Stealing;
use mely::{Color, Cx, Handler};
use mely_loom_tests::{Event, Model, Oracle, must_fail};
use std::sync::Arc;

/// A color of each core.
const HERE: Color = Color::new(2);
const THERE: Color = Color::new(3);

/// Of which nobody knows when the model begins.
static NEW: Handler = Handler::new("new");

/// Two cores post under a handler that is new to both, and a third thread lists what there is.
#[test]
fn two_register() {
    Model {
        name: "profiles::two_register",
        preemptions_max: 2,
        iterations_min: 40,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let world = Arc::new(world);
        let mut zero = world.core(0);
        let one = world.core(1);
        let posts = |event: Event, color| move |cx: &mut Cx| event.post(cx, &NEW, color);
        let first = oracle.event(0, 0).then(posts(oracle.event(0, 1), HERE));
        first.post_from(&world.poster(), &SHORT, HERE);
        let first = oracle.event(1, 0).then(posts(oracle.event(1, 1), THERE));
        first.post_from(&world.poster(), &SHORT, THERE);
        let posting = steps(one, 1);
        let onlooker = Arc::clone(&world);
        let looking = thread::spawn(move || onlooker.profiles(&NEW));
        zero.step();
        assert!(looking.join().unwrap() <= 1, "ORACLE: registered twice");
        let mut one = posting.join().unwrap();
        settle(&mut [&mut zero, &mut one]);
        assert_eq!(world.profiles(&NEW), 1, "ORACLE: registered twice");
        oracle.assert_ran(HERE, &[(0, 2)]);
        oracle.assert_ran(THERE, &[(1, 2)]);
        world.assert_at_rest();
        drop((zero, one, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_handler_registered_anew() {
    must_fail(
        "profiles::two_register",
        "registered anew",
        &["registered twice"],
    );
}

#[test]
fn finds_a_handler_registered_before_it_is_there() {
    must_fail(
        "profiles::two_register",
        "registered before it is there",
        &["is not there"],
    );
}
