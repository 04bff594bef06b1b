//! Receive buffers: one pool a core, lent out to handlers on any core, given back from anywhere.
//!
//! **Where a buffer is.** Each is in exactly one place: at home (on [`Home`]'s free list), in one
//! [`RecvBuf`], or on the stack of returned ones. Whoever has it may touch its bytes and nobody
//! else does. It goes from home to a `RecvBuf` by [`Home::fill`], to the stack when that is
//! dropped, and home by [`Home::reclaim`]. What came back last, which is warm, is filled first.
//!
//! **Lend, never copy.** Copying small data out would keep the buffer home and cost an allocation
//! on one core and its free on another, which was measured at about the price of the returned
//! buffer's cache line, and twice the paths. So there is one path: lend.
//!
//! **The word.** The stack's head shares a word with the mark STARVED, and both sides change it by
//! read-modify-write only, which is why no wake-up can be lost: home sets the mark and sees in the
//! same step whether something was returned before; a returner pushes and sees in the same step
//! whether home had set the mark, and then, having cleared it, rings.
//! No ABA: home takes the whole stack or nothing.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{Config, Doorbell};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Between two buffers. Most are filled by little more than this; if all began at a multiple of a
/// page, the beginnings, which is all that is touched, would share a handful of the cache's sets.
const SKEW_BYTES: usize = 128;

/// Home has readers waiting and no buffer for them: ring its doorbell on return.
const STARVED: u64 = 1 << 32;

/// The part of a pool that home and all its [`RecvBuf`]s share.
///
/// The head comes first so that it lies next to the reference count: a return from another core
/// then moves one cache line, not two.
#[repr(C)]
struct Pool {
    /// Low half: the last returned buffer plus one, 0 for none. Then the mark.
    head: AtomicU64,
    /// For each returned buffer the one returned before it, in the same spelling.
    below: Box<[AtomicU32]>,
    bytes: NonNull<u8>,
    layout: Layout,
    buffer_bytes: usize,
    doorbell: Doorbell,
}

// SAFETY: `bytes` is the only field that is not Send and Sync by itself. It is owned by the pool,
// and the rule at the top of the file gives each part of it to one place at a time; the hand-overs
// are release-acquire through `head` (or the move of a `RecvBuf`).
unsafe impl Send for Pool {}
// SAFETY: as above; through `&Pool` the bytes are reached only by `unsafe` functions whose callers
// answer for the rule.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool with all buffers at home. `config` has been checked.
    fn new(config: &Config, doorbell: Doorbell) -> Arc<Pool> {
        let buffer_bytes = config.buffer_bytes as usize;
        let total_bytes = (buffer_bytes + SKEW_BYTES) * usize::from(config.buffers);
        let layout = Layout::from_size_align(total_bytes, 4096)
            .expect("at most 2^15 buffers of 2^20 bytes, checked");
        // SAFETY: the layout is not of size 0: both factors were checked to be positive.
        let bytes = unsafe { alloc_zeroed(layout) };
        let Some(bytes) = NonNull::new(bytes) else {
            handle_alloc_error(layout)
        };
        Arc::new(Pool {
            head: AtomicU64::new(0),
            below: (0..config.buffers).map(|_| AtomicU32::new(0)).collect(),
            bytes,
            layout,
            buffer_bytes,
            doorbell,
        })
    }

    fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Where buffer `id` begins.
    fn start_of(&self, id: u16) -> NonNull<u8> {
        assert!(
            usize::from(id) < self.below.len(),
            "there is no buffer {id}"
        );
        // SAFETY: within the allocation, by the assertion.
        unsafe {
            self.bytes
                .add(usize::from(id) * (self.buffer_bytes + SKEW_BYTES))
        }
    }

    /// Lends buffer `id`, whose first `len` bytes were received into it.
    ///
    /// # Safety
    ///
    /// The buffer is at home, and has just left the free list: nobody writes to it until it has
    /// been returned.
    unsafe fn lend(pool: &Arc<Pool>, id: u16, len: usize) -> RecvBuf {
        debug_assert!(usize::from(id) < pool.below.len() && len <= pool.buffer_bytes);
        // A `len` beyond the buffer could only come from a broken kernel; it must not become a
        // slice beyond it.
        let len = len.min(pool.buffer_bytes) as u32;
        RecvBuf {
            home: Some(Arc::clone(pool)),
            id,
            len,
        }
    }

    fn give_back(&self, id: u16) {
        let mut old = self.head.load(Ordering::Relaxed);
        loop {
            self.below[usize::from(id)].store(old as u32, Ordering::Relaxed);
            let new = u64::from(id) + 1;
            match self
                .head
                .compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old & STARVED != 0 {
            self.doorbell.ring();
        }
    }

    /// Whether something was returned: one load.
    fn has_returned(&self) -> bool {
        self.head.load(Ordering::Relaxed) as u32 != 0
    }

    /// Home takes back what was returned. Only home calls it: two takers would still be sound, but
    /// the mark would be lost.
    fn take_returned(&self, mut each: impl FnMut(u16)) {
        if !self.has_returned() {
            return;
        }
        let mut top = self.head.swap(0, Ordering::AcqRel) as u32;
        while top != 0 {
            let id = (top - 1) as u16;
            top = self.below[usize::from(id)].load(Ordering::Relaxed);
            each(id);
        }
    }

    /// Home says that it is starved: the next return rings the doorbell. One that came before is
    /// what [`Pool::has_returned`] says from now on.
    fn mark_starved(&self) {
        self.head.fetch_or(STARVED, Ordering::AcqRel);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. The last reference is gone: home held one,
        // and each `RecvBuf` does.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pool({} x {} bytes)",
            self.below.len(),
            self.buffer_bytes
        )
    }
}

/// Received bytes, in a buffer on loan from the core that received them.
///
/// May be kept, sent to another thread and dropped there, also after the runtime has ended;
/// dropping it gives the buffer back. Buffers are finite: a core whose buffers are all kept stops
/// receiving until one returns. Length 0 is the end of the stream. A [`SendBuf`](super::SendBuf) is
/// made of it without a copy.
pub struct RecvBuf {
    /// `None`: no buffer, length 0.
    home: Option<Arc<Pool>>,
    id: u16,
    len: u32,
}

impl RecvBuf {
    /// The end of the stream.
    pub(super) fn end() -> RecvBuf {
        RecvBuf {
            home: None,
            id: 0,
            len: 0,
        }
    }

    /// Whether this says that the peer will send no more.
    pub fn is_end(&self) -> bool {
        self.len == 0
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Some(pool) = &self.home else { return &[] };
        // SAFETY: `lend` gave this guard alone the buffer, initialized (the pool is born zeroed)
        // and with `len` within it; it is returned only in `drop`.
        unsafe { std::slice::from_raw_parts(pool.start_of(self.id).as_ptr(), self.len as usize) }
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for RecvBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(pool) = &self.home else {
            return &mut [];
        };
        let start = pool.start_of(self.id).as_ptr();
        // SAFETY: as in `deref`; the guard is borrowed mutably, so this is the only slice.
        unsafe { std::slice::from_raw_parts_mut(start, self.len as usize) }
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        if let Some(pool) = &self.home {
            pool.give_back(self.id);
        }
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.len)
    }
}

/// Home's side of a pool.
#[derive(Debug)]
pub(super) struct Home {
    pool: Arc<Pool>,
    free: Vec<u16>,
}

impl Home {
    pub(super) fn new(config: &Config, doorbell: Doorbell) -> Home {
        // The lowest ids on top, so that a core that needs few buffers touches few pages.
        Home {
            pool: Pool::new(config, doorbell),
            free: (0..config.buffers).rev().collect(),
        }
    }

    /// Takes back what was returned.
    pub(super) fn reclaim(&mut self) {
        self.pool.take_returned(|id| self.free.push(id));
    }

    /// Whether [`Home::fill`] would find a buffer, now or after [`Home::reclaim`]: one load.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty() || self.pool.has_returned()
    }

    /// Buffers at home, not counting returned ones that were not reclaimed.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Announces that readers wait for a buffer: the next return rings. Before a look at
    /// [`Home::has_free`], which then sees what was returned already.
    pub(super) fn starve(&self) {
        self.pool.mark_starved();
    }

    /// Fills a free buffer by `receive`, which says how many bytes it put there. `None` when there
    /// is no buffer, and `receive` was not called.
    pub(super) fn fill<E>(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<RecvBuf, E>> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let id = *self.free.last()?;
        let start = self.pool.start_of(id).as_ptr();
        // SAFETY: the buffer is on the free list, that is at home, with no other user; initialized
        // since the pool is born zeroed; and `start_of` checked that it is within the pool.
        let buffer = unsafe { std::slice::from_raw_parts_mut(start, self.pool.buffer_bytes()) };
        Some(match receive(buffer) {
            Ok(0) => Ok(RecvBuf::end()),
            Ok(len) => {
                self.free.pop();
                // SAFETY: it was at home and has just left the free list.
                Ok(unsafe { Pool::lend(&self.pool, id, len) })
            }
            Err(error) => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SendBuf;

    fn home(buffers: u16) -> Home {
        let config = Config {
            buffers,
            buffer_bytes: 64,
            ..Config::default()
        };
        Home::new(&config, Doorbell::flag())
    }

    fn fill(home: &mut Home, byte: u8) -> Option<RecvBuf> {
        home.fill(|space| {
            space[..3].fill(byte);
            Ok::<usize, ()>(3)
        })
        .map(|res| res.unwrap())
    }

    #[test]
    fn a_buffer_is_lent_to_one_guard_and_comes_back() {
        let mut home = home(2);
        let (one, two) = (fill(&mut home, 1).unwrap(), fill(&mut home, 2).unwrap());
        assert!(fill(&mut home, 3).is_none());
        assert_eq!((&*one, &*two), (&[1; 3][..], &[2; 3][..]));
        drop(one);
        let mut three = fill(&mut home, 3).unwrap();
        three[0] = 9;
        assert_eq!((&*two, &*three), (&[2; 3][..], &[9, 3, 3][..]));
    }

    /// What was received goes out as it is, and comes home when it has.
    #[test]
    fn a_buffer_to_send_comes_back_when_it_waits_or_is_dropped() {
        let mut home = home(1);
        let received = fill(&mut home, 7).unwrap();
        let at = received.as_ptr();
        let mut sent = SendBuf::from(received);
        assert_eq!((&*sent, sent.as_ptr()), (&[7; 3][..], at));
        sent.skip(1);
        let copy = sent.clone();
        assert_eq!((&*sent, &*copy), (&[7; 2][..], &[7; 2][..]));
        assert_eq!(sent.as_ptr(), at.wrapping_add(1));
        assert!(fill(&mut home, 8).is_none(), "it counts as lent");
        let lasting = sent.into_lasting();
        assert!(fill(&mut home, 8).is_some(), "what waits is no loan");
        assert_eq!(&*lasting, [7; 2]);
        drop(SendBuf::from(fill(&mut home, 9).unwrap()));
        assert!(fill(&mut home, 8).is_some());
        assert_eq!(&*copy, [7; 2], "a copy is no loan");
        assert_eq!(copy.into_vec(), Some(vec![7; 2]));
        assert!(SendBuf::from(RecvBuf::end()).is_empty());
    }

    #[test]
    fn guards_outlive_the_backend() {
        let mut home = home(4);
        let kept = fill(&mut home, 7).unwrap();
        drop(home);
        let back = std::thread::spawn(move || kept.to_vec()).join().unwrap();
        assert_eq!(back, [7; 3]);
    }

    #[test]
    fn only_a_starved_home_is_rung() {
        let mut home = home(1);
        let bell = home.pool.doorbell.clone();
        drop(fill(&mut home, 1));
        assert!(!bell.take_flag(), "nobody was waiting");
        let kept = fill(&mut home, 2).unwrap();
        home.starve();
        assert!(!home.has_free());
        drop(kept);
        assert!(bell.take_flag());
        home.starve();
        assert!(
            home.has_free(),
            "one was returned: take it instead of sleeping"
        );
        drop(fill(&mut home, 3));
        assert!(!bell.take_flag(), "the mark is for one return");
    }

    #[test]
    fn returns_from_many_threads_lose_nothing() {
        let mut home = home(64);
        for round in 0..if cfg!(miri) { 3 } else { 200u8 } {
            let lent: Vec<RecvBuf> = (0..64).map(|_| fill(&mut home, round).unwrap()).collect();
            assert!(fill(&mut home, 0).is_none());
            std::thread::scope(|scope| {
                let mut lent = lent.into_iter();
                for _ in 0..4 {
                    let part: Vec<RecvBuf> = lent.by_ref().take(16).collect();
                    scope.spawn(move || {
                        // By the byte: a comparison of slices is a call that ThreadSanitizer skips.
                        let is_ours = |buf: &RecvBuf| buf.iter().all(|&byte| byte == round);
                        assert!(part.iter().all(is_ours));
                    });
                }
                // Meanwhile home writes again what they have just given up.
                for _ in 0..64 {
                    while fill(&mut home, 0).is_none() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        home.reclaim();
        home.free.sort_unstable();
        assert!(home.free.iter().copied().eq(0..64));
    }
}
