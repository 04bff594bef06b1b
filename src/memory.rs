//! Memory: asked for before it is needed, had without being written, and written in its place.

use crate::sync::charge;

/// Returns a box with the value of `make`, which may be large. Allocated before the call, an
/// optimizing compiler has the call write into the box; for `Box::new` it copies the value.
#[inline(always)]
pub(super) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// From where a core is to what it asks for. Row: `fan-in64` with 65,536 waiting.
pub(super) const PREFETCH_LEAD: u32 = if cfg!(loom) { 2 } else { 8 };

/// Asks for the line at this address, without waiting for it: where the order of access is ours and
/// not one that a processor guesses. Colors come scattered over their table, and nodes as they were
/// freed.
#[inline(always)]
pub(super) fn prefetch<T>(at: *const T) {
    charge::prefetch(at);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing and is defined for any address; it is part of SSE,
        // which x86-64 has.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

/// The same of a line that is about to be written: with the right to write it. A line that is
/// asked for to be read, and that the core which has it has not written, is copied; to write it
/// then takes as long as to bring it, and several of them longer than if none had been asked for.
#[inline(always)]
pub(super) fn prefetch_to_write<T>(at: *const T) {
    charge::prefetch_to_write(at);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch accesses nothing and is defined for any address. AMD's processors have
    // this one, and Intel's since Broadwell; those before take it as no operation, but for the
    // first ones of 64 bits (2004), which know nothing of it. (The intrinsic of it compiles to a
    // prefetch to read, unless the compiler is told that the processor has it.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

/// What has a meaning when all its bytes are zero. The system provides such memory page by page, as
/// it is used.
///
/// # Safety
/// All-zero bytes are a valid value.
pub(super) unsafe trait Zeroed {}

/// This many values of all-zero bytes.
pub(super) fn zeroed<T: Zeroed>(count: usize) -> Box<[T]> {
    // SAFETY: by the trait's promise.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}
