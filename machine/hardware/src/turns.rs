//! Whose turn it is next: of each core at most one turn that is to come, and the earliest of all.
//!
//! A tree of matches, as of a tournament: below are the cores' turns, and above any two the earlier
//! one. A new turn of a core replaces the one before, and is compared with one other on each level.

use crate::costs::Ps;

/// A turn: at this time, drawn among equals, in the order in which they were queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: Ps,
    rank: u32,
    number: u64,
    core: usize,
}

/// Of a core that has no turn to come.
const NONE: Turn = Turn {
    at: Ps::MAX,
    rank: u32::MAX,
    number: u64::MAX,
    core: usize::MAX,
};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The second is the earliest of all. Below the one at `i` are those at `2 * i` and behind it.
    matches: Vec<Turn>,
    /// How many were queued.
    queued: u64,
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
    pub(crate) fn queue(&mut self, core: usize, at: Ps, rank: u32) {
        self.queued += 1;
        let number = self.queued;
        let turn = Turn {
            at,
            rank,
            number,
            core,
        };
        self.replace(core, turn);
    }

    /// A core has no turn to come, if it had one.
    pub(crate) fn remove(&mut self, core: usize) {
        self.replace(core, NONE);
    }

    /// When the next turn is, and whose.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Ps, usize)> {
        let Turn { at, core, .. } = self.matches[1];
        (core != NONE.core).then_some((at, core))
    }

    fn replace(&mut self, core: usize, turn: Turn) {
        let mut place = self.matches.len() / 2 + core;
        self.matches[place] = turn;
        while place > 1 {
            let earlier = self.matches[place].min(self.matches[place ^ 1]);
            place /= 2;
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
                    let (at, rank) = (random.u64(0..20), random.u32(0..3));
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
        turns.queue(2, Ps::MAX, u32::MAX);
        assert_eq!(turns.first(), Some((Ps::MAX, 2)));
        turns.remove(2);
        assert_eq!(turns.first(), None);
        turns.remove(2);
        assert_eq!(turns.first(), None);
    }
}
