//! Handlers that take longer than they ever did: what waits for them, in the virtual time of
//! simulated runs.
//!
//! The normal case of a handler is bimodal: a cache hit or a miss. So one closure type takes some
//! 50 ns for long enough to be taken for short, and then now and then, or each time, very much
//! longer.

use crate::common::calls::Calls;
use mely::net::{Acceptors, Incoming, RecvBuf, Stream};
use mely::sim;
use mely::{Callback, Color, Cx, Handler, Runtime};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHORT: Duration = Duration::from_nanos(50);
/// The watchdog's period, unless told otherwise: a core looks up after two of them at the latest.
const WATCHDOG: Duration = Duration::from_micros(500);
const LOOK_UP: Duration = Duration::from_millis(1);
/// Steps of the simulation itself, at the slowest pace: some of 4 us each.
const STEPS: Duration = Duration::from_micros(300);
/// Events after which a handler is well known.
const KNOWN: u32 = 5_000;

static WORK: Handler = Handler::new("work");
static OTHER: Handler = Handler::new("other").time(SHORT);
static READ: Handler = Handler::new("read");

/// How long the events of a handler take, one after the other.
#[derive(Clone, Copy, Debug)]
struct Mix {
    long: Duration,
    /// One in this many is long, from the first that may be.
    one_in: u32,
    random: u64,
}

impl Mix {
    fn next(&mut self, event: u32) -> Duration {
        // A linear congruential generator: the same for each seed.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        let hit = ((self.random >> 33) as u32).is_multiple_of(self.one_in);
        if event > KNOWN && hit {
            self.long
        } else {
            SHORT
        }
    }
}

/// An event that works and posts the next to its own color.
fn chain(cx: &mut Cx, event: u32, mut mix: Mix, end: Duration) {
    sim::work(cx, mix.next(event));
    if cx.now() < end {
        let next = move |cx: &mut Cx| chain(cx, event + 1, mix, end);
        WORK.on(cx.color(), next).post(cx);
    }
}

fn mixes(seed: u64) -> impl Iterator<Item = Mix> {
    let longs = [20, 100, 400, 1_000, 5_000].map(Duration::from_micros);
    longs.into_iter().flat_map(move |long| {
        [1, 2, 10, 100, 1_000].map(|one_in| Mix {
            long,
            one_in,
            random: seed,
        })
    })
}

/// When each timer should have fired, and when it did.
type Fired = Arc<Mutex<Vec<(Duration, Duration)>>>;

/// A timer of a color of its own, which sets the next.
fn tick(cx: &mut Cx, fired: Fired, end: Duration) {
    // Not in step with the handlers, nor with the watchdog.
    let after =
        Duration::from_nanos(730_001 + fired.lock().unwrap().len() as u64 * 7_919 % 997_001);
    let due = cx.now() + after;
    let fires = move |cx: &mut Cx| {
        fired.lock().unwrap().push((due, cx.now()));
        if cx.now() < end {
            tick(cx, fired, end);
        }
    };
    cx.timer(after, Callback::anonymous(Color::from(101), fires));
}

/// By how much the latest timer was late, beside a chain of this mix on the same core.
fn latest_timer(cores: usize, mix: Mix, watchdog: Duration) -> Duration {
    let builder = Runtime::builder().cores(cores);
    let builder = builder.watchdog(watchdog).exit_when_idle(true);
    let mut simulation = builder.simulate(mix.random).unwrap();
    let fired = Fired::default();
    let ticking = Arc::clone(&fired);
    simulation
        .run(move |cx| {
            let end = Duration::from_millis(30);
            WORK.on(Color::from(1), move |cx| {
                tick(cx, ticking, end);
                chain(cx, 0, mix, end);
            })
            .post(cx);
        })
        .unwrap();
    let fired = fired.lock().unwrap();
    assert!(fired.len() > 3);
    let late = |&(due, at): &(Duration, Duration)| at.checked_sub(due).expect("never early");
    fired.iter().map(late).max().unwrap()
}

#[test]
fn no_timer_waits_for_more_than_two_handlers_and_a_millisecond() {
    for cores in [1, 2] {
        for mix in (0..3).flat_map(mixes) {
            let late = latest_timer(cores, mix, WATCHDOG);
            let most = 2 * mix.long + LOOK_UP + STEPS;
            assert!(late <= most, "{cores} cores, {mix:?}: {late:?} late");
        }
    }
}

/// It is the watchdog that sees it: the same mixes make a core that nobody watches blind.
#[test]
fn without_the_watchdog_timers_wait_for_longer() {
    let blind = |mix: &Mix| {
        let late = latest_timer(1, *mix, Duration::MAX);
        late > 2 * mix.long + LOOK_UP + STEPS
    };
    assert!(mixes(0).filter(blind).count() > 3);
}

#[test]
fn no_completion_waits_for_more_than_two_handlers_and_a_millisecond() {
    for mix in mixes(1) {
        let builder = Runtime::builder().cores(1);
        let mut simulation = builder.simulate(mix.random).unwrap();
        let (address, arrived) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
        let (told, arrives) = (Arc::clone(&address), Arc::clone(&arrived));
        simulation
            .start(move |cx| {
                let on_accept = Callback::anonymous_each(
                    Color::from(101),
                    move |_: &mut Cx, incoming: io::Result<Incoming>| {
                        let stream = incoming.unwrap().open(Color::from(101));
                        let arrives = Arc::clone(&arrives);
                        let read =
                            move |cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                                if data.is_ok_and(|data| data.is_some()) {
                                    arrives.lock().unwrap().push(cx.now());
                                }
                            };
                        Calls::new(read).serve(stream, &READ);
                    },
                );
                let any = "127.0.0.1:0";
                let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
                *told.lock().unwrap() = Some(listener.local_addr());
                cx.post(Color::from(2), move |cx| {
                    chain(cx, 0, mix, Duration::from_hours(1));
                });
            })
            .unwrap();
        while address.lock().unwrap().is_none() {
            simulation.step();
        }
        let address = address.lock().unwrap().clone().unwrap();
        let mut client = simulation.network().connect(address).unwrap();
        for i in 0..12 {
            // Among others while the handler surprises for the first time.
            let pause = Duration::from_nanos(300_007 + i * 211_003);
            let begun = simulation.now();
            while simulation.now() < begun + pause {
                simulation.step();
            }
            let sent = simulation.now();
            client.write_all(&[1]).unwrap();
            while arrived.lock().unwrap().len() as u64 <= i {
                simulation.step();
            }
            let late = arrived.lock().unwrap()[i as usize] - sent;
            let most = 2 * mix.long + LOOK_UP + STEPS;
            assert!(late <= most, "{mix:?}: {late:?} late");
        }
    }
}

/// On two cores, of which one sleeps whenever it can: rounds of one long event and of short ones of
/// other colors behind it on the same core, after many short events of that closure type. Returns,
/// for each round, how many of those that waited began later than `after` the long one did.
fn rounds(seed: u64, long: Duration, after: Duration) -> Vec<usize> {
    const ROUNDS: usize = 8;
    const BEHIND: u64 = 20;
    type Log = Arc<Mutex<Vec<(usize, bool, Duration)>>>;
    fn work(cx: &mut Cx, takes: Duration, round: usize, log: &Log) {
        if takes > SHORT {
            log.lock().unwrap().push((round, true, cx.now()));
        }
        sim::work(cx, takes);
    }
    fn post(cx: &mut Cx, color: Color, takes: Duration, round: usize, log: &Log) {
        let log = Arc::clone(log);
        WORK.on(color, move |cx| work(cx, takes, round, &log))
            .post(cx);
    }
    fn round(cx: &mut Cx, number: usize, long: Duration, log: Log) {
        post(cx, Color::from(2), long, number, &log);
        for i in 0..BEHIND {
            let its = Arc::clone(&log);
            let event = move |cx: &mut Cx| its.lock().unwrap().push((number, false, cx.now()));
            OTHER.on(Color::from(4 + 2 * i), event).post(cx);
        }
        if number + 1 < ROUNDS {
            let next = move |cx: &mut Cx| round(cx, number + 1, long, log);
            let next = Callback::anonymous(Color::from(200), next);
            cx.timer(4 * long, next);
        }
    }
    let builder = Runtime::builder().cores(2).color_slots(4096);
    let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
    let log = Log::default();
    let its = Arc::clone(&log);
    simulation
        .run(move |cx| {
            for _ in 0..KNOWN {
                post(cx, Color::from(2), SHORT, 0, &its);
            }
            let first = move |cx: &mut Cx| round(cx, 0, long, its);
            let first = Callback::anonymous(Color::from(200), first);
            cx.timer(Duration::from_millis(20), first);
        })
        .unwrap();
    let log = log.lock().unwrap();
    (0..ROUNDS)
        .map(|round| {
            let of_round = || log.iter().filter(move |entry| entry.0 == round);
            let began = of_round().find(|entry| entry.1).expect("the long one").2;
            assert_eq!(of_round().count() as u64, 1 + BEHIND);
            let late = |entry: &&(usize, bool, Duration)| !entry.1 && entry.2 > began + after;
            of_round().filter(late).count()
        })
        .collect()
}

#[test]
fn behind_a_surprise_waits_for_long_only_what_was_checked_out_with_it() {
    let mut waited = 0;
    for seed in 0..50 {
        let late = rounds(seed, Duration::from_millis(5), LOOK_UP + STEPS);
        // What was thought to fit into one quantum of 600 ns.
        assert!(late[0] <= 12, "seed {seed}: {late:?}");
        waited += rounds(seed, Duration::from_millis(5), STEPS)[0];
    }
    assert!(waited > 0, "the case did not occur");
}
