//! Event memory of the reconstructions: one cache line with the closure in it, recycled through a
//! free list a core, as mely's is. The Mely paper compares with the same memory on both sides
//! (§IV-C), so that what differs is the scheduling.
//!
//! A core that frees more than it allocates hands batches to a depot, and a core that runs dry
//! takes one there: libasync-smp's per-thread free lists (2003, §5.3) without their growth when
//! posts go one way.

use super::{Queues, Worker};
use intrusive_collections::{LinkedListLink, intrusive_adapter};
use mely_bench::sync::{Mutex, MutexGuard, charge};
use std::mem::{MaybeUninit, align_of, size_of};
use std::sync::Arc;

/// What a workload's closures take, but for a few.
type Words = [usize; 3];

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Words>() && align_of::<F>() <= align_of::<Words>()
}

/// Events that change hands at once.
const BATCH: usize = 256;

/// A queued callback.
#[repr(align(64))]
pub(super) struct Event<Q: Queues> {
    link: LinkedListLink,
    pub(super) color: u32,
    /// Larger runs first: the thesis's `cpwrap`.
    pub(super) priority: i16,
    vtable: Option<&'static Vtable<Q>>,
    /// Holds what `vtable` says, or nothing without it.
    closure: MaybeUninit<Words>,
    /// The annotated time, for statistics of what was stolen.
    pub(super) time_ns: u32,
    /// The same divided by the annotated penalty, for [`mely_2010`](super::mely_2010).
    pub(super) weight_ns: u32,
}

intrusive_adapter!(pub(super) Link<Q> = Box<Event<Q>>: Event<Q> { link => LinkedListLink } where Q: Queues);

struct Vtable<Q: Queues> {
    run: unsafe fn(Box<Event<Q>>, &mut Worker<Q>),
    discard: unsafe fn(&mut Event<Q>),
}

struct VtableOf<Q, F>(std::marker::PhantomData<(Q, F)>);

impl<Q: Queues, F: FnOnce(&mut Worker<Q>) + Send + 'static> VtableOf<Q, F> {
    const VTABLE: &'static Vtable<Q> = &Vtable {
        run: run::<Q, F>,
        discard: discard::<Q, F>,
    };
}

impl<Q: Queues> Event<Q> {
    fn new() -> Box<Event<Q>> {
        const { assert!(size_of::<Event<Q>>() == 64) };
        let event = Box::new(Event {
            link: LinkedListLink::new(),
            color: 0,
            priority: 0,
            vtable: None,
            closure: MaybeUninit::uninit(),
            time_ns: 0,
            weight_ns: 0,
        });
        charge::name_next((&raw const *event).cast(), size_of::<Event<Q>>(), "event");
        event
    }

    /// Runs the closure. The event is free before that, so that the closure's own first post finds
    /// it in the cache.
    #[inline]
    pub(super) fn run(mut self: Box<Self>, worker: &mut Worker<Q>) {
        charge::run();
        charge::read(&*self);
        let vtable = self.vtable.take().expect("a queued event has a closure");
        // SAFETY: the closure is of this vtable's type (`Pool::fill`), and nobody takes it again:
        // the vtable is gone from the event.
        unsafe { (vtable.run)(self, worker) }
    }
}

impl<Q: Queues> Drop for Event<Q> {
    fn drop(&mut self) {
        if let Some(vtable) = self.vtable.take() {
            // SAFETY: as in `run`.
            unsafe { (vtable.discard)(self) }
        }
    }
}

/// # Safety
/// The event holds an `F` that nobody else will take.
unsafe fn run<Q: Queues, F: FnOnce(&mut Worker<Q>)>(event: Box<Event<Q>>, worker: &mut Worker<Q>) {
    // SAFETY: the caller's promise; `Pool::fill` has checked that an `F` fits.
    let f = unsafe { event.closure.as_ptr().cast::<F>().read() };
    worker.pool.free(event);
    f(worker);
}

/// # Safety
/// The event holds an `F` that nobody else will take.
unsafe fn discard<Q: Queues, F>(event: &mut Event<Q>) {
    // SAFETY: the caller's promise; `Pool::fill` has checked that an `F` fits.
    drop(unsafe { event.closure.as_ptr().cast::<F>().read() });
}

/// Pointers, never links inside the events: taking one must not read a line that another core
/// wrote.
type FreeList<Q> = Vec<Box<Event<Q>>>;

/// Where free lists exchange events.
pub(super) struct Depot<Q: Queues> {
    batches: Mutex<Vec<FreeList<Q>>>,
    /// Off for the lines of the 2003 paper's Table 2 that come before its free lists.
    recycles: bool,
}

impl<Q: Queues> Depot<Q> {
    pub(super) fn new(recycles: bool) -> Arc<Depot<Q>> {
        Arc::new(Depot {
            batches: Mutex::default(),
            recycles,
        })
    }

    fn batches(&self) -> MutexGuard<'_, Vec<FreeList<Q>>> {
        self.batches.lock().expect("no panic while held")
    }
}

/// One thread's free list.
pub(super) struct Pool<Q: Queues> {
    free: FreeList<Q>,
    depot: Arc<Depot<Q>>,
}

impl<Q: Queues> Pool<Q> {
    pub(super) fn new(depot: Arc<Depot<Q>>) -> Pool<Q> {
        Pool {
            free: Vec::with_capacity(2 * BATCH),
            depot,
        }
    }

    /// An event to queue. A closure that does not fit is boxed.
    #[inline]
    pub(super) fn event<F>(&mut self, color: u32, time_ns: u32, f: F) -> Box<Event<Q>>
    where
        F: FnOnce(&mut Worker<Q>) + Send + 'static,
    {
        if fits::<F>() {
            self.fill(color, time_ns, f)
        } else {
            let f = Box::new(f);
            self.fill(color, time_ns, move |worker: &mut Worker<Q>| f(worker))
        }
    }

    #[inline]
    fn fill<F>(&mut self, color: u32, time_ns: u32, f: F) -> Box<Event<Q>>
    where
        F: FnOnce(&mut Worker<Q>) + Send + 'static,
    {
        assert!(fits::<F>());
        let mut event = self.free.pop().unwrap_or_else(|| self.more());
        charge::post();
        charge::write(&*event);
        event.color = color;
        (event.time_ns, event.weight_ns) = (time_ns, time_ns);
        // SAFETY: it fits, by the assertion above; the event is empty, so nothing is overwritten.
        unsafe { event.closure.as_mut_ptr().cast::<F>().write(f) };
        event.vtable = Some(VtableOf::<Q, F>::VTABLE);
        event
    }

    #[cold]
    fn more(&mut self) -> Box<Event<Q>> {
        if self.depot.recycles
            && let Some(batch) = self.depot.batches().pop()
        {
            self.free = batch;
        }
        self.free.pop().unwrap_or_else(Event::new)
    }

    fn free(&mut self, event: Box<Event<Q>>) {
        if !self.depot.recycles {
            return;
        }
        if self.free.len() == 2 * BATCH {
            // The older half leaves: the younger is the one in this core's cache.
            let mut batch = Vec::with_capacity(2 * BATCH);
            batch.extend(self.free.drain(..BATCH));
            self.depot.batches().push(batch);
        }
        self.free.push(event);
    }
}
