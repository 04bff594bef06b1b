//! The count of permits, and the line of those who wait for one.
//!
//! A *permit* is room for one event. Each of a bounded color's permits is in one of three places:
//! it is free, or somebody has it (an event that waits, a [`Permit`](super::Permit)), or it lies in
//! the line for a future that has waited longest and does not know yet.
//!
//! # Who writes what
//!
//! One word has the number of free permits and the flag [`WAITED`]. The flag is changed under the
//! lock of the line only, and is set exactly while somebody stands in the line. So without a
//! waiter, to take a permit and to give it back is one compare-and-swap each, and no lock.
//!
//! **No permit is free while somebody waits.** Whoever joins the line sets the flag by a
//! compare-and-swap that expects no free permit. Whoever gives one back and sees the flag does not
//! count it as free, and gives it to the first in the line. So nobody overtakes the line either: a
//! poster that comes later finds nothing free.
//!
//! **No wake-up is lost.** A permit that is given back before the flag is set makes that
//! compare-and-swap fail, and the waiter takes it. Whoever gives one back after that sees the flag,
//! waits for the lock, and finds the waiter in the line.
//!
//! No code of the user's runs under the lock: wakers and callbacks are cloned, called and dropped
//! outside of it. So it is never poisoned. What a waker or a callback that is dropped panics with
//! is caught, since whoever gives the permit back has nothing to do with it.

use crate::host::panics::{Caught, InTurn};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, fault, first_look};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::task::Waker;

/// Somebody stands in the line.
const WAITED: u64 = 1;
const ONE_PERMIT: u64 = 2;

/// Posts an event that has the permit, which is given as a handle of the bounded color.
/// It drops a callback that it cannot post in turn with other code of the user's.
pub(super) type DeliverPermit<H> =
    Box<dyn FnOnce(H, &mut InTurn) -> Result<(), Undelivered> + Send>;

/// The event's runtime has ended: the permit is the caller's again.
pub(super) struct Undelivered;

/// Who waits for a permit.
enum InLine<H> {
    Future(Waker),
    Event(DeliverPermit<H>),
}

/// What becomes of an event that asks for a permit.
pub(super) enum Joined<A> {
    /// A permit was free, and the caller has it.
    Free(A),
    /// It stands in the line.
    Waits,
    /// As many stand in the line as may.
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
    /// By their tickets: whoever has waited longest is the first.
    waiting: BTreeMap<u64, InLine<H>>,
    /// Futures that have a permit and do not know yet.
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

    /// Free ones, at this moment.
    pub(super) fn free(&self) -> usize {
        (self.free.load(Ordering::Acquire) / ONE_PERMIT) as usize
    }

    /// Who waits for one, at this moment.
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

    /// The caller's permit is free, or that of whoever has waited longest. `handle` makes what
    /// events are delivered with. Returns what the first of the user's code that ran has panicked
    /// with: a waker, or callbacks that were dropped.
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
        // A loop, because many may wait for a permit when their runtime ends.
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

    /// Gives the caller's permit to the first in the line; to nobody, if there is none.
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

    /// Clears the flag, if nobody stands in the line any more.
    fn end_of_line(&self, line: &Line<H>) {
        if line.waiting.is_empty() {
            self.free.fetch_and(!WAITED, Ordering::AcqRel);
        }
    }

    /// Sets the flag. False: a permit was free, and the caller has it.
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

    /// Joins the line with the event that `deliver` makes of `parts`, unless a permit is free, or
    /// `line_max` stand there already.
    pub(super) fn join<A>(
        &self,
        parts: A,
        line_max: usize,
        deliver: impl FnOnce(A) -> DeliverPermit<H>,
    ) -> Joined<A> {
        let mut line = self.line();
        if !self.begin_to_wait(&mut line) {
            return Joined::Free(parts);
        }
        if line.waiting.len() >= line_max {
            self.end_of_line(&line);
            return Joined::Full(parts);
        }
        line.add(InLine::Event(deliver(parts)));
        Joined::Waits
    }

    /// A future asks, with its ticket if it has one. True: the caller has a permit.
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

    /// A future does not wait any more. True: it had a permit, which the caller gives back.
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
    fn add(&mut self, who: InLine<H>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, who);
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
