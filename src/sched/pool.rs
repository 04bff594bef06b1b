//! Event memory: per-core free lists, exchanged in batches through a depot.
//!
//! A free list is an array of pointers, never links inside the nodes, so that taking a node does not
//! read a line that another core wrote. A core that frees more than it allocates (a consumer of other
//! cores' posts) hands whole batches to the depot, and a core that runs dry takes one: one lock for
//! some hundred events. New memory comes in slabs and is given back when the runtime is gone.

use super::node::Node;
use super::prefetch;
use crate::sync::{Arc, Mutex, fault};
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Nodes in a batch and in a slab.
const BATCH: usize = if cfg!(loom) { 4 } else { 256 };

/// Most nodes that a thread keeps to itself.
pub(crate) const STOCK_MAX: usize = 2 * BATCH;

/// So many nodes before it is taken a node's line is asked for: some 200 ns.
const AHEAD: usize = 8;

/// A free list: of fixed capacity, so that giving a node back has one case that is not a store.
type Free = ArrayVec<NonNull<Node>, STOCK_MAX>;

/// Where pools exchange nodes, and the owner of all slabs.
#[derive(Debug)]
pub(crate) struct Depot {
    inner: Mutex<Inner>,
    /// The largest number of nodes, rounded up to a slab.
    nodes_max: usize,
}

#[derive(Debug)]
struct Inner {
    batches: Vec<Vec<NonNull<Node>>>,
    /// Raw, because a box in a growing vector moves, and pointers into it would not survive that.
    slabs: Vec<NonNull<[Node]>>,
    nodes: usize,
}

// SAFETY: the pointers lead into `slabs`, which live as long as the depot; a node in a batch is held
// by nobody else (`Pool::free`'s caller held it and gave it up).
unsafe impl Send for Depot {}
// SAFETY: all of `Inner` is behind the mutex.
unsafe impl Sync for Depot {}

impl Drop for Inner {
    fn drop(&mut self) {
        for slab in self.slabs.drain(..) {
            // SAFETY: leaked by `refill` and freed here only. Every pool and every color-queue that
            // could name a node holds the depot, so none is left.
            drop(unsafe { Box::from_raw(slab.as_ptr()) });
        }
    }
}

impl Depot {
    pub(crate) fn new(nodes_max: usize) -> Arc<Depot> {
        Arc::new(Depot {
            inner: Mutex::new(Inner {
                batches: Vec::new(),
                slabs: Vec::new(),
                nodes: 0,
            }),
            nodes_max,
        })
    }

    /// Bytes of event memory ever allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.lock().unwrap().nodes * size_of::<Node>()
    }

    /// Fills an empty free list, unless the limit is reached; `beyond`: also beyond it.
    fn refill(&self, free: &mut Free, beyond: bool) {
        let mut inner = self.inner.lock().unwrap();
        if let Some(batch) = inner.batches.pop() {
            // One allocation a batch. A batch is no longer than the free list, which is empty.
            free.extend(batch);
            return;
        }
        if inner.nodes >= self.nodes_max && !beyond {
            return;
        }
        let slab: Box<[Node]> = (0..BATCH).map(|_| Node::new()).collect();
        inner.nodes += BATCH;
        let slab = NonNull::from(Box::leak(slab));
        inner.slabs.push(slab);
        // Handed out in address order: the list is taken from its end.
        // SAFETY: i is within the slab.
        free.extend(
            (0..BATCH)
                .rev()
                .map(|i| unsafe { slab.cast::<Node>().add(i) }),
        );
    }
}

/// One thread's free list.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Box<Free>,
    depot: Arc<Depot>,
}

// SAFETY: the nodes in `free` are held by this pool alone.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) fn new(depot: Arc<Depot>) -> Pool {
        Pool {
            free: Box::default(),
            depot,
        }
    }

    /// A node that the caller then holds; none if the runtime's limit is reached.
    #[inline(always)]
    pub(crate) fn alloc(&mut self) -> Option<NonNull<Node>> {
        let Some(last) = self.free.len().checked_sub(1) else {
            return self.alloc_more();
        };
        // SAFETY: at most the index of the last one.
        let later = unsafe { self.free.get_unchecked(last.saturating_sub(AHEAD)) };
        prefetch::line(*later);
        self.free.pop()
    }

    /// Whether the next [`alloc`](Self::alloc) is sure to succeed.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.depot.refill(&mut self.free, false);
        }
        !self.free.is_empty()
    }

    /// Makes sure that the next [`alloc`](Self::alloc) succeeds, whatever the limit says: for the
    /// runtime's own events, of which there is at most one for each thing they end.
    pub(crate) fn reserve(&mut self) {
        if self.free.is_empty() {
            self.depot.refill(&mut self.free, true);
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_more(&mut self) -> Option<NonNull<Node>> {
        self.depot.refill(&mut self.free, false);
        self.free.pop()
    }

    /// Takes back a node that the caller held and that holds no closure.
    #[inline(always)]
    pub(crate) fn free(&mut self, node: NonNull<Node>) {
        // Type-stable memory hides from Miri who looks at a node that nobody holds.
        #[cfg(miri)]
        // SAFETY: the caller held it.
        unsafe {
            node.cast::<std::mem::MaybeUninit<Node>>()
                .write(std::mem::MaybeUninit::uninit());
        }
        if self.free.try_push(node).is_err() {
            self.spill(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, node: NonNull<Node>) {
        // The older half leaves: the younger is the one in this core's cache.
        let batch: Vec<_> = self.free.drain(..BATCH).collect();
        if fault("spilled and kept") {
            self.free.extend(batch.iter().copied().take(1));
        }
        self.free.push(node);
        self.depot.inner.lock().unwrap().batches.push(batch);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.free.is_empty() {
            let batch = self.free.drain(..).collect();
            self.depot.inner.lock().unwrap().batches.push(batch);
        }
    }
}
