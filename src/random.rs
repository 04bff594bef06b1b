//! A small generator of numbers (xorshift64*), enough to choose an order or a turn.

/// See the module text.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Zero is the one state it cannot leave. Multiplied, so that neighboring seeds, which users
        // count through, begin differently.
        Random(
            (seed ^ 0x9e37_79b9_7f4a_7c15)
                .wrapping_mul(0xd134_2543_de82_ef95)
                .max(1),
        )
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Another one, for a user of its own.
    #[cfg_attr(
        loom,
        allow(dead_code, reason = "the simulated network, which has no models")
    )]
    pub(crate) fn fork(&mut self) -> Random {
        Random::new(self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::Random;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_do_not_repeat_and_reach_all_there_are() {
        for seed in 0..10 {
            let mut random = Random::new(seed);
            let numbers: BTreeSet<u64> = (0..1_000).map(|_| random.next()).collect();
            assert_eq!(numbers.len(), 1_000, "seed {seed}");
            let below: BTreeSet<usize> = (0..1_000).map(|_| random.below(7)).collect();
            assert!(below.into_iter().eq(0..7), "seed {seed}");
            assert_ne!(random.fork().next(), Random::new(seed + 1).next());
        }
    }
}
