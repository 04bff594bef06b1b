//! A color changes its owner between a poster's look at the owner and the push of the poke.
//!
//! The old owner is inside a handler for good: whatever stays in its mailbox of pokes is lost until
//! that handler ends. So once the color has moved, its new owner alone must find all of its events.

use crate::support::{LONG, SHORT, WORTHY, settle, steps, within};
use loom::thread::{self, JoinHandle};
use mely::model::{Plan, World};
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::{Arc, mpsc};

const MOVES: Color = Color::new(2);
const STAYS: Color = Color::new(0);
/// A color of core 0 of three.
const PLACED: Color = Color::new(3);

/// A foreign post meets a steal.
#[test]
fn poke() {
    Model {
        name: "migration::poke",
        preemptions_max: 3,
        iterations_min: 60,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let stealing = within(&world, &mut victim, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, MOVES);
            cx.flush();
            steps(thief, 1)
        });
        let event = oracle.event(1, 0);
        event.post_from(&world.poster(), &SHORT, MOVES);
        let mut thief = stealing.join().unwrap();
        let moved = world.owner(MOVES) == 1;
        for events in 1..3 {
            if moved {
                settle(&mut [&mut thief]);
            } else {
                settle(&mut [&mut victim, &mut thief]);
            }
            oracle.assert_ran(MOVES, &[(0, 1), (1, events)]);
            if events == 1 {
                // No poke is left with the old owner that keeps this one from being sent.
                let event = oracle.event(1, 1);
                event.post_from(&world.poster(), &SHORT, MOVES);
            }
        }
        settle(&mut [&mut victim, &mut thief]);
        world.assert_at_rest();
        drop((victim, thief, world));
        oracle.assert_no_leak();
    });
}

/// Two posters to two colors, of which one moves: the poster that finds out takes the pokes of both
/// from the old owner, and must send each where it belongs.
#[test]
fn pokes_of_two_colors() {
    Model {
        name: "migration::pokes_of_two_colors",
        preemptions_max: 2,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let stealing = within(&world, &mut victim, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, MOVES);
            cx.flush();
            steps(thief, 1)
        });
        let (poster, event) = (world.poster(), oracle.event(2, 0));
        let posting = thread::spawn(move || {
            event.post_from(&poster, &SHORT, STAYS);
        });
        let event = oracle.event(1, 0);
        event.post_from(&world.poster(), &SHORT, MOVES);
        posting.join().unwrap();
        let mut thief = stealing.join().unwrap();
        if world.owner(MOVES) == 1 {
            settle(&mut [&mut thief]);
            oracle.assert_ran(MOVES, &[(0, 1), (1, 1)]);
        }
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(MOVES, &[(0, 1), (1, 1)]);
        oracle.assert_ran(STAYS, &[(2, 1)]);
        // No mark is left behind without its poke.
        for (color, event) in [(MOVES, oracle.event(1, 1)), (STAYS, oracle.event(2, 1))] {
            event.post_from(&world.poster(), &SHORT, color);
        }
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(MOVES, &[(0, 1), (1, 2)]);
        oracle.assert_ran(STAYS, &[(2, 2)]);
        world.assert_at_rest();
        drop((victim, thief, world));
        oracle.assert_no_leak();
    });
}

/// The pokes of two colors that one core sends at once, while the first of the two is stolen:
/// whoever sends them looks again for each.
#[test]
fn pokes_at_once() {
    Model {
        name: "migration::pokes_at_once",
        preemptions_max: 2,
        iterations_min: 50,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(3));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let mut sender = world.core(2);
        let seen = Arc::clone(&oracle);
        let stealing = within(&world, &mut victim, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, PLACED);
            cx.flush();
            steps(thief, 1)
        });
        let seen = Arc::clone(&oracle);
        let send = move |cx: &mut Cx| {
            seen.event(1, 0).post(cx, &SHORT, PLACED);
            seen.event(1, 0).post(cx, &SHORT, STAYS);
            cx.flush();
        };
        let of_the_sender = Color::new(5);
        let event = SHORT.on(of_the_sender, send);
        event.try_post(&world.poster()).unwrap();
        sender.step();
        let mut thief = stealing.join().unwrap();
        if world.owner(PLACED) == 1 {
            settle(&mut [&mut thief]);
            oracle.assert_ran(PLACED, &[(0, 1), (1, 1)]);
        }
        settle(&mut [&mut victim, &mut thief, &mut sender]);
        oracle.assert_ran(PLACED, &[(0, 1), (1, 1)]);
        oracle.assert_ran(STAYS, &[(1, 1)]);
        world.assert_at_rest();
        drop((victim, thief, sender, world));
        oracle.assert_no_leak();
    });
}

/// A color is placed on another core while a foreign thread posts to it.
#[test]
fn place() {
    Model {
        name: "migration::place",
        preemptions_max: 2,
        iterations_min: 2_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut old = world.core(0);
        let new = world.core(1);
        let (poster, event) = (world.poster(), oracle.event(1, 0));
        let seen = Arc::clone(&oracle);
        let (posting, running) = within(&world, &mut old, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &SHORT, MOVES);
            let posting = thread::spawn(move || {
                event.post_from(&poster, &SHORT, MOVES);
            });
            let running = steps(new, 2);
            cx.place(MOVES, 1);
            (posting, running)
        });
        old.step();
        posting.join().unwrap();
        let mut new = running.join().unwrap();
        settle(&mut [&mut old, &mut new]);
        oracle.assert_ran(MOVES, &[(0, 1), (1, 1)]);
        assert_eq!(world.owner(MOVES), 1, "ORACLE: not placed");
        let event = oracle.event(1, 1);
        event.post_from(&world.poster(), &SHORT, MOVES);
        settle(&mut [&mut new]);
        oracle.assert_ran(MOVES, &[(0, 1), (1, 2)]);
        settle(&mut [&mut old, &mut new]);
        world.assert_at_rest();
        drop((old, new, world));
        oracle.assert_no_leak();
    });
}

/// A color is placed on a third core while a thief steals it and a foreign thread posts to it.
#[test]
fn place_and_steal() {
    Model {
        name: "migration::place_and_steal",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(3));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let mut third = world.core(2);
        let seen = Arc::clone(&oracle);
        let stealing = within(&world, &mut victim, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, PLACED);
            cx.flush();
            steps(thief, 2)
        });
        let poster = world.poster();
        let event = oracle.event(1, 0);
        let placing = thread::spawn(move || {
            poster.place(PLACED, 2);
            event.post_from(&poster, &SHORT, PLACED);
        });
        victim.step();
        placing.join().unwrap();
        let mut thief = stealing.join().unwrap();
        settle(&mut [&mut victim, &mut thief, &mut third]);
        oracle.assert_ran(PLACED, &[(0, 1), (1, 1)]);
        assert_eq!(world.owner(PLACED), 2, "ORACLE: not placed");
        world.assert_at_rest();
        drop((victim, thief, third, world));
        oracle.assert_no_leak();
    });
}

/// A foreign thread places a color, beside one that does `other`, which has one event of thread
/// `by` run in it.
fn place_beside(by: u32, other: fn(&World, &Arc<Oracle>) -> JoinHandle<()>) -> impl Fn() {
    move || {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut old = world.core(0);
        let mut new = world.core(1);
        let other = other(&world, &oracle);
        let poster = world.poster();
        let placing = thread::spawn(move || poster.place(MOVES, 1));
        // The second returns the color.
        old.step();
        old.step();
        other.join().unwrap();
        placing.join().unwrap();
        settle(&mut [&mut old, &mut new]);
        oracle.assert_ran(MOVES, &[(by, 1)]);
        assert_eq!(world.owner(MOVES), 1, "ORACLE: not placed");
        world.assert_at_rest();
        drop((old, new, world));
        oracle.assert_no_leak();
    }
}

/// Its poke, another thread's, is on its way already.
#[test]
fn place_behind_a_poke() {
    Model {
        name: "migration::place_behind_a_poke",
        preemptions_max: 3,
        iterations_min: 100,
    }
    .explore(place_beside(1, |world, oracle| {
        let (poster, event) = (world.poster(), oracle.event(1, 0));
        thread::spawn(move || event.post_from(&poster, &SHORT, MOVES))
    }));
}

/// Another thread asks for its next turn: neither wish is lost, nor kept for later.
#[test]
fn place_and_hurry() {
    Model {
        name: "migration::place_and_hurry",
        preemptions_max: 3,
        iterations_min: 100,
    }
    .explore(place_beside(0, |world, oracle| {
        let poster = world.poster();
        oracle.event(0, 0).post_from(&poster, &SHORT, MOVES);
        thread::spawn(move || poster.hurry(MOVES))
    }));
}

#[test]
fn finds_a_wish_overwritten_by_another() {
    must_fail(
        "migration::place_and_hurry",
        "wish written over another",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_wish_for_the_next_turn_not_announced() {
    must_fail(
        "migration::place_and_hurry",
        "wish without a poke",
        &["ORACLE"],
    );
}

/// A color is placed elsewhere while it runs, and a thief consumes the poke that says so.
#[test]
fn place_running() {
    Model {
        name: "migration::place_running",
        preemptions_max: 2,
        iterations_min: 50,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut owner = world.core(0);
        let thief = world.core(1);
        let poster = world.poster();
        let (sender, receiver) = mpsc::channel();
        let runs = oracle.event(0, 0).then(move |_cx| {
            let placing = thread::spawn(move || poster.place(MOVES, 1));
            let stealing = steps(thief, 1);
            sender.send((placing, stealing)).unwrap();
        });
        runs.post_from(&world.poster(), &LONG, MOVES);
        owner.step();
        owner.step();
        let (placing, stealing) = receiver.recv().unwrap();
        placing.join().unwrap();
        let mut thief = stealing.join().unwrap();
        settle(&mut [&mut owner, &mut thief]);
        assert_eq!(world.owner(MOVES), 1, "ORACLE: not placed");
        oracle.assert_ran(MOVES, &[(0, 1)]);
        world.assert_at_rest();
        drop((owner, thief, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_wish_for_a_running_color_forgotten() {
    must_fail(
        "migration::place_running",
        "mail of a running color forgotten",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_wish_forgotten_by_its_holder() {
    must_fail(
        "migration::place_and_steal",
        "running mark ignored",
        &["is returned and not out"],
    );
}

#[test]
fn finds_a_wish_not_announced() {
    must_fail("migration::place", "placed without a poke", &["ORACLE"]);
}

#[test]
fn finds_a_second_look_skipped() {
    must_fail(
        "migration::poke",
        "second look after a steal skipped",
        &["ORACLE"],
    );
}

#[test]
fn finds_an_owner_not_read_again() {
    must_fail("migration::poke", "owner not read again", &["ORACLE"]);
}

#[test]
fn finds_a_poke_dropped() {
    must_fail("migration::poke", "poke forwarded to nobody", &["ORACLE"]);
}

#[test]
fn finds_pokes_of_others_lost() {
    must_fail(
        "migration::pokes_of_two_colors",
        "pokes of other colors lost",
        &["ORACLE"],
    );
}

#[test]
fn finds_only_the_last_owner_read_again() {
    must_fail(
        "migration::pokes_at_once",
        "only the last owner read again",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_mark_that_is_only_looked_at() {
    must_fail(
        "migration::place_behind_a_poke",
        "mark only looked at",
        &["ORACLE"],
    );
}
