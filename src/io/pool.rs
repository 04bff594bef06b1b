//! Receive buffers: one pool a core, lent out to handlers on any core, given back from anywhere.
//!
//! **Where a buffer is.** Whoever owns a buffer may touch its bytes. It goes from [`Home`]'s free
//! list into a [`RecvBuf`] by [`Home::fill`], to those returned when that is dropped, and home by
//! [`Home::reclaim`]. What came back last, which is warm, is filled first. Memory is allocated for
//! a buffer when no other is left.
//!
//! **Lend, never copy.** Copying small data out would keep the buffer home and cost an allocation
//! on one core and its free on another, which was measured at about the price of the returned
//! buffer's cache line, and twice the paths. So there is one path: lend.
//!
//! **No wake-up is lost.** Home says under the lock that it is starved, and then looks whether
//! something was returned before. A returner adds its buffer under the lock, and rings if home had
//! said so by then.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{Config, Doorbell};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// Behind each buffer. Most are filled by little more than this; if all began at a multiple of a
/// page, the beginnings, which is all that is touched, would share a handful of the cache's sets.
const SKEW_BYTES: usize = 128;

/// A buffer, wherever it is. In a box, because a [`RecvBuf`] is part of events, whose memory is
/// scarce.
struct Buffer(Box<Bytes>);

struct Bytes {
    /// While it is lent: who lent it.
    pool: Option<Arc<BufferPool>>,
    bytes: Box<[u8]>,
}

/// The part of a pool that home and all its [`RecvBuf`]s share.
struct BufferPool {
    returned: Mutex<Returned>,
    /// Whether anything was returned: written with the lock held, and read without.
    any_returned: AtomicBool,
    doorbell: Doorbell,
}

/// What is on its way home.
#[derive(Default)]
struct Returned {
    buffers: Vec<Buffer>,
    /// Home has readers waiting and no buffer for them: ring its doorbell on return.
    starved: bool,
}

impl BufferPool {
    fn give_back(&self, buffer: Buffer) {
        let starved = {
            let mut returned = self.returned.lock().unwrap();
            returned.buffers.push(buffer);
            self.any_returned.store(true, Ordering::Relaxed);
            std::mem::take(&mut returned.starved)
        };
        if starved {
            self.doorbell.ring();
        }
    }

    /// Whether something was returned: one load.
    fn has_returned(&self) -> bool {
        self.any_returned.load(Ordering::Relaxed)
    }

    /// Home takes back what was returned.
    fn take_returned(&self, free: &mut Vec<Buffer>) {
        if !self.has_returned() {
            return;
        }
        let mut returned = self.returned.lock().unwrap();
        free.append(&mut returned.buffers);
        returned.starved = false;
        self.any_returned.store(false, Ordering::Relaxed);
    }

    /// Home says that it is starved: the next return rings the doorbell. One that came before is
    /// what [`BufferPool::has_returned`] says from now on.
    fn mark_starved(&self) {
        self.returned.lock().unwrap().starved = true;
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
    buffer: Option<Buffer>,
    /// At most the buffer's.
    len: u32,
}

impl RecvBuf {
    /// The end of the stream.
    pub(crate) fn end() -> RecvBuf {
        RecvBuf {
            buffer: None,
            len: 0,
        }
    }

    /// Whether this says that the peer will send no more.
    pub(crate) fn is_end(&self) -> bool {
        self.len == 0
    }

    /// Bytes that belong to no pool.
    #[cfg(feature = "tls")]
    pub(crate) fn owned(bytes: Vec<u8>) -> RecvBuf {
        let len = u32::try_from(bytes.len()).expect("a few records");
        RecvBuf {
            buffer: Some(Buffer(Box::new(Bytes {
                pool: None,
                bytes: bytes.into(),
            }))),
            len,
        }
    }

    /// Puts these bytes into the buffer instead of its own. False: it has no room for them.
    #[cfg(feature = "tls")]
    pub(crate) fn refill(&mut self, bytes: &[u8]) -> bool {
        let Some(buffer) = &mut self.buffer else {
            return bytes.is_empty();
        };
        let Some(room) = buffer.0.bytes.get_mut(..bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.len = bytes.len() as u32;
        true
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer.0.bytes[..self.len as usize],
            None => &[],
        }
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for RecvBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut buffer.0.bytes[..self.len as usize],
            None => &mut [],
        }
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        if let Some(mut buffer) = self.buffer.take()
            && let Some(pool) = buffer.0.pool.take()
        {
            pool.give_back(buffer);
        }
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.len)
    }
}

/// Home's side of a pool.
pub(super) struct Home {
    pool: Arc<BufferPool>,
    free: Vec<Buffer>,
    /// Buffers that have no memory yet: a core that needs few touches few pages.
    unborn: usize,
    buffer_bytes: usize,
}

impl Home {
    /// With all buffers at home. `config` has been checked.
    pub(super) fn new(config: &Config, doorbell: Doorbell) -> Home {
        let pool = BufferPool {
            returned: Mutex::default(),
            any_returned: AtomicBool::new(false),
            doorbell,
        };
        Home {
            pool: Arc::new(pool),
            free: Vec::new(),
            unborn: config.buffers.into(),
            buffer_bytes: config.buffer_bytes as usize,
        }
    }

    /// Takes back what was returned.
    pub(super) fn reclaim(&mut self) {
        self.pool.take_returned(&mut self.free);
    }

    /// Whether [`Home::fill`] would find a buffer, now or after [`Home::reclaim`]: one load.
    pub(super) fn has_free(&self) -> bool {
        self.free() > 0 || self.pool.has_returned()
    }

    /// Buffers at home, not counting returned ones that were not reclaimed.
    pub(super) fn free(&self) -> usize {
        self.free.len() + self.unborn
    }

    /// Announces that readers wait for a buffer: the next return rings. Before a look at
    /// [`Home::has_free`], which then sees what was returned already.
    pub(super) fn starve(&self) {
        self.pool.mark_starved();
    }

    /// A free buffer.
    fn take(&mut self) -> Option<Buffer> {
        if self.free.is_empty() {
            self.reclaim();
        }
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        self.unborn = self.unborn.checked_sub(1)?;
        Some(Buffer(Box::new(Bytes {
            pool: None,
            bytes: vec![0; self.buffer_bytes + SKEW_BYTES].into(),
        })))
    }

    /// Fills a free buffer by `receive`, which says how many bytes it put there. `None` when there
    /// is no buffer, and `receive` was not called.
    pub(super) fn fill<E>(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<RecvBuf, E>> {
        let mut buffer = self.take()?;
        let received = receive(&mut buffer.0.bytes[..self.buffer_bytes]);
        if let Ok(len @ 1..) = received {
            buffer.0.pool = Some(Arc::clone(&self.pool));
            return Some(Ok(RecvBuf {
                buffer: Some(buffer),
                // More could only come from a broken kernel.
                len: len.min(self.buffer_bytes) as u32,
            }));
        }
        self.free.push(buffer);
        Some(received.map(|_| RecvBuf::end()))
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Home({} free of {} bytes)",
            self.free(),
            self.buffer_bytes
        )
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
        assert_eq!((home.free.len(), home.unborn), (64, 0));
    }
}
