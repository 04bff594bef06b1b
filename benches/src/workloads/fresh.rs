//! Fresh colors: a handler posts one event to each of its colors, which then all run, and so on. A
//! poster for each core, to the colors of that core: in their order, in which a processor guesses
//! what memory comes next, or scattered, as requests come in.

use super::{Table, Work, Workload, finish, world};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Of all posters together.
    pub colors: usize,
    /// Not in their order.
    pub scattered: bool,
}

const fn fresh(scattered: bool) -> Option<Workload> {
    Some(Workload::Fresh(Fresh {
        colors: 50_000,
        scattered,
    }))
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("fresh50000", |_| fresh(false)),
    Table::new("scattered50000", |_| fresh(true)),
];

/// From one color to the next of those that are scattered: a prime, which must not divide their
/// number.
const STRIDE: u64 = 12_289;

impl Work for Fresh {
    fn world(self, events: u64, cores: usize) -> World {
        assert!(!(self.colors as u64).is_multiple_of(STRIDE));
        assert!(self.colors <= usize::from(u16::MAX), "see `end_round`");
        let stride = if self.scattered { STRIDE } else { 1 };
        World::for_events(events, self.colors, cores, cores, false).with(stride)
    }

    fn colors_end(self, cores: usize) -> usize {
        self.colors.next_multiple_of(cores) + 2 * cores
    }

    fn separable(self, _cores: usize) -> bool {
        true
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for &core in cores {
            let core = core as u32;
            // To a color that none of the events has: the posts are not self-posts.
            cx.post(poster_color(world, core), move |cx| {
                round(cx, core, 0);
            });
        }
    }
}

/// The color of a core's poster: beyond all others, and on that core.
fn poster_color(world: &World, core: u32) -> u32 {
    (world.colors().next_multiple_of(world.cores())) as u32 + core
}

/// The colors that a core's poster posts to, in this order, from the `from`-th on.
fn colors_from(world: &World, core: u32, from: u32) -> impl Iterator<Item = u32> + use<> {
    let cores = world.cores() as u32;
    let colors = (world.colors() as u32 - core).div_ceil(cores);
    let stride = (world.data::<u64>() % u64::from(colors)) as u32;
    let mut at = (u64::from(from) * u64::from(stride) % u64::from(colors)) as u32;
    (from..colors).map(move |_| {
        let color = core + at * cores;
        at += stride;
        if at >= colors {
            at -= colors;
        }
        color
    })
}

fn round<C: Context + ?Sized>(cx: &mut C, core: u32, number: u32) {
    let world = world();
    let mut posted: u16 = 0;
    for color in colors_from(world, core, 0) {
        cx.post(color, move |_| super::world().pass(color, number));
        posted += 1;
    }
    // Rounds may overlap by a few events on several cores; each color still has its order. Only
    // after the last round nothing may be left, so that is looked at from the first color on.
    let last = number + 1 == world.length;
    let from = if last { 0 } else { posted - 1 };
    post_end(cx, core as u16, number, from);
}

fn post_end<C: Context + ?Sized>(cx: &mut C, core: u16, number: u32, from: u16) {
    let world = world();
    let color = poster_color(world, core.into()) + world.cores() as u32;
    cx.post(color, move |cx| end_round(cx, core, number, from));
}

/// Posted after all events of a round, so usually it runs after them. Where it does not, some of
/// them are on another core, and it looks again. The colors before the `from`-th are known to have
/// run. Its arguments have 8 bytes.
fn end_round<C: Context + ?Sized>(cx: &mut C, core: u16, number: u32, from: u16) {
    let world = world();
    let mut colors = colors_from(world, core.into(), from.into());
    if let Some(at) = colors.position(|color| world.passed(color) <= number) {
        post_end(cx, core, number, from + at as u16);
    } else if number + 1 < world.length {
        let core = core.into();
        cx.post(poster_color(world, core), move |cx| {
            round(cx, core, number + 1);
        });
    } else {
        finish(cx, world);
    }
}
