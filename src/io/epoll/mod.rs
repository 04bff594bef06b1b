//! The epoll backend: the kernel tells what is ready, we do it, and it looks completed.
//!
//! - `watch.rs`: which descriptor is registered for what;
//! - `ops.rs`: operations as the caller starts and ends them;
//! - `poll.rs`: doing what is ready, and sleeping;
//! - here: the state.
//!
//! **Edge-triggered.** An operation that may have something to do is on our own list (`active`)
//! until a call says `EAGAIN` or comes back short, and only then waits for the kernel's next edge.
//! Fairness budgets and a pool without buffers are then a matter of our lists; level-triggered,
//! each would cost an `epoll_ctl` to be quiet and one to be heard again.
//!
//! A descriptor is registered only while an operation on it waits. So it can be closed on any core
//! when nothing is under way, and its number reused, without a stale registration anywhere.

mod ops;
mod poll;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::io;

use rustix::event::epoll;

use self::watch::Watches;
use super::{
    Completion, Config, Doorbell, Home, Ledger, Lookout, Op, Operation, Slab, operation::Terminal,
};
use crate::sync::Arc;

/// One core's epoll instance.
pub(super) struct Epoll {
    watches: Watches,
    home: Home,
    ops: Slab<Item>,
    /// Terminal completions for the next `poll`.
    ready: VecDeque<Completion>,
    /// Operations that may get somewhere without hearing from the kernel; served in turn. May hold
    /// keys of operations that are over.
    active: VecDeque<Op>,
    /// Receives with something to read and no buffer, the longest-waiting first.
    parked: VecDeque<Op>,
    /// What the kernel has told, kept for its allocation.
    events: Vec<epoll::Event>,
    doorbell: Doorbell,
    /// A ring was seen that no `wait` has returned for.
    rung: bool,
    /// Who watches it, and under which number.
    lookout: Option<(Arc<Lookout>, usize)>,
    ledger: Ledger,
}

#[derive(Debug)]
struct Item {
    operation: Operation,
    place: Place,
    /// The peer has hung up: a short read is not the end, there is an end of the stream behind it
    /// and no further edge will tell.
    hung_up: bool,
}

/// Where an operation waits for its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// For the kernel's edge.
    Watched,
    /// In `active`.
    Active,
    /// In `parked`.
    Parked,
}

/// This many events are taken from the kernel at once.
const EVENTS_MAX: usize = 256;

impl Epoll {
    pub(super) fn new(config: &Config) -> io::Result<Epoll> {
        let doorbell = Doorbell::eventfd()?;
        Ok(Epoll {
            watches: Watches::new(&doorbell)?,
            home: Home::new(config, doorbell.clone()),
            ops: Slab::new(),
            ready: VecDeque::new(),
            active: VecDeque::new(),
            parked: VecDeque::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            doorbell,
            rung: false,
            lookout: None,
            ledger: Ledger::default(),
        })
    }

    pub(super) fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    pub(super) fn attach(&mut self, lookout: &Arc<Lookout>, core: usize) {
        self.lookout = Some((Arc::clone(lookout), core));
    }

    pub(super) fn watch(&self) -> bool {
        if let Some((lookout, core)) = &self.lookout {
            lookout.watch(*core, self.watches.set());
        }
        if !self.parked.is_empty() {
            // A buffer that comes back rings, and is seen as everything else.
            self.home.starve();
        }
        self.has_work()
    }

    pub(super) fn let_go(&self) {
        if let Some((lookout, core)) = &self.lookout {
            lookout.let_go(*core, self.watches.set());
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.ops.len() + self.ready.len()
    }

    /// The operation is over.
    fn finish(&mut self, op: Op, end: Terminal) -> Option<Completion> {
        let Item {
            operation, place, ..
        } = self.ops.remove(op)?;
        if place == Place::Parked {
            self.parked.retain(|&parked| parked != op);
        }
        self.watches.leave(operation.fd, op);
        self.ledger.end(operation.fd, operation.kind());
        Some(operation.end(end))
    }

    /// The kernel, or a look of ours, says that it may get somewhere.
    fn activate(&mut self, op: Op, hung_up: bool) {
        let Some(item) = self.ops.get_mut(op) else {
            return;
        };
        item.hung_up |= hung_up;
        if item.place == Place::Watched {
            item.place = Place::Active;
            self.active.push_back(op);
        }
    }
}

// Nothing to do on drop: the kernel holds none of our memory, and no connection is accepted that
// has not been told.

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll")
            .field("in_flight", &self.in_flight())
            .field("active", &self.active.len())
            .field("parked", &self.parked.len())
            .field("buffers", &self.home)
            .finish_non_exhaustive()
    }
}
