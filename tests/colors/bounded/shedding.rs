//! Events that are shed: too old, or too many.

use super::{COLOR, WORK};
use crate::common::Alive;
use mely::Post;
use mely::task::{sleep, with_cx};
use mely::{Color, Colored, Cx, Runtime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// In virtual time: whatever has waited for longer is shed, and nothing else.
#[test]
fn what_is_too_old_is_shed() {
    const AGE: Duration = Duration::from_millis(10);
    for seed in 0..20 {
        let log = Arc::new(Mutex::new(Vec::new()));
        let builder = Runtime::builder().cores(2).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        let poster = simulation.poster();
        let state = Colored::new(&poster, COLOR, Arc::clone(&log));
        let full = state.bounded(100).shed_older_than(AGE);
        let its = full.clone();
        simulation
            .run(move |cx| {
                type Log = Arc<Mutex<Vec<(u32, Option<Duration>)>>>;
                // Every 4 ms an event that takes 7 ms: the fifth or so waits for too long.
                cx.spawn(Color::from(8), async move {
                    for i in 0..20 {
                        sleep(Duration::from_millis(4)).await;
                        let run = move |log: &mut Log, cx: &mut Cx| {
                            log.lock().unwrap().push((i, None));
                            mely::sim::work(cx, Duration::from_millis(7));
                        };
                        let posted = with_cx(|cx| cx.now());
                        let shed = move |log: &mut Log, cx: &mut Cx| {
                            assert_eq!((cx.color(), cx.handler()), (COLOR, "work"));
                            log.lock().unwrap().push((i, Some(cx.now() - posted)));
                        };
                        with_cx(|cx| full.via(&WORK).try_post_or(cx, run, shed)).unwrap();
                    }
                });
            })
            .unwrap();
        let log = log.lock().unwrap();
        assert!(
            log.iter().map(|event| event.0).eq(0..20),
            "in order: {log:?}"
        );
        let shed: Vec<_> = log.iter().filter_map(|event| event.1).collect();
        assert!(shed.iter().all(|waited| *waited > AGE), "{shed:?}");
        assert_eq!(its.shed(), shed.len() as u64);
        // 7 ms of work in 4 ms: some three of seven cannot be done.
        assert!((4..16).contains(&shed.len()), "{log:?}");
        assert_eq!(its.waiting(), 0);
    }
}

/// A post from outside of a simulation is as old as its virtual time says.
#[test]
fn what_comes_from_outside_is_shed_by_the_same_clock() {
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(1).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, ());
    let hour = Duration::from_secs(3_600);
    let full = state.bounded(9).shed_older_than(hour);
    let alive = Alive::default();
    let (one, two) = (alive.payload(), alive.payload());
    let works = move |_: &mut (), cx: &mut Cx| mely::sim::work(cx, hour);
    full.state().try_post(&poster, works).unwrap();
    let (its, ran) = (full.clone(), Arc::new(AtomicBool::new(false)));
    let runs = Arc::clone(&ran);
    let works_on = move |_: &mut (), cx: &mut Cx| {
        mely::sim::work(cx, Duration::from_secs(1));
        let young = move |_: &mut (), _: &mut Cx| {
            runs.store(true, Ordering::Relaxed);
            drop(two);
        };
        its.try_post(cx, young).unwrap();
    };
    full.state().try_post(&poster, works_on).unwrap();
    let old = move |_: &mut (), _: &mut Cx| drop(one);
    full.try_post(&poster, old).unwrap();
    simulation.run(|_cx| ()).unwrap();
    assert_eq!((full.shed(), full.waiting(), alive.count()), (1, 0, 0));
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn of_too_many_the_oldest_are_shed() {
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(3).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, ());
    let full = state.bounded(10).shed_deeper_than(3);
    let log = Arc::new(Mutex::new(Vec::new()));
    for i in 0..10 {
        let (run, shed) = (Arc::clone(&log), Arc::clone(&log));
        let run = move |_: &mut (), _: &mut Cx| run.lock().unwrap().push((i, "run"));
        let shed = move |_: &mut (), _: &mut Cx| shed.lock().unwrap().push((i, "shed"));
        full.via(&WORK).try_post_or(&poster, run, shed).unwrap();
    }
    simulation.run(|_cx| ()).unwrap();
    let expected = (0..10).map(|i| (i, if i < 6 { "shed" } else { "run" }));
    assert!(log.lock().unwrap().iter().copied().eq(expected), "{log:?}");
    assert_eq!(full.shed(), 6);
}

/// Two sources of one color, with a bound each. One of them posts as much as it can; an event of
/// the other waits for no more handlers than the flood's share, whatever the flood does.
#[test]
fn a_flood_costs_the_others_its_share() {
    const SHARE: usize = 4;
    const OTHERS: u64 = 50;
    let mut longest = 0;
    for seed in 0..10 {
        let builder = Runtime::builder().cores(3);
        let mut simulation = builder.simulate(seed).unwrap();
        let poster = simulation.poster();
        // The number of handlers that the color has run.
        let ran = Arc::new(AtomicU64::new(0));
        let state = Colored::new(&poster, COLOR, Arc::clone(&ran));
        let flood = state.bounded(SHARE);
        let other = state.bounded(1);
        // As many tasks as could, each of which posts for ever.
        for task in 0..8 {
            let flood = flood.clone();
            let floods = move |cx: &mut Cx| {
                let post_on = async move {
                    while !with_cx(|cx| cx.stopping()) {
                        let room = flood.reserve().await;
                        let event = |ran: &mut Arc<AtomicU64>, cx: &mut Cx| {
                            ran.fetch_add(1, Ordering::Relaxed);
                            mely::sim::work(cx, Duration::from_micros(50));
                        };
                        with_cx(|cx| room.try_post(cx, event)).unwrap();
                    }
                };
                cx.spawn(Color::from(20 + task), post_on);
            };
            poster.try_post(Color::from(20 + task), floods).unwrap();
        }
        let mut others = 0;
        let waits = Arc::new(Mutex::new(Vec::new()));
        simulation.start(|_cx| ()).unwrap();
        while others < OTHERS {
            simulation.step();
            if flood.waiting() < SHARE || other.waiting() > 0 {
                continue;
            }
            // Posted between two steps, it is in the color's mailbox at once.
            let (before, waits) = (ran.load(Ordering::Relaxed), Arc::clone(&waits));
            let event = move |ran: &mut Arc<AtomicU64>, _cx: &mut Cx| {
                waits
                    .lock()
                    .unwrap()
                    .push(ran.load(Ordering::Relaxed) - before);
            };
            other.try_post(&poster, event).unwrap();
            others += 1;
        }
        poster.stop();
        while simulation.step() != mely::sim::Step::Ended {}
        simulation.end().unwrap();
        let waits = waits.lock().unwrap();
        assert_eq!(waits.len() as u64, OTHERS);
        // One may have begun, and has given its permit back.
        let most = *waits.iter().max().unwrap();
        assert!(most <= SHARE as u64 + 1, "seed {seed}: {most}");
        longest = longest.max(most);
    }
    assert!(longest >= SHARE as u64, "there was no flood: {longest}");
}

/// Whatever others have, and whoever waits for room: only what waits behind an event is too much.
#[test]
fn room_that_is_promised_sheds_nothing() {
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(5).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, 0);
    let full = state.bounded(4).shed_deeper_than(1);
    let permits = [(); 2].map(|()| full.try_reserve().unwrap());
    for _ in 0..2 {
        full.try_post(&poster, |n, _cx| *n += 1).unwrap();
    }
    let its = full.clone();
    simulation
        .run(move |cx| {
            for i in 0..8 {
                let bounded = its.clone();
                let task = async move {
                    let room = bounded.reserve().await;
                    with_cx(|cx| room.try_post(cx, |n, _cx| *n += 1)).unwrap();
                };
                cx.spawn(Color::from(40 + i), task);
            }
        })
        .unwrap();
    assert_eq!((full.shed(), full.waiting(), full.in_line()), (0, 2, 0));
    drop(permits);
    assert_eq!(full.waiting(), 0);
}

/// By one bound, and by all of a runtime: inside of it and outside.
#[test]
fn what_is_shed_and_refused_is_counted() {
    let builder = Runtime::builder().cores(2).exit_when_idle(true);
    let mut simulation = builder.simulate(7).unwrap();
    let poster = simulation.poster();
    let counts = |stats: mely::metrics::Stats| (stats.events_shed, stats.events_refused);
    assert_eq!(counts(simulation.stats()), (0, 0));
    let state = Colored::new(&poster, COLOR, ());
    let one = state.bounded(4).shed_deeper_than(0);
    let other = state.bounded(1);
    for _ in 0..4 {
        one.try_post(&poster, |_, _cx| ()).unwrap();
    }
    other.try_post(&poster, |_, _cx| ()).unwrap();
    assert!(one.try_post(&poster, |_, _cx| ()).is_err());
    assert!(one.try_reserve().is_none());
    let (its, others) = (one.clone(), other.clone());
    simulation
        .run(move |cx| {
            // A task of the same runtime waits for room, and is not refused.
            let waits = others.clone();
            cx.post(COLOR, move |cx| {
                others.try_post(cx, |_, _cx| ()).unwrap();
                let refused = others.via(&WORK).try_post(cx, |_, _cx| ());
                assert!(refused.is_err());
                cx.spawn(Color::from(9), async move { drop(waits.reserve().await) });
            });
        })
        .unwrap();
    assert_eq!((its.shed(), its.refused()), (3, 2));
    assert_eq!((other.shed(), other.refused()), (0, 1));
    assert_eq!(counts(simulation.stats()), (3, 3));
}
