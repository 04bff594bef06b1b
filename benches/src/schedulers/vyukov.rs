//! A color as a queue of Dmitry Vyukov's kind, many post to it and one takes out, with a count of
//! what waits: whoever makes it 1 hands the color to the scheduler. A post is an exchange and an
//! addition, and takes no lock. An event is one piece of memory, its closure in it.
//!
//! The count is added to once the event is linked, so what is counted can be reached, but for a
//! poster that was held up between its exchange and the link: the chain ends before it. Then the
//! turn is over, and the color is scheduled again, since more is counted than was taken.
//!
//! A turn takes at most what it saw counted, and subtracts that at its end. So the count stays
//! above 0 while a turn lasts, and no post during it schedules the color a second time.

use super::deques::{Cx, Queue};
use super::queue::TURN_EVENTS;
use std::alloc::{Layout, dealloc};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release,
};

/// The color of schedulers; [`Events`] with their context.
pub(super) struct Vyukov(Events<Cx<Vyukov>>);

impl Default for Vyukov {
    fn default() -> Vyukov {
        Vyukov(Events::new())
    }
}

impl Queue for Vyukov {
    const NAME: &str = "vyukov";

    #[inline]
    fn push<F>(&self, f: F) -> bool
    where
        F: FnOnce(&mut Cx<Vyukov>) + Send + 'static,
    {
        self.0.push(f)
    }

    #[inline]
    unsafe fn run(&self, cx: &mut Cx<Vyukov>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.run(cx) }
    }
}

/// What all events begin with.
struct Node<C: 'static> {
    next: AtomicPtr<Node<C>>,
    kind: &'static Kind<C>,
}

/// What is known of an event by the type of its closure.
struct Kind<C: 'static> {
    /// Takes the closure out of the event, and runs it or, without a context, drops it.
    take: unsafe fn(NonNull<Node<C>>, Option<&mut C>),
    /// Of the event.
    layout: Layout,
}

/// An event. The node is first, so a pointer to one is a pointer to the other.
#[repr(C)]
struct Event<C: 'static, F> {
    node: Node<C>,
    closure: F,
}

impl<C: 'static, F: FnOnce(&mut C)> Event<C, F> {
    const KIND: Kind<C> = Kind {
        take: |node, cx| {
            // SAFETY: an event of this type, since it is of this kind, whose closure was not taken
            // out: the caller's promise.
            let closure = unsafe { ptr::read(&raw const (*node.cast::<Self>().as_ptr()).closure) };
            if let Some(cx) = cx {
                closure(cx);
            }
        },
        layout: Layout::new::<Self>(),
    };

    fn leak(closure: F) -> NonNull<Node<C>> {
        let event = Event {
            node: Node {
                next: AtomicPtr::new(ptr::null_mut()),
                kind: const { &Self::KIND },
            },
            closure,
        };
        NonNull::from(Box::leak(Box::new(event))).cast()
    }
}

/// The events of a color, on a cache line of its own; on one, since there may be many colors.
#[repr(align(64))]
struct Events<C: 'static> {
    /// The newest event, whose `next` the next post sets.
    newest: AtomicPtr<Node<C>>,
    /// Events that have been linked and are not known to be taken.
    count: AtomicUsize,
    /// The event that was taken last, whose memory is freed once the next one is: only for the
    /// turn, which looks at it when it begins and when it ends, since the line is the posters' too.
    taken: UnsafeCell<NonNull<Node<C>>>,
}

// SAFETY: posts only exchange `newest`, write the `next` of the event that they got by it, which
// nobody else writes, and add to `count`; the closures can be sent. `taken` is the turn's alone, of
// which there is one at a time: see `run`.
unsafe impl<C: 'static> Sync for Events<C> {}
// SAFETY: as above; nothing in it is of a thread.
unsafe impl<C: 'static> Send for Events<C> {}

impl<C: 'static> Events<C> {
    fn new() -> Events<C> {
        // Taken before anything is.
        let first = Event::leak(|_: &mut C| ());
        Events {
            newest: AtomicPtr::new(first.as_ptr()),
            count: AtomicUsize::new(0),
            taken: UnsafeCell::new(first),
        }
    }

    /// Adds an event. True if the caller is to hand the color to the scheduler.
    #[inline]
    fn push<F>(&self, f: F) -> bool
    where
        F: FnOnce(&mut C) + Send + 'static,
    {
        let event = Event::leak(f).as_ptr();
        let before = self.newest.swap(event, AcqRel);
        // SAFETY: not freed before its `next` is set: the turn keeps the last event that it took.
        unsafe { (*before).next.store(event, Release) };
        self.count.fetch_add(1, AcqRel) == 0
    }

    /// A turn. True if there is more, and the caller is to hand the color on again.
    ///
    /// # Safety
    /// Called once for each time that `push` or the call before it said true.
    #[inline]
    unsafe fn run(&self, cx: &mut C) -> bool {
        let mut counted = self.count.load(Acquire);
        // SAFETY: in a turn, and a task has one turn at a time.
        let mut taken = unsafe { *self.taken.get() };
        let mut ran = 0;
        while ran < TURN_EVENTS {
            if ran == counted {
                // A look is cheaper than the end of the turn and another one.
                counted = self.count.load(Acquire);
                if ran == counted {
                    break;
                }
            }
            // SAFETY: in a turn.
            if !unsafe { Self::take(&mut taken) } {
                break;
            }
            ran += 1;
            // SAFETY: `take` gives each event once, and keeps its memory until the next one.
            unsafe { (taken.as_ref().kind.take)(taken, Some(cx)) };
        }
        // SAFETY: as above; the next turn may begin after the subtraction.
        unsafe { *self.taken.get() = taken };
        self.count.fetch_sub(ran, AcqRel) > ran
    }

    /// Goes on from the event that was taken last to the next one, if it is there, whose closure is
    /// for the caller to take out.
    ///
    /// # Safety
    /// `taken` is a queue's, and the caller's is the turn or the only reference to the queue.
    #[inline]
    unsafe fn take(taken: &mut NonNull<Node<C>>) -> bool {
        let before = *taken;
        // SAFETY: kept until the next one is there.
        let next = NonNull::new(unsafe { before.as_ref() }.next.load(Acquire));
        if let Some(next) = next {
            *taken = next;
            // SAFETY: its closure was taken out, and its `next` is set: nobody looks at it again.
            unsafe { free(before) };
        }
        next.is_some()
    }
}

/// # Safety
/// Nobody looks at the event again, whose closure was taken out.
#[inline]
unsafe fn free<C>(event: NonNull<Node<C>>) {
    // SAFETY: from `Event::leak`, with the layout of its kind.
    unsafe { dealloc(event.as_ptr().cast(), event.as_ref().kind.layout) };
}

impl<C> Drop for Events<C> {
    fn drop(&mut self) {
        let taken = self.taken.get_mut();
        // SAFETY: nobody else has a reference.
        while unsafe { Self::take(taken) } {
            // SAFETY: as in `run`.
            unsafe { (taken.as_ref().kind.take)(*taken, None) };
        }
        // SAFETY: its closure was taken out.
        unsafe { free(*taken) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    type Seen = Vec<usize>;

    #[test]
    fn a_turn_is_ten_events_in_their_order() {
        let events: Events<Seen> = Events::new();
        let mut seen = Vec::new();
        // SAFETY: once for each time that the queue asked for it.
        let turn = |seen: &mut Seen| unsafe { events.run(seen) };
        let push = |number| events.push(move |seen: &mut Seen| seen.push(number));
        assert!(push(0));
        (1..8).for_each(|number| assert!(!push(number)));
        assert!(!turn(&mut seen));
        assert!(push(8));
        (9..20).for_each(|number| assert!(!push(number)));
        assert!(turn(&mut seen));
        assert_eq!(seen.len(), 18);
        assert!(!turn(&mut seen));
        assert!(seen.into_iter().eq(0..20));
    }

    /// By a poster that is held up between its exchange and its link, what comes after it waits.
    #[test]
    fn a_post_that_is_half_done_ends_the_turn_and_not_the_schedule() {
        let events: Events<Seen> = Events::new();
        let mut seen = Vec::new();
        let half = Event::leak(|seen: &mut Seen| seen.push(0)).as_ptr();
        let before = events.newest.swap(half, AcqRel);
        assert!(events.push(|seen| seen.push(1)));
        // SAFETY: asked for.
        assert!(unsafe { events.run(&mut seen) });
        assert!(seen.is_empty());
        // SAFETY: as in `push`.
        unsafe { (*before).next.store(half, Release) };
        assert!(events.count.fetch_add(1, AcqRel) > 0);
        // SAFETY: asked for.
        assert!(!unsafe { events.run(&mut seen) });
        assert_eq!(seen, [0, 1]);
    }

    #[test]
    fn nothing_is_lost_and_each_posters_order_is_kept() {
        const POSTERS: usize = 3;
        const EACH: usize = if cfg!(miri) { 50 } else { 20_000 };
        let events: Events<Seen> = Events::new();
        let mut seen = vec![0; POSTERS];
        let (asked, asks) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            for from in 0..POSTERS {
                let (events, asked) = (&events, asked.clone());
                scope.spawn(move || {
                    for number in 0..EACH {
                        let first = events.push(move |seen: &mut Seen| {
                            assert_eq!(seen[from], number);
                            seen[from] += 1;
                        });
                        if first {
                            asked.send(()).expect("the receiver waits for all");
                        }
                    }
                });
            }
            while seen.iter().sum::<usize>() < POSTERS * EACH {
                asks.recv().expect("a sender is kept");
                // SAFETY: once for each time that the queue asked for it.
                if unsafe { events.run(&mut seen) } {
                    asked.send(()).expect("this thread receives");
                }
            }
        });
    }

    #[test]
    fn what_never_ran_is_dropped() {
        let counted = Arc::new(());
        let events: Events<()> = Events::new();
        for _ in 0..3 {
            let counted = counted.clone();
            events.push(move |()| drop(counted));
        }
        assert_eq!(Arc::strong_count(&counted), 4);
        drop(events);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
