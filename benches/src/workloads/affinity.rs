//! The 2003 paper's synthetic benchmark (§5.3, Table 2): 16 chains of unique colors, which start on
//! all cores but the last.

use super::spin::{iterations, spin};
use super::{Table, Work, Workload, finish};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Affinity;

const COLORS: u32 = 16;
/// "A small amount of computation": the paper does not say how much.
const COMPUTATION_NS: u64 = 200;

/// The tables of this workload.
pub const TABLES: &[Table] = &[Table::new("atc-2-affinity", |_| Some(Workload::Affinity(Affinity))).remarks(&[
        "ATC 2003, Table 2, 4 processors, tasks/s: one queue 61,420 (here libasync-mp-malloc), per-thread",
        "queues 240,618 (x 3.92; libasync-smp-malloc), per-thread free lists 293,997 (x 1.22; libasync-smp),",
        "work stealing 384,765 (x 1.31; libasync-smp-ws). Here tasks compute for 200 ns.",
    ])];

#[derive(Clone, Copy, Debug)]
struct Data {
    cores: u32,
    iterations: u32,
}

impl Data {
    fn color(self, index: u32) -> u32 {
        let populated = (self.cores - 1).max(1);
        index / populated * self.cores + index % populated
    }
}

impl Work for Affinity {
    fn world(self, events: u64, cores: usize) -> World {
        let colors = COLORS as usize;
        World::for_events(events, colors, colors, 1, true).with(Data {
            cores: cores as u32,
            iterations: iterations(COMPUTATION_NS),
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        COLORS as usize * cores
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, _cores: &[usize]) {
        let data = world.data::<Data>();
        for index in 0..COLORS {
            cx.post(data.color(index), move |cx| task(cx, world, data, index, 0));
        }
    }

    fn is_of_papers(self) -> bool {
        true
    }
}

fn task<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    data: &'static Data,
    index: u32,
    number: u32,
) {
    spin(data.iterations);
    world.pass(index, number);
    if number + 1 < world.length {
        cx.post(data.color(index), move |cx| {
            task(cx, world, data, index, number + 1);
        });
    } else {
        finish(cx, world);
    }
}
