//! Whose turn it is next: of each core at most one turn that is to come, and the earliest of all.
//!
//! A tree of matches, as of a tournament: below are the cores' turns, and above any two the earlier
//! one. A new turn of a core replaces the one before, and is compared with one other on each level.

use crate::costs::Ps;

/// A turn: at this time, drawn among equals, in the order in which they were queued, of this core.
/// The earlier one is the less.
type Turn = u128;

/// Of a core that has no turn to come.
const NONE: Turn = Turn::MAX;

fn turn(at: Ps, rank: u16, number: u32, core: u16) -> Turn {
    u128::from(at) << 64 | u128::from(rank) << 48 | u128::from(number) << 16 | u128::from(core)
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The second is the earliest of all. Below the one at `i` are those at `2 * i` and behind it.
    matches: Vec<Turn>,
    /// How many were queued. Begins anew, so that of many equals one may come before its time.
    queued: u32,
}

impl Turns {
    pub(crate) fn new(cores: usize) -> Turns {
        Turns {
            matches: vec![NONE; 2 * cores.next_power_of_two()],
            queued: 0,
        }
    }

    /// Queues a core at this time, instead of any turn that it had. Of those at one time the one
    /// with the least rank is the first, and among them who was queued first.
    pub(crate) fn queue(&mut self, core: usize, at: Ps, rank: u16) {
        self.queued = self.queued.wrapping_add(1);
        self.replace(core, turn(at, rank, self.queued, core as u16));
    }

    /// A core has no turn to come, if it had one.
    pub(crate) fn remove(&mut self, core: usize) {
        self.replace(core, NONE);
    }

    /// When a core has its turn; the end of time if it has none.
    #[inline]
    pub(crate) fn of(&self, core: usize) -> Ps {
        (self.matches[self.matches.len() / 2 + core] >> 64) as Ps
    }

    /// When the next turn is, and whose.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Ps, usize)> {
        let first = self.matches[1];
        (first != NONE).then_some(((first >> 64) as Ps, usize::from(first as u16)))
    }

    #[inline]
    fn replace(&mut self, core: usize, turn: Turn) {
        let mut place = self.matches.len() / 2 + core;
        self.matches[place] = turn;
        while place > 1 {
            let earlier = self.matches[place].min(self.matches[place ^ 1]);
            place /= 2;
            if self.matches[place] == earlier {
                // Nor is anything above.
                return;
            }
            self.matches[place] = earlier;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_turn_of_each_core_is_the_last_that_was_queued() {
        for cores in [1, 2, 3, 8, 9, 129] {
            let mut turns = Turns::new(cores);
            let mut random = fastrand::Rng::with_seed(cores as u64);
            let mut expected = vec![None; cores];
            assert_eq!(turns.first(), None);
            for number in 0..5_000 {
                let core = random.usize(0..cores);
                if random.u8(0..4) == 0 {
                    turns.remove(core);
                    expected[core] = None;
                } else {
                    let (at, rank) = (random.u64(0..20), random.u16(0..3));
                    turns.queue(core, at, rank);
                    expected[core] = Some((at, rank, number, core));
                }
                let first = expected.iter().flatten().min();
                assert_eq!(turns.first(), first.map(|&(at, _, _, core)| (at, core)));
            }
        }
    }

    /// Also a turn at the end of time, which is none that comes.
    #[test]
    fn nobody_is_first_where_none_is_queued() {
        let mut turns = Turns::new(3);
        turns.queue(2, Ps::MAX, u16::MAX);
        assert_eq!(turns.first(), Some((Ps::MAX, 2)));
        turns.remove(2);
        assert_eq!(turns.first(), None);
        turns.remove(2);
        assert_eq!(turns.first(), None);
    }
}
