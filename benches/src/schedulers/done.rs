//! The end of a peer's run, told by a handler to the thread that started it; and which worker a
//! thread of a peer is.

use crate::machine;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};

/// Whether the last event has run.
#[derive(Debug, Default)]
pub(super) struct Done {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    pub(super) fn tell(&self) {
        *self.done.lock().expect("no panic while held") = true;
        self.changed.notify_all();
    }

    pub(super) fn wait(&self) {
        let done = self.done.lock().expect("no panic while held");
        let waited = self.changed.wait_while(done, |done| !*done);
        drop(waited.expect("no panic while held"));
    }
}

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread is worker `number`: pins it to that core.
pub(super) fn become_worker(number: usize) {
    machine::pin(number);
    WORKER.set(number);
}

/// The number of the calling worker.
pub(super) fn worker() -> usize {
    WORKER.get()
}

/// Numbers workers in the order in which they come, for who does not number them.
#[derive(Debug, Default)]
pub(super) struct Numbers(AtomicUsize);

impl Numbers {
    pub(super) fn become_next_worker(&self) {
        become_worker(self.0.fetch_add(1, Relaxed));
    }
}
