//! Hops: each event posts its successor to another color, a step or three on; as many are under way
//! as there are colors. With a step over all cores they stay on their core, and with a step of 1
//! every post goes to the next core.
//!
//! A color goes one step on and three by turns. So in a queue of colors in their order, who
//! publishes each post at once drives events before it, many to a color, and has fewer turns than
//! events. In `drawn1000` there are eight steps, and chance draws at which of them a color begins
//! anew after eight events.

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

/// A number whose bits are as good as drawn: MurmurHash3's last step.
pub(super) fn mixed(number: u32) -> u32 {
    let mut mixed = (number ^ (number >> 16)).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}

/// How far the colors of `drawn1000` post.
const STEPS: [u32; 8] = [1, 3, 17, 61, 127, 211, 307, 419];

/// Which of the steps a color takes after it has run so often, and how long that is.
#[inline]
fn drawn(color: u32, ran: u32, length: u32) -> (u32, u32) {
    let last = STEPS.len() as u32 - 1;
    let mut to = ran & last;
    // Where not all steps are taken any more, all colors take the same ones.
    if (ran | last) + 1 < length {
        to = (ran.wrapping_add(mixed((color << 16) ^ (ran / STEPS.len() as u32)))) & last;
    }
    (to, STEPS[to as usize])
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
        // Each color has as many posters as there are steps, and from each it gets as many as it
        // sends to each.
        let (to, on) = if DRAWN {
            drawn(color, ran, world.length)
        } else {
            // By turns one step on and three, both of them to another core or neither. Events that
            // meet in a color part again by that: else they would travel as one chunk for ever,
            // which is another workload.
            (ran & 1, 1 + 2 * (ran & 1))
        };
        let step = if ACROSS { 1 } else { world.cores() as u32 };
        let mut next = color + step * on;
        if next >= world.colors() as u32 {
            next %= world.colors() as u32;
        }
        let number = ran / if DRAWN { STEPS.len() as u32 } else { 2 };
        let (next, to) = (next as u16, to as u16);
        cx.post(next.into(), move |cx| {
            hop::<C, ACROSS, DRAWN>(cx, next, number, to);
        });
    } else {
        finish(cx, world);
    }
}
