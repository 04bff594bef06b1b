//! Makers for threads that are no cores: a few, which the threads share out among themselves.
//!
//! A thread always uses the same one, behind a lock that it finds free, on lines that its processor
//! has, unless more threads post than there are makers. The order of a thread's posts is that of
//! their publishing, which comes after.

use super::maker::Maker;
use super::pool::Depot;
use crate::sync::relaxed::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex};
use crossbeam_utils::CachePadded;

/// Most makers of a runtime.
const MAKERS_MAX: usize = if cfg!(loom) { 1 } else { 16 };
/// One for each so many events of the limit: each has a stock of nodes on top of it.
const EVENTS_EACH: usize = 1 << 14;

/// How many there are in a runtime with this limit of events.
pub(crate) fn count(events_max: usize) -> usize {
    (events_max / EVENTS_EACH).clamp(1, MAKERS_MAX)
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Makers {
    /// Each is made when it is used.
    makers: Box<[CachePadded<Mutex<Option<Maker>>>]>,
    depot: Arc<Depot>,
}

impl Makers {
    /// As many as [`count`] says.
    pub(crate) fn new(events_max: usize, depot: &Arc<Depot>) -> Makers {
        Makers {
            makers: (0..count(events_max))
                .map(|_| CachePadded::new(Mutex::new(None)))
                .collect(),
            depot: Arc::clone(depot),
        }
    }

    /// With this thread's maker.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Maker) -> R) -> R {
        let mut maker = self.makers[this_thread() % self.makers.len()]
            .lock()
            .unwrap();
        f(maker.get_or_insert_with(|| Maker::new(&self.depot)))
    }
}

/// A number of its own for each thread, up to how many a process has at a time and beyond.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    // std's also under loom, where there is one maker.
    std::thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Relaxed);
    }
    // A thread that ends may post from the destructors of its locals; this one has none.
    NUMBER.try_with(|&number| number).unwrap_or(0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::event::profile::Profiles;
    use crate::{Color, Cx};
    use std::thread;

    #[test]
    fn threads_have_makers_of_their_own() {
        assert_eq!(
            [1, EVENTS_EACH * 2 - 1, EVENTS_EACH * 2, 1 << 26].map(count),
            [1, 1, 2, MAKERS_MAX]
        );
        let events_max = 1 << 20;
        let depot = Depot::new(events_max, count(events_max));
        let makers = Makers::new(events_max, &depot);
        let mine = this_thread();
        makers.with(|_| {
            // While this thread is in its own, others are not kept out of theirs.
            let others = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let number = this_thread();
                            if number % MAKERS_MAX != mine % MAKERS_MAX {
                                makers.with(|maker| {
                                    let profiles = Profiles::new();
                                    let color = Color::from(1);
                                    let f = |_: &mut Cx| ();
                                    assert!(maker.make(&profiles, None, color, f, |f| f).is_ok());
                                });
                            }
                            assert_eq!(this_thread(), number);
                            number
                        })
                    })
                    .collect();
                let numbers = threads.into_iter().map(|thread| thread.join().unwrap());
                numbers.collect::<std::collections::HashSet<_>>()
            });
            assert!(others.len() == 4 && !others.contains(&mine), "{others:?}");
        });
    }
}
