//! The count of permits, and the line of waiters.
//!
//! A *permit* is room for one event. Each permit of a bounded color is in one of three places: it
//! is free, it is taken (by an event that waits, or as a [`Permit`](super::Permit)), or it is
//! assigned to a future in the line that was not polled since.
//!
//! # State
//!
//! One word has the number of free permits and the flag [`WAITED`]. The flag is changed under the
//! lock of the line only, and is set exactly while the line is not empty. So while it is empty, to
//! take a permit and to give it back is one compare-and-swap each, and no lock.
//!
//! **Invariant: no permit is free while the line is not empty.** A waiter that joins the line sets
//! the flag by a compare-and-swap that expects no free permit. A thread that gives a permit back
//! and sees the flag does not count the permit as free: it gives it to the first waiter. So the
//! line is not overtaken either, since a later post finds no free permit.
//!
//! **No wake-up is lost.** If a permit is given back before the flag is set, the compare-and-swap
//! of the waiter fails, and the waiter takes the permit. A thread that gives a permit back after
//! that sees the flag, waits for the lock, and finds the waiter in the line.
//!
//! No user code runs under the lock: wakers and callbacks are cloned, called and dropped outside of
//! it. So it is never poisoned. A panic of a waker, or of a callback that is dropped, is caught:
//! the thread that gives the permit back has nothing to do with it.

use crate::host::panics::{Caught, InTurn};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, fault, first_look};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::task::Waker;

/// The line is not empty.
const WAITED: u64 = 1;
const ONE_PERMIT: u64 = 2;

/// Posts an event that has the permit, which is passed as a handle of the bounded color. A callback
/// that cannot be posted is dropped in turn with other user code.
pub(super) type DeliverPermit<H> =
    Box<dyn FnOnce(H, &mut InTurn) -> Result<(), Undelivered> + Send>;

/// The event's runtime has ended: the permit is the caller's again.
pub(super) struct Undelivered;

/// A waiter.
enum InLine<H> {
    Future(Waker),
    Event(DeliverPermit<H>),
}

/// The outcome of [`Permits::join`].
pub(super) enum Joined<A> {
    /// A permit was free, and the caller has it.
    Free(A),
    /// The event is in the line.
    Waits,
    /// The line is full.
    Full(A),
}

/// See the module text.
pub(super) struct Permits<H> {
    /// Free permits times [`ONE_PERMIT`], and the flag.
    free: AtomicU64,
    line: Mutex<Line<H>>,
}

struct Line<H> {
    next_ticket: u64,
    /// By ticket: the first one has waited longest.
    waiting: BTreeMap<u64, InLine<H>>,
    /// Tickets of futures that were assigned a permit and were not polled since.
    given: BTreeSet<u64>,
}

impl<H> Permits<H> {
    pub(super) fn new(count: usize) -> Permits<H> {
        Permits {
            free: AtomicU64::new(count as u64 * ONE_PERMIT),
            line: Mutex::new(Line {
                next_ticket: 0,
                waiting: BTreeMap::new(),
                given: BTreeSet::new(),
            }),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line<H>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of free permits at this moment.
    pub(super) fn free(&self) -> usize {
        (self.free.load(Ordering::Acquire) / ONE_PERMIT) as usize
    }

    /// The number of waiters at this moment.
    pub(super) fn in_line(&self) -> usize {
        self.line().waiting.len()
    }

    /// Takes a permit, if one is free. The caller has it from now on.
    #[must_use]
    pub(super) fn take(&self) -> bool {
        let mut free = first_look(|| self.free.load(Ordering::Relaxed), ONE_PERMIT);
        loop {
            if free < ONE_PERMIT {
                return false;
            }
            let left = free - ONE_PERMIT;
            if fault("permit looked at and not taken") {
                self.free.store(left, Ordering::Release);
                return true;
            }
            match self.swap(free, left) {
                Ok(_) => return true,
                Err(now) => free = now,
            }
        }
    }

    fn swap(&self, from: u64, to: u64) -> Result<u64, u64> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.free.compare_exchange_weak(from, to, success, failure)
    }

    /// Gives the caller's permit to the first waiter, or frees it. `handle` makes the handle that
    /// an event is delivered with. Returns the first panic of user code that ran: a waker, or
    /// callbacks that were dropped.
    #[must_use]
    pub(super) fn give_back(&self, handle: impl Fn() -> H) -> Option<Caught> {
        let mut free = first_look(|| self.free.load(Ordering::Relaxed), 0);
        while free & WAITED == 0 || fault("line not looked at") {
            match self.swap(free, free + ONE_PERMIT) {
                Ok(_) => return None,
                Err(now) => free = now,
            }
        }
        let mut turns = InTurn::default();
        // A loop and no recursion: if a runtime ends, many of its callbacks may be in the line.
        while let Some(next) = self.next_in_line() {
            match next {
                InLine::Future(waker) => {
                    turns.run(|| waker.wake());
                    break;
                }
                InLine::Event(deliver) => {
                    if deliver(handle(), &mut turns).is_ok() {
                        break;
                    }
                }
            }
        }
        turns.into_caught()
    }

    /// Takes the first waiter out of the line, for the caller's permit. Frees the permit if the
    /// line is empty.
    fn next_in_line(&self) -> Option<InLine<H>> {
        let mut line = self.line();
        let Some((ticket, next)) = line.waiting.pop_first() else {
            self.free.fetch_add(ONE_PERMIT, Ordering::AcqRel);
            return None;
        };
        if matches!(next, InLine::Future(_)) {
            line.given.insert(ticket);
        }
        self.end_of_line(&line);
        Some(next)
    }

    /// Clears the flag if the line is empty.
    fn end_of_line(&self, line: &Line<H>) {
        if line.waiting.is_empty() {
            self.free.fetch_and(!WAITED, Ordering::AcqRel);
        }
    }

    /// Sets the flag, or takes a permit if one is free: then it returns false.
    fn begin_to_wait(&self, _line: &mut Line<H>) -> bool {
        if fault("waits without a second look") {
            self.free.fetch_or(WAITED, Ordering::AcqRel);
            return true;
        }
        let mut free = first_look(|| self.free.load(Ordering::Relaxed), 0);
        while free != WAITED {
            let next = free.checked_sub(ONE_PERMIT).unwrap_or(WAITED);
            match self.swap(free, next) {
                Ok(_) => return next == WAITED && free == 0,
                Err(now) => free = now,
            }
        }
        true
    }

    /// Joins the line with the event that `deliver` makes of `parts`, unless a permit is free or
    /// the line has `waiters_max` waiters.
    pub(super) fn join<A>(
        &self,
        parts: A,
        waiters_max: usize,
        deliver: impl FnOnce(A) -> DeliverPermit<H>,
    ) -> Joined<A> {
        let mut line = self.line();
        if !self.begin_to_wait(&mut line) {
            return Joined::Free(parts);
        }
        if line.waiting.len() >= waiters_max {
            self.end_of_line(&line);
            return Joined::Full(parts);
        }
        line.add(InLine::Event(deliver(parts)));
        Joined::Waits
    }

    /// Polls for the future with this ticket, if it has one. True: the caller has a permit.
    pub(super) fn poll(&self, ticket: &mut Option<u64>, waker: Waker) -> bool {
        if ticket.is_none() && self.take() {
            return true;
        }
        let mut line = self.line();
        let its = match *ticket {
            Some(its) if line.given.remove(&its) => {
                *ticket = None;
                return true;
            }
            Some(its) => its,
            None if !self.begin_to_wait(&mut line) => return true,
            None => {
                *ticket = Some(line.add(InLine::Future(waker)));
                return false;
            }
        };
        let before = line.waiting.insert(its, InLine::Future(waker));
        drop(line);
        drop(before);
        false
    }

    /// Takes the future with this ticket out of the line. True: it had been assigned a permit,
    /// which the caller gives back.
    #[must_use]
    pub(super) fn leave(&self, ticket: u64) -> bool {
        let mut line = self.line();
        let left = line.waiting.remove(&ticket);
        if left.is_some() {
            self.end_of_line(&line);
        }
        let given = line.given.remove(&ticket);
        drop(line);
        drop(left);
        given && !fault("permit of who has left is lost")
    }
}

impl<H> Line<H> {
    fn add(&mut self, waiter: InLine<H>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, waiter);
        ticket
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::host::panics::catching;
    use std::sync::mpsc::channel;

    fn poll(permits: &Permits<()>, ticket: &mut Option<u64>) -> bool {
        permits.poll(ticket, Waker::noop().clone())
    }

    fn give_back(permits: &Permits<()>) {
        assert!(permits.give_back(|| ()).is_none(), "a panic");
    }

    #[test]
    fn who_waits_is_not_overtaken() {
        let permits = Permits::new(1);
        assert!(permits.take());
        let (mut first, mut second) = (None, None);
        assert!(!poll(&permits, &mut first) && !poll(&permits, &mut second));
        give_back(&permits);
        assert!(!permits.take(), "it is the first one's");
        assert!(!poll(&permits, &mut second));
        assert!(poll(&permits, &mut first));
        give_back(&permits);
        assert!(poll(&permits, &mut second));
        give_back(&permits);
        assert_eq!(permits.free(), 1);
        assert!(permits.take());
    }

    #[test]
    fn who_leaves_the_line_leaves_nothing_behind() {
        let permits = Permits::new(1);
        assert!(permits.take());
        let mut ticket = None;
        assert!(!poll(&permits, &mut ticket));
        assert!(!permits.leave(ticket.unwrap()));
        give_back(&permits);
        assert_eq!(permits.free(), 1, "nobody waits any more");
        assert!(permits.take());
        ticket = None;
        assert!(!poll(&permits, &mut ticket));
        give_back(&permits);
        assert!(permits.leave(ticket.unwrap()), "it had the permit");
    }

    #[test]
    fn what_a_full_line_refuses_does_not_wait() {
        let permits = Permits::new(1);
        assert!(permits.take());
        let never = |()| -> DeliverPermit<()> { unreachable!("the line is full") };
        assert!(matches!(permits.join((), 0, never), Joined::Full(())));
        assert_eq!(permits.free.load(Ordering::Relaxed) & WAITED, 0);
        let mut ticket = None;
        assert!(!poll(&permits, &mut ticket));
        assert!(matches!(permits.join((), 1, never), Joined::Full(())));
        assert_eq!(permits.free.load(Ordering::Relaxed) & WAITED, WAITED);
    }

    #[test]
    fn a_permit_that_is_refused_goes_to_the_next_in_line() {
        let permits = Permits::new(1);
        assert!(permits.take());
        let (tell, told) = channel();
        for i in 0..100_000 {
            let tell = tell.clone();
            let deliver = move |(), _: &mut InTurn| {
                tell.send(i).unwrap();
                match i < 99_999 {
                    true => Err(Undelivered),
                    false => Ok(()),
                }
            };
            let joined = permits.join((), usize::MAX, |()| Box::new(deliver));
            assert!(matches!(joined, Joined::Waits));
        }
        give_back(&permits);
        assert!(told.try_iter().eq(0..100_000));
        assert_eq!(permits.free(), 0, "the last one has it");
    }

    /// Panics when it is dropped: the payload of a panic.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("payload");
        }
    }

    /// Of several callbacks whose drops panic, the first is told of, and the payloads of the others
    /// do no harm.
    #[test]
    fn a_payload_that_panics_costs_nobody_the_permit() {
        let permits = Permits::new(1);
        assert!(permits.take());
        for i in 0..3 {
            let deliver = move |(), turns: &mut InTurn| {
                turns.run(|| match i {
                    0 => std::panic::panic_any("first"),
                    _ => std::panic::panic_any(Bomb),
                });
                Err(Undelivered)
            };
            let joined = permits.join((), usize::MAX, |()| Box::new(deliver));
            assert!(matches!(joined, Joined::Waits));
        }
        let first = permits.give_back(|| ()).unwrap();
        let first = catching(|| -> () { first.resume() }).unwrap_err();
        assert_eq!(first.downcast_ref(), Some(&"first"));
        assert_eq!(permits.free(), 1);
    }
}
