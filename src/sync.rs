//! The only door to std's atomics, cells, locks and threads.
//!
//! Everything the scheduler's protocols rest on is imported from here. In an ordinary build these
//! are std's types at no cost; under `--cfg loom` they are loom's, so that the models in
//! `loom-tests/` explore the very code that ships. With the feature `machine` they are those of
//! [`charged`], which are std's too, and tell a simulated machine, if one is installed, what is
//! done to which line. [`charge`] is for what has no type of its own.
//!
//! [`relaxed`] is the exception that proves the rule: counters and estimates that no protocol
//! reads. They stay std atomics even under loom, because modelling a statistic would multiply the
//! state space without being able to find a bug; nothing in there may ever decide about ownership,
//! order or sleep.

#[cfg(all(feature = "machine", not(loom)))]
#[doc(hidden)]
pub mod charged;
pub(crate) mod lock;
#[cfg(not(all(feature = "machine", not(loom))))]
mod uncharged;

#[cfg(all(feature = "machine", not(loom)))]
use self::charged as from;
#[cfg(not(all(feature = "machine", not(loom))))]
use self::uncharged as from;

/// A count that means something: whoever drops the last handle acts on it.
pub(crate) use from::Arc as CountedArc;
/// Does not count. Not modelled, since loom has none: who drops the last handle acts all the same,
/// and what an upgrade returns is a handle, or nothing once that has happened.
#[cfg(not(loom))]
pub(crate) use from::Weak as CountedWeak;
pub(crate) use from::{Condvar, Mutex, MutexGuard};
/// Keeps what a runtime's threads share alive. std's also under loom: who drops the last handle
/// does nothing that depends on it, and a branch at each clone would multiply the state space.
pub(crate) use std::sync::Arc;
#[cfg(not(loom))]
pub(crate) mod thread {
    pub(crate) use std::thread::{Builder, JoinHandle};
}
pub(crate) mod atomic {
    pub(crate) use super::from::atomic::{
        AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
    };
}

/// What costs time on a virtual core of a machine, and nothing elsewhere.
pub(crate) use from::charge;

/// Clones a handle of what all cores share, for a while. The count is a line that all of them
/// write.
#[inline(always)]
pub(crate) fn share<T>(of: &Arc<T>) -> Arc<T> {
    charge::count_of(Arc::as_ptr(of), 2);
    Arc::clone(of)
}

/// A seeded fault: true if the models ask for this one, by name, to see that they notice; always
/// false in code that ships.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn fault(_name: &str) -> bool {
    false
}
#[cfg(loom)]
pub(crate) use fault::{fault, set_fault};

/// The first look of a compare-and-swap loop. A wrong first guess costs such a loop a round and
/// nothing else, so under loom it starts with `guess`: loom would explore every old value that the
/// look could return, only to see each one fail in the compare-and-swap.
#[inline(always)]
pub(crate) fn first_look<T>(look: impl FnOnce() -> T, guess: T) -> T {
    if cfg!(loom) { guess } else { look() }
}

/// Lets others go on, in a loop that waits for them. Loom must be told, else it explores the loop
/// without end.
#[inline(always)]
pub(crate) fn yield_to_model() {
    #[cfg(loom)]
    yield_now();
}

/// `debug_assert!`, and on in models too, which are built as releases.
macro_rules! check {
    ($($argument:tt)*) => {
        if cfg!(any(debug_assertions, loom)) {
            assert!($($argument)*);
        }
    };
}
pub(crate) use check;

/// Atomics that carry statistics and estimates only; see the module text.
pub(crate) mod relaxed {
    #[cfg(not(loom))]
    use super::from::atomic;
    #[cfg(loom)]
    use std::sync::atomic;

    pub(crate) use atomic::Ordering;
    use atomic::Ordering::Relaxed;
    pub(crate) use atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

    /// A counter with one writer: adding is a load and a store, never a read-modify-write.
    #[derive(Debug, Default)]
    pub(crate) struct Counter(AtomicU64);

    impl Counter {
        #[inline]
        pub(crate) fn add(&self, n: u64) {
            self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
        }

        /// Keeps the larger of the current value and `n`.
        #[inline]
        pub(crate) fn max(&self, n: u64) {
            if n > self.0.load(Relaxed) {
                self.0.store(n, Relaxed);
            }
        }

        #[inline]
        pub(crate) fn get(&self) -> u64 {
            self.0.load(Relaxed)
        }
    }
}

pub(crate) use cell::{CellMut, UnsafeCell};

#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(not(loom))]
pub(crate) use std::thread_local;

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

#[cfg(not(loom))]
mod cell {
    use super::charge;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};
    use std::ptr::NonNull;

    /// `std::cell::UnsafeCell` behind the interface that loom's can also offer.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Exclusive access to the content.
        ///
        /// # Safety
        /// No other access to the cell may overlap the life of the returned guard.
        #[inline(always)]
        pub(crate) unsafe fn borrow_mut(&self) -> CellMut<'_, T> {
            // A cell begins with its content.
            CellMut(NonNull::from(&self.0).cast(), PhantomData)
        }

        /// The content of a cell that nobody else has.
        pub(crate) fn get_mut(&mut self) -> CellMut<'_, T> {
            CellMut(NonNull::from(self.0.get_mut()), PhantomData)
        }
    }

    /// Exclusive access to an [`UnsafeCell`]'s content.
    //
    // A pointer and not a reference, which as an argument of a function, or inside one, would claim
    // the content until that function returns, also when the guard has ended long before (`end`, a
    // lock's release).
    #[derive(Debug)]
    pub(crate) struct CellMut<'a, T>(NonNull<T>, PhantomData<&'a mut T>);

    impl<T> CellMut<'_, T> {
        /// Ends the borrow here.
        #[inline(always)]
        pub(crate) fn end(self) {}
    }

    impl<T> Deref for CellMut<'_, T> {
        type Target = T;
        #[inline(always)]
        fn deref(&self) -> &T {
            charge::read_bytes(self.0.as_ptr().cast(), size_of::<T>());
            // SAFETY: exclusive for the guard's life by the contract of `borrow_mut`.
            unsafe { self.0.as_ref() }
        }
    }

    impl<T> DerefMut for CellMut<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            charge::write_bytes(self.0.as_ptr().cast(), size_of::<T>());
            // SAFETY: as above, and `self` is borrowed exclusively.
            unsafe { self.0.as_mut() }
        }
    }
}

#[cfg(loom)]
mod cell {
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};

    /// loom's cell: every access is checked against all others in the explored execution.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        /// Exclusive access to the content.
        ///
        /// # Safety
        /// No other access to the cell may overlap the life of the returned guard.
        pub(crate) unsafe fn borrow_mut(&self) -> CellMut<'_, T> {
            CellMut(self.0.get_mut(), PhantomData)
        }

        /// The content of a cell that nobody else has.
        pub(crate) fn get_mut(&mut self) -> CellMut<'_, T> {
            CellMut(self.0.get_mut(), PhantomData)
        }
    }

    /// Exclusive access to an [`UnsafeCell`]'s content.
    #[derive(Debug)]
    pub(crate) struct CellMut<'a, T>(loom::cell::MutPtr<T>, PhantomData<&'a mut T>);

    impl<T> CellMut<'_, T> {
        /// Ends the borrow here.
        pub(crate) fn end(self) {}
    }

    impl<T> Deref for CellMut<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            // SAFETY: `borrow_mut`'s caller promised exclusive access; loom checks it.
            unsafe { self.0.deref() }
        }
    }

    impl<T> DerefMut for CellMut<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: as above, and `self` is borrowed exclusively.
            unsafe { self.0.deref() }
        }
    }
}

#[cfg(loom)]
mod fault {
    use std::sync::OnceLock;

    static FAULT: OnceLock<String> = OnceLock::new();

    /// Chooses the seeded fault of this process, once.
    pub(crate) fn set_fault(name: String) {
        FAULT.set(name).expect("one fault a process");
    }

    #[inline]
    pub(crate) fn fault(name: &str) -> bool {
        FAULT.get().is_some_and(|chosen| chosen == name)
    }
}
