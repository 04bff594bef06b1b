//! What a runtime reports of its handlers: counts, times, shares, recommendations.

use crate::common::{Alive, Bound, cores};
use mely::metrics::{HandlerProfile, Profile};
use mely::runtime::{OnPanic, Stealing};
use mely::{Color, Cx, Handler, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static SPIN: Handler = Handler::new("spin");
static SHORT: Handler = Handler::new("short")
    .time(Duration::from_secs(1))
    .penalty(8);
static TWICE: Handler = Handler::new("twice");
static FAILS: Handler = Handler::new("fails");

const SPIN_TIME: Duration = Duration::from_micros(300);
const ROUNDS: u64 = 400;

fn spin(_cx: &mut Cx) {
    let begun = Instant::now();
    while begun.elapsed() < SPIN_TIME {
        std::hint::spin_loop();
    }
}

fn row<'a>(profile: &'a Profile, name: &str) -> &'a HandlerProfile {
    let mut rows = profile.handlers.iter().filter(|row| row.name == name);
    let row = rows
        .next()
        .unwrap_or_else(|| panic!("no {name} in {profile}"));
    assert!(rows.next().is_none(), "{name} twice in {profile}");
    row
}

/// Several handlers and closures in changing order, all on core 0 unless stolen.
fn mixed(cx: &mut Cx, spin: fn(&mut Cx)) {
    for i in 0..ROUNDS {
        let color = Color::from(2 * i);
        SPIN.on(color, spin).post(cx);
        SHORT
            .on(color, move |cx| {
                // Its own color: in the same batch, with another handler's events around it.
                let color = cx.color();
                cx.post(color, |_cx| ());
                TWICE.on(color, |_| ()).post(cx);
                TWICE.on(color, spin).post(cx);
            })
            .post(cx);
    }
    cx.stop();
}

fn run_mixed(n: usize, stealing: Stealing) -> (Profile, mely::metrics::Stats) {
    let runtime = cores(n).stealing(stealing).build().unwrap();
    let observer = runtime.poster();
    runtime.run(|cx| mixed(cx, spin)).unwrap();
    (observer.profile(), observer.stats())
}

fn check_counts(profile: &Profile, stats: &mely::metrics::Stats) {
    let events = |name| row(profile, name).events();
    assert_eq!(events("spin"), ROUNDS);
    assert_eq!(events("short"), ROUNDS);
    assert_eq!(events("twice"), 2 * ROUNDS, "one row for both closures");
    let closures = profile
        .handlers
        .iter()
        .filter(|row| row.name.contains("mixed::{{closure}}"));
    let mut closures: Vec<u64> = closures.map(HandlerProfile::events).collect();
    closures.sort_unstable();
    assert_eq!(closures, [1, ROUNDS], "the start, and the anonymous one");
    for (core, stats) in stats.cores.iter().enumerate() {
        let its = |row: &HandlerProfile| row.events_by_core[core];
        let sum: u64 = profile.handlers.iter().map(its).sum();
        assert_eq!(sum, stats.events, "core {core} of {profile}");
    }
}

#[test]
fn counts_are_exact_without_stealing() {
    let _bound = Bound::new("counts_are_exact_without_stealing");
    for n in [1, 2] {
        let (profile, stats) = run_mixed(n, Stealing::OFF);
        check_counts(&profile, &stats);
        assert!(profile.handlers.iter().all(|row| row.events_stolen == 0));
        assert!(profile.steals.iter().all(|at| at.steal_cost.is_none()));
    }
}

#[test]
fn counts_are_exact_with_stealing() {
    let _bound = Bound::new("counts_are_exact_with_stealing");
    let (profile, stats) = run_mixed(2, Stealing::default());
    check_counts(&profile, &stats);
    let spin = row(&profile, "spin");
    assert!(stats.steals() > 0);
    assert!(spin.events_stolen > 0, "it is the first of each color");
    let ran_elsewhere: u64 = profile.handlers.iter().map(|r| r.events_by_core[1]).sum();
    assert!(ran_elsewhere > 0);
    let stolen: u64 = profile.handlers.iter().map(|row| row.events_stolen).sum();
    let steals: u64 = profile.steals.iter().map(|at| at.steals).sum();
    assert!(stolen >= steals, "no color without an event is stolen");
    assert_eq!(steals, stats.steals());
    assert!(stats.steal_cost_median.unwrap() > Duration::ZERO);
    let at = profile.steals.iter().find(|at| at.steals > 0).unwrap();
    assert!(at.steal_cost.unwrap() > Duration::ZERO);
    assert!(at.stolen > Duration::ZERO);
}

#[test]
fn times_are_learned_and_recommended() {
    let _bound = Bound::new("times_are_learned");
    // In virtual time: a busy machine would make handlers longer than they are.
    let mut simulation = cores(1).stealing(Stealing::OFF).simulate(1).unwrap();
    let works = |cx: &mut Cx| mely::sim::work(cx, SPIN_TIME);
    simulation.run(move |cx| mixed(cx, works)).unwrap();
    let profile = simulation.profile();
    let spin = row(&profile, "spin");
    let mean = spin.mean.unwrap();
    assert!(mean >= SPIN_TIME * 9 / 10, "{mean:?}");
    assert!(mean <= SPIN_TIME * 11 / 10, "{mean:?}");
    let twice = row(&profile, "twice").mean.unwrap();
    assert!(twice < mean, "half of them do nothing");
    // Annotated with a second, far from the truth, so each event is timed.
    let short = row(&profile, "short");
    assert_eq!(short.annotated_time, Some(Duration::from_secs(1)));
    assert!(short.mean.unwrap() < Duration::from_secs(1) / 2);
    let text = profile.to_string();
    let told = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    for (name, ends) in [("spin", ")"), ("short", ".penalty(8)")] {
        let line = told(name).trim_end();
        assert!(line.contains(".time(Duration::from_"), "{line}");
        assert!(line.ends_with(ends), "{line}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    // The longest in all come first.
    let total = |row: &HandlerProfile| row.mean.unwrap() * row.events() as u32;
    let totals: Vec<_> = profile.handlers.iter().map(total).collect();
    assert!(
        totals.is_sorted_by(|before, after| before >= after),
        "{text}"
    );
}

/// Of a handler's closures each counts for as much as it ran.
#[test]
fn a_handlers_mean_is_over_all_its_events() {
    static UNEVEN: Handler = Handler::new("uneven");
    let mut simulation = cores(1).stealing(Stealing::OFF).simulate(1).unwrap();
    simulation
        .run(|cx| {
            for _ in 0..90 {
                let short = |cx: &mut Cx| mely::sim::work(cx, SPIN_TIME);
                UNEVEN.on(Color::from(1), short).post(cx);
            }
            for _ in 0..10 {
                let long = |cx: &mut Cx| mely::sim::work(cx, 5 * SPIN_TIME);
                UNEVEN.on(Color::from(2), long).post(cx);
            }
            cx.stop();
        })
        .unwrap();
    let profile = simulation.profile();
    let mean = row(&profile, "uneven").mean.unwrap();
    // 90 of them and 10 that take five times as long: 1.4 of it, and not 3.
    let expected = SPIN_TIME * 7 / 5;
    assert!(mean.abs_diff(expected) * 10 <= expected, "{mean:?}");
}

/// Every event of a program, seen from one of its handlers and by a poster.
#[test]
fn handlers_and_posters_see_it_too() {
    let _bound = Bound::new("handlers_and_posters_see_it_too");
    cores(1)
        .build()
        .unwrap()
        .run(|cx| {
            let seen = |profile: Profile| profile.handlers.iter().any(|row| row.name == "short");
            SHORT.on(Color::from(1), |_| ()).post(cx);
            assert!(!seen(cx.poster().profile()), "it has not run");
            let poster = cx.poster();
            // Its own handler's event begins after the other's, which is thereby counted.
            SPIN.on(Color::from(1), move |cx| {
                assert!(seen(cx.poster().profile()));
                assert!(seen(poster.profile()));
                cx.stop();
            })
            .post(cx);
        })
        .unwrap();
}

#[test]
fn an_event_that_panics_has_run() {
    let _bound = Bound::new("an_event_that_panics_has_run");
    let runtime = cores(1)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_| ())
        .build()
        .unwrap();
    let observer = runtime.poster();
    runtime
        .run(|cx| {
            for _ in 0..5 {
                FAILS
                    .on(Color::from(1), |_| panic!("as it should"))
                    .post(cx);
                SHORT.on(Color::from(1), |_| ()).post(cx);
            }
            cx.stop();
        })
        .unwrap();
    let profile = observer.profile();
    assert_eq!(row(&profile, "fails").events(), 5);
    assert!(row(&profile, "fails").mean.is_some(), "{profile}");
    assert_eq!(row(&profile, "short").events(), 5);
}

/// One handler that is never followed by another, on a core that is never idle.
#[test]
fn a_handler_that_runs_all_the_time_is_counted_meanwhile() {
    fn again(cx: &mut Cx, ran: u64) {
        if ran.is_multiple_of(1_000) {
            let profile = cx.poster().profile();
            if profile.handlers.iter().any(|row| row.name == "twice") {
                return cx.stop();
            }
            assert!(ran < 1_000_000, "not counted: {profile}");
        }
        let next = move |cx: &mut Cx| again(cx, ran + 1);
        TWICE.on(Color::from(1), next).post(cx);
    }
    let _bound = Bound::new("a_handler_that_runs_all_the_time");
    let runtime = cores(1).build().unwrap();
    let observer = runtime.poster();
    runtime.run(|cx| again(cx, 0)).unwrap();
    assert_eq!(
        row(&observer.profile(), "twice").events() % 1_000,
        0,
        "the last one"
    );
}

/// A program may make handlers without end: those that find no room among what is kept share one
/// entry, and their events run, or are dropped, like any other's.
#[test]
fn more_handlers_than_are_kept_run_all_the_same() {
    const MANY: u64 = 16_500;
    let made: Vec<&'static Handler> = (0..MANY)
        .map(|_| &*Box::leak(Box::new(Handler::new("made while it runs"))))
        .collect();
    for stops in [false, true] {
        let alive = Alive::default();
        let ran = Arc::new(AtomicU64::new(0));
        let (made, given, count) = (made.clone(), alive.clone(), Arc::clone(&ran));
        let ended = Runtime::builder()
            .cores(2)
            .exit_when_idle(true)
            .color_slots(1 << 10)
            .simulate(1)
            .unwrap()
            .run(move |cx| {
                for (i, handler) in made.into_iter().enumerate() {
                    let (payload, count) = (given.payload(), Arc::clone(&count));
                    let f = move |_cx: &mut Cx| {
                        drop(payload);
                        count.fetch_add(1, Ordering::Relaxed);
                    };
                    handler.on(Color::from(i as u64), f).post(cx);
                }
                assert!(!stops, "cut short");
            });
        assert_eq!(ended.is_err(), stops);
        if !stops {
            assert_eq!(ran.load(Ordering::Relaxed), MANY);
        }
        assert_eq!(alive.count(), 0, "closures are left");
    }
}
