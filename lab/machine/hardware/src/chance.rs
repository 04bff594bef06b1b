//! What is left to chance in a run, all of it by one seed.

use crate::costs::Ps;

/// Work and wake-ups differ by this part of their time.
const PART: u64 = 64;
/// And transfers by this one, a multiple of what two threads measure from one to the next.
const TRANSFERS_PART: u64 = 4;

#[derive(Debug)]
pub(crate) struct Chance {
    random: fastrand::Rng,
    varies: bool,
}

impl Chance {
    /// If it `varies`, times do, too: equal costs resonate, and cores that want the same locks fall
    /// into step.
    pub(crate) fn new(seed: u64, varies: bool) -> Chance {
        Chance {
            random: fastrand::Rng::with_seed(seed),
            varies,
        }
    }

    /// A number below `end`, or 0.
    #[inline]
    pub(crate) fn draw(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.random.u64(0..end) }
    }

    /// Where somebody comes among others that want the same: not first, nor last.
    pub(crate) fn rank(&mut self) -> u16 {
        self.random.u16(1..u16::MAX)
    }

    /// A time near this one.
    #[inline]
    pub(crate) fn vary(&mut self, time: Ps) -> Ps {
        self.vary_by(time, PART)
    }

    /// What a transfer takes, if it takes this on average.
    #[inline]
    pub(crate) fn vary_transfer(&mut self, time: Ps) -> Ps {
        self.vary_by(time, TRANSFERS_PART)
    }

    #[inline]
    fn vary_by(&mut self, time: Ps, part: u64) -> Ps {
        if !self.varies {
            return time;
        }
        time - time / part / 2 + self.draw(time / part)
    }
}
