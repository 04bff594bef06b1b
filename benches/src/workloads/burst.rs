//! Bursts: a handler posts 1,000 events to one color, which on several cores starts on another
//! core; the last of them asks for the next burst.

use super::{Table, Work, Workload, finish, world};
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Events of a burst.
    pub events: u32,
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[Table::new("burst1000", |_| {
    Some(Workload::Burst(Burst { events: 1_000 }))
})];

const POSTER: u32 = 0;
const SINK: u32 = 1;

impl Work for Burst {
    fn world(self, events: u64, cores: usize) -> World {
        let bursts = (events / u64::from(self.events)).max(1);
        let length = (bursts * u64::from(self.events)).min(u64::from(u32::MAX)) as u32;
        let world = World::new(2, length, 1, cores, true);
        world.set_length(POSTER, length / self.events);
        world
    }

    fn colors_end(self, _cores: usize) -> usize {
        2
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, _world: &'static World, _cores: &[usize]) {
        let events = self.events;
        cx.post(POSTER, move |cx| burst(cx, 0, events));
    }
}

fn burst<C: Context + ?Sized>(cx: &mut C, number: u32, events: u32) {
    world().pass(POSTER, number);
    let first = number * events;
    for event in first..first + events - 1 {
        cx.post(SINK, move |_| world().pass(SINK, event));
    }
    cx.post(SINK, move |cx| {
        let (world, end) = (world(), (number + 1) * events);
        world.pass(SINK, end - 1);
        if end < world.length {
            cx.post(POSTER, move |cx| burst(cx, number + 1, events));
        } else {
            finish(cx, world);
        }
    });
}
