//! What penalties are for, on two cores: rounds in which the first core fills a buffer for each of
//! some colors and posts them an event that reads it, and to as many other colors an event that
//! takes as long and reads nothing. A thief that takes the latter leaves the buffers in the caches
//! where they are. Not of the papers: in their *penalty*, which has no such choice, a penalty only
//! keeps thieves from some steals.

use super::lines::Lines;
use super::rounds::{self, ForkJoin, Rounds};
use super::spin::{iterations, spin};
use super::{Table, Work, Workload};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::charge;
use crate::world::Verdict;
use crate::{Context, Note, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Drag;

/// Colors of either kind.
const COLORS: u32 = 64;
/// Of a buffer: all of them fit a second-level cache.
const LINES: usize = 128;
/// What an event computes besides, in ns.
const COMPUTES_NS: u64 = 3_000;

static READS: Note = Note::new("reads").time_ns(COMPUTES_NS).penalty(16);
static COMPUTES: Note = Note::new("computes").time_ns(COMPUTES_NS);

/// The tables of this workload.
pub const TABLES: &[Table] = &[Table::new("drag", drag).remarks(&[
    "64 colors whose events read 8 KiB that the first core has written, and 64 whose events",
    "only compute, each for 3 us: with penalties, thieves leave the former alone.",
])];

/// There is nobody to leave anything to on one core.
fn drag(cores: usize) -> Option<Workload> {
    (cores > 1).then_some(Workload::Drag(Drag))
}

/// One line of a buffer.
#[repr(align(64))]
#[derive(Debug)]
struct Line(AtomicU64);

#[derive(Debug)]
struct Data {
    rounds: Rounds,
    buffers: Vec<[Line; LINES]>,
    lines: Lines,
    iterations: u32,
}

impl Data {
    fn end<C: Context + ?Sized>(&self, cx: &C, world: &World, index: u32, round: u32) {
        spin(self.iterations);
        world.pass(index, round);
        self.rounds.ended(cx, index);
    }
}

impl ForkJoin for Data {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn fork<C: Context + ?Sized>(&'static self, cx: &mut C, world: &'static World, round: u32) {
        if round == 0 {
            charge::name(&self.buffers[..], "buffers", 0);
        }
        for index in 0..COLORS {
            let buffer = &self.buffers[index as usize];
            self.lines.touch(index as usize, cx.core());
            charge::write(buffer);
            for line in buffer {
                line.0.store(round.into(), Relaxed);
            }
            let rounds = &self.rounds;
            rounds.post(cx, index, &READS, move |cx: &mut C| {
                self.lines.touch(index as usize, cx.core());
                charge::read(buffer);
                for line in buffer {
                    assert!(
                        line.0.load(Relaxed) == u64::from(round),
                        "not what was written"
                    );
                }
                self.end(cx, world, index, round);
            });
            let other = COLORS + index;
            rounds.post(cx, other, &COMPUTES, move |cx: &mut C| {
                self.end(cx, world, other, round);
            });
        }
        rounds::post_join(cx, world, self, round);
    }
}

impl Work for Drag {
    fn world(self, events: u64, cores: usize) -> World {
        let rounds = (events / u64::from(2 * COLORS)).clamp(1, 1 << 20) as u32;
        let line = |_| Line(AtomicU64::new(0));
        World::new(2 * COLORS as usize, rounds, 1, 1, true).with(Data {
            rounds: Rounds::on_first_core(rounds, cores),
            buffers: (0..COLORS).map(|_| std::array::from_fn(line)).collect(),
            lines: Lines::new(COLORS as usize, size_of::<[Line; LINES]>(), cores),
            iterations: iterations(COMPUTES_NS),
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        rounds::colors_end(2 * COLORS as usize, cores)
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, _cores: &[usize]) {
        rounds::start(cx, world, world.data::<Data>());
    }

    fn is_of_papers(self) -> bool {
        // As far as that all modes of mely are to run it.
        true
    }

    fn values(self, world: &World, _verdict: &Verdict) -> Vec<(&'static str, f64)> {
        let events = f64::from(world.length) * f64::from(2 * COLORS);
        world.data::<Data>().lines.values(events)
    }
}
