//! Hot ping-pong: one event under way between two colors that start on different cores.

use super::{Table, Work, Workload, finish};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct PingPong;

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("ping-pong", |_| Some(Workload::PingPong(PingPong))).remarks(&[
        "Without stealing every hop crosses the cores; with it the pair may settle on one.",
    ]),
];

impl Work for PingPong {
    fn world(self, events: u64, cores: usize) -> World {
        World::for_events(events, 2, 2, cores, true)
    }

    fn colors_end(self, _cores: usize) -> usize {
        2
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, _cores: &[usize]) {
        cx.post(0, move |cx| hop(cx, world, 0, 0));
    }
}

fn hop<C: Context + ?Sized>(cx: &mut C, world: &'static World, color: u32, number: u32) {
    world.pass(color, number);
    let (next_color, next) = (1 - color, number + color);
    if next < world.length {
        cx.post(next_color, move |cx| hop(cx, world, next_color, next));
    }
    if number + 1 == world.length {
        finish(cx, world);
    }
}
