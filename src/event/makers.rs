//! Makers for threads that are no cores: a few, which the threads share out among themselves.
//!
//! A thread tries one of them first, always the same, behind a lock that it mostly finds free and
//! on lines that its processor has. If another thread is in there, any that is free will do. The
//! order of a thread's posts is that of their publishing, which comes after.

use super::maker::Maker;
use super::pool::Depot;
use crate::record::{Log, Recorder};
use crate::sync::relaxed::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex};
use crossbeam_utils::CachePadded;

/// Most makers of a runtime.
const MAKERS_MAX: usize = if cfg!(loom) { 1 } else { 16 };
/// One for each 16,384 events of the limit, because each has stocks of nodes on top of it.
const EVENTS_EACH: usize = 1 << 14;

/// How many there are in a runtime with this limit of events. (A simulated runtime has one: with
/// more of them a run would depend on the numbers of threads.)
pub(crate) fn count(events_max: usize) -> usize {
    (events_max / EVENTS_EACH).clamp(1, MAKERS_MAX)
}

type MakerCell = Mutex<Option<Box<Maker>>>;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Makers {
    /// Boxed, and each made when it is used: they are large.
    pub(crate) makers: Box<[CachePadded<MakerCell>]>,
    depot: Arc<Depot>,
    /// What is made is recorded there, if anywhere.
    recorder: Option<Arc<Recorder>>,
    /// Makers that began to record.
    recorded: AtomicUsize,
}

impl Makers {
    pub(crate) fn new(count: usize, depot: &Arc<Depot>, recorder: Option<Arc<Recorder>>) -> Makers {
        Makers {
            makers: (0..count)
                .map(|_| CachePadded::new(Mutex::new(None)))
                .collect(),
            depot: Arc::clone(depot),
            recorder,
            recorded: AtomicUsize::new(0),
        }
    }

    /// With a maker that nobody else uses meanwhile.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Maker) -> R) -> R {
        self.with_from(this_thread(), f)
    }

    #[inline]
    fn with_from<R>(&self, thread: usize, f: impl FnOnce(&mut Maker) -> R) -> R {
        let count = self.makers.len();
        let free = |i: usize| self.makers[(thread + i) % count].try_lock().ok();
        let mut maker = match (0..count).find_map(free) {
            Some(maker) => maker,
            None => self.makers[thread % count].lock().unwrap(),
        };
        let maker = match &mut *maker {
            Some(maker) => maker,
            none => none.insert(self.make()),
        };
        f(maker)
    }

    #[cold]
    #[inline(never)]
    fn make(&self) -> Box<Maker> {
        let mut maker = Box::new(Maker::new(&self.depot));
        if let Some(recorder) = &self.recorder {
            let nth = self.recorded.fetch_add(1, Relaxed);
            maker.record(Log::of_outside(recorder, nth));
        }
        maker
    }

    /// Nothing more is recorded; what was is written to the file.
    pub(crate) fn end_record(&self) {
        for maker in &self.makers {
            if let Some(maker) = &mut *maker.lock().unwrap() {
                maker.end_record();
            }
        }
    }
}

/// A number for each thread.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    crate::sync::thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Relaxed);
    }
    // A thread that ends may post from the destructors of its locals; this one has none.
    NUMBER.try_with(|&number| number).unwrap_or(0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn there_are_some_where_there_is_room_for_their_stocks() {
        let limits = [1, EVENTS_EACH * 2 - 1, EVENTS_EACH * 2, 1 << 26];
        assert_eq!(limits.map(count), [1, 1, 2, MAKERS_MAX]);
        let numbers = [(); 2].map(|()| thread::spawn(this_thread).join().unwrap());
        assert_ne!(numbers[0], numbers[1]);
        assert_eq!(this_thread(), this_thread());
    }

    #[test]
    fn no_thread_waits_while_a_maker_is_free() {
        let events_max = 3 * EVENTS_EACH;
        let count = count(events_max);
        let depot = Depot::new(events_max, count);
        let makers = Arc::new(Makers::new(count, &depot, None));
        let (done, others) = channel();
        // This thread is in the first of three. One begins there too, and one elsewhere.
        makers.with_from(0, |_| {
            for thread in [3, 1] {
                let (makers, done) = (Arc::clone(&makers), done.clone());
                thread::spawn(move || done.send(makers.with_from(thread, |_| thread)));
            }
            let mut came = [(); 2].map(|()| others.recv_timeout(Duration::from_secs(20)).unwrap());
            came.sort_unstable();
            assert_eq!(came, [1, 3]);
        });
    }
}
