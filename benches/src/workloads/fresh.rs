//! Fresh colors: a handler posts one event to each of its colors, which then all run, and so on. A
//! poster for each core, to the colors of that core.

use super::{Table, Work, Workload, finish};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Of all posters together.
    pub colors: usize,
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[Table::new("fresh50000", |_| {
    Some(Workload::Fresh(Fresh { colors: 50_000 }))
})];

impl Work for Fresh {
    fn world(self, events: u64, cores: usize) -> World {
        World::for_events(events, self.colors, cores, cores, false)
    }

    fn colors_end(self, cores: usize) -> usize {
        self.colors.next_multiple_of(cores) + 2 * cores
    }

    fn separable(self, _cores: usize) -> bool {
        true
    }

    fn start<C: Context>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for &core in cores {
            let core = core as u32;
            // To a color that none of the events has: the posts are not self-posts.
            cx.post(poster_color(world, core), move |cx| {
                round(cx, world, core, 0);
            });
        }
    }
}

/// The color of a core's poster: beyond all others, and on that core.
fn poster_color(world: &World, core: u32) -> u32 {
    (world.colors().next_multiple_of(world.cores())) as u32 + core
}

fn round<C: Context>(cx: &mut C, world: &'static World, core: u32, number: u32) {
    let cores = world.cores() as u32;
    let mut last = core;
    for color in (core..world.colors() as u32).step_by(cores as usize) {
        cx.post(color, move |_| world.pass(color, number));
        last = color;
    }
    // Rounds may overlap by a few events on several cores; each color still has its order. Only
    // after the last round nothing may be left, so that is looked at from the first color on.
    let from = if number + 1 < world.length {
        last
    } else {
        core
    };
    cx.post(poster_color(world, core) + cores, move |cx| {
        end_round(cx, world, number, from);
    });
}

/// Posted after all events of a round, so usually it runs after them. Where it does not, some of
/// them are on another core, and it looks again. The colors before `from` are known to have run.
fn end_round<C: Context>(cx: &mut C, world: &'static World, number: u32, from: u32) {
    let cores = world.cores() as u32;
    let core = from % cores;
    let behind = (from..world.colors() as u32)
        .step_by(cores as usize)
        .find(|&color| world.passed(color) <= number);
    if let Some(from) = behind {
        cx.post(poster_color(world, core) + cores, move |cx| {
            end_round(cx, world, number, from);
        });
    } else if number + 1 < world.length {
        cx.post(poster_color(world, core), move |cx| {
            round(cx, world, core, number + 1);
        });
    } else {
        finish(cx, world);
    }
}
