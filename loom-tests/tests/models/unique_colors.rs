//! A unique color is given back while its events are under way, and its slot is given out again.

use crate::support::{SHORT, WORTHY, settle, steps, within};
use loom::thread;
use mely::model::{Plan, World, unique_color_on};
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// How many unique colors have a slot to themselves.
const SLOTS: usize = 4;

/// The holder gives its color back while a thief steals it; core 0, to which no other color is
/// left, takes another, which may be placed where the thief is.
#[test]
fn slot_reuse() {
    Model {
        name: "unique_colors::slot_reuse",
        preemptions_max: 2,
        iterations_min: 200,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let (others, old, new, threads) = within(&world, &mut victim, &SHORT, move |cx| {
            let others: Vec<_> = (1..SLOTS).map(|_| unique_color_on(cx, 1)).collect();
            let old = cx.unique_color();
            let color = old.color();
            seen.event(0, 0).post(cx, &WORTHY, color);
            cx.flush();
            let stealing = steps(thief, 2);
            let giving_back = thread::spawn(move || drop(old));
            let new = cx.unique_color();
            for number in 0..2 {
                seen.event(1, number).post(cx, &SHORT, new.color());
            }
            cx.flush();
            (others, color, new, (stealing, giving_back))
        });
        victim.step();
        threads.1.join().unwrap();
        let mut thief = threads.0.join().unwrap();
        settle(&mut [&mut victim, &mut thief]);
        // One slot is free, or none and it was shared: the next two are nobody else's either.
        let take = |cx: &mut Cx| [cx.unique_color(), cx.unique_color()];
        let more = within(&world, &mut victim, &SHORT, take);
        let held: Vec<Color> = others
            .iter()
            .chain([&new])
            .chain(&more)
            .map(|c| c.color())
            .collect();
        for (i, color) in held.iter().enumerate() {
            assert!(
                *color != old && !held[..i].contains(color),
                "ORACLE: {color:?} was given out twice"
            );
        }
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(old, &[(0, 1)]);
        oracle.assert_ran(new.color(), &[(1, 2)]);
        world.assert_at_rest();
        drop((others, new, more));
        drop((victim, thief, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_generation_kept() {
    must_fail(
        "unique_colors::slot_reuse",
        "generation kept",
        &["given out twice"],
    );
}

#[test]
fn finds_a_slot_given_out_twice() {
    must_fail(
        "unique_colors::slot_reuse",
        "given out twice",
        &["was given out twice"],
    );
}
