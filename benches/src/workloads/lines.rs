//! Lines moved between cores, in place of the papers' cache misses.
//!
//! Cache misses cannot be counted here: a virtual machine has no counters for them. Instead each
//! piece of memory that handlers work on knows which core touched it last, and who finds that it
//! was another one counts its lines. That is exact and the same for every scheduler; what it leaves
//! out is what a cache lost meanwhile for lack of room.

use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

const LINE_BYTES: usize = 64;
/// The core of a piece that nobody has touched.
const NOBODY: u8 = u8::MAX;

/// Who touched what last.
#[derive(Debug)]
pub(super) struct Lines {
    last_cores: Vec<AtomicU8>,
    lines_per_piece: u64,
    moved: Vec<CachePadded<AtomicU64>>,
}

impl Lines {
    /// For this many pieces of this many bytes, numbered so that neighbors are touched by the same
    /// cores.
    pub(super) fn new(pieces: usize, piece_bytes: usize, cores: usize) -> Lines {
        Lines {
            last_cores: (0..pieces).map(|_| AtomicU8::new(NOBODY)).collect(),
            lines_per_piece: (piece_bytes / LINE_BYTES) as u64,
            moved: (0..cores).map(|_| CachePadded::default()).collect(),
        }
    }

    /// A core touches a piece.
    #[inline]
    pub(super) fn touch(&self, piece: usize, core: usize) {
        let last = &self.last_cores[piece];
        let before = last.load(Relaxed);
        if before != core as u8 {
            last.store(core as u8, Relaxed);
            if before != NOBODY {
                let moved = &self.moved[core];
                // The core's own: no read-modify-write.
                moved.store(moved.load(Relaxed) + self.lines_per_piece, Relaxed);
            }
        }
    }

    /// What a table says of them after this many events.
    pub(super) fn values(&self, events: f64) -> Vec<(&'static str, f64)> {
        vec![("lines_moved_per_event", self.moved() as f64 / events)]
    }

    /// Lines moved so far.
    fn moved(&self) -> u64 {
        self.moved.iter().map(|core| core.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_move_when_another_core_touches_them() {
        let lines = Lines::new(2, 4_096, 2);
        lines.touch(0, 0);
        lines.touch(0, 0);
        assert_eq!(lines.moved(), 0);
        lines.touch(0, 1);
        lines.touch(1, 1);
        assert_eq!(lines.moved(), 64);
        lines.touch(0, 0);
        assert_eq!(lines.moved(), 128);
    }
}
