//! Event memory: free lists of each thread, exchanged in batches through a depot.
//!
//! A free list is a ring of pointers, never links inside the nodes, so that taking a node does not
//! read a line that another core wrote. A thread that frees more than it allocates (a consumer of
//! other cores' posts) hands whole batches to the depot, and one that runs dry takes one: one lock
//! for some hundred events. Each size class of nodes has its lists. New memory comes in slabs and
//! is given back when the runtime is gone.
//!
//! **First in, first out.** Nodes are taken in the order in which they were given back, in the ring
//! as in the depot. So a long queue whose events lay one behind the other in memory does so in the
//! next round, and the processor, which reads ahead, has the next event before it is run. A list
//! that is taken from its end cuts and reverses such rows a little more in each round, until every
//! event is a miss. One node is kept apart, the *hot* one: an event that posts one event takes the
//! node it has just left.
//!
//! **The limit of events.** The depot lets as many nodes go round as the runtime's limit says, and
//! a *stock* for each pool and class on top: what lies unused in one pool must not count against
//! another. Where the limit is small, batches and stocks are, so that all stocks together are at
//! most a thirty-second of the limit, or two nodes each.
//!
//! **Reserved nodes** are beyond the limit. Timers and the runtime's own events (a connection to be
//! closed, state to be dropped in its color) take one when there is no other: they cannot be
//! refused to anybody. So do posts of handlers that cannot be refused (`Cx::post`), while fewer
//! than an eighth of the limit, or 64, are out. A reserved node goes back to the depot's reserve
//! when its event runs, and never goes round.

use super::node::{Class, Empty, Owned, Room};
use crate::memory::{PREFETCH_LEAD, prefetch_to_write};
use crate::sync::relaxed::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, charge, fault};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ptr::NonNull;

/// Nodes in a slab, and the most in a batch.
const SLAB: usize = if cfg!(loom) { 4 } else { 256 };

/// Most nodes of a class that a thread keeps to itself.
const STOCK_MAX: usize = 2 * SLAB;
// A ring's places go on without a jump when its counter wraps.
const _: () = assert!(STOCK_MAX.is_power_of_two());

/// The stocks of all pools are at most this part of the limit of events.
const STOCKS_PART: usize = 32;

/// Posts of handlers may go beyond the limit of events by this part of it, or by [`RESERVE_MIN`].
const RESERVE_PART: usize = 8;
/// See [`RESERVE_PART`].
const RESERVE_MIN: usize = 64;

/// Where pools exchange nodes, and the owner of all slabs.
#[derive(Debug)]
pub(crate) struct Depot {
    inner: Mutex<Shelves>,
    /// Nodes that pools have been given and have not given back: written, and decided upon, with
    /// the lock held; whoever reads it without may be wrong.
    out: AtomicUsize,
    /// Most of them.
    nodes_max: usize,
    /// With so many reserved nodes in use a handler's post beyond the limit is refused.
    reserve_max: usize,
    /// Nodes that are exchanged at a time.
    batch: usize,
    /// Lists of pools that have been filled once, each with a stock that may lie unused.
    lists: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shelves {
    shelves: [Shelf; Class::COUNT],
    /// Reserved nodes that are in use.
    reserved: usize,
}

/// The nodes of one class that no pool has.
#[derive(Debug, Default)]
struct Shelf {
    /// The one that was given back first is in front.
    batches: VecDeque<Batch>,
    slabs: Vec<Box<dyn Memory>>,
    /// Those of the last slab that were never handed out.
    fresh: std::vec::IntoIter<Empty>,
    reserve: Vec<Empty>,
}

/// Nodes of one class, all of them there: moved in bulk, from and to where nothing is left.
type Batch = Vec<Option<Owned>>;

/// Memory that is given back when it is dropped.
trait Memory: Debug + Send {}

/// Memory of nodes.
#[derive(Debug)]
struct NodeSlab<const WORDS: usize>(NonNull<[Room<WORDS>]>);

// SAFETY: nothing but its drop reaches the memory through it.
unsafe impl<const WORDS: usize> Send for NodeSlab<WORDS> {}

impl<const WORDS: usize> Memory for NodeSlab<WORDS> {}

impl<const WORDS: usize> NodeSlab<WORDS> {
    /// With the nodes in it, in the order of their addresses.
    fn with_nodes() -> (Box<dyn Memory>, Vec<Empty>) {
        let places: Box<[_]> = (0..SLAB).map(|_| Room::<WORDS>::new()).collect();
        charge::name_next(places.as_ptr().cast(), size_of_val(&places[..]), "node");
        let mut slab = NodeSlab(NonNull::from(Box::leak(places)));
        // SAFETY: just made, and not borrowed again: `drop` comes when nobody owns a node any more.
        let places = unsafe { slab.0.as_mut() };
        let nodes = places.iter_mut().map(Empty::new).collect();
        (Box::new(slab), nodes)
    }
}

impl<const WORDS: usize> Drop for NodeSlab<WORDS> {
    fn drop(&mut self) {
        // SAFETY: leaked by `with_nodes`, and freed here only. The depot has all slabs. Every pool
        // holds the depot, and so does the runtime's shared part, whose drop empties all queues and
        // mailboxes first: so nobody owns a node any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Shelf {
    /// A node that nobody has had yet; in the order of their addresses.
    fn fresh_node(&mut self, class: Class) -> Empty {
        loop {
            if let Some(node) = self.fresh.next() {
                return node;
            }
            let (slab, nodes) = match class.index() {
                0 => NodeSlab::<3>::with_nodes(),
                1 => NodeSlab::<11>::with_nodes(),
                _ => NodeSlab::<27>::with_nodes(),
            };
            self.slabs.push(slab);
            self.fresh = nodes.into_iter();
        }
    }

    /// At most `count` nodes.
    fn take(&mut self, class: Class, count: usize) -> Batch {
        let Some(mut batch) = self.batches.pop_front() else {
            let nodes = (0..count).map(|_| self.fresh_node(class).into_parts().0);
            return nodes.map(Some).collect();
        };
        if batch.len() > count {
            let rest = batch.split_off(count);
            self.batches.push_front(rest);
        }
        batch
    }
}

impl Depot {
    /// For this many pools, which may hold `events_max` events at the same time.
    pub(crate) fn new(events_max: usize, pools: usize) -> Arc<Depot> {
        let lists = pools * Class::COUNT;
        let batch = (events_max / (STOCKS_PART * 2 * lists)).clamp(1, SLAB);
        let batch = if cfg!(loom) { SLAB } else { batch };
        Arc::new(Depot {
            inner: Mutex::default(),
            out: AtomicUsize::new(0),
            nodes_max: events_max.saturating_add(lists * 2 * batch),
            reserve_max: (events_max / RESERVE_PART).max(RESERVE_MIN),
            batch,
            lists: AtomicUsize::new(0),
        })
    }

    /// Bytes of event memory ever allocated.
    pub(crate) fn bytes(&self) -> usize {
        let inner = self.inner.lock().unwrap();
        let of =
            |class: Class| inner.shelves[class.index()].slabs.len() * SLAB * class.node_bytes();
        Class::ALL.into_iter().map(of).sum()
    }

    /// A batch of nodes; fewer at the limit, or none.
    fn take(&self, class: Class) -> Batch {
        let mut inner = self.inner.lock().unwrap();
        let out = self.out.load(Relaxed);
        let count = self.batch.min(self.nodes_max - out);
        if count == 0 {
            return Vec::new();
        }
        let batch = inner.shelves[class.index()].take(class, count);
        self.out.store(out + batch.len(), Relaxed);
        batch
    }

    fn take_back(&self, class: Class, batch: Batch) {
        let mut inner = self.inner.lock().unwrap();
        self.out
            .store(self.out.load(Relaxed) - batch.len(), Relaxed);
        inner.shelves[class.index()].batches.push_back(batch);
    }

    /// Whether more nodes may go round.
    fn has_room(&self) -> bool {
        self.out.load(Relaxed) < self.nodes_max
    }

    /// A reserved node; see the module text.
    pub(super) fn reserve(&self, class: Class) -> Empty {
        let mut inner = self.inner.lock().unwrap();
        inner.reserved += 1;
        let shelf = &mut inner.shelves[class.index()];
        match shelf.reserve.pop() {
            Some(node) => node,
            None => shelf.fresh_node(class),
        }
    }

    /// Takes back a reserved node.
    pub(super) fn retire(&self, node: Empty) {
        poison(&node);
        let mut inner = self.inner.lock().unwrap();
        inner.reserved -= 1;
        inner.shelves[node.class().index()].reserve.push(node);
    }

    /// Nodes that are surely in use: what pools have in stock may be, or not.
    pub(crate) fn in_use_min(&self) -> u64 {
        let out = self.out.load(Relaxed) + self.reserved();
        let stocks = self.lists.load(Relaxed) * 2 * self.batch;
        out.saturating_sub(stocks) as u64
    }

    /// Whether a handler's post may take a reserved node.
    pub(super) fn has_reserve(&self) -> bool {
        self.reserved() < self.reserve_max
    }

    /// Reserved nodes that are in use.
    pub(super) fn reserved(&self) -> usize {
        self.inner.lock().unwrap().reserved
    }
}

/// One thread's nodes of one class.
#[derive(Debug)]
struct FreeList {
    /// Taken first, if it is there.
    hot: Option<Owned>,
    /// The ring: `len` nodes from `head` on, modulo its length.
    ring: Box<[Option<Owned>; STOCK_MAX]>,
    head: usize,
    len: usize,
    /// Whether the thread has ever asked for such a node.
    used: bool,
}

impl FreeList {
    fn new() -> FreeList {
        FreeList {
            hot: None,
            ring: Box::new([const { None }; STOCK_MAX]),
            head: 0,
            len: 0,
            used: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.hot.is_none() && self.len == 0
    }

    /// The node that is the longest in the ring.
    #[inline(always)]
    fn pop(&mut self) -> Option<Owned> {
        let node = self.ring[self.head % STOCK_MAX].take()?;
        self.head += 1;
        self.len -= 1;
        Some(node)
    }

    /// Into the ring, which is not full.
    #[inline(always)]
    fn push(&mut self, node: Owned) {
        self.ring[(self.head + self.len) % STOCK_MAX] = Some(node);
        self.len += 1;
    }

    /// Takes the `count` nodes that are the longest in the ring.
    fn pop_batch(&mut self, count: usize) -> Batch {
        let head = self.head % STOCK_MAX;
        let to_end = count.min(STOCK_MAX - head);
        let mut batch: Batch = (0..count).map(|_| None).collect();
        let (first, rest) = batch.split_at_mut(to_end);
        first.swap_with_slice(&mut self.ring[head..head + to_end]);
        rest.swap_with_slice(&mut self.ring[..count - to_end]);
        self.head = (self.head + count) % STOCK_MAX;
        self.len -= count;
        batch
    }

    /// Fills the ring, which is empty.
    fn refill(&mut self, mut batch: Batch) {
        (self.head, self.len) = (0, batch.len());
        self.ring[..batch.len()].swap_with_slice(&mut batch);
    }
}

/// One thread's free lists.
#[derive(Debug)]
pub(crate) struct Pool {
    lists: [FreeList; Class::COUNT],
    /// Most nodes in a ring: with the hot one, two batches.
    ring_max: usize,
    pub(super) depot: Arc<Depot>,
}

impl Pool {
    pub(crate) fn new(depot: Arc<Depot>) -> Pool {
        Pool {
            lists: [(); Class::COUNT].map(|()| FreeList::new()),
            ring_max: 2 * depot.batch - 1,
            depot,
        }
    }

    /// A node; none if the runtime's limit is reached.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, class: Class) -> Option<Empty> {
        let list = &mut self.lists[class.index()];
        let node = match list.hot.take() {
            Some(node) => node,
            None => match list.pop() {
                Some(node) => {
                    // To be written, since another core may have run its event, and has read the
                    // node and not written it.
                    let later = &list.ring[(list.head + PREFETCH_LEAD as usize) % STOCK_MAX];
                    let later = later.as_ref().map_or(std::ptr::null_mut(), Owned::at);
                    for line in 0..class.node_bytes() / 64 {
                        prefetch_to_write(later.cast::<[u8; 64]>().wrapping_add(line));
                    }
                    node
                }
                None => self.refill(class)?,
            },
        };
        // SAFETY: of this list's class, as it came.
        Some(unsafe { Empty::of_class(node, class) })
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self, class: Class) -> Option<Owned> {
        let list = &mut self.lists[class.index()];
        if !std::mem::replace(&mut list.used, true) {
            self.depot.lists.fetch_add(1, Relaxed);
        }
        list.refill(self.depot.take(class));
        list.pop()
    }

    /// Whether the next event is sure to get its node, if it is of a class that this thread has
    /// used; of another class, unless others take what there is.
    pub(crate) fn has_room(&mut self) -> bool {
        Class::ALL.into_iter().all(|class| {
            let list = &mut self.lists[class.index()];
            if list.is_empty() && list.used {
                list.refill(self.depot.take(class));
            }
            !list.is_empty() || !list.used && self.depot.has_room()
        })
    }

    #[inline(always)]
    pub(crate) fn free(&mut self, node: Empty) {
        poison(&node);
        let (node, class) = node.into_parts();
        let list = &mut self.lists[class.index()];
        if list.hot.is_none() {
            list.hot = Some(node);
        } else if list.len < self.ring_max {
            list.push(node);
        } else {
            self.spill(node, class);
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, node: Owned, class: Class) {
        let list = &mut self.lists[class.index()];
        let batch = list.pop_batch(self.depot.batch);
        if fault("spilled and kept") {
            let kept = batch[0].as_ref().map(Owned::at);
            let kept = kept.and_then(NonNull::new).unwrap();
            // SAFETY: none: that is the fault.
            list.push(unsafe { Owned::from_raw(kept) });
        }
        list.push(node);
        self.depot.take_back(class, batch);
    }
}

/// Tells Miri that nobody owns this node: type-stable memory would hide a use after free.
#[inline(always)]
fn poison(node: &Empty) {
    #[cfg(miri)]
    node.forget_content();
    let _ = node;
}

impl Drop for Pool {
    fn drop(&mut self) {
        for class in Class::ALL {
            let list = &mut self.lists[class.index()];
            let mut rest = list.pop_batch(list.len);
            rest.extend(list.hot.take().map(Some));
            if !rest.is_empty() {
                self.depot.take_back(class, rest);
            }
            if list.used {
                self.depot.lists.fetch_sub(1, Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SMALL: Class = Class::ALL[0];

    /// All nodes that a pool gets of a class, until it gets no more.
    fn drain(pool: &mut Pool, class: Class) -> Vec<Empty> {
        std::iter::from_fn(|| pool.alloc(class)).collect()
    }

    fn address(node: &Empty) -> usize {
        node.at().addr()
    }

    #[test]
    fn as_many_go_round_as_the_limit_says_and_the_stocks() {
        for (events_max, pools, most) in [
            (1, 3, 19),
            (1_000, 3, 1_018),
            (3_000, 2, 3_084),
            (64, 1, 70),
        ] {
            let depot = Depot::new(events_max, pools);
            let mut all: Vec<_> = (0..pools).map(|_| Pool::new(Arc::clone(&depot))).collect();
            let mut nodes = drain(&mut all[0], SMALL);
            assert_eq!(nodes.len(), most, "{events_max} events");
            // Whatever the others have in stock, the first gets as many as were asked for.
            for pool in &mut all[1..] {
                let stock = nodes.split_off(nodes.len() - 2 * depot.batch);
                stock.into_iter().for_each(|node| pool.free(node));
            }
            nodes.drain(..).for_each(|node| all[0].free(node));
            assert!(drain(&mut all[0], SMALL).len() >= events_max);
        }
    }

    /// Whatever was small before can be large now.
    #[test]
    fn the_limit_is_one_for_all_classes() {
        let events_max = 1_000;
        let depot = Depot::new(events_max, 2);
        let mut pool = Pool::new(Arc::clone(&depot));
        for class in [Class::ALL[2], SMALL, Class::ALL[1], SMALL] {
            assert!(pool.has_room());
            let nodes = drain(&mut pool, class);
            assert!((events_max..events_max + 100).contains(&nodes.len()));
            assert!(!pool.has_room());
            nodes.into_iter().for_each(|node| pool.free(node));
        }
    }

    #[test]
    fn what_a_pool_had_goes_to_others() {
        let depot = Depot::new(1_000, 2);
        let mut first = Pool::new(Arc::clone(&depot));
        let mut nodes = drain(&mut first, SMALL);
        let five = nodes.split_off(nodes.len() - 5);
        five.into_iter().for_each(|node| first.free(node));
        drop(first);
        let mut second = Pool::new(Arc::clone(&depot));
        assert_eq!(drain(&mut second, SMALL).len(), 5);
    }

    /// Else a long queue is shuffled a little more whenever it has gone round.
    #[test]
    fn rows_stay_rows() {
        let depot = Depot::new(1 << 20, 2);
        let mut pools = [(); 2].map(|()| Pool::new(Arc::clone(&depot)));
        const NODES: usize = if cfg!(miri) { 500 } else { 10_000 };
        let mut queue: VecDeque<Empty> =
            (0..NODES).map(|_| pools[0].alloc(SMALL).unwrap()).collect();
        // One core runs, another posts, by turns of 100.
        for _ in 0..NODES / 10 {
            for node in queue.drain(..100) {
                pools[1].free(node);
            }
            queue.extend((0..100).map(|_| pools[0].alloc(SMALL).unwrap()));
        }
        let addresses: Vec<_> = queue.iter().map(address).collect();
        let next = |pair: &&[usize]| pair[1] == pair[0] + SMALL.node_bytes();
        let in_a_row = addresses.windows(2).filter(next).count();
        // A slab ends, or a hot node is out of its row, once in some hundred nodes.
        assert!(in_a_row > NODES * 49 / 50, "{in_a_row} of {NODES}");
    }

    #[test]
    fn an_event_that_posts_one_leaves_its_node_to_it() {
        let mut pool = Pool::new(Depot::new(1_000, 1));
        let first = pool.alloc(SMALL).unwrap();
        let mut node = pool.alloc(SMALL).unwrap();
        let its = address(&node);
        for _ in 0..10 {
            pool.free(node);
            node = pool.alloc(SMALL).unwrap();
            assert_eq!(address(&node), its);
        }
        assert_ne!(address(&first), its);
    }

    /// Of what is in use only what the stocks of lists in use may hold is in doubt.
    #[test]
    fn nodes_in_use_are_counted() {
        let depot = Depot::new(1_000, 2);
        let mut pool = Pool::new(Arc::clone(&depot));
        assert_eq!(depot.in_use_min(), 0);
        let nodes = drain(&mut pool, SMALL);
        let stock = 2 * depot.batch;
        assert_eq!(depot.in_use_min(), (nodes.len() - stock) as u64);
        let reserved = [0, 1, 1].map(|class| depot.reserve(Class::ALL[class]));
        let in_use = nodes.len() + 3 - stock;
        assert_eq!(depot.in_use_min(), in_use as u64);
        reserved.into_iter().for_each(|node| depot.retire(node));
        nodes.into_iter().for_each(|node| pool.free(node));
        assert_eq!(depot.in_use_min(), 0);
    }

    #[test]
    fn reserved_nodes_do_not_go_round() {
        let depot = Depot::new(10, 1);
        let mut pool = Pool::new(Arc::clone(&depot));
        let most = drain(&mut pool, SMALL).len();
        for _ in 0..1_000 {
            let nodes = [depot.reserve(SMALL), depot.reserve(SMALL)];
            assert_eq!(depot.reserved(), 2);
            assert!(pool.alloc(SMALL).is_none());
            nodes.into_iter().for_each(|node| depot.retire(node));
        }
        assert_eq!(depot.reserved(), 0);
        assert_eq!(depot.bytes(), SLAB * SMALL.node_bytes());
        assert!(most < SLAB, "the test's own premise");
    }
}
