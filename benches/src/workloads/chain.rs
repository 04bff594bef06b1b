//! Chains: each event posts its successor to its own color.

use super::{Table, Work, Workload, finish};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// As many chains.
    pub colors: usize,
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table {
        name: "chain1",
        // Every core needs a chain of its own.
        workload: |cores| (cores == 1).then_some(Workload::Chain(Chain { colors: 1 })),
        remarks: &[],
    },
    Table {
        name: "chain2",
        workload: |cores| (cores == 2).then_some(Workload::Chain(Chain { colors: 2 })),
        remarks: &[],
    },
    Table {
        name: "chain16",
        workload: |_| Some(Workload::Chain(Chain { colors: 16 })),
        remarks: &[],
    },
    Table {
        name: "chain1000",
        workload: |_| Some(Workload::Chain(Chain { colors: 1_000 })),
        remarks: &[],
    },
];

impl Work for Chain {
    fn world(self, events: u64, cores: usize) -> World {
        World::for_events(events, self.colors, self.colors, cores, true)
    }

    fn colors_end(self, _cores: usize) -> usize {
        self.colors
    }

    fn separable(self, _cores: usize) -> bool {
        true
    }

    fn start<C: Context>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for color in world.colors_on(cores) {
            cx.post(color, move |cx| chain(cx, world, color, 0));
        }
    }
}

fn chain<C: Context>(cx: &mut C, world: &'static World, color: u32, number: u32) {
    world.pass(color, number);
    if number + 1 < world.length {
        cx.post(color, move |cx| chain(cx, world, color, number + 1));
    } else {
        finish(cx, world);
    }
}
