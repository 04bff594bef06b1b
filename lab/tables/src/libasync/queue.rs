//! The callback queue of the thesis (Figure 3-3) and of the 2003 paper (Figure 5), and its lock.

use super::Queues;
use super::event::{Event, Link};
use intrusive_collections::LinkedList;
use intrusive_collections::linked_list::CursorMut;
use mely_bench::sync::{self, SpinMutex, SpinMutexGuard, charge};
use std::time::Duration;

/// How many eligible callbacks a scheduler examines before it takes one: "a small integer" in the
/// thesis, "the first few" in the paper.
pub(super) const EXAMINED: usize = 4;

/// How a callback became runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By a handler: left of all I/O callbacks, because what its creator touched is in the cache.
    Cpucb,
    /// By what came from outside.
    Io,
}

/// Callbacks from left to right. The boundary between the two lists is the dummy element that the
/// figures call "cpucb Tail".
pub(super) struct Queue<Q: Queues> {
    cpucbs: LinkedList<Link<Q>>,
    ios: LinkedList<Link<Q>>,
}

/// An event's place in a queue.
pub(super) struct Place<Q: Queues> {
    kind: Kind,
    event: *const Event<Q>,
}

impl<Q: Queues> Default for Queue<Q> {
    fn default() -> Queue<Q> {
        Queue {
            cpucbs: LinkedList::new(Link::new()),
            ios: LinkedList::new(Link::new()),
        }
    }
}

impl<Q: Queues> Queue<Q> {
    pub(super) fn insert(&mut self, event: Box<Event<Q>>, kind: Kind) {
        let list = match kind {
            Kind::Cpucb => &mut self.cpucbs,
            Kind::Io => &mut self.ios,
        };
        push_back(list, event);
    }

    /// From the left.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place<Q>, &Event<Q>)> {
        charge::reach(self);
        let cpucbs = self.cpucbs.iter().map(|event| (Kind::Cpucb, event));
        let ios = self.ios.iter().map(|event| (Kind::Io, event));
        cpucbs.chain(ios).map(|(kind, event)| {
            charge::follow(event);
            (Place { kind, event }, event)
        })
    }

    /// Takes out an event.
    ///
    /// # Safety
    /// The place comes from this queue's `iter`, and the event has not been taken out since.
    pub(super) unsafe fn remove(&mut self, place: Place<Q>) -> Box<Event<Q>> {
        let list = match place.kind {
            Kind::Cpucb => &mut self.cpucbs,
            Kind::Io => &mut self.ios,
        };
        // SAFETY: the caller's promise.
        let mut cursor = unsafe { list.cursor_mut_from_ptr(place.event) };
        take_out(&mut cursor).expect("a place is not the list's end")
    }

    /// Moves the `count` events of a color that this queue has to the right end of another: each to
    /// its own kind, in order. Scans from the left until the last of them is found, or to the end.
    /// Returns their time.
    pub(super) fn move_color(
        &mut self,
        color: u32,
        mut count: u32,
        to_end: bool,
        to: &mut Queue<Q>,
    ) -> Duration {
        let mut time_ns = 0;
        for (from, to) in [
            (&mut self.cpucbs, &mut to.cpucbs),
            (&mut self.ios, &mut to.ios),
        ] {
            let mut cursor = from.front_mut();
            while let Some(event) = cursor.get().filter(|_| count > 0 || to_end) {
                charge::follow(event);
                if event.color == color {
                    time_ns += u64::from(event.time_ns);
                    let event = take_out(&mut cursor).expect("the cursor is at an event");
                    push_back(to, event);
                    count -= 1;
                } else {
                    cursor.move_next();
                }
            }
        }
        Duration::from_nanos(time_ns)
    }
}

/// At the right end, whose event is linked to it.
pub(super) fn push_back<Q: Queues>(list: &mut LinkedList<Link<Q>>, event: Box<Event<Q>>) {
    if let Some(last) = list.back().get() {
        charge::store(last);
    }
    charge::store(&*event);
    list.push_back(event);
}

/// Its neighbors are linked to each other.
pub(super) fn take_out<Q: Queues>(cursor: &mut CursorMut<'_, Link<Q>>) -> Option<Box<Event<Q>>> {
    for neighbor in [cursor.peek_prev(), cursor.peek_next()] {
        if let Some(neighbor) = neighbor.get() {
            charge::store(neighbor);
        }
    }
    cursor.remove()
}

/// A spinlock (the papers': one thread a core gains nothing from yielding) that knows how long was
/// waited for it, since Mely's Table III has the share of time in locks.
#[derive(Debug, Default)]
pub(super) struct Lock<T>(SpinMutex<Locked<T>>);

#[derive(Debug, Default)]
pub(super) struct Locked<T> {
    pub(super) of: T,
    /// By all who waited, altogether.
    pub(super) waited: Duration,
}

impl<T> Lock<T> {
    pub(super) fn new(of: T) -> Lock<T> {
        Lock(SpinMutex::new(Locked {
            of,
            waited: Duration::ZERO,
        }))
    }

    #[inline]
    pub(super) fn lock(&self) -> SpinMutexGuard<'_, Locked<T>> {
        self.0.try_lock().unwrap_or_else(|| self.wait())
    }

    /// The lock, if it is free.
    pub(super) fn try_lock(&self) -> Option<SpinMutexGuard<'_, Locked<T>>> {
        self.0.try_lock()
    }

    #[cold]
    fn wait(&self) -> SpinMutexGuard<'_, Locked<T>> {
        let start = sync::now();
        let mut guard = self.0.lock();
        guard.waited += sync::now() - start;
        guard
    }
}
