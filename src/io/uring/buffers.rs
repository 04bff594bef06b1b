//! The ring of provided buffers: home's side of the pool, as the kernel wants it.
//!
//! The kernel takes buffers in the order in which they were handed over, so a ring with all of them would
//! walk through the whole pool, and each receive would fill memory that has long left the caches. So
//! only a *window* of them is in the ring, those that came home last. It widens when the kernel finds
//! the ring empty, and narrows again by and by.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use super::super::{Config, Pool, RecvBuf};
use crate::sync::Arc;

/// The only buffer group of the ring.
pub(super) const GROUP: u16 = 0;

/// The narrowest window.
const WINDOW_MIN: usize = 64;
/// The window narrows after so many buffers during which it was wide enough.
const PATIENCE: u32 = 8192;

/// The pool's buffers, handed to the kernel.
pub(super) struct Provided {
    pool: Arc<Pool>,
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    /// Home, and not in the ring; the last one came home last.
    spare: Vec<u16>,
    /// So many buffers are to be in the ring.
    window: usize,
    /// Buffers lent since the window was looked at.
    lent: u32,
    /// Entries minus one.
    mask: u16,
    /// Where the next buffer goes, and how far the kernel has been told. Wrapping.
    tail: u16,
    published: u16,
    /// Buffers handed over whose use no completion has told us yet: as many as the kernel has, or
    /// more by those in completions not yet reaped.
    available: usize,
}

impl Provided {
    /// Registers a ring and hands over the first buffers.
    pub(super) fn new(ring: &IoUring, pool: Arc<Pool>, config: &Config) -> io::Result<Provided> {
        let count = config.buffers;
        let bytes = usize::from(count) * mem::size_of::<BufRingEntry>();
        // The kernel maps it by whole pages, and must share none with other data.
        let layout = Layout::from_size_align(bytes.next_multiple_of(4096), 4096)
            .expect("at most 2^15 entries of 16 bytes, checked");
        // SAFETY: the layout is not of size 0: the count was checked to be positive.
        let entries = unsafe { alloc_zeroed(layout) };
        let Some(entries) = NonNull::new(entries.cast()) else {
            handle_alloc_error(layout)
        };
        let mut provided = Provided {
            pool,
            entries,
            layout,
            spare: (0..count).rev().collect(),
            window: WINDOW_MIN.min(count.into()),
            lent: 0,
            mask: count - 1,
            tail: 0,
            published: 0,
            available: 0,
        };
        let address = entries.as_ptr() as u64;
        // SAFETY: page-aligned memory for `count` entries. It is freed when `provided` is dropped:
        // here if registering fails, and otherwise after `unregister` or after the ring is gone with
        // nothing under way, since `Uring` drops its ring first; if the kernel would not let go,
        // `leak` keeps it forever.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, GROUP, 0)
        }
        .map_err(|error| io::Error::new(error.kind(), format!("provided buffers: {error}")))?;
        provided.top_up();
        Ok(provided)
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// See the field.
    pub(super) fn available(&self) -> usize {
        self.available
    }

    /// Buffer `id`, which is home, goes to the kernel with the next `publish`.
    fn add(&mut self, id: u16) {
        debug_assert!(
            self.available <= usize::from(self.mask),
            "more buffers than there are"
        );
        // SAFETY: masked, so within the entries. The kernel only reads them, and this one not before
        // it is published: at most as many buffers as entries exist, so the slot is not one that
        // is published and unused.
        let entry = unsafe {
            self.entries
                .add(usize::from(self.tail & self.mask))
                .as_mut()
        };
        entry.set_addr(self.pool.start_of(id).as_ptr() as u64);
        entry.set_len(self.pool.buffer_bytes() as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.available += 1;
    }

    /// Takes back what `RecvBuf`s have returned, and tells the kernel: one store for all.
    pub(super) fn reclaim(&mut self) {
        if self.pool.has_returned() {
            let spare = &mut self.spare;
            self.pool.take_returned(|id| spare.push(id));
        }
        self.top_up();
    }

    /// The kernel found the ring empty.
    pub(super) fn widen(&mut self) {
        self.window = (2 * self.window).min(usize::from(self.mask) + 1);
        self.lent = 0;
        self.top_up();
    }

    /// Fills the ring up to the window.
    fn top_up(&mut self) {
        if self.lent >= PATIENCE {
            self.lent = 0;
            self.window = (self.window / 2).max(WINDOW_MIN.min(usize::from(self.mask) + 1));
        }
        while self.available < self.window
            && let Some(id) = self.spare.pop()
        {
            self.add(id);
        }
        self.publish();
    }

    fn publish(&mut self) {
        if self.tail == self.published {
            return;
        }
        self.published = self.tail;
        // SAFETY: `entries` is the first entry of the registered ring, initialized (born zeroed).
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: valid and aligned for as long as `self`; on our side only this function, on the
        // home thread, writes it, and the kernel reads it with an acquiring load. `BufRingEntry` of
        // the first entry overlaps it, but `add` writes other fields of it and on this same thread.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the entries before the tail.
        tail.store(self.tail, Ordering::Release);
    }

    /// A completion says that `len` bytes are in buffer `id`.
    ///
    /// # Safety
    ///
    /// `id` comes from a completion entry reaped just now, and from no other before it since the
    /// buffer was added: that is how the kernel says that it has let go of it.
    pub(super) unsafe fn lend(&mut self, id: u16, len: usize) -> RecvBuf {
        self.available -= 1;
        self.lent += 1;
        // SAFETY: the buffer left the kernel's ring with the completion, as the caller assures.
        unsafe { Pool::lend(&self.pool, id, len) }
    }

    /// A completion carries buffer `id` with nothing in it that anybody wants.
    pub(super) fn back(&mut self, id: u16) {
        self.available -= 1;
        self.spare.push(id);
    }

    /// Nothing is under way any more: the kernel forgets the entries.
    pub(super) fn unregister(&mut self, ring: &IoUring) {
        // If it fails, dropping the ring, before us, does it.
        let _ = ring.submitter().unregister_buf_ring(GROUP);
    }

    /// The kernel may still write: neither the buffers nor the entries are ever freed.
    pub(super) fn leak(&mut self) {
        mem::forget(Arc::clone(&self.pool));
        self.layout = Layout::new::<()>();
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: allocated in `new` with this layout, and not leaked; the ring is gone or has
            // unregistered it.
            unsafe { dealloc(self.entries.as_ptr().cast(), self.layout) }
        }
    }
}

impl fmt::Debug for Provided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} available", self.pool, self.available)
    }
}
