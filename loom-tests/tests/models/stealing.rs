//! Several colors are stolen at once, by more than one thief.

use crate::support::{SHORT, WORTHY, settle, steps, within};
use loom::thread;
use mely::Color;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Colors of core 0 of four.
const COLORS: [Color; 3] = [Color::new(4), Color::new(8), Color::new(12)];

/// One more than half of which may search at a time is two.
const FOUR: Plan = Plan {
    slot_bits: 5,
    ..Plan::cores(4)
};

/// Two thieves meet at one victim, which goes on meanwhile. The first takes two of three colors,
/// runs one and links the other into its own lists, where the second may find it.
#[test]
fn two_thieves() {
    Model {
        name: "stealing::two_thieves",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(FOUR);
        let mut victim = world.core(0);
        let thieves = [world.core(1), world.core(2)];
        let seen = Arc::clone(&oracle);
        let stealing = within(&world, &mut victim, &SHORT, move |cx| {
            for color in COLORS {
                seen.event(0, 0).post(cx, &WORTHY, color);
            }
            cx.flush();
            thieves.map(|thief| steps(thief, 1))
        });
        victim.step();
        let [mut one, mut two] = stealing.map(|thread| thread.join().unwrap());
        world.assert_valid();
        settle(&mut [&mut victim, &mut one, &mut two]);
        for color in COLORS {
            oracle.assert_ran(color, &[(0, 1)]);
        }
        world.assert_at_rest();
        drop((victim, one, two, world));
        oracle.assert_no_leak();
    });
}

/// A thief takes two of three colors and links the second into its own lists, while a foreign
/// thread posts to all three and an onlooker walks all lists: each color is in those of its owner
/// and of nobody else, at any time.
#[test]
fn batch() {
    Model {
        name: "stealing::batch",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            slot_bits: 5,
            ..Plan::cores(2)
        });
        let world = Arc::new(world);
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let stealing = within(&world, &mut victim, &SHORT, move |cx| {
            for color in COLORS {
                seen.event(0, 0).post(cx, &WORTHY, color);
            }
            cx.flush();
            steps(thief, 1)
        });
        let onlooker = Arc::clone(&world);
        let looking = thread::spawn(move || onlooker.assert_valid());
        let poster = world.poster();
        for color in COLORS {
            oracle.event(1, 0).post_from(&poster, &WORTHY, color);
        }
        looking.join().unwrap();
        let mut thief = stealing.join().unwrap();
        world.assert_valid();
        settle(&mut [&mut victim, &mut thief]);
        for color in COLORS {
            oracle.assert_ran(color, &[(0, 1), (1, 1)]);
        }
        world.assert_at_rest();
        drop((victim, thief, poster, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_color_left_in_the_core_queue() {
    must_fail(
        "stealing::two_thieves",
        "left in the core-queue",
        &["back link"],
    );
}

#[test]
fn finds_a_color_left_in_its_band() {
    must_fail(
        "stealing::batch",
        "left in its band",
        &["colors queued", "back link"],
    );
}

#[test]
fn finds_a_band_not_counted() {
    must_fail("stealing::batch", "band not counted", &["worthy colors"]);
}
