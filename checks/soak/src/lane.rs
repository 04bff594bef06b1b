//! Foreign threads: they come, post, and go; the next one of the lane goes on where they ended.

use crate::acts;
use crate::bounds;
use crate::event::{Event, Place, accepted};
use crate::order::Stamp;
use crate::ticket::Ticket;
use crate::verdict::fail;
use crate::world::World;
use mely::Post;
use mely::{Cx, Reason};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

/// The n-th lane of the round, from its first thread to its last.
pub(crate) fn start(world: &Arc<World>, lane: usize) -> JoinHandle<()> {
    let world = Arc::clone(world);
    let busy = world.busy();
    std::thread::spawn(move || {
        let _busy = busy;
        let draw = &world.draw;
        let mut rng = fastrand::Rng::with_seed(draw.seed ^ (lane as u64 + 1) << 32);
        let mut sent = world.sent();
        for _ in 0..draw.lives {
            let (world, mut its) = (Arc::clone(&world), rng.fork());
            let life = std::thread::spawn(move || {
                live(&world, world.foreign_lane(lane), &mut sent, &mut its);
                sent
            });
            sent = match life.join() {
                Ok(sent) => sent,
                Err(_) => fail("a foreign thread died"),
            };
        }
    })
}

fn live(world: &Arc<World>, lane: usize, sent: &mut [u32], rng: &mut fastrand::Rng) {
    let draw = &world.draw;
    for _ in 0..draw.posts {
        match rng.u32(..400) {
            0 => std::thread::sleep(Duration::from_micros(rng.u64(..500))),
            1..10 => std::thread::yield_now(),
            10 => drop_state(world, rng),
            11 => ask_for(world, rng),
            12 => bounds::wait(world, rng),
            _ if draw.crowd && rng.bool() => outside(world, rng),
            _ => {}
        }
        let at = Place {
            side: rng.usize(..draw.sides.len()),
            group: rng.usize(..draw.groups),
            color: rng.usize(..draw.colors),
        };
        if let Err(Reason::Ended) = post(world, lane, at, sent)
            && draw.sides.len() == 1
        {
            return;
        }
    }
}

/// Posts from a lane that knows of nothing but its own posts, which are in `sent`.
pub(crate) fn post(
    world: &Arc<World>,
    lane: usize,
    at: Place,
    sent: &mut [u32],
) -> Result<(), Reason> {
    let draw = &world.draw;
    let side = &world.sides[at.side];
    let (Some(poster), Some(ticket)) = (side.poster.get(), Ticket::new(world)) else {
        return Ok(());
    };
    let lanes = World::lane_count(draw);
    let group = (at.side * draw.groups + at.group) * draw.colors;
    let mut clock = vec![0; draw.colors * lanes];
    for color in 0..draw.colors {
        clock[color * lanes + lane] = sent[group + color];
    }
    let number = sent[group + at.color] + 1;
    let id = ticket.id();
    let stamp = Stamp {
        lane,
        number,
        clock: clock.into(),
    };
    let event = Event { ticket, at, stamp };
    let color = side.groups[at.group][at.color].color;
    let posted = poster.try_post(color, move |cx| event.run(cx));
    let why = posted.as_ref().copied().map_err(|refused| refused.reason);
    if accepted(world, id, posted) {
        sent[group + at.color] = number;
    }
    why
}

fn drop_state(world: &World, rng: &mut fastrand::Rng) {
    let states = &world.sides[rng.usize(..world.sides.len())].states;
    let dropped = states[rng.usize(..states.len())].lock().unwrap().take();
    drop(dropped);
}

/// Does one of the operations on colors that threads have which are no cores, posts apart.
fn outside(world: &Arc<World>, rng: &mut fastrand::Rng) {
    let at = Place {
        side: rng.usize(..world.sides.len()),
        group: 0,
        color: rng.usize(..world.draw.colors),
    };
    let side = &world.sides[at.side];
    let Some(poster) = side.poster.get() else {
        return;
    };
    match rng.u32(..40) {
        0..24 => ask_for(world, rng),
        24..28 => acts::together(poster, false, world, at, rng),
        28..32 => acts::read(poster, false, world, at, rng),
        32..36 => acts::new_state(poster, world, at, rng),
        36..39 => {
            let Some(ticket) = Ticket::loose(world) else {
                return;
            };
            let mut its = rng.fork();
            let color = side.groups[at.group][at.color].color;
            let holds = move |cx: &mut Cx| {
                ticket.runs();
                acts::hold(cx, ticket.world(), at, &mut its);
            };
            let _refused = poster.try_post(color, holds);
        }
        _ => {
            let cores = rng.usize(1..=world.draw.sides[at.side].cores);
            if let Err(error) = poster.set_working_cores(cores)
                && !side.stopping.load(Relaxed)
            {
                fail(&format!("cores cannot go or come: {error}"));
            }
        }
    }
}

/// Asks for a core for some color, or for its next turn.
fn ask_for(world: &World, rng: &mut fastrand::Rng) {
    let side = rng.usize(..world.sides.len());
    let group = &world.sides[side].groups[rng.usize(..world.draw.groups)];
    if let Some(poster) = world.sides[side].poster.get() {
        let color = group[rng.usize(..group.len())].color;
        if rng.bool() {
            poster.hurry(color);
        } else {
            poster.place(color, rng.usize(..world.draw.sides[side].cores));
        }
    }
}
