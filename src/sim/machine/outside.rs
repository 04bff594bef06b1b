//! What comes to the cores of a described machine from outside: at a given time, to a given core.
//!
//! A core takes what is due when it looks at its event source, as it takes what a network brought.
//! The queues are the world's and not the machine's, so nothing here takes virtual time.

#![doc(hidden)]

use super::charge::{self, uncharged};
use crate::host::inner::Inner;
use crate::sched::core::Core;
use crate::sync::{Arc, Mutex};
use crate::{Callback, Cx};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

/// Posts to cores of a run on a simulated machine, from outside of it. Clones are the same world.
#[derive(Clone)]
pub struct Outside(Arc<World>);

impl Outside {
    pub(super) fn of(world: &Arc<World>) -> Outside {
        Outside(Arc::clone(world))
    }

    /// At `at_ns` of virtual time, or when `core` next looks after that, calls `make` with the time
    /// and posts what it returns, as what the network of that core brings: nobody has posted it,
    /// and the core pays for the post. What comes at one time comes in the order of these calls.
    /// From handlers and before the run. Once the run was asked to stop nothing comes any more, and
    /// `make` is dropped.
    ///
    /// # Panics
    /// If the run has no such core.
    #[track_caller]
    pub fn post_at<M, F>(&self, core: usize, at_ns: u64, make: M)
    where
        M: FnOnce(u64) -> Callback<F> + Send + 'static,
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let cores = self.0.cores.len();
        assert!(core < cores, "core {core} of a run on {cores}");
        let post = move |core: &mut Core| {
            let Callback { handler, color, f } = make(charge::now_ns().unwrap_or(0));
            core.post_own(handler, color, f);
        };
        self.0.add(core, at_ns, Box::new(post));
        charge::announce(core, at_ns);
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outside").field(&self.0).finish()
    }
}

/// What posts one thing that has come.
type Post = Box<dyn FnOnce(&mut Core) + Send>;

/// See the module text. No virtual core waits for one of the locks, since none is left with it.
/// Each thing that is to come counts as a keep-alive: it may be for a core that rests, and a run
/// that ends by itself waits for it.
#[derive(Debug)]
pub(super) struct World {
    inner: Arc<Inner>,
    cores: Box<[Mutex<Queue>]>,
}

impl World {
    pub(super) fn of(inner: Arc<Inner>) -> World {
        let cores = inner.shared.cores.len();
        World {
            inner,
            cores: (0..cores).map(|_| Mutex::default()).collect(),
        }
    }

    fn with<R>(&self, core: usize, f: impl FnOnce(&mut Queue) -> R) -> R {
        uncharged(|| f(&mut self.cores[core].lock().unwrap()))
    }

    fn add(&self, core: usize, at_ns: u64, post: Post) {
        // If it is not to come, it is the caller's to drop, with no lock held.
        let _refused = self.with(core, |queue| {
            if queue.closed {
                return Some(post);
            }
            let number = queue.added;
            queue.added += 1;
            self.inner.quiesce.keep_alive();
            queue.due.push(Reverse(Due {
                at: (at_ns, number),
                post,
            }));
            None
        });
    }

    /// Things that were to come, in this number, have been posted, or will not be.
    fn have_come(&self, things: usize) {
        uncharged(|| (0..things).for_each(|_| self.inner.drop_keep_alive()));
    }

    /// Posts what comes next, if it is due, from its core. False: it is not.
    pub(super) fn post_due(&self, core: usize, now_ns: u64, by: &mut Core) -> bool {
        let Some(post) = self.take_due(core, now_ns) else {
            return false;
        };
        post(by);
        self.have_come(1);
        true
    }

    /// What comes next, if it is due.
    fn take_due(&self, core: usize, now_ns: u64) -> Option<Post> {
        self.with(core, |queue| {
            let Reverse(next) = queue.due.peek()?;
            let due = next.at.0 <= now_ns;
            let next = due.then(|| queue.due.pop())??;
            Some(next.0.post)
        })
    }

    /// When that is.
    pub(super) fn next_ns(&self, core: usize) -> Option<u64> {
        self.with(core, |queue| queue.due.peek().map(|next| next.0.at.0))
    }

    /// Nothing more comes to this core.
    pub(super) fn close(&self, core: usize) {
        let left = self.with(core, |queue| {
            queue.closed = true;
            std::mem::take(&mut queue.due)
        });
        self.have_come(left.len());
    }
}

/// What is to come to one core.
#[derive(Default)]
struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    /// Things that were added so far.
    added: u64,
    closed: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("due", &self.due.len())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

struct Due {
    /// When, in ns, and how many were added before.
    at: (u64, u64),
    post: Post,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}
