//! Event memory: per-core free lists, exchanged in batches through a depot.
//!
//! A free list is an array of pointers, never links inside the nodes, so that taking a node does
//! not read a line that another core wrote. A core that frees more than it allocates (a consumer of
//! other cores' posts) hands whole batches to the depot, and a core that runs dry takes one: one
//! lock for some hundred events. New memory comes in slabs and is given back when the runtime is
//! gone.
//!
//! **The limit of events.** The depot lets as many nodes go round as the runtime's limit says, and
//! a *stock* for each pool on top: what lies unused in one pool must not count against another.
//! Where the limit is small, batches and stocks are, so that the stocks of all pools together are
//! at most a thirty-second of the limit, or two nodes each.
//!
//! **Reserved nodes** are beyond the limit. Timers and the runtime's own events (a connection to be
//! closed, state to be dropped in its color) take one when there is no other: they cannot be
//! refused to anybody. A reserved node goes back to the depot's reserve when its event runs, and
//! never goes round.

use super::node::Node;
use crate::prefetch;
use crate::sync::{Arc, Mutex, fault};
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Nodes in a slab, and the most in a batch.
const SLAB: usize = if cfg!(loom) { 4 } else { 256 };

/// Most nodes that a thread keeps to itself.
const STOCK_MAX: usize = 2 * SLAB;

/// The stocks of all pools are at most this part of the limit of events.
const STOCKS_PART: usize = 32;

/// A node's line is asked for this many nodes before it is taken: some 200 ns.
const AHEAD: usize = 8;

/// A free list: of fixed capacity, so that giving a node back has one case that is not a store.
type Free = ArrayVec<NonNull<Node>, STOCK_MAX>;

/// Where pools exchange nodes, and the owner of all slabs.
#[derive(Debug)]
pub(crate) struct Depot {
    inner: Mutex<Inner>,
    /// Most nodes that go round.
    nodes_max: usize,
    /// Nodes that are exchanged at a time.
    batch: usize,
    /// Who exchanges them.
    pools: usize,
}

#[derive(Debug, Default)]
struct Inner {
    batches: Vec<Vec<NonNull<Node>>>,
    /// Raw, because a box in a growing vector moves, and pointers into it would not survive that.
    slabs: Vec<NonNull<[Node]>>,
    /// Nodes of the last slab that were never handed out.
    fresh: usize,
    /// Nodes that go round.
    nodes: usize,
    reserve: Vec<NonNull<Node>>,
    /// Reserved nodes that are in use.
    reserved: usize,
}

// SAFETY: the pointers lead into `slabs`, which live as long as the depot; a node in a batch or in
// the reserve is held by nobody else (`Pool::free`'s and `Depot::retire`'s callers held it and gave
// it up).
unsafe impl Send for Depot {}
// SAFETY: all of `Inner` is behind the mutex.
unsafe impl Sync for Depot {}

impl Drop for Inner {
    fn drop(&mut self) {
        for slab in self.slabs.drain(..) {
            // SAFETY: leaked by `fresh_node` and freed here only. Every pool holds the depot, and
            // so does the runtime's shared part, whose drop empties all queues and mailboxes first:
            // so nobody names a node any more.
            drop(unsafe { Box::from_raw(slab.as_ptr()) });
        }
    }
}

impl Inner {
    /// A node that nobody has had yet.
    fn fresh_node(&mut self) -> NonNull<Node> {
        if self.fresh == 0 {
            let slab: Box<[Node]> = (0..SLAB).map(|_| Node::new()).collect();
            self.slabs.push(NonNull::from(Box::leak(slab)));
            self.fresh = SLAB;
        }
        self.fresh -= 1;
        let slab = self.slabs[self.slabs.len() - 1];
        // SAFETY: less than the slab's length. From its end: a free list is taken from its own end,
        // so nodes are handed out in the order of their addresses.
        unsafe { slab.cast::<Node>().add(self.fresh) }
    }
}

impl Depot {
    /// For this many pools, which may hold `events_max` events at the same time.
    pub(crate) fn new(events_max: usize, pools: usize) -> Arc<Depot> {
        let batch = (events_max / (STOCKS_PART * 2 * pools)).clamp(1, SLAB);
        Arc::new(Depot {
            inner: Mutex::default(),
            nodes_max: events_max.saturating_add(pools * 2 * batch),
            batch: if cfg!(loom) { SLAB } else { batch },
            pools,
        })
    }

    /// Bytes of event memory ever allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.lock().unwrap().slabs.len() * SLAB * size_of::<Node>()
    }

    /// Fills an empty free list, unless the limit is reached.
    fn refill(&self, free: &mut Free) {
        let mut inner = self.inner.lock().unwrap();
        if let Some(batch) = inner.batches.pop() {
            // One allocation a batch. A batch is no longer than the free list, which is empty.
            free.extend(batch);
            return;
        }
        let count = self.batch.min(self.nodes_max - inner.nodes);
        inner.nodes += count;
        free.extend((0..count).map(|_| inner.fresh_node()));
    }

    /// A reserved node, which the caller then holds; see the module text.
    pub(super) fn reserve(&self) -> NonNull<Node> {
        let mut inner = self.inner.lock().unwrap();
        inner.reserved += 1;
        match inner.reserve.pop() {
            Some(node) => node,
            None => inner.fresh_node(),
        }
    }

    /// Takes back a reserved node that the caller held and that holds no closure.
    pub(super) fn retire(&self, node: NonNull<Node>) {
        let mut inner = self.inner.lock().unwrap();
        inner.reserved -= 1;
        inner.reserve.push(node);
    }

    /// Nodes that are surely in use: what pools have in stock may be, or not.
    pub(crate) fn in_use_min(&self) -> u64 {
        let inner = self.inner.lock().unwrap();
        let idle: usize = inner.batches.iter().map(Vec::len).sum();
        let out = inner.nodes - idle + inner.reserved;
        out.saturating_sub(self.pools * 2 * self.batch) as u64
    }

    /// Reserved nodes that are in use.
    pub(super) fn reserved(&self) -> usize {
        self.inner.lock().unwrap().reserved
    }

    fn take_back(&self, batch: Vec<NonNull<Node>>) {
        self.inner.lock().unwrap().batches.push(batch);
    }
}

/// One thread's free list.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Box<Free>,
    /// Most nodes in it: two batches.
    stock_max: usize,
    pub(super) depot: Arc<Depot>,
}

// SAFETY: the nodes in `free` are held by this pool alone.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) fn new(depot: Arc<Depot>) -> Pool {
        Pool {
            free: Box::default(),
            stock_max: 2 * depot.batch,
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
        prefetch::line(later.as_ptr());
        self.free.pop()
    }

    /// Whether the next [`alloc`](Self::alloc) is sure to succeed.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.depot.refill(&mut self.free);
        }
        !self.free.is_empty()
    }

    #[cold]
    #[inline(never)]
    fn alloc_more(&mut self) -> Option<NonNull<Node>> {
        self.depot.refill(&mut self.free);
        self.free.pop()
    }

    /// Takes back a node that the caller held and that holds no closure.
    #[inline(always)]
    pub(crate) fn free(&mut self, node: NonNull<Node>) {
        poison(node);
        if self.free.len() == self.stock_max {
            return self.spill(node);
        }
        // SAFETY: shorter than the stock, which is at most the list's capacity.
        unsafe { self.free.push_unchecked(node) };
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, node: NonNull<Node>) {
        // The older half leaves: the younger is the one in this core's cache.
        let batch: Vec<_> = self.free.drain(..self.depot.batch).collect();
        if fault("spilled and kept") {
            self.free.extend(batch.iter().copied().take(1));
        }
        self.free.push(node);
        self.depot.take_back(batch);
    }
}

/// Tells Miri that nobody holds this node: type-stable memory would hide a use after free.
#[inline(always)]
pub(super) fn poison(node: NonNull<Node>) {
    #[cfg(miri)]
    // SAFETY: the caller held it and gives it up.
    unsafe {
        node.cast::<std::mem::MaybeUninit<Node>>()
            .write(std::mem::MaybeUninit::uninit());
    }
    let _ = node;
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.free.is_empty() {
            self.depot.take_back(self.free.drain(..).collect());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// All nodes that a pool gets, until it gets no more.
    fn drain(pool: &mut Pool) -> Vec<NonNull<Node>> {
        std::iter::from_fn(|| pool.alloc()).collect()
    }

    #[test]
    fn as_many_go_round_as_the_limit_says_and_the_stocks() {
        for (events_max, pools, most) in [(1, 3, 7), (1_000, 3, 1_030), (300, 2, 308), (64, 1, 66)]
        {
            let depot = Depot::new(events_max, pools);
            let mut all: Vec<_> = (0..pools).map(|_| Pool::new(Arc::clone(&depot))).collect();
            let mut nodes = drain(&mut all[0]);
            assert_eq!(nodes.len(), most, "{events_max} events");
            // Whatever the others have in stock, the first gets as many as were asked for.
            for pool in &mut all[1..] {
                let stock = nodes.split_off(nodes.len() - pool.stock_max);
                stock.into_iter().for_each(|node| pool.free(node));
            }
            nodes.drain(..).for_each(|node| all[0].free(node));
            assert!(drain(&mut all[0]).len() >= events_max);
        }
    }

    #[test]
    fn what_a_pool_had_goes_to_others() {
        let depot = Depot::new(1_000, 2);
        let mut first = Pool::new(Arc::clone(&depot));
        let nodes = drain(&mut first);
        nodes.iter().take(5).for_each(|&node| first.free(node));
        drop(first);
        let mut second = Pool::new(Arc::clone(&depot));
        let mut left = drain(&mut second);
        left.reverse();
        assert_eq!(left, nodes[..5]);
    }

    /// Of what is in use only what two stocks of each pool may hold is in doubt.
    #[test]
    fn nodes_in_use_are_counted() {
        let depot = Depot::new(1_000, 2);
        let stocks = 2 * 2 * depot.batch;
        let mut pool = Pool::new(Arc::clone(&depot));
        assert_eq!(depot.in_use_min(), 0);
        let nodes = drain(&mut pool);
        assert_eq!(depot.in_use_min(), (nodes.len() - stocks) as u64);
        let reserved = [depot.reserve(), depot.reserve(), depot.reserve()];
        assert_eq!(depot.in_use_min(), (nodes.len() + 3 - stocks) as u64);
        reserved.into_iter().for_each(|node| depot.retire(node));
        nodes.iter().for_each(|&node| pool.free(node));
        assert_eq!(depot.in_use_min(), 0);
    }

    #[test]
    fn reserved_nodes_do_not_go_round() {
        let depot = Depot::new(10, 1);
        let mut pool = Pool::new(Arc::clone(&depot));
        let most = drain(&mut pool).len();
        for _ in 0..1_000 {
            let nodes = [depot.reserve(), depot.reserve()];
            assert_eq!(depot.reserved(), 2);
            assert!(pool.alloc().is_none());
            nodes.into_iter().for_each(|node| depot.retire(node));
        }
        assert_eq!(depot.reserved(), 0);
        assert_eq!(depot.bytes(), SLAB * size_of::<Node>());
        assert!(most < SLAB, "the test's own premise");
    }
}
