//! Lines of memory: from each level, and from another core.

use super::{median, threads};
use rustix::mm::Advice;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A line, with where the next one is.
#[repr(align(64))]
struct Line {
    next: AtomicU64,
}

/// Lines on large pages where the system has them: what is measured are caches, not the translation
/// of addresses.
struct Lines(Vec<Line>);

impl Lines {
    fn new(count: usize) -> Lines {
        const PAGE: usize = 4096;
        let mut lines: Vec<Line> = Vec::with_capacity(count);
        let start = lines.as_mut_ptr();
        let skip = start.addr().wrapping_neg() % PAGE;
        let bytes = (count * size_of::<Line>()).saturating_sub(skip) / PAGE * PAGE;
        if bytes > 0 {
            let first = start.wrapping_byte_add(skip).cast();
            // SAFETY: whole pages of memory that is ours and not used yet. Refused, they are small.
            let _ = unsafe { rustix::mm::madvise(first, bytes, Advice::LinuxHugepage) };
        }
        lines.resize_with(count, || Line {
            next: AtomicU64::new(0),
        });
        Lines(lines)
    }

    /// Links all lines to one round, in an order that no prefetcher guesses.
    fn link(&self) {
        let mut order: Vec<u32> = (0..self.0.len() as u32).collect();
        let mut random = 0x9E37_79B9_7F4A_7C15u64;
        for at in (1..order.len()).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            order.swap(at, (random % (at as u64 + 1)) as usize);
        }
        let lines = &self.0;
        for (at, &line) in order.iter().enumerate() {
            let next = order[(at + 1) % order.len()];
            lines[line as usize]
                .next
                .store(next.into(), Ordering::Relaxed);
        }
    }

    /// Follows this number of links.
    fn follow(&self, links: usize) {
        let lines = &self.0;
        let mut at = 0;
        for _ in 0..links {
            at = lines[at as usize].next.load(Ordering::Relaxed);
        }
        black_box(at);
    }

    fn read_in_row(&self) {
        let sum: u64 = self
            .0
            .iter()
            .map(|line| line.next.load(Ordering::Relaxed))
            .sum();
        black_box(sum);
    }
}

/// What a load takes in a working set of this number of bytes, and a line in a row there, in ns.
pub(super) fn level_ns(bytes: usize) -> (f64, f64) {
    let lines = Lines::new(bytes / 64);
    lines.link();
    let links = lines.0.len().clamp(20_000, 2_000_000);
    lines.follow(lines.0.len().min(4_000_000));
    let hit = |_| {
        let start = Instant::now();
        lines.follow(links);
        start.elapsed().as_nanos() as f64 / links as f64
    };
    let hit = median((0..5).map(hit).collect());
    let rounds = (200_000 / lines.0.len()).max(1);
    let row = |_| {
        let start = Instant::now();
        (0..rounds).for_each(|_| lines.read_in_row());
        start.elapsed().as_nanos() as f64 / (rounds * lines.0.len()) as f64
    };
    let row = median((0..5).map(row).collect());
    (hit, row.min(hit))
}

/// A read-modify-write of a line that the core has, each waiting for the one before.
pub(super) fn rmw_own_ns() -> f64 {
    let word = AtomicU64::new(0);
    super::per_trial(|times| {
        for _ in 0..times {
            word.fetch_add(1, Ordering::AcqRel);
        }
    })
}

/// 0, which the compiler does not know: an addition of 0 it would make a load.
fn nothing() -> u64 {
    black_box(0)
}

/// How lines that another core has written are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Read, each after the one before.
    Scattered,
    /// Read, one behind the other.
    InRow,
    /// Read, modified and written, each after the one before.
    Rmw,
    /// The same, of lines that were read before, which does not count.
    RmwLoaded,
}

/// What a line takes to come from CPU `a` to CPU `b`, in ns.
pub(super) fn transfer_ns(a: u32, b: u32, how: How) -> Result<f64, String> {
    const LINES: usize = 256;
    const ROUNDS: u64 = 60;
    let lines = Lines::new(LINES);
    lines.link();
    let times = threads::by_turns(
        a,
        b,
        ROUNDS,
        || {
            // Written by this one, as they are.
            for line in &lines.0 {
                line.next.fetch_add(nothing(), Ordering::AcqRel);
            }
        },
        || {
            if how == How::RmwLoaded {
                lines.follow(LINES);
            }
            let start = Instant::now();
            match how {
                How::Scattered => lines.follow(LINES),
                How::InRow => lines.read_in_row(),
                How::Rmw | How::RmwLoaded => {
                    let all = &lines.0;
                    let mut at = 0;
                    for _ in 0..LINES {
                        at = all[at as usize].next.fetch_add(nothing(), Ordering::AcqRel);
                    }
                    black_box(at);
                }
            }
            start.elapsed().as_nanos() as f64 / LINES as f64
        },
    )?;
    Ok(median(times))
}
