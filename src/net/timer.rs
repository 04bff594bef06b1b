//! One-shot timers, a heap a core.

use super::driver::control;
use crate::callback::Callback;
use crate::event::node::Sort;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::net::driver::Driver;
use crate::sched::core::Core;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Color, Cx, Handler};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A timer that has not fired.
pub(super) struct Pending {
    /// How many timers of this core were set before.
    number: u64,
    callback: Box<dyn FnOnce(&mut Cx) + Send>,
    canceled: Arc<AtomicBool>,
    handler: Option<&'static Handler>,
    color: Color,
    /// That of a hold's deadline passes the color's gate, and a stop does not cancel it.
    sort: Sort,
}

impl Pending {
    /// Posts the callback to its color.
    pub(super) fn fire(self, core: &mut Core) {
        let Pending {
            callback, canceled, ..
        } = self;
        let event = move |cx: &mut Cx| {
            // Canceled after it was due and before it ran, by its own color: then it does not run.
            if !canceled.load(Ordering::Acquire) {
                callback(cx);
            }
        };
        core.post_own_sort(self.handler, self.color, event, self.sort);
    }

    /// Drops the callback in its color.
    pub(super) fn discard(self, core: &mut Core) {
        let callback = self.callback;
        let event = move |_cx: &mut Cx| drop(callback);
        // That of a hold's deadline would wait for the very hold.
        core.post_own_sort(None, self.color, event, self.sort);
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

/// The timers of a core.
///
/// Those that are due at the same moment fire in the order in which they were set. A canceled timer
/// leaves its entry in the heap, where it is recognized by its number; when those outnumber the
/// living, the heap is made anew.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// When (ns), number, index.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pending: Slab<Pending>,
    /// Timers set so far.
    set: u64,
}

impl Timers {
    pub(super) fn new() -> Timers {
        Timers::default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn add(&mut self, at_ns: u64, mut pending: Pending) -> (usize, u64) {
        let number = self.set;
        self.set += 1;
        pending.number = number;
        let index = self.pending.insert(pending);
        self.heap.push(Reverse((at_ns, number, index)));
        (index, number)
    }

    fn lives(pending: &Slab<Pending>, index: usize, number: u64) -> bool {
        pending.get(index).is_some_and(|p| p.number == number)
    }

    /// Forgets what was canceled at the head of the heap.
    fn settle(&mut self) {
        while let Some(&Reverse((_, number, index))) = self.heap.peek()
            && !Timers::lives(&self.pending, index, number)
        {
            self.heap.pop();
        }
    }

    /// When the next timer is due.
    pub(super) fn next_ns(&mut self) -> Option<u64> {
        self.settle();
        self.heap.peek().map(|&Reverse((at_ns, ..))| at_ns)
    }

    /// The next timer that is due.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Pending> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.pop()
    }

    /// Takes out all but the deadlines of holds, in the order in which they are due.
    pub(super) fn take_ordinary(&mut self) -> Vec<Pending> {
        let mut entries: Vec<_> = self.heap.iter().map(|&Reverse(entry)| entry).collect();
        entries.sort_unstable();
        let mut take = |(_, number, index)| {
            let ordinary =
                Timers::lives(&self.pending, index, number) && !self.pending[index].sort.passes;
            ordinary.then(|| self.pending.remove(index))
        };
        entries.into_iter().filter_map(&mut take).collect()
    }

    /// The next timer, due or not.
    fn pop(&mut self) -> Option<Pending> {
        self.settle();
        let Reverse((_, _, index)) = self.heap.pop()?;
        Some(self.pending.remove(index))
    }

    fn cancel(&mut self, index: usize, number: u64) -> Option<Pending> {
        if !Timers::lives(&self.pending, index, number) {
            return None;
        }
        let pending = self.pending.remove(index);
        if self.heap.len() > 64 && self.heap.len() > 2 * self.pending.len() {
            let living = &self.pending;
            self.heap
                .retain(|&Reverse((_, number, i))| Timers::lives(living, i, number));
        }
        Some(pending)
    }
}

/// A timer that was set; see [`Cx::timer`]. Dropping it leaves the timer running.
pub struct Timer {
    core: u32,
    index: usize,
    number: u64,
    canceled: Arc<AtomicBool>,
    poster: Poster,
}

impl Timer {
    /// Cancels the timer. If it has not run yet and this is its own color, it will not run; from
    /// another color it may be running right now. Its closure is dropped in its color.
    pub fn cancel(self, cx: &mut Cx) {
        let ours = Arc::ptr_eq(&self.poster.inner, &cx.worker_ref().inner);
        if ours && cx.core() as u32 == self.core {
            self.canceled.store(true, Ordering::Release);
            Timer::remove(cx, self.index, self.number);
        } else {
            self.cancel_from_anywhere();
        }
    }

    /// Cancels the timer, from a thread that is no core, or where there is no context.
    pub(crate) fn cancel_from_anywhere(self) {
        self.canceled.store(true, Ordering::Release);
        let (index, number) = (self.index, self.number);
        let remove = move |cx: &mut Cx| Timer::remove(cx, index, number);
        // Also after a stop, which does not cancel all timers. Refused once the run has ended, and
        // they are gone.
        let color = control(self.core);
        let poster = &self.poster;
        let _gone = poster.post_own_until(Until::End, None, color, remove);
    }

    /// On its core.
    fn remove(cx: &mut Cx, index: usize, number: u64) {
        let worker = cx.worker();
        if let Some(driver) = Driver::of(&mut worker.source)
            && let Some(pending) = driver.timers.cancel(index, number)
        {
            pending.discard(&mut worker.core);
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

impl Cx {
    /// Runs the callback once, in its color, no earlier than `after` from now. Its event is posted
    /// late by as much as this core is inside a handler, and then waits for its color's turn like
    /// any other; a sleeping core wakes for it. Timers of one core that are due at the same moment
    /// are posted in the order in which they were set. A timer fires also at the limit of queued
    /// events, beyond which its event counts.
    ///
    /// A runtime that was asked to stop runs no more timers; their closures are dropped in their
    /// colors.
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use std::time::Duration;
    /// Runtime::builder().build()?.run(|cx| {
    ///     let tick = Callback::anonymous(Color::from(3), |cx| cx.stop());
    ///     cx.timer(Duration::from_millis(1), tick);
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timer<F>(&mut self, after: Duration, callback: Callback<F>) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.set_timer(after, callback, Sort::ORDINARY)
    }

    /// A timer for a hold's deadline.
    pub(crate) fn deadline<F>(&mut self, after: Duration, callback: Callback<F>) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.set_timer(after, callback, Sort::PASSING)
    }

    fn set_timer<F>(&mut self, after: Duration, callback: Callback<F>, sort: Sort) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let canceled = Arc::new(AtomicBool::new(false));
        let pending = Pending {
            number: 0,
            callback: Box::new(callback.f),
            canceled: Arc::clone(&canceled),
            handler: callback.handler,
            color: callback.color,
            sort,
        };
        let poster = self.poster();
        let core = self.core() as u32;
        let worker = self.worker();
        let now_ns = worker.core.clock.now_ns();
        // Three hundred years are for ever.
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let after_ns = after_ns.min(u64::MAX / 2);
        let (index, number) = match Driver::of(&mut worker.source) {
            Some(driver) if sort.passes || !driver.draining => {
                driver.timers.add(now_ns.saturating_add(after_ns), pending)
            }
            _ => {
                pending.discard(&mut worker.core);
                (usize::MAX, 0)
            }
        };
        Timer {
            core,
            index,
            number,
            canceled,
            poster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer of this color, by which it is told from the others.
    fn pending(color: u64) -> Pending {
        Pending {
            number: 0,
            callback: Box::new(|_| ()),
            canceled: Arc::default(),
            handler: None,
            color: Color::from(color),
            sort: Sort::ORDINARY,
        }
    }

    fn color(pending: Option<Pending>) -> Option<Color> {
        pending.map(|pending| pending.color)
    }

    #[test]
    fn canceled_timers_are_passed_over() {
        let mut timers = Timers::new();
        let first = timers.add(10, pending(1));
        let _second = timers.add(20, pending(2));
        let third = timers.add(30, pending(3));
        let _fourth = timers.add(40, pending(4));
        assert_eq!(color(timers.cancel(first.0, first.1)), Some(Color::from(1)));
        assert!(timers.cancel(first.0, first.1).is_none(), "only once");
        assert_eq!(timers.next_ns(), Some(20));
        assert!(timers.due(19).is_none());
        assert_eq!(color(timers.due(20)), Some(Color::from(2)));
        // Its place is taken by another, whose name is not the same.
        let fifth = timers.add(50, pending(5));
        assert!(timers.cancel(third.0, third.1).is_some());
        assert!(timers.cancel(third.0, third.1).is_none());
        assert_ne!(fifth.1, first.1);
        // Also with none that is due.
        assert_eq!(color(timers.pop()), Some(Color::from(4)));
        assert!(!timers.is_empty());
        assert_eq!(color(timers.pop()), Some(Color::from(5)));
        assert!(timers.pop().is_none() && timers.is_empty());
    }

    #[test]
    fn the_heap_does_not_grow_with_what_was_canceled() {
        let mut timers = Timers::new();
        let _stays = timers.add(1, pending(1));
        for at_ns in 2..10_000 {
            let (index, number) = timers.add(at_ns, pending(2));
            assert!(timers.cancel(index, number).is_some());
            assert!(timers.heap.len() <= 64, "{}", timers.heap.len());
        }
        assert_eq!(color(timers.pop()), Some(Color::from(1)));
        assert!(timers.pop().is_none());
        // Of many living timers few entries are dead, and then all is left as it is.
        let mut timers = Timers::new();
        let all: Vec<_> = (0..200)
            .map(|at_ns| timers.add(at_ns, pending(3)))
            .collect();
        for (i, &(index, number)) in all.iter().enumerate() {
            assert!(timers.cancel(index, number).is_some());
            let (entries, living) = (timers.heap.len(), 199 - i);
            assert!(entries <= (2 * living).max(64), "{entries} for {living}");
        }
        assert!(timers.is_empty());
    }
}

#[cfg(all(test, feature = "sim"))]
mod simulated {
    use crate::net::tests::Drops;
    use crate::sim::{self, Simulation};
    use crate::{Callback, Color, Cores, Runtime, Stealing};
    use std::time::Duration;

    const COLOR: Color = Color::new(1);

    /// Each keeps its colors.
    fn two_cores() -> Simulation {
        let builder = Runtime::builder().cores(Cores::Count(2));
        let builder = builder.stealing(Stealing::Off).exit_when_idle(true);
        builder.simulate(1).unwrap()
    }

    /// What the closure holds may be used by its color's handlers: whoever cancels the timer, and
    /// wherever, it is dropped in its color.
    #[test]
    fn canceled_from_another_color_it_is_dropped_in_its_own() {
        // Color 2 is on the core that has the timer, color 3 on the other.
        for from in [2, 3] {
            let drops = Drops::default();
            let given = drops.clone();
            let mut simulation = two_cores();
            simulation
                .run(move |cx| {
                    let witness = given.witness(cx.poster());
                    let never = Callback::anonymous(COLOR, move |_| {
                        drop(witness);
                        unreachable!();
                    });
                    let timer = cx.timer(Duration::from_secs(1), never);
                    let here = cx.core();
                    cx.post(Color::from(from), move |cx| {
                        assert_eq!(cx.core() == here, from == 2);
                        timer.cancel(cx);
                    });
                })
                .unwrap();
            assert_eq!(drops.seen(), [Some(COLOR)], "from {from}");
            assert!(simulation.now() < Duration::from_secs(1));
        }
    }

    #[test]
    fn set_after_a_stop_it_is_dropped_in_its_color() {
        let drops = Drops::default();
        let given = drops.clone();
        let mut simulation = Runtime::builder()
            .cores(Cores::Count(1))
            .simulate(1)
            .unwrap();
        simulation
            .run(move |cx| {
                cx.stop();
                // Once the core has heard of it.
                cx.post(Color::from(2), move |cx| {
                    assert!(
                        crate::net::Driver::of(&mut cx.worker().source)
                            .unwrap()
                            .draining
                    );
                    let witness = given.witness(cx.poster());
                    let never = Callback::anonymous(COLOR, move |_| drop(witness));
                    cx.timer(Duration::ZERO, never);
                    assert!(given.seen().is_empty());
                });
            })
            .unwrap();
        assert_eq!(drops.seen(), [Some(COLOR)]);
    }

    /// It is due, and its event waits behind the very handler that cancels it.
    #[test]
    fn canceled_when_it_was_due_it_does_not_run() {
        let drops = Drops::default();
        let given = drops.clone();
        let mut simulation = two_cores();
        simulation
            .run(move |cx| {
                let witness = given.witness(cx.poster());
                let never = Callback::anonymous(COLOR, move |_| {
                    drop(witness);
                    unreachable!();
                });
                let (timer, here) = (cx.timer(Duration::from_micros(100), never), cx.core());
                cx.post(COLOR, move |cx| {
                    assert_ne!(cx.core(), here);
                    sim::work(cx, Duration::from_millis(10));
                    timer.cancel(cx);
                });
            })
            .unwrap();
        assert_eq!(drops.seen(), [Some(COLOR)]);
    }
}
