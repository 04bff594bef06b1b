//! Chains: each event posts its successor to its own color.

use super::{Table, Work, Workload, finish, world};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// As many chains.
    pub colors: usize,
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    // Every core needs a chain of its own.
    Table::new("chain1", |cores| {
        (cores == 1).then_some(Workload::Chain(Chain { colors: 1 }))
    }),
    Table::new("chain2", |cores| {
        (cores == 2).then_some(Workload::Chain(Chain { colors: 2 }))
    }),
    Table::new("chain16", |_| Some(Workload::Chain(Chain { colors: 16 }))),
    Table::new("chain1000", |_| {
        Some(Workload::Chain(Chain { colors: 1_000 }))
    }),
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

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for color in world.colors_on(cores) {
            cx.post(color, move |cx| chain(cx, color, 0));
        }
    }
}

fn chain<C: Context + ?Sized>(cx: &mut C, color: u32, number: u32) {
    let world = world();
    world.pass(color, number);
    if number + 1 < world.length {
        cx.post(color, move |cx| chain(cx, color, number + 1));
    } else {
        finish(cx, world);
    }
}
