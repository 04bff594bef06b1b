//! Timers that are due at a moment or at a time of day, and timers with slack.

use crate::common::{Alive, Bound, LONG, backends, cores};
use mely::net::When;
use mely::task::{Elapsed, sleep, timeout};
use mely::{Callback, Color, Cx, Handler, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

fn on<F: FnOnce(&mut Cx) + Send + 'static>(color: u64, f: F) -> Callback<F> {
    Callback::anonymous(Color::from(color), f)
}

const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Times of day, moments and durations in one order, and none of them early.
#[test]
fn each_clock_is_kept() {
    let _bound = Bound::new("each_clock_is_kept");
    for backend in backends() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        let runtime = cores(2).backend(backend).build().unwrap();
        runtime
            .run(move |cx| {
                let (moment, time) = (Instant::now(), SystemTime::now());
                for after in [60, 20, 40, 0] {
                    let order = Arc::clone(&order);
                    let at = time + ms(after);
                    let fires = on(1, move |_cx: &mut Cx| {
                        assert!(SystemTime::now() >= at, "early");
                        order.lock().unwrap().push(after);
                    });
                    cx.timer(at, fires);
                }
                for after in [50, 30, 70, 10] {
                    let order = Arc::clone(&order);
                    let at = moment + ms(after);
                    let fires = on(1, move |cx: &mut Cx| {
                        assert!(Instant::now() >= at && cx.instant() >= at, "early");
                        order.lock().unwrap().push(after);
                        if after == 70 {
                            cx.stop();
                        }
                    });
                    cx.timer(at, fires);
                }
            })
            .unwrap();
        // Each clock's own are in order; a late core may find those of both due at once.
        let order = seen.lock().unwrap();
        let of = |times: [u64; 4]| {
            let its = order.iter().filter(move |after| times.contains(after));
            assert!(its.eq(&times), "{order:?}");
        };
        of([0, 20, 40, 60]);
        of([10, 30, 50, 70]);
    }
}

#[test]
fn what_is_past_is_due_at_once_and_what_is_far_is_never() {
    let _bound = Bound::new("what_is_past_is_due");
    for backend in backends() {
        let alive = Alive::default();
        let payload = alive.payload();
        let left = Arc::new(AtomicU64::new(4));
        cores(1)
            .backend(backend)
            .build()
            .unwrap()
            .run(move |cx| {
                let never = |payload| {
                    on(1, move |_cx: &mut Cx| {
                        drop(payload);
                        unreachable!()
                    })
                };
                cx.timer(SystemTime::now() + 1_000 * YEAR, never(payload));
                let canceled = cx.timer(SystemTime::now() + ms(1), never(alive.payload()));
                canceled.cancel(cx);
                let before_1970 = SystemTime::UNIX_EPOCH - YEAR;
                let past: [When; 4] = [
                    before_1970.into(),
                    (SystemTime::now() - HOUR).into(),
                    (Instant::now() - ms(1)).into(),
                    When::from(SystemTime::UNIX_EPOCH).slack(HOUR),
                ];
                for when in past {
                    let left = Arc::clone(&left);
                    let fires = move |cx: &mut Cx| {
                        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                            cx.stop();
                        }
                    };
                    cx.timer(when, on(1, fires));
                }
            })
            .unwrap();
    }
}

/// A core that sleeps wakes up for many timers together, and a canceled one is not waited for.
#[test]
fn timers_within_their_slack_fire_together() {
    const TIMERS: u64 = 200;
    let _bound = Bound::new("timers_within_their_slack");
    for backend in backends() {
        for wall in [false, true] {
            let builder = cores(1).backend(backend.clone()).spin(Duration::ZERO);
            let runtime = builder.build().unwrap();
            let observer = runtime.poster();
            runtime
                .run(move |cx| {
                    let fired = Arc::new(AtomicU64::new(0));
                    for i in 0..TIMERS {
                        let (fired, after) = (Arc::clone(&fired), ms(1) * i as u32);
                        let (moment, time) = (Instant::now() + after, SystemTime::now() + after);
                        let when = match wall {
                            true => When::from(time),
                            false => When::from(moment),
                        };
                        let fires = on(1, move |cx: &mut Cx| {
                            assert!(wall || Instant::now() >= moment, "early");
                            assert!(!wall || SystemTime::now() >= time, "early");
                            if fired.fetch_add(1, Ordering::Relaxed) == TIMERS - 1 {
                                cx.stop();
                            }
                        });
                        cx.timer(when.slack(ms(50)), fires);
                    }
                })
                .unwrap();
            let parks = observer.stats().cores[0].parks;
            assert!(
                (1..TIMERS / 4).contains(&parks),
                "went to sleep {parks} times"
            );
        }
    }
}

/// An interval keeps its times though each is late, and has no slack that adds up.
#[test]
fn an_interval_has_slack() {
    let _bound = Bound::new("an_interval_has_slack");
    let runtime = cores(1).spin(Duration::ZERO).build().unwrap();
    let (observer, poster) = (runtime.poster(), runtime.poster());
    let began = Instant::now();
    let mut ticks = 0;
    let tick = Callback::anonymous_each(Color::from(1), move |cx: &mut Cx, ()| {
        ticks += 1;
        assert!(began.elapsed() >= ms(2) * ticks, "early");
        if ticks == 20 {
            cx.stop();
        }
    });
    poster
        .interval(When::from(ms(2)).slack(ms(1)), tick)
        .unwrap();
    for color in 2..12 {
        let other = Callback::anonymous_each(Color::from(color), |_cx: &mut Cx, ()| ());
        poster
            .interval(When::from(ms(2)).slack(ms(20)), other)
            .unwrap();
    }
    runtime.run(|_cx| ()).unwrap();
    let parks = observer.stats().cores[0].parks;
    assert!((1..100).contains(&parks), "went to sleep {parks} times");
}

#[test]
fn an_interval_is_no_point_in_time() {
    let runtime = Runtime::builder().cores(1).build().unwrap();
    let poster = runtime.poster();
    for when in [When::from(Instant::now()), When::from(SystemTime::now())] {
        let tick = Callback::anonymous_each(Color::from(1), |_cx: &mut Cx, ()| ());
        let set = catch_unwind(AssertUnwindSafe(|| poster.interval(when, tick)));
        let told = set.unwrap_err();
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.contains("needs a Duration"), "{told}");
    }
}

#[test]
fn a_poster_and_tasks_take_moments_and_times_of_day() {
    let _bound = Bound::new("a_poster_and_tasks");
    for backend in backends() {
        let runtime = cores(2).backend(backend).build().unwrap();
        let poster = runtime.poster();
        let (moment, time) = (Instant::now() + ms(3), SystemTime::now() + ms(3));
        let (tell, told) = std::sync::mpsc::channel();
        let its = tell.clone();
        let fires = on(3, move |_cx| its.send(SystemTime::now() >= time).unwrap());
        poster.timer(time, fires).unwrap();
        runtime
            .run(move |cx| {
                cx.spawn(Color::from(7), async move {
                    sleep(moment).await;
                    tell.send(Instant::now() >= moment).unwrap();
                    sleep(time).await;
                    let later = SystemTime::now() + ms(3);
                    sleep(When::from(later).slack(ms(2))).await;
                    tell.send(SystemTime::now() >= later).unwrap();
                    let never = std::future::pending::<()>();
                    tell.send(timeout(later, never).await == Err(Elapsed))
                        .unwrap();
                    let at_once = timeout(Instant::now() + HOUR, async {}).await;
                    tell.send(at_once.is_ok()).unwrap();
                    // Dropped, it is canceled.
                    let _ = timeout(ms(1), sleep(SystemTime::now() + HOUR)).await;
                    mely::task::with_cx(|cx| cx.stop());
                });
            })
            .unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [true; 5]);
    }
}

/// While a core is inside a handler, another one fires what is due there, by whatever clock; also
/// if the handler was thought to be short.
#[test]
fn timers_of_a_core_that_computes_are_fired_by_another() {
    static LONG_ONE: Handler = Handler::new("long").time(ms(3));
    static SURPRISE: Handler = Handler::new("a surprise");
    let _bound = Bound::new("timers_of_a_core_that_computes");
    for backend in backends() {
        for handler in [&LONG_ONE, &SURPRISE] {
            for wall in [false, true] {
                let runtime = cores(2).backend(backend.clone()).build().unwrap();
                let computes = handler.on(Color::from(99), move |cx: &mut Cx| {
                    let fired = Arc::new(AtomicU64::new(0));
                    for color in 0..4 {
                        let its = Arc::clone(&fired);
                        let fires = on(color, move |_cx: &mut Cx| {
                            its.fetch_add(1, Ordering::Relaxed);
                        });
                        match wall {
                            true => cx.timer(SystemTime::now() + ms(2), fires),
                            false => cx.timer(ms(2), fires),
                        };
                    }
                    let since = Instant::now();
                    while fired.load(Ordering::Relaxed) < 4 {
                        assert!(since.elapsed() < LONG, "no other core has seen to it");
                    }
                    cx.stop();
                });
                // The other core sleeps by then.
                runtime
                    .run(move |cx| drop(cx.timer(ms(20), computes)))
                    .unwrap();
            }
        }
    }
}
