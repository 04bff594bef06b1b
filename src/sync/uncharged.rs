//! What there is without the feature `machine`: std's types, or loom's, and charges that are nothing.

#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic};

/// The functions of `charged::charge` that the runtime calls.
#[allow(dead_code, reason = "which of them are called depends on the features")]
pub(crate) mod charge {
    #[inline(always)]
    pub(crate) fn is_charged() -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn read_bytes(_: *const u8, _: usize) {}
    #[inline(always)]
    pub(crate) fn reach<T: ?Sized>(_: *const T) {}
    #[inline(always)]
    pub(crate) fn write_bytes(_: *const u8, _: usize) {}
    #[inline(always)]
    pub(crate) fn count_of<T>(_: *const T, _: usize) {}
    #[inline(always)]
    pub(crate) fn prefetch<T>(_: *const T) {}
    #[inline(always)]
    pub(crate) fn prefetch_to_write<T>(_: *const T) {}
    #[inline(always)]
    pub(crate) fn name_next(_: *const u8, _: usize, _: &str) {}
    #[inline(always)]
    pub(crate) fn unlock<T>(_: *const T, release: impl FnOnce()) {
        release();
    }
    #[inline(always)]
    pub(crate) fn wait_for_lock<T>(
        _: *const T,
        _asleep: bool,
        _is_free: impl Fn() -> bool,
    ) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn post() {}
    #[inline(always)]
    pub(crate) fn run() {}
    #[inline(always)]
    pub(crate) fn send() {}
    #[inline(always)]
    pub(crate) fn turn() {}
    #[inline(always)]
    pub(crate) fn queue() {}
    #[inline(always)]
    pub(crate) fn step() {}
    #[inline(always)]
    pub(crate) fn work_ns(_: u64) {}
    #[inline(always)]
    pub(crate) fn pause() {
        std::hint::spin_loop();
    }
    #[inline(always)]
    pub(crate) fn uncharged<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    /// There is no virtual core, and no clock of one.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum CoreClock {}

    impl CoreClock {
        #[inline(always)]
        pub(crate) fn now_ns(self) -> u64 {
            match self {}
        }
    }

    /// As [`CoreClock`].
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum FreeClock {}

    impl FreeClock {
        #[inline(always)]
        pub(crate) fn now_ns(&self) -> u64 {
            match *self {}
        }
    }

    /// Nothing is kept.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Due;

    impl Due {
        pub(crate) const NEVER: Due = Due;

        #[inline(always)]
        pub(crate) fn or_at(&mut self, _at_ns: u64) {}
    }
}
