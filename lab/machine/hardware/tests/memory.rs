//! What lines of memory cost is what the machine's file says: where they come from, what is waited
//! for and what comes meanwhile.

mod common;

use common::{Line, assert_near, body, epyc, lines, takes, wait_until};
use mely_hardware::sync::SpinMutex;
use mely_hardware::{Body, Key, Machine, Place, Report, charge};
use mely_topology::Distance;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

fn go_exactly(machine: &Machine, seed: u64, bodies: Vec<Body>) -> Report {
    common::go(machine, seed, false, bodies)
}

#[test]
fn a_core_alone_transfers_nothing() {
    let its = lines(3_000);
    let report = go_exactly(
        &epyc(8),
        1,
        vec![body(move || {
            for round in 0..10 {
                for line in &*its {
                    line.0.store(round, Release);
                    assert_eq!(line.0.load(Acquire), round);
                    line.0.fetch_add(1, Relaxed);
                }
                charge::work_ns(1_000);
            }
        })],
    );
    assert_eq!(report.transfers(), 0);
    assert!(report.lines.iter().all(|line| line.waited_ns == 0.0));
}

#[test]
fn levels_cost_what_the_file_says() {
    let machine = epyc(1);
    let (ns, hit) = (|key| machine.ns(key), |place| machine.ns(Key::Hit(place)));
    let first = hit(Place::Cache(1));
    // In no order: no rows.
    for (kilobytes, place) in [
        (8, Place::Cache(1)),
        (128, Place::Cache(2)),
        (6 << 10, Place::Cache(3)),
    ] {
        let count = kilobytes * 1024 / 64;
        let its = lines(count * 2);
        // What is in the first cache costs its link; what is not, what comes on top.
        let each = if place == Place::Cache(1) {
            first
        } else {
            hit(place) - first
        };
        let expected = each * count as f64;
        go_exactly(
            &machine,
            1,
            vec![body(move || {
                let pass = || (0..count).for_each(|i| charge::follow(&its[(i * 7919) % count]));
                // From memory, and then from where they fit.
                pass();
                let took = takes(pass);
                assert!(
                    (took - expected).abs() <= 0.1 * expected + 1.0,
                    "{took}, not {expected}"
                );
            })],
        );
    }
    // In a row, from memory.
    let its = lines(10_000);
    let row = ns(Key::Row(Place::Memory)) - ns(Key::Row(Place::Cache(1)));
    go_exactly(
        &machine,
        1,
        vec![body(move || {
            charge::name_bytes(its.as_ptr().cast(), size_of_val(&its[..]), "lines", 0);
            charge::read_bytes(its.as_ptr().cast(), 3 * 64);
            let bytes = 5_000 * 128;
            let took = takes(|| charge::read_bytes(std::ptr::from_ref(&its[2]).cast(), bytes));
            assert_near(took, 10_000.0 * row);
        })],
    );
}

/// Core 0 does `f` with some lines. When it asks for that, core `far` has its turn with them: it
/// does `other`.
fn take_turns(
    (machine, far): (&Machine, usize),
    (count, other): (usize, impl Fn(&[Line]) + 'static),
    f: impl FnOnce(&[Line], &dyn Fn()) + 'static,
) {
    let (its, turns) = (lines(count), lines(2));
    let (others, others_turns) = (Rc::clone(&its), Rc::clone(&turns));
    let mut bodies = vec![body(move || {
        let turn = Cell::new(0);
        let others_turn = || {
            turn.set(turn.get() + 1);
            turns[0].0.store(turn.get(), Release);
            while turns[1].0.load(Acquire) < turn.get() {
                charge::pause();
            }
            charge::work_ns(1_000);
        };
        f(&its, &others_turn);
        turns[0].0.store(u64::MAX, Release);
    })];
    bodies.extend((1..far).map(|_| body(|| ())));
    bodies.push(body(move || {
        let mut seen = 0;
        loop {
            let now = others_turns[0].0.load(Acquire);
            if now == u64::MAX {
                return;
            }
            if now > seen {
                seen = now;
                other(&others);
                charge::fence();
                others_turns[1].0.store(now, Release);
            } else {
                charge::pause();
            }
        }
    }));
    go_exactly(machine, 1, bodies);
}

/// A machine whose `holders` is this: how many cores have a line that one has written and another
/// one loaded.
fn holders(holders: f64) -> Machine {
    let machine = epyc(21).with(Key::Holders, holders, "a test");
    machine.unwrap()
}

fn write(lines: &[Line]) {
    lines.iter().for_each(|line| line.0.store(1, Release));
}

/// Writes a line, and waits until that is done.
fn store(line: &Line) {
    line.0.store(1, Release);
    charge::fence();
}

/// What a line takes from core 20 to core 0 of an EPYC, and a read-modify-write of an own line.
fn transfer_and_own() -> (f64, f64) {
    let machine = epyc(64);
    (
        machine.ns(Key::Transfer(Distance::SameNode)),
        machine.ns(Key::Rmw(Distance::SameCore)),
    )
}

/// Core 0 does `f` with lines that core 20 writes in its turns.
fn over(count: usize, f: impl FnOnce(&[Line], &dyn Fn()) + 'static) {
    take_turns((&epyc(21), 20), (count, write), f);
}

#[test]
fn transfers_cost_what_their_distance_does() {
    let machine = epyc(128);
    for (far, distance) in [
        (7, Distance::SharedL3),
        (20, Distance::SameNode),
        (100, Distance::SameMachine),
    ] {
        let (transfer, rmw) = (
            machine.ns(Key::Transfer(distance)),
            machine.ns(Key::Rmw(distance)),
        );
        let own = machine.ns(Key::Rmw(Distance::SameCore));
        take_turns((&machine, far), (1, write), move |lines, others_turn| {
            let line = &lines[0];
            for _ in 0..10 {
                others_turn();
                assert_near(takes(|| charge::reach(line)), transfer);
                assert_near(takes(|| _ = line.0.load(Acquire)), 0.0);
                others_turn();
                assert_near(takes(|| _ = line.0.fetch_add(1, Relaxed)), rmw);
                assert_near(takes(|| _ = line.0.fetch_add(1, Relaxed)), own);
                others_turn();
                // A store goes on, and who needs it done waits.
                assert_near(takes(|| line.0.store(1, Relaxed)), 0.0);
                assert_near(takes(charge::fence), transfer + own);
            }
        });
    }
}

/// What is asked for early comes meanwhile.
#[test]
fn a_prefetch_overlaps() {
    let (transfer, own) = transfer_and_own();
    over(1, move |lines, others_turn| {
        for early in [0, 40, 400] {
            let rest = (transfer - early as f64).max(0.0);
            others_turn();
            charge::prefetch(&lines[0]);
            charge::work_ns(early);
            assert_near(takes(|| charge::reach(&lines[0])), rest);
            // Who loads it goes on, and waits for it as for any line.
            others_turn();
            charge::prefetch(&lines[0]);
            charge::work_ns(early);
            assert_near(takes(|| _ = lines[0].0.load(Acquire)), 0.0);
            assert_near(takes(charge::fence), rest + own);
        }
    });
}

/// What is asked for with the right to write it is not asked for again by a store.
#[test]
fn a_prefetch_to_write_brings_the_right_to() {
    let (transfer, own) = transfer_and_own();
    take_turns(
        (&holders(2.0), 20),
        (1, write),
        move |lines, others_turn| {
            let line = &lines[0];
            for early in [0, 40, 400] {
                let rest = (transfer - early as f64).max(0.0);
                others_turn();
                charge::prefetch_to_write(line);
                charge::work_ns(early);
                assert_near(takes(|| store(line)), rest + own);
                others_turn();
                charge::prefetch_to_write(line);
                charge::work_ns(early);
                assert_near(takes(|| _ = line.0.fetch_add(1, Release)), rest + own);
                others_turn();
                charge::prefetch_to_write(line);
                charge::work_ns(early);
                assert_near(takes(|| charge::reach(line)), rest);
            }
            for early in [50, 400] {
                others_turn();
                charge::prefetch(line);
                charge::work_ns(400);
                assert_near(takes(|| store(line)), transfer + own);
                // Of two requests the later one brings the right to write.
                others_turn();
                charge::prefetch(line);
                charge::work_ns(early);
                charge::prefetch_to_write(line);
                assert_near(takes(|| store(line)), transfer + own);
            }
        },
    );
}

/// Where lines migrate, who loads or asks for what its owner has written may write it.
#[test]
fn a_written_line_migrates() {
    let (transfer, own) = transfer_and_own();
    for (machine, rest) in [(holders(1.0), 0.0), (holders(2.0), transfer)] {
        take_turns((&machine, 20), (1, write), move |lines, others_turn| {
            let line = &lines[0];
            others_turn();
            assert_near(takes(|| charge::reach(line)), transfer);
            assert_near(takes(|| store(line)), rest + own);
            others_turn();
            charge::prefetch(line);
            charge::work_ns(400);
            assert_near(takes(|| store(line)), rest + own);
        });
    }
}

/// What its owner has only loaded is copied, where lines migrate, too.
#[test]
fn a_loaded_line_is_copied() {
    let (transfer, own) = transfer_and_own();
    let load = |lines: &[Line]| charge::reach(&lines[0]);
    take_turns((&holders(1.0), 20), (1, load), move |lines, others_turn| {
        let line = &lines[0];
        for _ in 0..3 {
            store(line);
            others_turn();
            assert_near(takes(|| charge::reach(line)), transfer);
            assert_near(takes(|| store(line)), transfer + own);
        }
    });
}

/// Who loads goes on with what follows: up to the reorder window, then it waits for the rest.
#[test]
fn a_core_goes_on_while_a_load_is_on_its_way() {
    let (transfer, own) = transfer_and_own();
    let window = epyc(64).ns(Key::Reorder);
    over(1, move |lines, others_turn| {
        let line = &lines[0];
        for _ in 0..3 {
            others_turn();
            assert_near(takes(|| _ = line.0.load(Acquire)), 0.0);
            assert_near(takes(|| charge::work_ns(20)), 20.0);
            let late = takes(|| charge::work_ns(200));
            assert!((late - (200.0 + transfer - window)).abs() <= 5.0, "{late}");
            assert_near(takes(charge::fence), own);
            // To write what is on its way is no second transfer.
            others_turn();
            let took = takes(|| {
                line.0.store(line.0.load(Acquire) + 1, Release);
                charge::fence();
            });
            assert_near(took, transfer + own);
        }
    });
}

#[test]
fn what_needs_all_that_was_loaded_waits_for_it() {
    let (transfer, own) = transfer_and_own();
    let (clock, pause) = (epyc(1).ns(Key::Clock), epyc(1).ns(Key::Pause));
    let all: [(fn(), f64); 3] = [
        (charge::fence, own),
        (|| _ = charge::clock_ns(), clock),
        (charge::pause, pause),
    ];
    over(1, move |lines, others_turn| {
        for (f, itself) in all {
            others_turn();
            let took = takes(|| {
                lines[0].0.load(Acquire);
                f();
            });
            // A pause takes an eighth more or less.
            let range = transfer + itself - 1.0..=transfer + 1.125 * itself + 1.0;
            assert!(range.contains(&took), "{took}, {itself}");
        }
    });
    let fresh = lines(1);
    let report = go_exactly(
        &epyc(1),
        1,
        vec![body(move || _ = fresh[0].0.load(Acquire))],
    );
    // The end of a run, too.
    assert!(
        report.all_ns > 0.9 * epyc(1).ns(Key::Hit(Place::Memory)),
        "{report:?}"
    );
}

/// Time in which a core can do nothing brings no load nearer to the end of its window.
#[test]
fn the_window_is_one_of_work() {
    let (transfer, own) = transfer_and_own();
    over(2, move |lines, others_turn| {
        others_turn();
        let took = takes(|| {
            charge::work_ns(10);
            lines[0].0.load(Acquire);
            charge::work_ns(10);
            // It waits here, and the other line comes meanwhile.
            charge::reach(&lines[1]);
            charge::work_ns(10);
            charge::fence();
        });
        assert_near(took, 20.0 + transfer + 10.0 + own);
    });
    // Asleep it does nothing, either.
    let machine = epyc(21).with(Key::Sleeper, 90.0, "a test").unwrap();
    take_turns((&machine, 20), (1, write), move |lines, others_turn| {
        others_turn();
        let took = takes(|| {
            lines[0].0.load(Acquire);
            charge::sleep(Some(0));
            charge::work_ns(10);
            charge::fence();
        });
        assert_near(took, transfer + own);
    });
}

#[test]
fn scattered_loads_overlap_sixteen_at_a_time() {
    let (transfer, own) = transfer_and_own();
    over(32, move |lines, others_turn| {
        for (count, batches) in [(1, 1.0), (16, 1.0), (32, 2.0)] {
            others_turn();
            let took = takes(|| {
                lines[..count]
                    .iter()
                    .for_each(|line| _ = line.0.load(Acquire));
                charge::fence();
            });
            assert_near(took, batches * transfer + own);
        }
        // What is asked for early has its place among them: there is none for the last one.
        others_turn();
        lines[..17].iter().for_each(|line| charge::prefetch(line));
        charge::work_ns(400);
        assert_near(takes(|| charge::reach(&lines[15])), 0.0);
        assert_near(takes(|| charge::reach(&lines[16])), transfer);
    });
}

/// What a link leads to is not known before the link is here.
#[test]
fn a_link_is_waited_for_at_once() {
    let (transfer, _) = transfer_and_own();
    over(8, move |lines, others_turn| {
        others_turn();
        let took = takes(|| lines.iter().for_each(|line| charge::reach(line)));
        assert_near(took, 8.0 * transfer);
        // What is in the first cache costs a loop time that does nothing else, and nobody else.
        let took = takes(|| lines.iter().for_each(|line| charge::reach(line)));
        assert_near(took, 0.0);
        let took = takes(|| lines.iter().for_each(|line| charge::follow(line)));
        assert_near(took, 8.0 * epyc(1).ns(Key::Hit(Place::Cache(1))));
    });
}

/// Nobody foresees that a line which is polled will change, nor what will be in it.
#[test]
fn what_was_polled_is_waited_for_at_once() {
    let (transfer, _) = transfer_and_own();
    let step = epyc(21).ns(Key::Step);
    for seed in 0..8 {
        let (flag, wrote_at) = (lines(1), Rc::new(Cell::new(0)));
        let (its, its_at) = (Rc::clone(&flag), Rc::clone(&wrote_at));
        let mut bodies = vec![body(move || {
            while its[0].0.load(Acquire) == 0 {
                charge::pause();
                // Longer than a reorder window.
                charge::step();
            }
            let late = charge::now_ns().unwrap() - its_at.get();
            // The line went there, and comes back.
            assert!(late as f64 >= 2.0 * transfer + step - 1.0, "{late}");
        })];
        bodies.extend((1..20).map(|_| body(|| ())));
        bodies.push(body(move || {
            charge::work_ns(10_000);
            wrote_at.set(charge::now_ns().unwrap());
            flag[0].0.store(1, Release);
        }));
        go_exactly(&epyc(21), seed, bodies);
    }
}

/// A load is made ahead of what comes before it. If its line is taken meanwhile, it is made again
/// in its turn, and nothing overlaps.
#[test]
fn what_is_taken_shortly_before_a_load_is_waited_for_at_once() {
    let machine = epyc(2);
    let transfer = machine.ns(Key::Transfer(Distance::SharedL3));
    let barriers: [(fn(), bool); 5] = [
        (|| (), true),
        (charge::fence, false),
        (|| _ = charge::clock_ns(), false),
        (charge::pause, false),
        (|| charge::sleep(Some(0)), false),
    ];
    for pieces in [1, 1_000] {
        for (taken_before_ns, (barrier, waits)) in [15, 300]
            .into_iter()
            .flat_map(|ns| barriers.into_iter().map(move |barrier| (ns, barrier)))
        {
            let waits = waits && taken_before_ns == 15;
            let shared = lines(8);
            let its = Rc::clone(&shared);
            let reads = body(move || {
                write(&its);
                (0..pieces).for_each(|_| charge::work(1_000.0 / f64::from(pieces)));
                barrier();
                let mut all = its.iter().map(|line| takes(|| _ = line.0.load(Acquire)));
                let took = all.next().unwrap();
                if waits {
                    assert!(took >= transfer - 1.0, "{took}");
                    // What comes then is not made ahead of it.
                    assert_near(all.sum(), 0.0);
                    assert_near(takes(|| _ = its[0].0.load(Acquire)), 0.0);
                } else {
                    // It may still be on its way to the other core.
                    assert!(took < transfer / 2.0, "{took}");
                }
            });
            let writes = body(move || {
                (taken_before_ns..1_000).for_each(|_| charge::work(1.0));
                write(&shared);
            });
            go_exactly(&machine, 1, vec![reads, writes]);
        }
    }
}

/// No load is made ahead of a sleep, nor before the core is awake.
#[test]
fn what_was_lost_asleep_is_loaded_as_any_other() {
    let machine = epyc(2);
    let transfer = machine.ns(Key::Transfer(Distance::SharedL3));
    let own = machine.ns(Key::Rmw(Distance::SameCore));
    for wakes_first in [true, false] {
        let its = lines(4);
        let others = Rc::clone(&its);
        let sleeps = body(move || {
            write(&its);
            charge::sleep(None);
            let took = takes(|| {
                its.iter().for_each(|line| _ = line.0.load(Acquire));
                charge::fence();
            });
            assert_near(took, transfer + own);
        });
        let wakes = body(move || {
            charge::work_ns(1_000);
            if wakes_first {
                charge::wake(0);
            }
            write(&others);
            charge::fence();
            if !wakes_first {
                charge::wake(0);
            }
        });
        go_exactly(&machine, 1, vec![sleeps, wakes]);
    }
}

/// What was taken from a core that polls and does not look at it says nothing of other lines.
#[test]
fn what_follows_a_poll_overlaps() {
    let (transfer, own) = transfer_and_own();
    at_once(
        move |lines| {
            while charge::now_ns().unwrap() < 20_000 {
                charge::idle(1, [std::ptr::null(); 2], 20_000);
            }
            let took = takes(|| {
                lines[1..3].iter().for_each(|line| _ = line.0.load(Acquire));
                charge::fence();
            });
            assert_near(took, transfer + own);
        },
        |lines| store(&lines[0]),
    );
}

#[test]
fn stores_overlap_but_those_of_a_row_are_waited_for() {
    let (transfer, own) = transfer_and_own();
    over(16, move |lines, others_turn| {
        others_turn();
        assert_near(takes(|| write(lines)), 0.0);
        assert_near(takes(charge::fence), transfer + own);
    });
    // A row is known from its third line on.
    let row = epyc(64).ns(Key::TransferRow(Distance::SameNode));
    let write_row = |lines: &[Line]| charge::write(lines);
    take_turns(
        (&epyc(21), 20),
        (16, write_row),
        move |lines, others_turn| {
            charge::name(lines, "row", 0);
            others_turn();
            assert_near(takes(|| charge::write(&lines[..8])), 14.0 * row);
        },
    );
}

/// At 10 us core 0 does something, with 20 lines of which it has written the first, core 1 the
/// last, and core 20 all others; 50 ns later core 10 does something.
fn at_once(zero: impl FnOnce(&[Line]) + 'static, other: impl FnOnce(&[Line]) + 'static) {
    let its = lines(20);
    let [its1, its10, its20] = [(); 3].map(|()| Rc::clone(&its));
    let mut bodies = vec![body(move || {
        store(&its[0]);
        wait_until(10_000);
        zero(&its);
    })];
    bodies.push(body(move || store(&its1[19])));
    bodies.extend((2..10).map(|_| body(|| ())));
    bodies.push(body(move || {
        wait_until(10_050);
        other(&its10);
    }));
    bodies.extend((11..20).map(|_| body(|| ())));
    bodies.push(body(move || write(&its20[1..19])));
    go_exactly(&epyc(21), 1, bodies);
}

/// A store is seen after what was loaded and stored before, though its line is here first.
#[test]
fn stores_are_seen_in_order() {
    let (transfer, _) = transfer_and_own();
    let before: [fn(&Line); 3] = [
        |line| line.0.store(5, Release),
        |line| _ = line.0.load(Acquire),
        |_| (),
    ];
    let rests = [transfer - 50.0, transfer - 50.0, 0.0];
    for (before, rest) in before.into_iter().zip(rests) {
        for at in [0, 19] {
            let zero = move |lines: &[Line]| {
                before(&lines[1]);
                lines[at].0.store(5, Release);
            };
            at_once(zero, move |lines| {
                let took = takes(|| charge::reach(&lines[at]));
                assert!((took - rest - transfer).abs() < 5.0, "{took}, {rest}");
            });
        }
    }
}

/// Who had to wait before it could begin begins after who came meanwhile.
#[test]
fn what_begins_late_is_after_what_comes_before() {
    // A read-modify-write that waits for a store.
    let zero = |lines: &[Line]| {
        lines[1].0.store(5, Release);
        assert_eq!(lines[0].0.fetch_add(1, Relaxed), 2);
    };
    at_once(zero, |lines| {
        assert_eq!(lines[0].0.fetch_add(1, Relaxed), 1)
    });
    // A load and a store that wait for room: the other core has the line before them.
    let rmw = epyc(64).ns(Key::Rmw(Distance::SameNode));
    let last: [fn(&Line); 2] = [
        |line| _ = line.0.load(Acquire),
        |line| line.0.store(5, Release),
    ];
    for last in last {
        let zero = move |lines: &[Line]| {
            lines[2..18]
                .iter()
                .for_each(|line| _ = line.0.load(Acquire));
            last(&lines[1]);
        };
        at_once(zero, move |lines| {
            assert_near(takes(|| _ = lines[1].0.fetch_add(1, Relaxed)), rmw);
        });
    }
}

/// Stores that are not done, one after the other without an end, keep a line from nobody for long:
/// neither from the first who waits for it nor from the next.
#[test]
fn who_waits_for_a_line_that_is_stored_to_again_and_again_gets_it() {
    let rmw = epyc(64).ns(Key::Rmw(Distance::SameNode));
    let (line, fresh) = (lines(1), lines(400));
    let [its, its10, its20] = [(); 3].map(|()| Rc::clone(&line));
    let waits = move |line: &Line| {
        wait_until(1_000);
        let took = takes(|| _ = line.0.fetch_add(1, Relaxed));
        assert!(took < 8.0 * rmw, "{took}");
    };
    let mut bodies = vec![body(move || {
        for other in &*fresh {
            other.0.load(Acquire);
            its[0].0.store(1, Release);
            charge::work_ns(5);
        }
        assert!(charge::now_ns().unwrap() > 5_000);
    })];
    bodies.extend((1..10).map(|_| body(|| ())));
    bodies.push(body(move || waits(&its10[0])));
    bodies.extend((11..20).map(|_| body(|| ())));
    bodies.push(body(move || waits(&its20[0])));
    go_exactly(&epyc(21), 1, bodies);
}

/// Who stores goes on, but not past who waits for the line.
#[test]
fn who_waits_for_a_line_that_two_store_to_by_turns_gets_it() {
    let rmw = epyc(64).ns(Key::Rmw(Distance::SameNode));
    for seed in 0..8 {
        let line = lines(1);
        let stores = |line: &Rc<Vec<Line>>| {
            let line = Rc::clone(line);
            body(move || {
                while charge::now_ns().unwrap() < 10_000 {
                    line[0].0.store(1, Release);
                    charge::work_ns(10);
                }
            })
        };
        let mut bodies = vec![stores(&line), stores(&line)];
        bodies.extend((2..20).map(|_| body(|| ())));
        bodies.push(body(move || {
            wait_until(1_000);
            let took = takes(|| _ = line[0].0.fetch_add(1, Relaxed));
            assert!(took < 8.0 * rmw, "{took}");
        }));
        go_exactly(&epyc(21), seed, bodies);
    }
}

/// Who waits for a line waits for what was under way when it began to, and for a lock until all
/// that this protects is seen.
#[test]
fn a_release_is_seen_last() {
    let (transfer, _) = transfer_and_own();
    let rmw = epyc(64).ns(Key::Rmw(Distance::SameNode));
    let last: [fn(&Line); 2] = [
        |line| line.0.store(5, Release),
        |line| charge::unlock(line, || ()),
    ];
    for (last, at) in last.into_iter().zip([20.0, 90.0]) {
        let zero = move |lines: &[Line]| {
            lines[1].0.store(5, Release);
            lines[0].0.store(5, Release);
            charge::work_ns(20);
            lines[2].0.store(5, Release);
            charge::work_ns(70);
            lines[3].0.store(5, Release);
            last(&lines[0]);
        };
        at_once(zero, move |lines| {
            let took = takes(|| _ = lines[0].0.fetch_add(1, Relaxed));
            assert!((took - (at + transfer - 50.0 + rmw)).abs() < 5.0, "{took}");
        });
    }
}

/// Who waits for a lock asks for its line whenever that was taken, and gets it at once when it is
/// where it went: before what the holder stores next.
#[test]
fn who_waits_for_a_lock_takes_its_line_from_the_holder() {
    let (transfer, own) = transfer_and_own();
    for machine in [holders(1.0), holders(2.0)] {
        let its = lines(1);
        let its20 = Rc::clone(&its);
        let mut bodies = vec![body(move || {
            let line = &its[0];
            wait_until(10_000);
            let took = takes(|| {
                (0..10).for_each(|_| line.0.store(5, Relaxed));
                charge::fence();
            });
            assert_near(took, transfer + own);
            // There, and back.
            assert_near(takes(|| store(line)), 2.0 * transfer);
            charge::work_ns(400);
            assert_near(takes(|| store(line)), transfer + own);
            charge::unlock(line, || charge::uncharged(|| line.0.store(0, Relaxed)));
        })];
        bodies.extend((1..20).map(|_| body(|| ())));
        bodies.push(body(move || {
            let line = &its20[0];
            line.0.fetch_add(1, Relaxed);
            let is_free = || charge::uncharged(|| line.0.load(Relaxed) == 0);
            while line.0.load(Relaxed) != 0 {
                assert!(charge::wait_for_lock(line, false, is_free));
            }
        }));
        let report = go_exactly(&machine, 1, bodies);
        // Back and forth: four stores that have to have it, and a look after each.
        assert_eq!(report.transfers(), 8);
    }
}

/// Where lines migrate, who sees a release has the line whole; else both have a copy, and taking the
/// lock is a transfer of its own.
#[test]
fn a_released_lock_migrates() {
    let (transfer, own) = transfer_and_own();
    let rmw = epyc(64).ns(Key::Rmw(Distance::SameNode));
    for (machine, takes_it) in [(holders(1.0), own), (holders(2.0), rmw)] {
        let lock = Rc::new(SpinMutex::new(()));
        let (first, second) = (Rc::clone(&lock), lock);
        let released_at = Rc::new(Cell::new(0));
        let its_at = Rc::clone(&released_at);
        let mut bodies = vec![body(move || {
            let held = first.lock();
            charge::work_ns(1_000);
            released_at.set(charge::now_ns().unwrap());
            drop(held);
        })];
        bodies.extend((1..20).map(|_| body(|| ())));
        bodies.push(body(move || {
            charge::work_ns(500);
            let _held = second.lock();
            let late = charge::now_ns().unwrap() - its_at.get();
            // Its line comes from who waits, goes back, and is then locked.
            assert_near(late as f64, 2.0 * transfer + takes_it);
        }));
        go_exactly(&machine, 1, bodies);
    }
}
