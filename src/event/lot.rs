//! Whose turn it is to be recorded ([`super::profile`]), of what one core runs and times.
//!
//! It goes by turns and not by how long a run took, or the means would be those of the runs that
//! are not usual. From one turn to the next are up to twice the period, drawn by chance, so that no
//! regular program evades them.

use crate::ablation::{Rule, without};
use crate::random::Random;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Lot {
    /// Of how many runs one is recorded.
    period: usize,
    left: usize,
    random: Random,
}

impl Lot {
    /// That of a core, of this many, for runs of handlers that are always timed: up to sixteen
    /// cores together record half as many as one of them makes.
    pub(crate) fn of_all(core: usize, cores: usize) -> Lot {
        Lot::new(core, (2 * cores).min(32))
    }

    /// The same for runs that are timed now and then: all cores together record as many as four
    /// would.
    pub(crate) fn of_samples(core: usize, cores: usize) -> Lot {
        Lot::new(core, cores.div_ceil(4))
    }

    fn new(core: usize, period: usize) -> Lot {
        Lot {
            period,
            left: 1,
            random: Random::new(core as u64),
        }
    }

    /// Whether a run is to be recorded though it is usual.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        if without(Rule::Lots) {
            return true;
        }
        self.left -= 1;
        let is_due = self.left == 0;
        if is_due {
            self.left = 1 + self.random.below(2 * self.period - 1);
        }
        is_due
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_more_cores_the_fewer_runs_are_recorded() {
        let near = |mut lot: Lot, expected: usize| {
            assert!(lot.is_due());
            let seen = (0..100_000).filter(|_| lot.is_due()).count();
            assert!(seen.abs_diff(expected) <= expected / 20, "{lot:?}");
        };
        for (cores, of_all, of_samples) in [
            (1, 50_000, 100_000),
            (2, 25_000, 100_000),
            (4, 12_500, 100_000),
            (8, 6_250, 50_000),
            (128, 3_125, 3_125),
        ] {
            near(Lot::of_all(0, cores), of_all);
            near(Lot::of_samples(cores - 1, cores), of_samples);
        }
        // Each phase of what is regular.
        for turns in 2..20 {
            let mut lot = Lot::of_all(1, 2);
            let mut seen = vec![0; turns];
            (0..20_000).for_each(|at| seen[at % turns] += u32::from(lot.is_due()));
            let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            assert!(most * 2 < least * 3, "{turns}: {seen:?}");
        }
    }
}
