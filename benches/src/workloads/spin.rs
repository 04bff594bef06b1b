//! Handlers' work: a loop of a counted number of iterations, so that every scheduler runs the very
//! same instructions, calibrated in ns.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Runs a chain of dependent multiplications.
#[inline(never)]
pub(crate) fn spin(iterations: u32) {
    #[cfg(feature = "machine")]
    if crate::sync::charge::is_charged() {
        return crate::sync::charge::work_ns(iterations.into());
    }
    let mut x = u64::from(iterations) | 1;
    let mut done = 0;
    // Not an iterator: without optimization that takes several times as long as the work.
    while done < iterations {
        x = x.wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(17);
        done += 1;
    }
    black_box(x);
}

/// How many iterations take so long on this machine, undisturbed.
pub(super) fn iterations(ns: u64) -> u32 {
    #[cfg(feature = "machine")]
    if crate::simulated::is_set() {
        // One a ns.
        return ns as u32;
    }
    static STEP_NS: OnceLock<f64> = OnceLock::new();
    (ns as f64 / STEP_NS.get_or_init(step_ns)).round() as u32
}

/// What an iteration takes at this moment, undisturbed.
pub(crate) fn step_ns() -> f64 {
    const ITERATIONS: u32 = 100_000;
    let time = |_| {
        let start = Instant::now();
        spin(ITERATIONS);
        start.elapsed().as_nanos() as f64
    };
    // The least: what disturbs only adds.
    let least = (0..30).map(time).fold(f64::INFINITY, f64::min);
    least / f64::from(ITERATIONS)
}

/// The Mely paper's cycles (2.33 GHz, §V-A) in ns.
pub(super) const fn mely_ns(cycles: u64) -> u64 {
    cycles * 100 / 233
}
