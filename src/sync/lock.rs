//! The core lock: one a core, taken once a quantum by its owner and tried by thieves.
//!
//! A spin lock as in both papers (Mely §IV-A), because a critical section is some tens of
//! instructions and a futex lock would pay a second read-modify-write to unlock. Unlike the papers
//! we cannot assume a processor for each thread: a waiter yields once it has spun for longer than
//! any critical section takes, so that a holder that lost its processor gets it back. And who waits
//! goes before who only tries: of a core that posts much many thieves want something at once. It is
//! to wait for the one among them that has the lock, not for one after the other.
//!
//! Under loom it is loom's mutex: a spinning model explores spinning, and the spin lock itself has
//! a model of its own.

#[cfg(not(loom))]
pub(crate) use spin::{CoreLock, Guard};

#[cfg(loom)]
pub(crate) use modelled::{CoreLock, Guard};

#[cfg_attr(loom, allow(dead_code))]
pub(crate) mod spin {
    use crate::sync::atomic::{AtomicBool, Ordering};
    use crate::sync::{CellMut, UnsafeCell, charge, first_look, relaxed};
    use crossbeam_utils::CachePadded;
    use std::ops::{Deref, DerefMut};

    /// Spins before the first yield: some microseconds.
    const SPINS: u32 = if cfg!(loom) { 1 } else { 500 };

    /// A spin lock that yields.
    #[derive(Debug)]
    pub(crate) struct CoreLock<T> {
        pub(super) state: CachePadded<State>,
        value: UnsafeCell<T>,
    }

    /// In a line of its own: who looks at it again and again would take the value's line from its
    /// holder.
    #[derive(Debug)]
    pub(super) struct State {
        held: AtomicBool,
        /// Somebody waits. A hint.
        pub(super) wanted: relaxed::AtomicBool,
    }

    // SAFETY: the value is reached through a guard only, and `held` lets one guard live at a time.
    unsafe impl<T: Send> Sync for CoreLock<T> {}
    // SAFETY: as a plain owner of `T`.
    unsafe impl<T: Send> Send for CoreLock<T> {}

    impl<T> CoreLock<T> {
        pub(crate) fn new(value: T) -> Self {
            CoreLock {
                state: CachePadded::new(State {
                    held: AtomicBool::new(false),
                    wanted: relaxed::AtomicBool::new(false),
                }),
                value: UnsafeCell::new(value),
            }
        }

        /// Waits for the lock.
        #[inline]
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            if let Some(guard) = self.take() {
                guard
            } else {
                self.wait()
            }
        }

        #[cold]
        pub(super) fn wait(&self) -> Guard<'_, T> {
            let mut spins = 0;
            loop {
                if !self.looks_held()
                    && let Some(guard) = self.take()
                {
                    // Another that waits says so again.
                    self.state.wanted.store(false, Ordering::Relaxed);
                    return guard;
                }
                if !self.state.wanted.load(Ordering::Relaxed) {
                    self.state.wanted.store(true, Ordering::Relaxed);
                }
                if charge::wait_for_lock(&self.state.held, false, || self.is_free()) {
                    continue;
                }
                spins += 1;
                if spins < SPINS {
                    charge::pause();
                } else {
                    crate::sync::yield_now();
                }
            }
        }

        /// The lock if it is free, and nobody waits for it.
        #[inline]
        pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
            if self.looks_held() || self.state.wanted.load(Ordering::Relaxed) {
                return None;
            }
            self.take()
        }

        /// As a simulated machine looks, at no cost.
        fn is_free(&self) -> bool {
            charge::uncharged(|| !self.state.held.load(Ordering::Relaxed))
        }

        /// A look before a swap: the line stays shared while somebody else holds the lock.
        #[inline]
        fn looks_held(&self) -> bool {
            first_look(|| self.state.held.load(Ordering::Relaxed), false)
        }

        #[inline]
        fn take(&self) -> Option<Guard<'_, T>> {
            // Under loom a compare-and-swap: loom does not know that the unlocking store comes
            // after a swap that failed before it, and lets the failed swap's `true` win for ever.
            let was_held = if cfg!(loom) {
                self.state
                    .held
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            } else {
                self.state.held.swap(true, Ordering::Acquire)
            };
            if was_held {
                return None;
            }
            // SAFETY: we turned `held` from false to true, so no other guard lives.
            let value = unsafe { self.value.borrow_mut() };
            Some(Guard {
                value,
                _release: Release(&self.state.held),
            })
        }
    }

    /// The lock, held.
    //
    // Fields drop in their order: the borrow ends before the lock is released.
    #[derive(Debug)]
    pub(crate) struct Guard<'a, T> {
        value: CellMut<'a, T>,
        _release: Release<'a>,
    }

    /// Releases the lock when it is dropped.
    #[derive(Debug)]
    struct Release<'a>(&'a AtomicBool);

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        #[inline(always)]
        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            &mut self.value
        }
    }

    impl Drop for Release<'_> {
        #[inline]
        fn drop(&mut self) {
            let order = if crate::sync::fault("unlocked without a release") {
                Ordering::Relaxed
            } else {
                Ordering::Release
            };
            charge::unlock(self.0, || charge::uncharged(|| self.0.store(false, order)));
        }
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::{Mutex, MutexGuard};

    #[derive(Debug)]
    pub(crate) struct CoreLock<T>(Mutex<T>);
    pub(crate) type Guard<'a, T> = MutexGuard<'a, T>;

    impl<T> CoreLock<T> {
        pub(crate) fn new(value: T) -> Self {
            CoreLock(Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap()
        }
        pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::CoreLock;
    use crate::sync::relaxed::Ordering;
    use std::sync::Arc;

    #[test]
    fn excludes() {
        const TIMES: u64 = if cfg!(miri) { 100 } else { 10_000 };
        let lock = Arc::new(CoreLock::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = Arc::clone(&lock);
                std::thread::spawn(move || (0..TIMES).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*lock.lock(), 4 * TIMES);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn who_waits_goes_before_who_only_tries() {
        let lock = CoreLock::new(());
        lock.state.wanted.store(true, Ordering::Relaxed);
        assert!(lock.try_lock().is_none());
        drop(lock.lock());
        assert!(lock.try_lock().is_none(), "somebody still waits");
        drop(lock.wait());
        assert!(lock.try_lock().is_some());
    }

    /// Also if nobody takes it in between.
    #[test]
    fn who_waits_gets_the_lock_when_it_is_released() {
        const TIMES: u64 = if cfg!(miri) { 10 } else { 300 };
        let lock = Arc::new(CoreLock::new(0u64));
        for i in 1..=TIMES {
            let held = lock.lock();
            let other = Arc::clone(&lock);
            let waits = std::thread::spawn(move || *other.lock() += 1);
            // Mostly it waits by then, which is what this is about.
            std::thread::yield_now();
            drop(held);
            waits.join().unwrap();
            assert_eq!(*lock.lock(), i);
        }
    }
}
