//! Hops: each event posts its successor to another color, a step or three on; as many are under way
//! as there are colors. With a step over all cores they stay on their core, and with a step of 1
//! every post goes to the next core.
//!
//! A color goes one step on and three by turns. Then who publishes each post at once comes to a
//! rhythm, in which a processor foresees how many events each color has. In `drawn1000` it is drawn
//! by chance which of two in a row comes first, as it is where clients decide it.

use super::{Table, Work, Workload, finish, world};
use crate::world::SEED;
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// As many events are under way.
    pub colors: usize,
    /// To the next core, not on the own one. Colors are numbered round the cores.
    pub across: bool,
    /// How far is drawn by chance.
    pub drawn: bool,
}

const fn own_core(colors: usize, drawn: bool) -> Option<Workload> {
    Some(Workload::Hop(Hop {
        colors,
        across: false,
        drawn,
    }))
}

const fn next_core(colors: usize, cores: usize) -> Option<Workload> {
    if cores > 1 {
        Some(Workload::Hop(Hop {
            colors,
            across: true,
            drawn: false,
        }))
    } else {
        None
    }
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("hop16", |_| own_core(16, false)),
    Table::new("hop1000", |_| own_core(1_000, false)),
    Table::new("drawn1000", |_| own_core(1_000, true)),
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

    fn separable(self, _cores: usize) -> bool {
        !self.across
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for color in world.colors_on(cores) {
            let color = color as u16;
            match (self.across, self.drawn) {
                (true, _) => post_first::<C, true, false>(cx, color),
                (_, true) => post_first::<C, false, true>(cx, color),
                _ => post_first::<C, false, false>(cx, color),
            }
        }
    }
}

fn post_first<C: Context + ?Sized, const ACROSS: bool, const DRAWN: bool>(cx: &mut C, color: u16) {
    cx.post(color.into(), move |cx| {
        hop::<C, ACROSS, DRAWN>(cx, color, SEED, 0);
    });
}

/// Its arguments have 8 bytes.
fn hop<C: Context + ?Sized, const ACROSS: bool, const DRAWN: bool>(
    cx: &mut C,
    color: u16,
    number: u32,
    from: u16,
) {
    let world = world();
    let color = u32::from(color);
    let ran = world.relay(color, usize::from(from), number);
    if ran + 1 < world.length {
        // By turns one step on and three, both of them to another core or neither. Events that meet
        // in a color part again by that: else they would travel as one chunk for ever, which is
        // another workload. Each color has two posters, and from each it gets as many as it sends
        // to each.
        let mut to = ran as u16 & 1;
        // Of the last pair only one goes on: to the same neighbor, whichever color it is.
        if DRAWN && ran | 1 != world.length - 1 {
            let pair = ((color << 16) ^ (ran / 2)).wrapping_mul(0x9e37_79b9);
            to ^= (pair >> 17) as u16 & 1;
        }
        let step = if ACROSS { 1 } else { world.cores() as u32 };
        let mut next = color + step * (1 + 2 * u32::from(to));
        if next >= world.colors() as u32 {
            next -= world.colors() as u32;
        }
        let (next, number) = (next as u16, ran / 2);
        cx.post(next.into(), move |cx| {
            hop::<C, ACROSS, DRAWN>(cx, next, number, to);
        });
    } else {
        finish(cx, world);
    }
}
