//! The events whose order is checked: each does something, and posts some more.

use crate::acts;
use crate::draw::{End, chance};
use crate::options::Plant;
use crate::order::{Inside, Stamp};
use crate::ticket::Ticket;
use crate::verdict::PLANTED;
use crate::world::World;
use mely::Post;
use mely::{Callback, Cx, Handler, Rejected};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

static QUICK: Handler = Handler::new("quick");
static TOLD: Handler = Handler::new("told").time(Duration::from_micros(1));
static PENALIZED: Handler = Handler::new("penalized")
    .time(Duration::from_micros(20))
    .penalty(100);

/// Where an event is: a color of a group of a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) side: usize,
    pub(crate) group: usize,
    pub(crate) color: usize,
}

/// An event under way.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) ticket: Ticket,
    pub(crate) at: Place,
    pub(crate) stamp: Stamp,
}

impl Event {
    /// Runs it in its handler.
    pub(crate) fn run(self, cx: &mut Cx) {
        let world = Arc::clone(self.ticket.world());
        let Event { ticket, at, stamp } = self;
        ticket.runs();
        let side = &world.sides[at.side];
        let cell = &side.groups[at.group][at.color];
        let inside: Inside<'_> = cell.enter();
        assert_eq!(cx.color(), cell.color, "the color of an event");
        if world.lies(Plant::Overlap) {
            let _ = cell.enter();
        }
        cell.arrive(at.side, at.color, &stamp);
        if world.lies(Plant::Leak) {
            std::mem::forget(Arc::clone(&world));
        }
        let ran = side.ran.fetch_add(1, Relaxed) + 1;
        // What it does is drawn too: it depends on nothing but the seed and the ticket.
        let seed = world.draw.seed ^ u64::from(ticket.id()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut rng = fastrand::Rng::with_seed(seed);
        work(&mut rng, &world);
        if world.draw.sides[at.side].end == End::Handler(ran) {
            side.stopping.store(true, Relaxed);
            cx.stop();
        }
        let mut fan = world.draw.fan;
        while fan > 0 && chance(&mut rng, fan.min(100)) {
            post(cx, &world, at, &mut rng);
            fan -= fan.min(100);
        }
        if chance(&mut rng, world.draw.odd) {
            acts::odd(cx, &world, at, &mut rng);
        }
        if rng.u32(..10_000) < world.draw.panics {
            if world.draw.sides[at.side].on_panic == mely::runtime::OnPanic::Stop {
                side.stopping.store(true, Relaxed);
            }
            std::panic::panic_any(PLANTED);
        }
        drop(inside);
    }
}

/// Mostly nothing, sometimes a little, rarely long enough to be stolen behind.
fn work(rng: &mut fastrand::Rng, world: &World) {
    let spins: u32 = match rng.u32(..1_000) {
        0 => 1_000_000,
        1..50 => 20_000,
        50..300 => 500,
        _ => 0,
    };
    for i in 0..spins {
        std::hint::black_box(i);
    }
    if rng.u32(..500) == 0 {
        std::thread::yield_now();
    }
    if world.lies(Plant::Hang) {
        loop {
            std::thread::park();
        }
    }
}

/// Posts from the color that is running to one of its group, in one of the ways there are.
pub(crate) fn post(cx: &mut Cx, world: &Arc<World>, from: Place, rng: &mut fastrand::Rng) {
    let Some(ticket) = Ticket::new(world) else {
        return;
    };
    let to = rng.usize(..world.draw.colors);
    let cell = &world.sides[from.side].groups[from.group][from.color];
    let mut stamp = cell.stamp(from.color, to);
    let (id, number) = (ticket.id(), stamp.number);
    if number > 1 && world.lies(Plant::Order) {
        stamp.number -= 1;
    }
    let event = Event {
        ticket,
        at: Place { color: to, ..from },
        stamp,
    };
    let color = world.sides[from.side].groups[from.group][to].color;
    let run = move |cx: &mut Cx| event.run(cx);
    if world.lies(Plant::Lost) {
        drop(run);
        return;
    }
    let callback = match rng.u32(..6) {
        0 => QUICK.on(color, run),
        1 => TOLD.on(color, run),
        2 => PENALIZED.on(color, run),
        _ => Callback::anonymous(color, run),
    };
    let posted = match rng.bool() {
        true => callback.try_post(&cx.poster()),
        false => callback.try_post(cx),
    };
    if accepted(world, id, posted) {
        cell.posted(from.color, to, number);
    }
}

/// Posts from the color that is running to the same group of the other runtime.
pub(crate) fn cross(world: &Arc<World>, from: Place, rng: &mut fastrand::Rng) {
    let other = 1 - from.side;
    let Some(poster) = world.sides.get(other).and_then(|side| side.poster.get()) else {
        return;
    };
    let Some(ticket) = Ticket::new(world) else {
        return;
    };
    let to = rng.usize(..world.draw.colors);
    let cell = &world.sides[from.side].groups[from.group][from.color];
    let stamp = cell.cross_stamp(world.cross_lane(from.color), to);
    let (id, number) = (ticket.id(), stamp.number);
    let at = Place {
        side: other,
        group: from.group,
        color: to,
    };
    let event = Event { ticket, at, stamp };
    let color = world.sides[other].groups[from.group][to].color;
    if accepted(world, id, poster.try_post(color, move |cx| event.run(cx))) {
        cell.crossed(to, number);
    }
}

/// Whether a post was accepted; if not, its closure goes, and the book is told.
pub(crate) fn accepted<F>(world: &World, id: u32, posted: Result<(), Rejected<F>>) -> bool {
    match posted {
        Ok(()) => true,
        Err(error) => {
            drop(error.value);
            world.book.refused(id);
            false
        }
    }
}
