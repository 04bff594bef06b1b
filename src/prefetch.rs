//! Asking for memory before it is needed, where the order of access is ours and not one that a
//! processor guesses: colors come scattered over their table, and nodes as they were freed.

/// Asks for the line at this address, without waiting for it.
#[inline(always)]
pub(super) fn line<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing and is defined for any address; it is part of SSE,
        // which x86-64 has.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
