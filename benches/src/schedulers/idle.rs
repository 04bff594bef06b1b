//! Workers that sleep, each until somebody wakes it by name.
//!
//! **Nothing is slept through.** A worker that goes to sleep says so, fences and looks once more
//! for something to do. Whoever makes something ready looks for sleepers after a fence of its own:
//! one of the two sees the other. Where the fence would cost more than all the rest, the maker
//! looks without one, which misses a sleeper of the last few nanoseconds, and looks again after the
//! next one it passes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Thread};

/// The workers that sleep; on a cache line of its own, since all who make something ready look at
/// it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Idle {
    /// How many sleep and have not been woken, for who looks without the lock.
    sleepers: AtomicUsize,
    bed: Mutex<Bed>,
}

#[derive(Debug, Default)]
struct Bed {
    sleepers: Vec<Thread>,
    ended: bool,
}

impl Idle {
    /// Something was made ready: wakes a worker, if one sleeps. A worker that was woken counts as
    /// awake at once, so the next call does not wake it a second time.
    #[inline]
    pub(super) fn ring(&self) {
        if self.sleepers.load(Relaxed) > 0 {
            self.wake_one();
        }
    }

    fn bed(&self) -> MutexGuard<'_, Bed> {
        self.bed.lock().expect("no panic while held")
    }

    fn count(&self, bed: &Bed) {
        self.sleepers.store(bed.sleepers.len(), Relaxed);
    }

    #[cold]
    fn wake_one(&self) {
        let mut bed = self.bed();
        let sleeper = bed.sleepers.pop();
        self.count(&bed);
        drop(bed);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }

    /// Sleeps until woken, or not if there is anything to do. False once the run has ended.
    pub(super) fn sleep(&self, anything: impl FnOnce() -> bool) -> bool {
        let me = thread::current();
        let mut bed = self.bed();
        if bed.ended {
            return false;
        }
        bed.sleepers.push(me.clone());
        self.count(&bed);
        drop(bed);
        fence(SeqCst);
        let mut up = anything();
        loop {
            let mut bed = self.bed();
            let mine = bed.sleepers.iter().position(|other| other.id() == me.id());
            match mine {
                None => return !bed.ended,
                Some(at) if up => {
                    bed.sleepers.remove(at);
                    self.count(&bed);
                    return !bed.ended;
                }
                Some(_) => {}
            }
            drop(bed);
            // May return too early, as after a wake that came while this was `up`.
            thread::park();
            up = false;
        }
    }

    /// The run has ended: wakes all.
    pub(super) fn end(&self) {
        let mut bed = self.bed();
        bed.ended = true;
        let sleepers = std::mem::take(&mut bed.sleepers);
        self.count(&bed);
        drop(bed);
        sleepers.iter().for_each(Thread::unpark);
    }
}
