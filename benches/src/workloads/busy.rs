//! Wake-ups from a busy handler: it posts to another color, then stays busy for 50 us. The time is
//! from the post to that color's start. The other color is of the other core, which sleeps; or of
//! the handler's own core, so that the other has to steal it.

use super::{Table, Work, Workload, finish, now_ns};
use crate::{Context, Outside, World, machine};
use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// The color posted to is of the handler's own core.
    pub own: bool,
}

const fn on_two(cores: usize, own: bool) -> Option<Workload> {
    if cores == 2 {
        Some(Workload::Busy(Busy { own }))
    } else {
        None
    }
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("busy-other", |cores| on_two(cores, false)),
    Table::new("busy-own", |cores| on_two(cores, true)).remarks(&[
        "ns/event is half the gap; latencies are from the post to the start of the handler.",
    ]),
];

/// The color of the busy handler.
const BUSY: u32 = 0;
const BUSY_TIME: Duration = Duration::from_micros(50);
/// Long enough for a core to go to sleep.
const GAP: Duration = Duration::from_millis(1);

impl Work for Busy {
    fn world(self, events: u64, cores: usize) -> World {
        let length = (events / 2).clamp(1, u64::from(u32::MAX)) as u32;
        let target = self.target(cores);
        let world = World::new(target as usize + 1, length, 2, cores, true);
        (BUSY + 1..target).for_each(|unused| world.set_length(unused, 0));
        world
    }

    fn colors_end(self, cores: usize) -> usize {
        self.target(cores) as usize + 1
    }

    fn separable(self, _cores: usize) -> bool {
        false
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        let outside = cx.outside();
        let cores = cores.len();
        let target = self.target(cores);
        thread::spawn(move || {
            machine::pin_foreign(0, cores);
            for number in 0..world.length {
                thread::sleep(GAP);
                outside.post(BUSY, move |cx: &mut C| busy(cx, world, target, number));
            }
        });
    }
}

impl Busy {
    fn target(self, cores: usize) -> u32 {
        if self.own { cores as u32 } else { 1 }
    }
}

fn busy<C: Context + ?Sized>(cx: &mut C, world: &'static World, target: u32, number: u32) {
    world.pass(BUSY, number);
    let began = Instant::now();
    let posted_ns = now_ns();
    cx.post(target, move |cx| {
        let started_ns = now_ns();
        world.pass(target, number);
        world.sample(started_ns - posted_ns);
        if number + 1 == world.length {
            finish(cx, world);
        }
    });
    while began.elapsed() < BUSY_TIME {
        spin_loop();
    }
    if number + 1 == world.length {
        finish(cx, world);
    }
}
