//! What a runtime tells about itself: slow handlers while they run, counters.

use crate::common::{Alive, Bound, cores, eventually};
use mely::Post;
use mely::runtime::{SlowHandler, Stealing};
use mely::{Color, Cx, Handler, Runtime, sim};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static SLOW: Handler = Handler::new("slow");

#[test]
fn a_slow_handler_is_reported_once_while_it_runs() {
    let _bound = Bound::new("a_slow_handler");
    let running = Arc::new(AtomicBool::new(false));
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (told, inside) = (Arc::clone(&reports), Arc::clone(&running));
    let limit = Duration::from_millis(20);
    cores(2)
        .on_slow_handler(limit, move |slow| {
            assert!(inside.load(Ordering::Acquire), "it is over already");
            told.lock().unwrap().push(slow.clone());
        })
        .build()
        .unwrap()
        .run({
            let reports = Arc::clone(&reports);
            move |cx| {
                let slow = SLOW.on(Color::from(1), move |cx| {
                    running.store(true, Ordering::Release);
                    eventually("the report", || !reports.lock().unwrap().is_empty());
                    // Long enough for another look, which must say nothing more.
                    std::thread::sleep(3 * limit);
                    running.store(false, Ordering::Release);
                    assert_eq!(reports.lock().unwrap()[0].core, cx.core());
                    cx.stop();
                });
                // When nothing has happened for long.
                cx.timer(Duration::from_millis(50), slow);
            }
        })
        .unwrap();
    let reports = reports.lock().unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(reports[0].handler, "slow");
    assert!(reports[0].running_for >= limit);
}

/// A hook that panics cuts the run short, and the panic comes out of `run` when every core has
/// left.
#[test]
fn a_hook_that_panics_comes_out_of_run() {
    let _bound = Bound::new("a_hook_that_panics");
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(2)
        .on_slow_handler(Duration::from_millis(1), |slow: &SlowHandler| {
            // On a busy machine the closure that `run` is given is slow too.
            if slow.handler == "slow" {
                panic!("{} is slow", slow.handler);
            }
        })
        .build()
        .unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.run(move |cx| {
            SLOW.on(Color::from(1), move |cx| {
                let payload = given.payload();
                cx.post(Color::from(1), move |_cx| drop(payload));
                eventually("the end", || cx.stopping());
            })
            .post(cx);
        })
    }));
    let message = outcome.unwrap_err();
    assert_eq!(*message.downcast::<String>().unwrap(), "slow is slow");
    assert_eq!(alive.count(), 0);
}

#[test]
fn a_hook_that_panics_cuts_a_simulation_short() {
    let mut simulation = cores(2)
        .on_slow_handler(Duration::from_millis(1), |slow: &SlowHandler| {
            panic!("{} is slow", slow.handler)
        })
        .simulate(1)
        .unwrap();
    let poster = simulation.poster();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        simulation.run(|cx| {
            let work = |cx: &mut Cx| sim::work(cx, Duration::from_secs(1));
            SLOW.on(Color::from(1), work).post(cx);
        })
    }));
    let message = outcome.unwrap_err();
    assert_eq!(*message.downcast::<String>().unwrap(), "slow is slow");
    poster.try_post(Color::from(1), |_cx| ()).unwrap_err();
}

/// In virtual time: one report for each run over the limit, to within a quarter of it, and none for
/// many short runs in a row.
#[test]
fn runs_over_the_limit_are_reported_once_and_in_time() {
    const LIMIT: Duration = Duration::from_millis(200);
    for (runs, takes, expected) in [(10, LIMIT / 4, 0), (3, LIMIT * 3, 3)] {
        for cores in [1, 2] {
            let reports = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&reports);
            Runtime::builder()
                .cores(cores)
                .exit_when_idle(true)
                .on_slow_handler(LIMIT, move |slow: &SlowHandler| {
                    told.lock().unwrap().push(slow.clone());
                })
                .simulate(1)
                .unwrap()
                .run(move |cx| {
                    for _ in 0..runs {
                        // Posted before anybody knows how long they take: one batch.
                        let work = move |cx: &mut Cx| sim::work(cx, takes);
                        SLOW.on(Color::from(1), work).post(cx);
                    }
                })
                .unwrap();
            let reports = reports.lock().unwrap();
            assert_eq!(reports.len(), expected, "{reports:?}");
            for report in &*reports {
                assert_eq!(report.handler, "slow");
                assert!((LIMIT..=LIMIT * 5 / 4).contains(&report.running_for));
            }
        }
    }
}

#[test]
fn counters_add_up() {
    const EVENTS: u64 = 10_000;
    let _bound = Bound::new("counters_add_up");
    let runtime = cores(2).build().unwrap();
    let observer = runtime.poster();
    let poster = runtime.poster();
    for i in 0..100 {
        poster.try_post(Color::from(i), |_cx| ()).unwrap();
    }
    assert_eq!(observer.stats().events(), 0, "nothing runs before the run");
    assert_eq!(observer.stats().posts_foreign, 100);
    runtime
        .run(|cx| {
            for i in 0..EVENTS {
                cx.post(Color::from(i), |_cx| ());
            }
            let work = SLOW.on(Color::from(1), |cx| {
                std::thread::sleep(Duration::from_millis(5));
                cx.stop();
            });
            work.post(cx);
        })
        .unwrap();
    let stats = observer.stats();
    assert_eq!(stats.cores.len(), 2);
    // The hundred, the start, the many, the slow one.
    assert_eq!(stats.events(), 100 + 1 + EVENTS + 1);
    assert_eq!(stats.posts_foreign, 101);
    let posts: u64 = stats
        .cores
        .iter()
        .map(|c| c.posts_local + c.posts_remote)
        .sum();
    assert_eq!(posts, EVENTS + 1);
    assert!(stats.cores.iter().all(|core| core.colors_queued == 0));
    assert!(stats.cores.iter().any(|core| core.quanta > 0));
    let longest = stats.cores.iter().map(|c| c.handler_max).max().unwrap();
    assert!(longest >= Duration::from_millis(5), "{longest:?}");
    assert!(longest < Duration::from_secs(30), "{longest:?}");
    // The hundred were all queued at once; how many of the many were is the cores' business.
    assert!(stats.event_bytes >= 100 * 64);
    assert!(
        stats
            .steal_cost
            .iter()
            .all(|(_, cost)| *cost > Duration::ZERO)
    );
    assert!(stats.cores.iter().all(|core| core.panics == 0));
}

/// Many long colors on one core: the other one steals some, and says so consistently.
#[test]
fn steals_are_counted() {
    let _bound = Bound::new("steals_are_counted");
    let run = |stealing| {
        let runtime = cores(2).stealing(stealing).build().unwrap();
        let observer = runtime.poster();
        runtime
            .run(|cx| {
                for i in 0..200 {
                    // Even colors: all on core 0.
                    SLOW.on(Color::from(2 * i), |_cx| {
                        std::thread::sleep(Duration::from_micros(200));
                    })
                    .post(cx);
                }
                cx.stop();
            })
            .unwrap();
        observer.stats()
    };
    let stats = run(Stealing::default());
    assert!(stats.steals() > 0);
    for core in &stats.cores {
        for steals in &core.steals {
            assert!(steals.tried >= steals.won, "{steals:?}");
            assert!(steals.colors >= steals.won, "{steals:?}");
            assert!(
                steals.won == 0 || steals.cost > Duration::ZERO,
                "{steals:?}"
            );
        }
    }
    assert!(stats.cores[1].events > 0, "what was stolen ran there");
    let stats = run(Stealing::OFF);
    assert_eq!(stats.steals(), 0);
    assert_eq!((stats.cores[0].events, stats.cores[1].events), (201, 0));
}

#[test]
fn sleeping_and_waking_is_counted() {
    let _bound = Bound::new("sleeping_and_waking");
    let runtime = cores(2)
        .spin(Duration::ZERO)
        .stealing(Stealing::OFF)
        .build()
        .unwrap();
    let observer = runtime.poster();
    let poster = runtime.poster();
    let thread = std::thread::spawn(move || {
        let parks = || poster.stats().cores.iter().map(|c| c.parks).sum::<u64>();
        for i in 0..10 {
            let before = parks();
            poster.try_post(Color::from(i), |_cx| ()).unwrap();
            eventually("asleep again", || parks() > before);
        }
        poster.stop();
    });
    runtime.run(|_cx| ()).unwrap();
    thread.join().unwrap();
    let stats = observer.stats();
    assert!(stats.cores.iter().map(|c| c.parks).sum::<u64>() >= 10);
    assert_eq!(stats.events(), 11);
}

#[test]
fn handlers_and_closures_have_names() {
    let _bound = Bound::new("handlers_and_closures");
    cores(1)
        .build()
        .unwrap()
        .run(|cx| {
            assert!(cx.handler().contains("handlers_and_closures_have_names"));
            SLOW.on(Color::from(1), |cx| {
                assert_eq!(cx.handler(), "slow");
                assert_eq!(cx.color(), Color::from(1));
                cx.stop();
            })
            .post(cx);
        })
        .unwrap();
}

/// Wherever events wait, they are counted: queued, mailed to a color that runs, or taken to run.
#[test]
fn waiting_events_are_counted_wherever_they_are() {
    const EACH: u64 = 10_000;
    let _bound = Bound::new("waiting_events");
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let (inside, entered) = channel();
    let (leave, left) = channel::<()>();
    let thread = std::thread::spawn(move || {
        // The handler that blocks has begun, and what is behind it is posted: the one or the other
        // first.
        entered.recv().unwrap();
        entered.recv().unwrap();
        // To a color that runs: 5, with as many of its own; to one that waits behind it: 7.
        for color in [5, 7] {
            for _ in 0..EACH {
                poster.try_post(Color::from(color), |_cx| ()).unwrap();
            }
        }
        // The first event may still be posting, on the other core.
        eventually("the events of color 5", || {
            let deepest = poster.deepest_colors(1);
            deepest.first().is_some_and(|d| d.events >= 2 * EACH)
        });
        let deepest = poster.deepest_colors(2);
        let stats = poster.stats();
        leave.send(()).unwrap();
        eventually("the end of all", || poster.stats().events_waiting <= 1);
        assert_eq!(poster.deepest_colors(2), []);
        poster.stop();
        (deepest, stats)
    });
    runtime
        .run(move |cx| {
            let posted = inside.clone();
            let block = move |_cx: &mut Cx| {
                inside.send(()).unwrap();
                left.recv().unwrap();
            };
            cx.post(Color::from(5), block);
            for _ in 0..EACH {
                cx.post(Color::from(5), |_cx| ());
            }
            cx.flush();
            posted.send(()).unwrap();
        })
        .unwrap();
    let (deepest, stats) = thread.join().unwrap();
    let found: Vec<_> = deepest.iter().map(|d| (d.color, d.running)).collect();
    assert_eq!(found[0], (Some(Color::from(5)), true), "{deepest:?}");
    // The one that runs is counted as taken.
    assert!(
        (2 * EACH..=2 * EACH + 1).contains(&deepest[0].events),
        "{deepest:?}"
    );
    // Those of 7 wait behind it, or were run by the other core meanwhile.
    assert!(
        deepest.get(1).is_none_or(|d| d.events <= EACH),
        "{deepest:?}"
    );
    assert!(stats.events_waiting >= 2 * EACH, "{}", stats.events_waiting);
    assert!(
        stats.events_waiting <= 3 * EACH + 2,
        "{}",
        stats.events_waiting
    );
}
