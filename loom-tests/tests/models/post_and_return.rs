//! A color gets mail while it is checked out and on its way back, and a thief consumes the poke.

use crate::support::{LONG, SHORT, settle, steps};
use loom::thread;
use mely::Color;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::{Arc, mpsc};

const OUT: Color = Color::new(2);

/// Core 0 runs a long event of a color and returns the color; meanwhile a foreign thread posts two
/// events to it, and core 1, which sees a poke behind a long handler, takes core 0's mail.
#[test]
fn foreign_post() {
    Model {
        name: "post_and_return::foreign_post",
        preemptions_max: 3,
        iterations_min: 14_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut owner = world.core(0);
        let thief = world.core(1);
        let poster = world.poster();
        let seen = Arc::clone(&oracle);
        let (sender, receiver) = mpsc::channel();
        let first = oracle.event(0, 0).then(move |_cx| {
            let posts = [seen.event(1, 0), seen.event(1, 1)];
            let posting = thread::spawn(move || {
                for event in posts {
                    event.post_from(&poster, &SHORT, OUT);
                }
            });
            let stealing = steps(thief, 2);
            sender.send((posting, stealing)).unwrap();
        });
        first.post_from(&world.poster(), &LONG, OUT);
        owner.step();
        owner.step();
        let (posting, stealing) = receiver.recv().unwrap();
        posting.join().unwrap();
        let mut thief = stealing.join().unwrap();
        settle(&mut [&mut owner, &mut thief]);
        oracle.assert_ran(OUT, &[(0, 1), (1, 2)]);
        // Nothing is left behind that keeps the next post from being noticed.
        let event = oracle.event(1, 2);
        event.post_from(&world.poster(), &SHORT, OUT);
        settle(&mut [&mut owner, &mut thief]);
        oracle.assert_ran(OUT, &[(0, 1), (1, 3)]);
        world.assert_at_rest();
        drop((owner, thief, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_mail_that_came_meanwhile_forgotten() {
    must_fail(
        "post_and_return::foreign_post",
        "mail of a running color forgotten",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_running_mark_ignored() {
    must_fail(
        "post_and_return::foreign_post",
        "running mark ignored",
        &["ORACLE", "Causality violation", "concurrent"],
    );
}
