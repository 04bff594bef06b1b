//! Two threads on two cores: by turns, asleep and woken.

use super::median;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn pin(cpu: u32) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
        .map_err(|error| format!("cannot pin a thread to CPU {cpu}: {error}"))
}

/// Runs `f` on a CPU, in a thread of its own.
pub(super) fn on<R: Send>(cpu: u32, f: impl FnOnce() -> R + Send) -> Result<R, String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || pin(cpu).map(|()| f()));
        thread
            .join()
            .map_err(|_| "a thread that measures has panicked".to_owned())?
    })
}

/// Runs two functions on two CPUs at the same time.
fn both<A: Send, B: Send>(
    a: u32,
    b: u32,
    on_a: impl FnOnce() -> A + Send,
    on_b: impl FnOnce() -> B + Send,
) -> Result<(A, B), String> {
    std::thread::scope(|scope| {
        let other = scope.spawn(move || pin(b).map(|()| on_b()));
        let this = scope.spawn(move || pin(a).map(|()| on_a()));
        let died = |_| "a thread that measures has panicked".to_owned();
        let this = this.join().map_err(died)??;
        let other = other.join().map_err(died)??;
        Ok((this, other))
    })
}

#[repr(align(128))]
struct Apart<T>(T);

/// Calls `prepare` on one CPU and `measure` on the other, by turns; returns what the latter did,
/// without the first few times.
pub(super) fn by_turns(
    a: u32,
    b: u32,
    rounds: u64,
    prepare: impl Fn() + Send + Sync,
    measure: impl Fn() -> f64 + Send + Sync,
) -> Result<Vec<f64>, String> {
    const WARM: u64 = 5;
    let (prepared, measured) = (Apart(AtomicU64::new(0)), Apart(AtomicU64::new(0)));
    let wait = |word: &AtomicU64, round| {
        while word.load(Ordering::Acquire) < round {
            std::hint::spin_loop();
        }
    };
    let (_, times) = both(
        a,
        b,
        || {
            for round in 1..=rounds + WARM {
                prepare();
                prepared.0.store(round, Ordering::Release);
                wait(&measured.0, round);
            }
        },
        || {
            let mut times = Vec::with_capacity(rounds as usize);
            for round in 1..=rounds + WARM {
                wait(&prepared.0, round);
                let time = measure();
                if round > WARM {
                    times.push(time);
                }
                measured.0.store(round, Ordering::Release);
            }
            times
        },
    )?;
    Ok(times)
}

/// What it costs to wake a thread that has slept in the kernel on another CPU for this long, and
/// from then until that thread runs, in ns.
pub(super) fn wake_ns(a: u32, b: u32, sleep_ns: u64, times: u64) -> Result<(f64, f64), String> {
    let bell = eventfd(0, EventfdFlags::empty()).map_err(|error| error.to_string())?;
    let epoch = Instant::now();
    let now = || epoch.elapsed().as_nanos() as u64;
    let (rung_at, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    let (costs, lates) = both(
        a,
        b,
        || {
            let mut costs = Vec::new();
            for time in 1..=times {
                let until = now() + sleep_ns;
                while now() < until {
                    std::hint::spin_loop();
                }
                let start = now();
                rung_at.store(start, Ordering::Release);
                let rung = rustix::io::write(&bell, &1u64.to_ne_bytes());
                costs.push((now() - start) as f64);
                assert!(rung.is_ok(), "an eventfd takes a ring");
                while woken.load(Ordering::Acquire) < time {
                    std::hint::spin_loop();
                }
            }
            costs
        },
        || {
            let mut lates = Vec::new();
            for time in 1..=times {
                let mut count = [0; 8];
                let read = rustix::io::read(&bell, &mut count);
                lates.push((now() - rung_at.load(Ordering::Acquire)) as f64);
                assert!(read.is_ok(), "an eventfd is read");
                woken.store(time, Ordering::Release);
            }
            lates
        },
    )?;
    std::thread::sleep(Duration::from_millis(1));
    Ok((median(costs), median(lates)))
}
