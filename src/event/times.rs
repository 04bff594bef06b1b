//! What events are taken to last: the unit in which colors are judged.

/// A time and the same divided by the handler's penalty, both in ns, of an event or summed over
/// several.
///
/// Sums stay at `u32::MAX`, four seconds, which then means "at least". In one word: an event is
/// filled and counted with one store and one load instead of two, and a load never waits for two
/// stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times(u64);

impl Times {
    pub(crate) const ZERO: Times = Times(0);

    #[inline(always)]
    pub(crate) const fn new(raw_ns: u32, penalized_ns: u32) -> Times {
        Times(raw_ns as u64 | (penalized_ns as u64) << 32)
    }

    /// The word, to be kept in an atomic.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Times {
        Times(bits)
    }

    #[inline(always)]
    pub(crate) const fn raw_ns(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) const fn penalized_ns(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Times) -> Times {
        Times::new(
            self.raw_ns().saturating_add(other.raw_ns()),
            self.penalized_ns().saturating_add(other.penalized_ns()),
        )
    }
}

/// How many events, and what they are taken to last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) count: u32,
    pub(crate) times: Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_apart() {
        let sum = Times::new(u32::MAX - 1, 5).plus(Times::new(2, 7));
        assert_eq!((sum.raw_ns(), sum.penalized_ns()), (u32::MAX, 12));
        assert_eq!(Times::from_bits(sum.to_bits()), sum);
    }
}
