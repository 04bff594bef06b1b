//! Rings that are shared out.
//!
//! Cores sleep until they are rung, so that a ring that nobody gives is a deadlock,
//! which loom reports.

use crate::support::{LONG, RUNS, SHORT, all_has_run, settle};
use loom::thread;
use mely::model::{Core, Plan, World};
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};

/// Of three cores, a color of each but the first one.
const THREES: [Color; 2] = [Color::new(4), Color::new(5)];

/// This core of the world, which sleeps.
fn asleep(world: &World, id: usize) -> Core {
    let mut core = world.core(id);
    assert!(core.lie_down());
    core
}

/// An event posts to two cores that sleep: the one that is rung first may ring the other.
#[test]
fn shared_out() {
    Model {
        name: "ringing::shared_out",
        preemptions_max: 3,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(3));
        let (mut busy, mut first) = (world.core(0), asleep(&world, 1));
        let mut second = asleep(&world, 2);
        let events = THREES.map(|color| (color, oracle.event(0, 0)));
        let start = move |cx: &mut Cx| {
            for (color, event) in events {
                event.post(cx, &LONG, color);
            }
        };
        SHORT.on(RUNS, start).try_post(&world.poster()).unwrap();
        let rung = thread::spawn(move || {
            first.sleep();
            first
        });
        busy.step();
        busy.step();
        second.sleep();
        let mut first = rung.join().unwrap();
        loom::stop_exploring();
        settle(&mut [&mut busy, &mut first, &mut second]);
        for color in THREES {
            oracle.assert_ran(color, &[(0, 1)]);
        }
        all_has_run(world, (busy, first, second), &oracle);
    });
}

#[test]
fn finds_a_core_taken_out_and_not_rung() {
    must_fail("ringing::shared_out", "taken and not rung", &["deadlock"]);
}
