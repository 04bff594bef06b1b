//! Every event posted has a ticket: what became of it is known at the end of the round.

use crate::verdict::fail;
use crate::world::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Not given out.
const BLANK: u8 = 0;
/// In a closure that the runtime or its poster has.
const ISSUED: u8 = 1;
/// The event runs, or has run and its closure is not dropped yet.
const RAN: u8 = 2;
/// The event has run and its closure was dropped.
const DONE: u8 = 3;
/// The closure was dropped and has not run.
const DROPPED: u8 = 4;
/// The same, because the post was refused.
const REFUSED: u8 = 5;
/// The same, and it may: a timer, say, that was canceled or whose runtime ended.
const LOOSE: u8 = 6;

/// Where all tickets of a round stand.
#[derive(Debug)]
pub(crate) struct Book {
    states: Vec<AtomicU8>,
    next: AtomicU32,
}

/// How many tickets ended in which way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) ran: u64,
    pub(crate) dropped: u64,
    pub(crate) refused: u64,
    pub(crate) loose: u64,
}

impl Book {
    pub(crate) fn new(most: usize) -> Book {
        Book {
            states: (0..most).map(|_| AtomicU8::new(BLANK)).collect(),
            next: AtomicU32::new(0),
        }
    }

    fn go(&self, id: u32, from: u8, to: u8) {
        let was = self.states[id as usize].swap(to, Ordering::Relaxed);
        if was != from {
            fail(&format!(
                "event {id} goes from state {was} to {to}, not from {from}"
            ));
        }
    }

    /// The post was refused, and the closure that came back was dropped.
    pub(crate) fn refused(&self, id: u32) {
        self.go(id, DROPPED, REFUSED);
    }

    /// What became of all. Everything has ended: a ticket that is in some closure still has leaked.
    pub(crate) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        let given = (self.next.load(Ordering::Relaxed) as usize).min(self.states.len());
        for (id, state) in self.states[..given].iter().enumerate() {
            match state.load(Ordering::Relaxed) {
                DONE => sums.ran += 1,
                DROPPED => sums.dropped += 1,
                REFUSED => sums.refused += 1,
                LOOSE => sums.loose += 1,
                state => fail(&format!("event {id} was never dropped: state {state}")),
            }
        }
        sums
    }
}

/// One event's ticket, owned by its closure.
#[derive(Debug)]
pub(crate) struct Ticket {
    world: Arc<World>,
    id: u32,
    loose: bool,
}

impl Ticket {
    /// A ticket for an event that must run, unless refused or left. None: the round has had enough.
    pub(crate) fn new(world: &Arc<World>) -> Option<Ticket> {
        Ticket::issue(world, false)
    }

    /// One for an event that may be dropped without having run.
    pub(crate) fn loose(world: &Arc<World>) -> Option<Ticket> {
        Ticket::issue(world, true)
    }

    fn issue(world: &Arc<World>, loose: bool) -> Option<Ticket> {
        let book = &world.book;
        if book.next.load(Ordering::Relaxed) as usize >= book.states.len() {
            return None;
        }
        let id = book.next.fetch_add(1, Ordering::Relaxed);
        if id as usize >= book.states.len() {
            return None;
        }
        book.go(id, BLANK, ISSUED);
        Some(Ticket {
            world: Arc::clone(world),
            id,
            loose,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The event runs.
    pub(crate) fn runs(&self) {
        self.world.book.go(self.id, ISSUED, RAN);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let state = &self.world.book.states[self.id as usize];
        let to = match state.load(Ordering::Relaxed) {
            RAN => DONE,
            ISSUED if self.loose => LOOSE,
            ISSUED => DROPPED,
            other => fail(&format!("event {} is dropped in state {other}", self.id)),
        };
        state.store(to, Ordering::Relaxed);
    }
}
