//! Blocking work in simulated runs.

use super::{COLOR, RESULT, SHORT};
use mely::Post;
use mely::Reason;
use mely::sim::Step;
use mely::task::JoinError;
use mely::{Color, Cx, Rejected, Runtime};
use std::sync::{Arc, Mutex};

/// What each seed makes of six pieces of work on two virtual threads: the order of the results.
fn simulated(seed: u64) -> (Vec<u64>, u64) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let results = Arc::clone(&order);
    let mut simulation = Runtime::builder()
        .cores(3)
        .blocking_threads_max(2)
        .exit_when_idle(true)
        .simulate(seed)
        .unwrap();
    simulation
        .run(move |cx| {
            let handles: Vec<_> = (0..6u64)
                .map(|i| {
                    let results = Arc::clone(&results);
                    type Named = Result<(u64, String), JoinError>;
                    let done = RESULT.on_value(COLOR, move |cx, named: Named| {
                        let (i, thread) = named.unwrap();
                        assert_eq!(cx.color(), COLOR);
                        assert!(["mely-0", "mely-1", "mely-2"].contains(&&*thread));
                        results.lock().unwrap().push(i);
                    });
                    let name = || std::thread::current().name().unwrap().to_owned();
                    let given = cx.try_blocking(move || (i, name())).unwrap();
                    (given, done)
                })
                .collect();
            // The last one has to wait for those before it.
            handles[5].0.cancel();
            for (given, done) in handles.into_iter().take(5) {
                given.then(cx, done);
            }
        })
        .unwrap();
    let stats = simulation.stats().blocking;
    assert_eq!(
        (stats.threads_max, stats.started, stats.canceled),
        (2, 5, 1)
    );
    let order = order.lock().unwrap().clone();
    (order, simulation.fingerprint())
}

#[test]
fn in_a_simulation_the_seed_decides() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let (order, fingerprint) = simulated(seed);
        assert_eq!(simulated(seed), (order.clone(), fingerprint));
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        orders.insert(order);
    }
    assert!(orders.len() > 3, "{orders:?}");
}

/// The result comes after what was posted before the work was given away, though nobody has
/// flushed, and the handler goes on.
#[test]
fn what_was_posted_before_comes_before_the_result() {
    const LAST: Color = Color::new(8);
    for seed in 0..100 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let push = |what: &'static str| {
            let order = Arc::clone(&order);
            move |_cx: &mut Cx| order.lock().unwrap().push(what)
        };
        let (before, after) = (push("before"), push("after"));
        let seen = Arc::clone(&order);
        let builder = Runtime::builder().cores(3);
        let builder = builder.blocking_threads_max(1).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        simulation
            .run(move |cx| {
                // The thread is started by another event.
                for _ in 0..5 {
                    let nothing = RESULT.on_value(COLOR, |_cx, _| ());
                    cx.try_blocking(|| ()).unwrap().then(cx, nothing);
                }
                let gives = move |cx: &mut Cx| {
                    SHORT.on(LAST, before).post(cx);
                    let result = move |cx: &mut Cx, _| SHORT.on(LAST, after).post(cx);
                    let result = SHORT.on_value(Color::from(11), result);
                    cx.try_blocking(|| ()).unwrap().then(cx, result);
                    while seen.lock().unwrap().is_empty() {
                        mely::sim::pause(cx);
                    }
                };
                SHORT.on(Color::from(10), gives).post(cx);
            })
            .unwrap();
        let order = order.lock().unwrap().clone();
        assert_eq!(order, ["before", "after"], "with seed {seed}");
    }
}

/// What the work posts comes from outside, as on threads.
#[test]
fn in_a_simulation_work_is_outside() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation
        .start(|cx| {
            let (poster, keep_alive) = (cx.poster(), cx.strong_poster());
            let work = move || {
                assert!(matches!(
                    poster.try_post(COLOR, |_cx| ()),
                    Err(Rejected {
                        reason: Reason::Ended,
                        ..
                    })
                ));
                keep_alive.try_post(COLOR, |_cx| ()).unwrap();
            };
            cx.try_blocking(work).unwrap();
            cx.stop();
        })
        .unwrap();
    while simulation.step() != Step::Ended {}
    simulation.end().unwrap();
}
