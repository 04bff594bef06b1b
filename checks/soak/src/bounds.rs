//! Bounded colors: no more events wait than may, and all room comes back, whoever waits for it.

use crate::event::Place;
use crate::ticket::Ticket;
use crate::verdict::fail;
use crate::world::World;
use mely::Reason;
use mely::state::{Bounded, Permit};
use mely::task::with_cx;
use mely::{Callback, Color, Colored, Cx, Handler, Poster, Rejected};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static BOUNDED: Handler = Handler::new("bounded");

/// A bounded color, with its own count of events that wait.
#[derive(Debug)]
pub(crate) struct Bound {
    bounded: Bounded<()>,
    waiting: AtomicUsize,
    /// What is seen to wait at the most. An event that begins, and on each core one that is
    /// refused, gives its room back a moment before it is counted.
    most: usize,
}

impl Bound {
    /// Those of a runtime: a narrow one, and two that shed.
    pub(crate) fn all(poster: &Poster, cores: usize) -> Vec<Arc<Bound>> {
        let state = |n: u64| Colored::new(poster, Color::from((5 << 40) + n), ()).via(&BOUNDED);
        let old = Duration::from_micros(50);
        let bounds = [
            (1, state(0).bounded(1)),
            (4, state(1).bounded(4).shed_older_than(old)),
            (64, state(2).bounded(64).shed_deeper_than(16).waiters_max(8)),
        ];
        let bound = |(limit, bounded): (usize, _)| {
            Arc::new(Bound {
                bounded,
                most: limit + 1 + cores,
                waiting: AtomicUsize::new(0),
            })
        };
        bounds.map(bound).into()
    }

    /// At the end.
    pub(crate) fn must_be_empty(&self) {
        let (waiting, in_line) = (self.bounded.waiting(), self.bounded.in_line());
        if (waiting, in_line) != (0, 0) {
            fail(&format!(
                "{:?}: {waiting} permits are out at the end, and {in_line} in the line",
                self.bounded
            ));
        }
    }

    /// Posts an event with this room.
    fn post(self: Arc<Self>, cx: &Cx, room: Permit<()>, ticket: Ticket) {
        let waits = Waits::new(self);
        let run = move |(): &mut (), _cx: &mut Cx| {
            drop(waits);
            ticket.runs();
        };
        let posted = room.try_post_or(cx, run, |(), _cx| ());
        // Refused at the limit of events.
        drop(posted);
    }
}

/// An event that waits.
struct Waits(Arc<Bound>);

impl Waits {
    fn new(bound: Arc<Bound>) -> Waits {
        let waiting = bound.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        if waiting > bound.most {
            fail(&format!("{waiting} events wait: {:?}", bound.bounded));
        }
        Waits(bound)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Posts to a bounded color of this runtime, or waits for room by a callback or in a task.
pub(crate) fn use_bound(cx: &mut Cx, world: &Arc<World>, at: Place, rng: &mut fastrand::Rng) {
    let side = &world.sides[at.side];
    let (Some(bounds), Some(ticket)) = (side.bounds.get(), Ticket::loose(world)) else {
        return;
    };
    let bound = Arc::clone(&bounds[rng.usize(..bounds.len())]);
    let bounded = bound.bounded.clone();
    let color = side.groups[at.group][rng.usize(..world.draw.colors)].color;
    match rng.u32(..4) {
        0 | 1 => {
            if let Some(room) = bounded.try_reserve() {
                bound.post(cx, room, ticket);
            }
        }
        2 => {
            let on_room = move |cx: &mut Cx, room| bound.post(cx, room, ticket);
            let callback = Callback::anonymous_value(color, on_room);
            // Refused where the line is full.
            drop(bounded.on_room(cx, callback));
        }
        _ => {
            let task = cx.poster().try_spawn(color, async move {
                let room = bounded.reserve().await;
                with_cx(|cx| bound.post(cx, room, ticket));
            });
            match task {
                Ok(task) if rng.bool() => side.tasks.lock().unwrap().push(task.cancel_on_drop()),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// A foreign thread waits for room for a while.
pub(crate) fn wait(world: &Arc<World>, rng: &mut fastrand::Rng) {
    let side = &world.sides[rng.usize(..world.sides.len())];
    let (Some(bounds), Some(poster)) = (side.bounds.get(), side.poster.get()) else {
        return;
    };
    let Some(ticket) = Ticket::loose(world) else {
        return;
    };
    let bounded = &bounds[rng.usize(..bounds.len())].bounded;
    let at_most = Duration::from_micros(rng.u64(..1_000));
    let posted = bounded.post_wait(poster, at_most, move |(), _cx| ticket.runs());
    if let Err(
        error @ (Rejected {
            reason: Reason::InsideHandler,
            ..
        }
        | Rejected {
            reason: Reason::NoRoom,
            ..
        }),
    ) = posted
    {
        fail(&format!("a thread that waits for room is told: {error}"));
    }
}
