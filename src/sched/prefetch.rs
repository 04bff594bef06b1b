//! Asking for memory before it is needed, where the order of access is ours and not one that a processor
//! guesses: colors come scattered over their table, and nodes as they were freed.

use std::ptr::NonNull;

/// Asks for a line that will be written, which spares a second trip where another core has it.
#[inline(always)]
pub(super) fn to_write<T>(at: NonNull<T>) {
    ask(at.as_ptr());
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn ask<T>(at: *const T) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    // SAFETY: a prefetch accesses nothing and is defined for any address; this one is no operation where the
    // processor does not know it.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn ask<T>(_at: *const T) {}
