//! Rounds of fork and join: events are registered on the first core, or on one core of each pair;
//! when all have run, the next round begins.
//!
//! Where all events of a round are posted at once, the join costs them nothing ([`join`]): after
//! them, an event is posted that looks for a color that is behind, and if there is one, posts
//! itself there. It runs after what the color still has to run, by the order within a color,
//! wherever that is. Where events post others, the last event of each chain counts down
//! ([`end_chain`]). No core polls.
//!
//! Colors that were stolen are placed where they came from before the next round.
//!
//! What an event pays for this is finding its color when posted and, the last of a color in a
//! round, the comparison of the color's home with its core. With one home, which is all but *cache
//! efficient* on more than two cores, neither takes a division.

use super::finish;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use crate::{Context, Note, World};
use crossbeam_utils::CachePadded;

/// What all rounds share.
#[derive(Debug)]
pub(super) struct Rounds {
    number: u32,
    cores: usize,
    /// Every `spacing`-th core has events registered.
    spacing: usize,
    /// How many these are.
    homes: u32,
    /// Chains of the round that have not ended; apart from what all events read.
    chains: CachePadded<AtomicU32>,
    /// For each core, the colors that ended a round there although it is not theirs.
    strays: Vec<CachePadded<Mutex<Vec<u32>>>>,
}

impl Rounds {
    /// This many rounds; each registers its events on the first core.
    pub(super) fn on_first_core(number: u32, cores: usize) -> Rounds {
        Rounds {
            number,
            cores,
            spacing: cores,
            homes: 1,
            chains: CachePadded::default(),
            strays: (0..cores).map(|_| CachePadded::default()).collect(),
        }
    }

    /// This many rounds; each registers its events on one core of each pair.
    pub(super) fn on_pairs(number: u32, cores: usize) -> Rounds {
        Rounds {
            spacing: 2,
            homes: cores.div_ceil(2) as u32,
            ..Rounds::on_first_core(number, cores)
        }
    }

    /// How many rounds there are.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// On how many cores it runs.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// The core of the world's color `index`.
    #[inline]
    fn home(&self, index: u32) -> usize {
        // A division by a run-time value takes as long as all the rest of a check.
        if self.homes == 1 {
            return 0;
        }
        (index % self.homes) as usize * self.spacing
    }

    /// What the scheduler knows the world's color `index` by.
    #[inline]
    pub(super) fn color(&self, index: u32) -> u32 {
        let cores = self.cores as u32;
        if self.homes == 1 {
            return index * cores;
        }
        index / self.homes * cores + self.home(index) as u32
    }

    /// Posts to the world's color `index`, with a handler's annotations.
    #[inline]
    pub(super) fn post<C, F>(&self, cx: &mut C, index: u32, note: &'static Note, f: F)
    where
        C: Context + ?Sized,
        F: FnOnce(&mut C) + Send + 'static,
    {
        cx.post_noted(self.color(index), note, f);
    }

    /// The world's color `index` has run its last event of a round.
    #[inline]
    pub(super) fn ended<C: Context + ?Sized>(&self, cx: &C, index: u32) {
        let core = cx.core();
        if core != self.home(index) {
            let mut strays = self.strays[core].lock().expect("no panic while held");
            strays.push(index);
        }
    }
}

/// All colors of a workload on this many cores are below this.
pub(super) fn colors_end(indices: usize, cores: usize) -> usize {
    // One more for the color that registers.
    (indices + 1) * cores
}

/// A workload of rounds.
pub(super) trait ForkJoin: Send + Sync + 'static {
    /// See [`Rounds`].
    fn rounds(&self) -> &Rounds;

    /// Posts the first events of a round.
    fn fork<C: Context + ?Sized>(&'static self, cx: &mut C, world: &'static World, round: u32);
}

/// Begins with the first round.
pub(super) fn start<W: ForkJoin, C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    of: &'static W,
) {
    cx.post(registrar(world, of), move |cx| of.fork(cx, world, 0));
}

/// The color that registers: the one after the world's.
fn registrar<W: ForkJoin>(world: &World, of: &W) -> u32 {
    let rounds = of.rounds();
    let index = (world.colors() as u32).next_multiple_of(rounds.homes);
    rounds.color(index)
}

/// This round has this many chains; called before their first events are posted.
pub(super) fn begin_chains(rounds: &Rounds, chains: u32) {
    // The posts that follow carry it to who ends a chain.
    rounds.chains.store(chains, Relaxed);
}

/// The last event of a chain, in the world's color `index`: the last one of all begins the next
/// round.
pub(super) fn end_chain<W: ForkJoin, C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    of: &'static W,
    index: u32,
    round: u32,
) {
    let rounds = of.rounds();
    rounds.ended(cx, index);
    if rounds.chains.fetch_sub(1, AcqRel) == 1 {
        next_round(cx, world, of, round + 1);
    }
}

/// After all events of a round have been posted, as many to each color: the next round begins when
/// they have run.
pub(super) fn post_join<W: ForkJoin, C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    of: &'static W,
    round: u32,
) {
    let color = registrar(world, of);
    cx.post(color, move |cx| join(cx, world, of, round, 0));
}

/// The colors before `from` are known to have run.
fn join<W: ForkJoin, C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    of: &'static W,
    round: u32,
    from: u32,
) {
    let rounds = of.rounds();
    let each = world.length / rounds.number;
    let behind =
        (from..world.colors() as u32).find(|&index| world.passed(index) < (round + 1) * each);
    if let Some(from) = behind {
        let color = rounds.color(from);
        cx.post(color, move |cx| join(cx, world, of, round, from));
    } else {
        next_round(cx, world, of, round + 1);
    }
}

fn next_round<W: ForkJoin, C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    of: &'static W,
    round: u32,
) {
    let rounds = of.rounds();
    if round == rounds.number {
        finish(cx, world);
        return;
    }
    for strays in &rounds.strays {
        for index in strays.lock().expect("no panic while held").drain(..) {
            cx.place(rounds.color(index), rounds.home(index));
        }
    }
    let registrar = registrar(world, of);
    cx.place(registrar, 0);
    cx.post(registrar, move |cx| of.fork(cx, world, round));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_of_their_homes_and_below_the_end() {
        for cores in 1..=6 {
            for (rounds, homes) in [
                (Rounds::on_first_core(1, cores), vec![0]),
                (Rounds::on_pairs(1, cores), (0..cores).step_by(2).collect()),
            ] {
                let mut colors: Vec<u32> = (0..12).map(|index| rounds.color(index)).collect();
                for (index, &color) in (0..).zip(&colors) {
                    let home = homes[index as usize % homes.len()];
                    assert_eq!(rounds.home(index), home);
                    // Where schedulers have it start.
                    assert_eq!(color as usize % cores, home);
                    assert!((color as usize) < colors_end(12, cores));
                }
                colors.sort_unstable();
                colors.dedup();
                assert_eq!(colors.len(), 12);
            }
        }
    }
}
