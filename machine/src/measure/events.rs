//! What the scheduler itself takes, on one core with all in its first cache: mely as it ships.

use super::median;
use mely::{Color, Cores, Cx, Poster, Runtime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// In ns.
pub(super) struct EventCosts {
    pub(super) post: f64,
    pub(super) run: f64,
    pub(super) turn: f64,
    pub(super) queue: f64,
    pub(super) step: f64,
}

/// Runs `start` on a runtime of one core, until `Shared::over`.
fn run(start: impl FnOnce(&mut Cx) + Send + 'static) -> Result<Poster, String> {
    let builder = Runtime::builder()
        .cores(Cores::Count(1))
        .exit_when_idle(true)
        .watchdog(Duration::MAX);
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let poster = runtime.poster();
    runtime.run(start).map_err(|error| error.to_string())?;
    Ok(poster)
}

pub(super) fn costs() -> Result<EventCosts, String> {
    let (post, run) = post_and_run()?;
    // What is left of a hop without a turn: the event, and the choice of the next color.
    let (stay, _) = hops(1)?;
    let hop = |colors| hops(colors).map(|(ns, turns)| (ns - stay) / turns);
    // Colors of which all stay at hand, and too many for that.
    let turn = hop(16)?;
    let queue = hop(256)? - turn;
    let step = step_ns(post + run)?;
    Ok(EventCosts {
        post,
        run,
        turn: turn.max(0.01),
        queue: queue.max(0.01),
        step: step.max(0.01),
    })
}

/// Events that a handler posts to its own color, and that run then.
fn post_and_run() -> Result<(f64, f64), String> {
    const EVENTS: u64 = 200;
    const ROUNDS: u32 = 400;
    type Times = Arc<Mutex<Vec<(f64, f64)>>>;
    fn round(cx: &mut Cx, left: u32, times: Times) {
        let start = Instant::now();
        for _ in 0..EVENTS {
            cx.post(Color::from(1), |_cx| ());
        }
        let posted = start.elapsed();
        cx.post(Color::from(1), move |cx| {
            let all = start.elapsed();
            let each = |time: Duration| time.as_nanos() as f64 / EVENTS as f64;
            times
                .lock()
                .expect("no panic")
                .push((each(posted), each(all)));
            if left > 0 {
                cx.post(Color::from(1), move |cx| round(cx, left - 1, times));
            }
        });
    }
    let times = Times::default();
    let its = Arc::clone(&times);
    run(move |cx| cx.post(Color::from(1), |cx| round(cx, ROUNDS, its)))?;
    let times = times.lock().expect("no panic");
    let post = median(times.iter().map(|&(post, _)| post).collect());
    let all = median(times.iter().map(|&(_, all)| all).collect());
    Ok((post, (all - post).max(0.01)))
}

/// Events each of which posts the next to a color drawn by chance, as many as there are colors, a
/// power of two: ns of an event, and turns of an event. (Drawn, since in programs the turns come in
/// no order that the processor could foresee.)
fn hops(colors: u64) -> Result<(f64, f64), String> {
    const EVENTS: u64 = 400_000;
    const TRIALS: u64 = 40;
    /// Written by one core only.
    #[derive(Default)]
    struct Hops {
        left: AtomicU64,
        drawn: AtomicU64,
        last: AtomicU64,
        turns: AtomicU64,
        times: Mutex<Vec<Instant>>,
    }
    fn add(to: &AtomicU64, more: u64) -> u64 {
        let sum = to.load(Ordering::Relaxed).wrapping_add(more);
        to.store(sum, Ordering::Relaxed);
        sum
    }
    fn hop(cx: &mut Cx, color: u64, mask: u64, hops: &'static Hops) {
        if hops.left.load(Ordering::Relaxed) == 0 {
            return;
        }
        let left = add(&hops.left, u64::MAX);
        if left.is_multiple_of(EVENTS / TRIALS) {
            hops.times.lock().expect("no panic").push(Instant::now());
        }
        let another = hops.last.load(Ordering::Relaxed) != color;
        add(&hops.turns, u64::from(another));
        hops.last.store(color, Ordering::Relaxed);
        // Weyl's sequence, and the middle of its product.
        let drawn = add(&hops.drawn, 0x9E37_79B9_7F4A_7C15);
        let next = (drawn.wrapping_mul(drawn | 1) >> 40) & mask;
        cx.post(Color::from(next), move |cx| hop(cx, next, mask, hops));
    }
    let hops: &'static Hops = Box::leak(Box::default());
    hops.left.store(EVENTS, Ordering::Relaxed);
    run(move |cx| {
        let mask = colors - 1;
        for color in 0..colors {
            cx.post(Color::from(color), move |cx| hop(cx, color, mask, hops));
        }
    })?;
    let times = hops.times.lock().expect("no panic");
    let trials = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_nanos() as f64);
    let ns = median(trials.map(|ns| ns / (EVENTS / TRIALS) as f64).collect());
    let turns = hops.turns.load(Ordering::Relaxed) as f64 / EVENTS as f64;
    Ok((ns, turns))
}

/// What a step takes: from a color that posts to itself, of whose events a step has some.
/// `event_ns`: what an event takes besides.
fn step_ns(event_ns: f64) -> Result<f64, String> {
    const SPINS: u32 = 100;
    const SEGMENT: u32 = 200;
    const SEGMENTS: u32 = 400;
    // The same instructions, wherever it is called.
    #[inline(never)]
    fn spin() {
        let mut x = 1u64;
        for _ in 0..SPINS {
            x = std::hint::black_box(x.wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(17));
        }
    }
    fn bare(_: u32) -> f64 {
        let start = Instant::now();
        (0..SEGMENT).for_each(|_| spin());
        start.elapsed().as_nanos() as f64
    }
    fn again(cx: &mut Cx, left: u32, times: &'static Mutex<Vec<Instant>>) {
        spin();
        if left.is_multiple_of(SEGMENT) {
            times.lock().expect("no panic").push(Instant::now());
        }
        if left > 0 {
            cx.post(Color::from(1), move |cx| again(cx, left - 1, times));
        }
    }
    // The quarter that was disturbed the least.
    let undisturbed = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 4]
    };
    let mut trials = Vec::new();
    for _ in 0..7 {
        let times: &'static Mutex<Vec<Instant>> = Box::leak(Box::default());
        let before: Vec<f64> = (0..SEGMENTS / 2).map(bare).collect();
        let events = SEGMENT * SEGMENTS;
        let poster = run(move |cx| cx.post(Color::from(1), move |cx| again(cx, events, times)))?;
        let after = (0..SEGMENTS / 2).map(bare);
        let bare_ns = undisturbed(before.into_iter().chain(after).collect());
        let times = times.lock().expect("no panic");
        let segments = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_nanos() as f64);
        let over_ns = undisturbed(segments.collect()) - bare_ns - f64::from(SEGMENT) * event_ns;
        let quanta: u64 = poster.stats().cores.iter().map(|core| core.quanta).sum();
        trials.push(over_ns * f64::from(SEGMENTS) / quanta as f64);
    }
    Ok(median(trials))
}
