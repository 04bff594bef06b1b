//! The workloads, written once for every scheduler.

use crate::World;
use crate::world::SEED;

/// What a handler posts with, on whatever scheduler.
///
/// A closure of a workload captures at most three words, and references to leaked worlds rather than
/// counted ones: what is measured is an event, not a reference count.
pub trait Context: Sized {
    /// Posts to a color. Colors are small numbers; color `c` starts on core `c % cores`.
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static;

    /// The last event has run.
    fn stop(&mut self);
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Each event posts its successor to its own color.
    Chain {
        /// As many chains.
        colors: usize,
    },
    /// Each event posts its successor to another color, `step` or three times as far on; as many are
    /// under way as there are colors. With as many cores as `step` all stay on their core, and with `step` 1
    /// every post goes to the next core.
    Hop {
        /// As many events are under way.
        colors: usize,
        /// How far the next color is; colors are numbered round the cores.
        step: usize,
    },
    /// A handler posts one event to each of its colors, which then all run, and so on. A poster for
    /// each core, to the colors of that core.
    Fresh {
        /// Of all posters together.
        colors: usize,
    },
}

impl Workload {
    /// A world for about `events` events of this workload: leaked, for the life of the process, so
    /// that handlers can name it by a plain reference.
    pub fn world(self, events: u64, cores: usize) -> &'static World {
        let colors = self.colors();
        let length = (events / colors as u64).clamp(1, u64::from(SEED)) as u32;
        let (parts, padded) = match self {
            Workload::Chain { .. } | Workload::Hop { .. } => (colors, true),
            Workload::Fresh { .. } => (cores, false),
        };
        Box::leak(Box::new(World::new(colors, length, parts, cores, padded)))
    }

    /// The number of colors, at least one a core.
    pub fn colors(self) -> usize {
        match self {
            Workload::Chain { colors }
            | Workload::Hop { colors, .. }
            | Workload::Fresh { colors } => colors,
        }
    }

    /// Posts the first events of all colors that start on `cores`.
    pub fn start<C: Context>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        world.begin();
        let starts_here = |&color: &u32| cores.contains(&(color as usize % world.cores()));
        match self {
            Workload::Chain { colors } => {
                for color in (0..colors as u32).filter(starts_here) {
                    cx.post(color, move |cx| chain(cx, world, color, 0));
                }
            }
            Workload::Hop { colors, step } => {
                for color in (0..colors as u32).filter(starts_here) {
                    let step = step as u16;
                    cx.post(color, move |cx| hop(cx, world, color, SEED, 0, step));
                }
            }
            Workload::Fresh { .. } => {
                for &core in cores {
                    let core = core as u32;
                    // To a color that none of the events has: the posts are not self-posts.
                    cx.post(poster_color(world, core), move |cx| {
                        round(cx, world, core, 0);
                    });
                }
            }
        }
    }
}

fn finish<C: Context>(cx: &mut C, world: &'static World) {
    if world.end() {
        cx.stop();
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

fn hop<C: Context>(
    cx: &mut C,
    world: &'static World,
    color: u32,
    number: u32,
    from: u16,
    step: u16,
) {
    let ran = world.relay(color, usize::from(from), number);
    if ran + 1 < world.length {
        // By turns one step on and three, both of them to another core or neither. Events that meet in a color part again
        // by that: else they would travel as one chunk for ever, which is another workload. Each
        // color has two posters, and from each it gets as many as it sends to each.
        let to = ran as u16 & 1;
        let mut next = color + u32::from(step) * (1 + 2 * u32::from(to));
        if next >= world.colors() as u32 {
            next -= world.colors() as u32;
        }
        let number = ran / 2;
        cx.post(next, move |cx| hop(cx, world, next, number, to, step));
    } else {
        finish(cx, world);
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
