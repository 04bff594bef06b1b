//! The obvious scheduler over crossbeam: for each worker a Chase-Lev deque of colors, for each
//! color a [`Queue`]; idle workers steal, spin, and sleep. What foreign threads make ready is in an
//! injector.

use super::done::{Done, become_worker};
use super::idle::Idle;
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use crossbeam_utils::{Backoff, CachePadded};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::thread;
use std::time::{Duration, Instant};

/// As long as mely's by default.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Turns after which a worker looks into the injector although it has colors of its own.
const INJECTOR_TURNS: u32 = 64;
/// Colors that a worker keeps in its deque while no thief comes. What it has besides is private: a
/// deque that grows and shrinks with all of it allocates again and again.
const PUBLIC_COLORS: usize = 128;

/// The events of a color.
pub(super) trait Queue: Default + Send + Sync + 'static {
    /// The scheduler's.
    const NAME: &str;

    /// Adds an event. True if the caller is to hand the color to the scheduler.
    fn push<F>(&self, f: F) -> bool
    where
        F: FnOnce(&mut Cx<Self>) + Send + 'static;

    /// A turn. True if there may be more, and the caller is to hand the color on again.
    ///
    /// # Safety
    /// Called once for each time that `push` or the call before it said true.
    unsafe fn run(&self, cx: &mut Cx<Self>) -> bool;
}

struct Shared<Q> {
    colors: Vec<Q>,
    /// What foreign threads made ready.
    injector: Injector<u32>,
    stealers: Vec<Stealer<u32>>,
    /// How often each worker was robbed.
    thefts: Vec<CachePadded<AtomicUsize>>,
    idle: Idle,
    done: Done,
}

impl<Q> Shared<Q> {
    fn anything(&self) -> bool {
        !self.injector.is_empty() || self.stealers.iter().any(|stealer| !stealer.is_empty())
    }
}

/// A worker: the context of handlers.
pub(super) struct Cx<Q> {
    shared: Arc<Shared<Q>>,
    core: usize,
    deque: Worker<u32>,
    /// Behind what is in the deque.
    private: VecDeque<u32>,
    /// What [`Shared::thefts`] said at the last look.
    thefts: usize,
    turns: u32,
}

impl<Q: Queue> Cx<Q> {
    /// Without a fence, which would cost more than the push: [`next`](Self::next) looks again.
    #[inline]
    fn schedule(&mut self, color: u32) {
        if self.private.is_empty() && self.deque.len() < PUBLIC_COLORS {
            self.deque.push(color);
        } else {
            self.private.push_back(color);
            if self.was_robbed() {
                self.publish(usize::MAX);
            }
        }
        self.shared.idle.ring();
    }

    /// Whether a thief came since the last look.
    #[inline]
    fn was_robbed(&mut self) -> bool {
        let thefts = self.shared.thefts[self.core].load(Relaxed);
        std::mem::replace(&mut self.thefts, thefts) != thefts
    }

    /// Makes this many more colors public, or all there are.
    fn publish(&mut self, colors: usize) {
        let colors = colors.min(self.private.len());
        let colors = self.private.drain(..colors);
        colors.for_each(|color| self.deque.push(color));
    }

    /// The color whose turn it is.
    #[inline]
    fn next(&mut self) -> Option<u32> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(INJECTOR_TURNS)
            && let Steal::Success(color) = self.shared.injector.steal()
        {
            return Some(color);
        }
        let Some(color) = self.deque.pop().or_else(|| self.private.pop_front()) else {
            return self.steal();
        };
        // The second look after a `schedule`. The fence is the pop's own read-modify-write where
        // that is one, as on x86.
        if cfg!(not(target_arch = "x86_64")) {
            fence(SeqCst);
        }
        let public = self.deque.len();
        if !self.private.is_empty() {
            if self.was_robbed() {
                self.publish(usize::MAX);
            } else if public < PUBLIC_COLORS / 2 {
                self.publish(PUBLIC_COLORS - public);
            }
        }
        if !self.deque.is_empty() {
            self.shared.idle.ring();
        }
        Some(color)
    }

    #[cold]
    fn steal(&self) -> Option<u32> {
        let shared = &self.shared;
        loop {
            let mut taken = shared.injector.steal_batch_and_pop(&self.deque);
            for (core, other) in shared.stealers.iter().enumerate() {
                if core != self.core && !taken.is_success() {
                    let stolen = other.steal_batch_and_pop(&self.deque);
                    if stolen.is_success() {
                        shared.thefts[core].fetch_add(1, Relaxed);
                    }
                    taken = taken.or_else(|| stolen);
                }
            }
            if !taken.is_retry() {
                return taken.success();
            }
        }
    }

    fn work(mut self) {
        let shared = self.shared.clone();
        let mut idle_since = None;
        let mut backoff = Backoff::new();
        loop {
            if let Some(color) = self.next() {
                idle_since = None;
                // SAFETY: each color is in a deque or in the injector once for each time that it
                // was to be handed on.
                if unsafe { shared.colors[color as usize].run(&mut self) } {
                    self.schedule(color);
                }
            } else {
                let since = *idle_since.get_or_insert_with(|| {
                    backoff = Backoff::new();
                    Instant::now()
                });
                if since.elapsed() < SPIN_TIME {
                    // More and more rarely: looks take others' cache lines away. Then it gives its
                    // processor to who else may want it.
                    backoff.snooze();
                } else if !shared.idle.sleep(|| shared.anything()) {
                    return;
                }
            }
        }
    }
}

impl<Q: Queue> Context for Cx<Q> {
    type Outside = Remote<Q>;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        if self.shared.colors[color as usize].push(f) {
            self.schedule(color);
        }
    }

    fn core(&self) -> usize {
        self.core
    }

    fn outside(&self) -> Remote<Q> {
        Remote(self.shared.clone())
    }

    fn stop(&mut self) {
        self.shared.done.tell();
    }
}

pub(super) struct Remote<Q>(Arc<Shared<Q>>);

impl<Q> Clone for Remote<Q> {
    fn clone(&self) -> Remote<Q> {
        Remote(self.0.clone())
    }
}

impl<Q: Queue> Outside<Cx<Q>> for Remote<Q> {
    #[inline]
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx<Q>) + Send + 'static,
    {
        if self.0.colors[color as usize].push(f) {
            self.0.injector.push(color);
            fence(SeqCst);
            self.0.idle.ring();
        }
    }
}

/// See the module text.
pub(super) struct Deques<Q>(PhantomData<fn(Q)>);

impl<Q> Deques<Q> {
    pub(super) fn new() -> Deques<Q> {
        Deques(PhantomData)
    }
}

impl<Q: Queue> Scheduler for Deques<Q> {
    fn name(&self) -> &'static str {
        Q::NAME
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let deques: Vec<_> = (0..cores).map(|_| Worker::new_fifo()).collect();
        let shared = Arc::new(Shared {
            colors: (0..workload.colors_end(cores))
                .map(|_| Q::default())
                .collect(),
            injector: Injector::new(),
            stealers: deques.iter().map(Worker::stealer).collect(),
            thefts: deques.iter().map(|_| CachePadded::default()).collect(),
            idle: Idle::default(),
            done: Done::default(),
        });
        thread::scope(|scope| {
            for (core, deque) in deques.into_iter().enumerate() {
                let shared = shared.clone();
                scope.spawn(move || {
                    become_worker(core);
                    let mut cx = Cx {
                        shared,
                        core,
                        deque,
                        private: VecDeque::new(),
                        thefts: 0,
                        turns: 0,
                    };
                    if core == 0 {
                        workload.start_all(&mut cx, world, cores);
                    }
                    cx.work();
                });
            }
            shared.done.wait();
            shared.idle.end();
        });
        Ok(Extras::default())
    }
}
