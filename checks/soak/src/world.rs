//! What the events of a round share.

use crate::bounds::Bound;
use crate::draw::Draw;
use crate::options::Plant;
use crate::order::Cell;
use crate::ticket::{Book, Ticket};
use mely::net::{Listener, Timer};
use mely::{Color, Colored, JoinHandle, Poster};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The round.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) draw: Draw,
    pub(crate) book: Book,
    pub(crate) sides: Vec<Side>,
    plant: Option<Plant>,
    planted: AtomicBool,
    /// Foreign threads and clients that are not done.
    pub(crate) busy: AtomicUsize,
    /// Connections that did all they set out to do.
    pub(crate) served: AtomicU64,
}

/// What belongs to one runtime.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) groups: Vec<Vec<Cell>>,
    pub(crate) poster: OnceLock<Poster>,
    pub(crate) ran: AtomicU64,
    /// The end was asked for, or is about to be.
    pub(crate) stopping: AtomicBool,
    /// Something was done after which a connection may fail through no fault of the runtime's.
    pub(crate) listener_closed: AtomicBool,
    pub(crate) addr: OnceLock<SocketAddr>,
    pub(crate) listener: Mutex<Option<Listener>>,
    pub(crate) states: Vec<Mutex<Option<Colored<State>>>>,
    pub(crate) timers: Mutex<Vec<Timer>>,
    pub(crate) bounds: OnceLock<Vec<Arc<Bound>>>,
    /// Handles that cancel their tasks when they are dropped.
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What a `Colored` holds.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) color: Color,
    pub(crate) inside: bool,
    /// Who reads it.
    pub(crate) readers: AtomicU32,
    pub(crate) _ticket: Ticket,
}

/// How many `Colored` a runtime has.
const STATES: usize = 8;

impl World {
    pub(crate) fn new(draw: Draw, plant: Option<Plant>) -> World {
        let lanes = World::lane_count(&draw);
        let side = |_| Side {
            groups: (0..draw.groups)
                .map(|group| {
                    let color = |i| color(group * draw.colors + i);
                    let cell = |i| Cell::new(color(i), draw.colors, lanes);
                    (0..draw.colors).map(cell).collect()
                })
                .collect(),
            poster: OnceLock::new(),
            ran: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            listener_closed: AtomicBool::new(false),
            addr: OnceLock::new(),
            listener: Mutex::new(None),
            states: (0..STATES).map(|_| Mutex::new(None)).collect(),
            timers: Mutex::new(Vec::new()),
            bounds: OnceLock::new(),
            tasks: Mutex::new(Vec::new()),
        };
        World {
            sides: (0..draw.sides.len()).map(side).collect(),
            book: Book::new(draw.tickets),
            plant,
            planted: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            served: AtomicU64::new(0),
            draw,
        }
    }

    /// The colors of the group, foreign threads, the colors of the group in the other runtime, and
    /// the first event.
    pub(crate) fn lane_count(draw: &Draw) -> usize {
        2 * draw.colors + draw.lanes + 1
    }

    pub(crate) fn start_lane(&self) -> usize {
        World::lane_count(&self.draw) - 1
    }

    /// What a lane that never hears of anything has posted so far: nothing, to each color of each
    /// group of each runtime.
    pub(crate) fn sent(&self) -> Vec<u32> {
        vec![0; self.draw.sides.len() * self.draw.groups * self.draw.colors]
    }

    /// Counts a foreign thread or a client as not done, until what is returned is dropped.
    pub(crate) fn busy(self: &Arc<World>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// The lane of a foreign thread.
    pub(crate) fn foreign_lane(&self, thread: usize) -> usize {
        self.draw.colors + thread
    }

    /// The lane of a color of the other runtime.
    pub(crate) fn cross_lane(&self, color: usize) -> usize {
        self.draw.colors + self.draw.lanes + color
    }

    /// Whether it is time to tell this lie; it is told once.
    pub(crate) fn lies(&self, what: Plant) -> bool {
        self.plant == Some(what) && !self.planted.swap(true, Ordering::Relaxed)
    }

    /// Lets go of what holds runtimes, and of what holds the world.
    pub(crate) fn clear(&self) {
        for side in &self.sides {
            for state in &side.states {
                let dropped = state.lock().unwrap().take();
                drop(dropped);
            }
            let timers = std::mem::take(&mut *side.timers.lock().unwrap());
            drop(timers);
            let tasks = std::mem::take(&mut *side.tasks.lock().unwrap());
            drop(tasks);
            let listener = side.listener.lock().unwrap().take();
            drop(listener);
        }
    }
}

/// Somebody is not done.
#[derive(Debug)]
pub(crate) struct Busy(Arc<World>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Release);
    }
}

/// Small, large and mixed values: a spread over all ranges of slots.
fn color(index: usize) -> Color {
    let value = index as u64;
    Color::from(match index % 3 {
        0 => value,
        1 => 0x7f00_0000_0000 + 64 * value,
        _ => value.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63,
    })
}
