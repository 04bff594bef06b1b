//! std's atomics, with a charge on a virtual core.

#![doc(hidden)]

use super::charge;
use std::fmt;
use std::sync::atomic as std_atomic;

pub use std::sync::atomic::Ordering;

/// A fence; one that all stores wait for if it is sequentially consistent.
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        charge::fence();
    }
    std_atomic::fence(order);
}

macro_rules! atomic {
    ($name:ident, $of:ty $(, $generic:ident)?) => {
        /// As std's.
        #[repr(transparent)]
        pub struct $name$(<$generic>)?(std_atomic::$name$(<$generic>)?);

        impl$(<$generic>)? $name$(<$generic>)? {
            /// As std's.
            #[inline]
            pub const fn new(value: $of) -> Self {
                Self(std_atomic::$name::new(value))
            }

            /// As std's.
            #[inline]
            pub fn load(&self, order: Ordering) -> $of {
                charge::load(self);
                self.0.load(order)
            }

            /// As std's.
            #[inline]
            pub fn store(&self, value: $of, order: Ordering) {
                charge::store(self);
                self.0.store(value, order);
            }

            /// As std's.
            #[inline]
            pub fn swap(&self, value: $of, order: Ordering) -> $of {
                charge::rmw(self);
                self.0.swap(value, order)
            }

            /// As std's.
            ///
            /// # Errors
            /// As std's.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                charge::rmw(self);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As std's.
            ///
            /// # Errors
            /// As std's.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                charge::rmw(self);
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// As std's.
            ///
            /// # Errors
            /// As std's.
            #[inline]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl FnMut($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                charge::rmw(self);
                self.0.fetch_update(set, fetch, f)
            }

            /// As std's.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $of {
                self.0.get_mut()
            }

            /// As std's.
            #[inline]
            pub fn into_inner(self) -> $of {
                self.0.into_inner()
            }
        }

        impl$(<$generic>)? fmt::Debug for $name$(<$generic>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! fetches {
    ($name:ident, $of:ty, $($method:ident)*) => {
        impl $name {
            $(
                /// As std's.
                #[inline]
                pub fn $method(&self, value: $of, order: Ordering) -> $of {
                    charge::rmw(self);
                    self.0.$method(value, order)
                }
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$of>::default())
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU8, u8);
atomic!(AtomicU16, u16);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
atomic!(AtomicPtr, *mut T, T);
fetches!(AtomicBool, bool, fetch_or fetch_and fetch_xor);
fetches!(AtomicU8, u8, fetch_or fetch_and fetch_add fetch_sub fetch_max);
fetches!(AtomicU16, u16, fetch_or fetch_and fetch_add fetch_sub fetch_max);
fetches!(AtomicU32, u32, fetch_or fetch_and fetch_add fetch_sub fetch_max);
fetches!(AtomicU64, u64, fetch_or fetch_and fetch_add fetch_sub fetch_max);
fetches!(AtomicUsize, usize, fetch_or fetch_and fetch_add fetch_sub fetch_max);
