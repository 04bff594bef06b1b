//! Chains of events of some 50 ns that all start on one core: how evenly do they end up on all? The
//! first chain to reach its length ends the others. Beside it the same chains, spread from the
//! start.

use super::spin::{iterations, spin};
use super::{Table, Work, Workload, finish};
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::world::Verdict;
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Skew {
    /// As many chains.
    pub chains: usize,
    /// They start spread over the cores.
    pub even: bool,
}

const fn skewed(chains: usize, cores: usize) -> Option<Workload> {
    chains_on(chains, cores, false)
}

const fn even(chains: usize, cores: usize) -> Option<Workload> {
    chains_on(chains, cores, true)
}

const fn chains_on(chains: usize, cores: usize, even: bool) -> Option<Workload> {
    if cores > 1 {
        Some(Workload::Skew(Skew { chains, even }))
    } else {
        None
    }
}

const REMARKS: &[&str] = &[
    "Fairness: the longest over the shortest chain when the first one has run to its end.",
    "Beside: the same chains, spread over the cores from the start.",
];

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("skew3", |cores| skewed(3, cores)).beside(|cores| even(3, cores)),
    Table::new("skew5", |cores| skewed(5, cores)).beside(|cores| even(5, cores)),
    Table::new("skew16", |cores| skewed(16, cores)).beside(|cores| even(16, cores)),
    Table::new("skew1000", |cores| skewed(1_000, cores))
        .beside(|cores| even(1_000, cores))
        .remarks(REMARKS),
];

const EVENT_NS: u64 = 50;

#[derive(Debug)]
struct Race {
    over: AtomicBool,
    /// Of [`EVENT_NS`].
    iterations: u32,
}

impl Work for Skew {
    fn world(self, events: u64, cores: usize) -> World {
        let race = Race {
            over: AtomicBool::new(false),
            iterations: iterations(EVENT_NS),
        };
        World::for_events(events, self.chains, self.chains, cores, true).with(race)
    }

    fn colors_end(self, cores: usize) -> usize {
        self.chains * self.stride(cores)
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        let race: &'static Race = world.data();
        let stride = self.stride(cores.len()) as u16;
        for chain in 0..self.chains as u32 {
            cx.post(chain * u32::from(stride), move |cx| {
                step(cx, world, race, chain as u16, stride, 0);
            });
        }
    }

    fn values(self, world: &World, _: &Verdict) -> Vec<(&'static str, f64)> {
        let lengths = (0..self.chains as u32).map(|chain| world.passed(chain));
        let (least, most) = lengths.fold((u32::MAX, 0), |(least, most), length| {
            (least.min(length), most.max(length))
        });
        vec![("fairness", f64::from(most) / f64::from(least))]
    }
}

impl Skew {
    /// Between the colors of two chains.
    fn stride(self, cores: usize) -> usize {
        if self.even { 1 } else { cores }
    }
}

fn step<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    race: &'static Race,
    chain: u16,
    stride: u16,
    number: u32,
) {
    let cell = u32::from(chain);
    world.pass(cell, number);
    spin(race.iterations);
    if number + 1 == world.length || race.over.load(Relaxed) {
        race.over.store(true, Relaxed);
        world.set_length(cell, number + 1);
        finish(cx, world);
    } else {
        cx.post(cell * u32::from(stride), move |cx| {
            step(cx, world, race, chain, stride, number + 1);
        });
    }
}
