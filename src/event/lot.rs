//! Whose turn it is to be recorded ([`super::profile`]), of what one core runs and times.
//!
//! It goes by turns and not by how long a run took, or the means would be those of the runs that
//! are not usual. From one turn to the next are up to twice the period, drawn by chance, so that no
//! regular program evades them.

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
    /// That of a core, of this many: all of them together record as many as one would.
    pub(crate) fn new(core: usize, cores: usize) -> Lot {
        Lot {
            period: cores,
            left: 1,
            random: Random::new(core as u64),
        }
    }

    /// Whether a run is to be recorded though it is usual.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
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
        for (cores, recorded) in [(1, 100_000), (2, 50_000), (8, 12_500), (128, 781)] {
            near(Lot::new(cores - 1, cores), recorded);
        }
        // Each phase of what is regular.
        for turns in 2..20 {
            let mut lot = Lot::new(1, 4);
            let mut seen = vec![0; turns];
            (0..20_000).for_each(|at| seen[at % turns] += u32::from(lot.is_due()));
            let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            assert!(most * 2 < least * 3, "{turns}: {seen:?}");
        }
    }
}
