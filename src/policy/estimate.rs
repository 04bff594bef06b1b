//! What is learned of times: a moving average of samples.

use super::numbers::{EVENT_NS, MEAN_SAMPLES, OUTLIER_TIMES};

/// A mean after one more sample: nearer to it by one part in `weight` of the difference, rounded
/// up, else a small mean would never move.
#[inline]
pub(crate) fn nearer(mean: u32, sample: u32, weight: u32) -> u32 {
    let step = sample.abs_diff(mean).div_ceil(weight);
    if sample > mean {
        mean + step
    } else {
        mean - step
    }
}

/// What a sample counts for, in ns. A thread that the system took off its processor shows as one
/// absurd sample. What really became so long gets there in a few samples all the same.
#[inline]
pub(crate) fn believed(mean_ns: u32, sample_ns: u64) -> u32 {
    let most_ns = mean_ns
        .saturating_add(EVENT_NS)
        .saturating_mul(OUTLIER_TIMES);
    u32::try_from(sample_ns).map_or(most_ns, |ns| ns.min(most_ns))
}

/// Whether this is another time, in ns, than the one that all cores know of.
#[inline]
pub(crate) fn differs(known_ns: u64, ns: u64) -> bool {
    known_ns.abs_diff(ns) > known_ns / u64::from(MEAN_SAMPLES)
}
