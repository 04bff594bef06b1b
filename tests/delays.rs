//! How long an event waits, in the virtual time of simulated runs.

use mely::sim;
use mely::{Callback, Color, Cores, Cx, Handler, Runtime};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_millis(5);

static ANNOTATED: Handler = Handler::new("annotated").time(LONG);
static UNKNOWN: Handler = Handler::new("unknown");
static MISJUDGED: Handler = Handler::new("misjudged").time(Duration::from_nanos(50));
static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(50));

/// What ran, in order: the color, when it began, the core.
type Log = Arc<Mutex<Vec<(u64, Duration, usize)>>>;

fn log(log: &Log, cx: &Cx) {
    let entry = (cx.color().value(), cx.now(), cx.core());
    log.lock().unwrap().push(entry);
}

/// Wakes its core every few us, so that it is seldom long asleep.
fn tick(cx: &mut Cx, left: u32) {
    if left > 0 {
        let next = move |cx: &mut Cx| tick(cx, left - 1);
        let _ = cx.timer(
            Duration::from_micros(5),
            Callback::anonymous(Color::from(1), next),
        );
    }
}

/// With a second core that wakes now and then: one long event of `handler` in color 2, and behind it on the same core so many short ones of colors
/// of their own. Returns when it ended, its core, and the log of the short ones.
fn behind_a_long_one(
    seed: u64,
    handler: &'static Handler,
    short: u64,
) -> (Duration, usize, Vec<(u64, Duration, usize)>) {
    let builder = Runtime::builder().cores(Cores::count(2)).color_slots(4096);
    let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
    let shorts = Log::default();
    let long = Arc::new(Mutex::new(None));
    let (log_of_shorts, end) = (Arc::clone(&shorts), Arc::clone(&long));
    simulation
        .run(move |cx| {
            cx.place(Color::from(1), 1);
            cx.post(Color::from(1), |cx| tick(cx, 1_200));
            let work = move |cx: &mut Cx| {
                sim::work(cx, LONG);
                *end.lock().unwrap() = Some((cx.now(), cx.core()));
            };
            cx.post_callback(handler.on(Color::from(2), work));
            for i in 2..short + 2 {
                let its = Arc::clone(&log_of_shorts);
                let event = move |cx: &mut Cx| log(&its, cx);
                cx.post_callback(SHORT.on(Color::from(2 * i), event));
            }
        })
        .unwrap();
    let (end, core) = long.lock().unwrap().expect("it ran");
    let shorts = shorts.lock().unwrap().clone();
    assert_eq!(shorts.len() as u64, short);
    (end, core, shorts)
}

#[test]
fn nothing_waits_behind_a_handler_that_is_known_or_feared_to_be_long() {
    for seed in 0..50 {
        for handler in [&ANNOTATED, &UNKNOWN] {
            let (end, _, shorts) = behind_a_long_one(seed, handler, 20);
            // The other core was idle or soon would be: it took them, long before the end.
            let late = shorts
                .iter()
                .filter(|(_, began, _)| *began + LONG / 2 > end);
            assert_eq!(
                late.count(),
                0,
                "seed {seed}, {handler:?}: {shorts:?} of {end:?}"
            );
        }
    }
}

#[test]
fn behind_a_misjudged_handler_waits_at_most_a_checkout() {
    let mut waited = 0;
    for seed in 0..50 {
        let (end, core, shorts) = behind_a_long_one(seed, &MISJUDGED, 1_000);
        let late = shorts
            .iter()
            .filter(|(_, began, on)| *began >= end && *on == core);
        // Colors are taken out together until their time is thought to sum to a quantum.
        let late = late.count();
        assert!(late <= 64, "seed {seed}: {late} events waited");
        waited += late;
    }
    assert!(waited > 0, "the case did not occur");
}

#[test]
fn a_burst_of_one_color_leaves_others_their_turns() {
    const BATCH: u32 = 4;
    for seed in 0..20 {
        let builder = Runtime::builder().cores(Cores::count(1)).batch(BATCH);
        let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
        let order = Log::default();
        let its = Arc::clone(&order);
        simulation
            .run(move |cx| {
                for color in 1..4u64 {
                    for _ in 0..100 {
                        let its = Arc::clone(&its);
                        let event = move |cx: &mut Cx| log(&its, cx);
                        cx.post_callback(SHORT.on(Color::from(color), event));
                    }
                }
            })
            .unwrap();
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 300);
        let runs: Vec<usize> = order
            .chunk_by(|one, next| one.0 == next.0)
            .map(<[_]>::len)
            .collect();
        // A full batch each time, and never more, until the other two have nothing left.
        let (turns, rest) = runs.split_at(runs.len() - 3);
        assert!(
            turns.iter().all(|&events| events == BATCH as usize),
            "{runs:?}"
        );
        assert_eq!(rest.iter().sum::<usize>() % BATCH as usize, 0, "{runs:?}");
    }
}

#[test]
fn a_timer_is_late_by_the_handlers_of_its_core_only() {
    for seed in 0..50 {
        let builder = Runtime::builder().cores(Cores::count(3));
        let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
        let fired = Log::default();
        let its = Arc::clone(&fired);
        simulation
            .run(move |cx| {
                for color in 1..40u64 {
                    let its = Arc::clone(&its);
                    let callback = Callback::anonymous(Color::from(color), move |cx: &mut Cx| {
                        log(&its, cx);
                    });
                    cx.timer(Duration::from_millis(color), callback);
                }
            })
            .unwrap();
        for &(color, at, _) in &*fired.lock().unwrap() {
            let due = Duration::from_millis(color);
            // Nothing else runs: what a few steps take.
            let late = at.checked_sub(due).expect("never early");
            assert!(late < Duration::from_micros(200), "seed {seed}: {late:?}");
        }
        assert_eq!(fired.lock().unwrap().len(), 39);
    }
}
