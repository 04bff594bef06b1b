//! Hops: each event posts its successor to another color, `step` or three times as far on; as many
//! are under way as there are colors. With as many cores as `step` all stay on their core, and with
//! `step` 1 every post goes to the next core.

use super::{Table, Work, Workload, finish};
use crate::world::SEED;
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// As many events are under way.
    pub colors: usize,
    /// How far the next color is; colors are numbered round the cores.
    pub step: usize,
}

const fn own_core(colors: usize, cores: usize) -> Option<Workload> {
    Some(Workload::Hop(Hop {
        colors,
        step: cores,
    }))
}

const fn next_core(colors: usize, cores: usize) -> Option<Workload> {
    if cores > 1 {
        Some(Workload::Hop(Hop { colors, step: 1 }))
    } else {
        None
    }
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("hop16", |cores| own_core(16, cores)),
    Table::new("hop1000", |cores| own_core(1_000, cores)),
    Table::new("cross16", |cores| next_core(16, cores)),
    Table::new("cross1000", |cores| next_core(1_000, cores)),
];

impl Work for Hop {
    fn world(self, events: u64, cores: usize) -> World {
        World::for_events(events, self.colors, self.colors, cores, true)
    }

    fn colors_end(self, _cores: usize) -> usize {
        self.colors
    }

    fn separable(self, cores: usize) -> bool {
        self.step.is_multiple_of(cores)
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        let step = self.step as u16;
        for color in world.colors_on(cores) {
            cx.post(color, move |cx| hop(cx, world, color, SEED, 0, step));
        }
    }
}

fn hop<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    color: u32,
    number: u32,
    from: u16,
    step: u16,
) {
    let ran = world.relay(color, usize::from(from), number);
    if ran + 1 < world.length {
        // By turns one step on and three, both of them to another core or neither. Events that meet
        // in a color part again by that: else they would travel as one chunk for ever, which is
        // another workload. Each color has two posters, and from each it gets as many as it sends
        // to each.
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
