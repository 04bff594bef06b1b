//! What the scheduler itself takes, on one core with all in its first cache: mely as it ships.

use super::median;
use mely::runtime::OnPanic;
use mely::{Color, Cx, Poster, Runtime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// In ns.
pub(super) struct EventCosts {
    pub(super) post: f64,
    pub(super) run: f64,
    pub(super) send: f64,
    pub(super) turn: f64,
    pub(super) queue: f64,
    pub(super) step: f64,
}

/// Runs `start` on a runtime of one core, until `Shared::over`.
fn run(start: impl FnOnce(&mut Cx) + Send + 'static) -> Result<Poster, String> {
    let builder = Runtime::builder()
        .on_panic(OnPanic::Stop)
        .cores(1)
        .pin(true)
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
    // Colors of which all stay at hand, and too many for that. Each hop is sent, and begins a turn.
    let near = hop(16)?;
    let queue = hop(256)? - near;
    // Events that are sent, but of which several share a turn.
    let (own, _) = sends(1)?;
    let (others, turns) = sends(8)?;
    let send = (others - own - turns * near) / (1.0 - turns);
    let turn = near - send;
    // What is left by subtraction is nonsense where most events took a turn, or were disturbed.
    if turns > 0.5 || send <= 0.0 || turn <= 0.0 {
        let got = format!("send = {send:.2} and turn = {turn:.2}, of {turns:.2} turns an event");
        return Err(format!("{got}: measure again, with nothing else running"));
    }
    let step = step_ns(post + run)?;
    Ok(EventCosts {
        post,
        run,
        send,
        turn,
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

/// Events that a handler posts to this many colors by turns, or to its own: ns of an event from the
/// first post until the last has run, and turns of an event.
fn sends(colors: u64) -> Result<(f64, f64), String> {
    const EVENTS: u64 = 160;
    const ROUNDS: u64 = 400;
    /// Written by one core only.
    #[derive(Default)]
    struct Sends {
        left: AtomicU64,
        last: AtomicU64,
        turns: AtomicU64,
        times: Mutex<Vec<f64>>,
    }
    fn sink(cx: &mut Cx, color: u64, colors: u64, start: Instant, sends: &'static Sends) {
        let another = sends.last.load(Ordering::Relaxed) != color;
        sends.last.store(color, Ordering::Relaxed);
        add(&sends.turns, u64::from(another));
        let left = add(&sends.left, u64::MAX);
        if left.is_multiple_of(EVENTS) {
            let ns = start.elapsed().as_nanos() as f64 / EVENTS as f64;
            sends.times.lock().expect("no panic").push(ns);
            if left > 0 {
                cx.post(Color::from(1), move |cx| round(cx, colors, sends));
            }
        }
    }
    fn round(cx: &mut Cx, colors: u64, sends: &'static Sends) {
        let start = Instant::now();
        for event in 0..EVENTS {
            // The handler's own is 1.
            let color = if colors == 1 { 1 } else { 2 + event % colors };
            cx.post(Color::from(color), move |cx| {
                sink(cx, color, colors, start, sends)
            });
        }
    }
    let sends: &'static Sends = Box::leak(Box::default());
    sends.left.store(EVENTS * ROUNDS, Ordering::Relaxed);
    run(move |cx| cx.post(Color::from(1), move |cx| round(cx, colors, sends)))?;
    let times = std::mem::take(&mut *sends.times.lock().expect("no panic"));
    let turns = sends.turns.load(Ordering::Relaxed) as f64 / (EVENTS * ROUNDS) as f64;
    Ok((median(times), turns))
}

/// Adds to what one core only writes; returns the sum.
fn add(to: &AtomicU64, more: u64) -> u64 {
    let sum = to.load(Ordering::Relaxed).wrapping_add(more);
    to.store(sum, Ordering::Relaxed);
    sum
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
