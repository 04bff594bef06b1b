//! The virtual clocks of a simulation: the one that goes on by itself, and the time of day.

use mely::net::When;
use mely::sim::{Simulation, Step};
use mely::task::sleep;
use mely::{Callback, Color, Cx, Runtime};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3_600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What fired, and when by either clock.
type Log = Arc<Mutex<Vec<(&'static str, Duration, SystemTime)>>>;

fn set(cx: &mut Cx, log: &Log, name: &'static str, when: impl Into<When>) {
    let log = Arc::clone(log);
    let fires = move |cx: &mut Cx| {
        let fired = (name, cx.now(), cx.system_time());
        log.lock().unwrap().push(fired);
    };
    cx.timer(when, Callback::anonymous(Color::from(1), fires));
}

fn begin(seed: u64, start: impl FnOnce(&mut Cx) + Send + 'static) -> Simulation {
    let builder = Runtime::builder().cores(2).exit_when_idle(true);
    let mut simulation = builder.simulate(seed).unwrap();
    let start = |cx: &mut Cx| {
        // Something to step to.
        for after in [5, 10] {
            cx.timer(ms(after), Callback::anonymous(Color::from(9), |_cx| ()));
        }
        start(cx);
    };
    simulation.start(start).unwrap();
    simulation
}

/// Steps until this virtual time has come.
fn until(simulation: &mut Simulation, time: Duration) {
    while simulation.now() < time {
        assert!(!matches!(simulation.step(), Step::Ended | Step::Stalled));
    }
}

fn finish(mut simulation: Simulation) {
    while simulation.step() != Step::Ended {}
    simulation.end().unwrap();
}

fn names(log: &Log) -> Vec<&'static str> {
    log.lock().unwrap().iter().map(|&(name, ..)| name).collect()
}

#[test]
fn both_clocks_go_with_the_virtual_time() {
    let simulation = begin(1, |cx| {
        let (moment, time, now) = (cx.instant(), cx.system_time(), cx.now());
        let year_2000 = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
        assert!(time >= year_2000 && time < year_2000 + ms(1));
        let fires = move |cx: &mut Cx| {
            assert_eq!(cx.instant() - moment, cx.now() - now);
            assert_eq!(
                cx.system_time().duration_since(time).unwrap(),
                cx.now() - now
            );
            assert!(cx.now() - now >= HOUR);
        };
        cx.timer(moment + HOUR, Callback::anonymous(Color::from(1), fires));
    });
    finish(simulation);
}

#[test]
fn a_clock_that_is_set_forward_has_what_is_past_fire_at_once() {
    for seed in 0..20 {
        let log = Log::default();
        let its = Arc::clone(&log);
        let mut simulation = begin(seed, move |cx| {
            let (moment, time) = (cx.instant(), cx.system_time());
            set(cx, &its, "hour", time + HOUR);
            set(cx, &its, "two hours", time + 2 * HOUR);
            set(cx, &its, "soon", ms(20));
            set(cx, &its, "moment", moment + ms(30));
        });
        until(&mut simulation, ms(10));
        assert!(names(&log).is_empty());
        let time = simulation.system_time();
        simulation.set_system_time(time + HOUR);
        assert!(simulation.system_time() >= time + HOUR);
        finish(simulation);
        assert_eq!(
            names(&log),
            ["hour", "soon", "moment", "two hours"],
            "seed {seed}"
        );
        let log = log.lock().unwrap();
        let (_, at, _) = log[0];
        assert!(at < ms(11), "seed {seed}: at {at:?}");
        let (_, at, _) = log[3];
        // It is an hour less that it took.
        assert!(
            at >= HOUR - ms(11) && at < HOUR + ms(1),
            "seed {seed}: at {at:?}"
        );
    }
}

#[test]
fn a_clock_that_is_set_back_is_waited_for() {
    for seed in 0..20 {
        let log = Log::default();
        let its = Arc::clone(&log);
        let mut simulation = begin(seed, move |cx| {
            let (moment, time) = (cx.instant(), cx.system_time());
            set(cx, &its, "time", time + ms(20));
            set(cx, &its, "slack", When::from(time + ms(20)).slack(ms(10)));
            set(cx, &its, "soon", ms(20));
            set(cx, &its, "moment", moment + ms(30));
        });
        let time = simulation.system_time();
        until(&mut simulation, ms(10));
        simulation.set_system_time(time - HOUR);
        finish(simulation);
        assert_eq!(
            names(&log),
            ["soon", "moment", "time", "slack"],
            "seed {seed}"
        );
        let log = log.lock().unwrap();
        for &(name, at, shows) in &log[2..] {
            assert!(shows >= time + ms(20), "seed {seed}: {name} early");
            assert!(at >= HOUR + ms(30), "seed {seed}: {name} at {at:?}");
        }
    }
}

/// Also before 1970, and beyond what the clock can show.
#[test]
fn a_clock_can_be_set_to_anything() {
    let log = Log::default();
    let its = Arc::clone(&log);
    let simulation = begin(1, move |cx| {
        let time = cx.system_time();
        set(cx, &its, "time", time + HOUR);
    });
    simulation.set_system_time(SystemTime::UNIX_EPOCH - HOUR);
    assert_eq!(simulation.system_time(), SystemTime::UNIX_EPOCH);
    simulation.set_system_time(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40));
    finish(simulation);
    assert_eq!(names(&log), ["time"]);
}

/// With slack a core wakes up once for many, at the last moment that all of them allow.
#[test]
fn a_core_wakes_up_once_for_those_within_their_slack() {
    for wall in [false, true] {
        let log = Log::default();
        let its = Arc::clone(&log);
        let simulation = begin(3, move |cx| {
            for i in 0..10 {
                let after = ms(11 + i);
                let when = match wall {
                    true => When::from(cx.system_time() + after),
                    false => When::from(after),
                };
                set(cx, &its, "slack", when.slack(ms(20)));
            }
            set(cx, &its, "other", ms(100));
        });
        finish(simulation);
        let log = log.lock().unwrap();
        assert_eq!(log.len(), 11);
        for &(name, at, _) in &log[..10] {
            assert_eq!(name, "slack");
            assert!(
                at >= ms(31) && at < ms(32),
                "at {at:?}, by the time of day: {wall}"
            );
        }
    }
}

/// A sleep goes on after a stop, by whatever clock; an ordinary timer does not.
#[test]
fn after_a_stop_sleeps_go_on_by_the_time_of_day() {
    let log = Log::default();
    let its = Arc::clone(&log);
    let mut simulation = begin(5, move |cx| {
        let time = cx.system_time();
        set(cx, &its, "dropped", time + ms(1));
        cx.spawn(Color::from(2), async move {
            sleep(time + ms(20)).await;
            mely::task::with_cx(|cx| {
                let slept = ("slept", cx.now(), cx.system_time());
                its.lock().unwrap().push(slept);
            });
        });
        cx.timer(
            Duration::ZERO,
            Callback::anonymous(Color::from(3), |cx| cx.stop()),
        );
    });
    until(&mut simulation, ms(5));
    simulation.set_system_time(simulation.system_time() - ms(10));
    finish(simulation);
    assert_eq!(names(&log), ["slept"]);
    let (_, at, _) = log.lock().unwrap()[0];
    assert!(at >= ms(30) && at < ms(31), "at {at:?}");
}
