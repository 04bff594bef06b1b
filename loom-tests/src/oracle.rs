//! What every model checks of its events.

use loom::cell::UnsafeCell;
use mely::{Color, Cx};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Colors of a model: small values, each a slot of its own.
const COLORS: usize = 8;

/// The judge of a model. Per color it keeps a log in a loom cell which every event of the color
/// writes: two at once, or one that does not see what the one before wrote, are violations that loom
/// reports itself.
#[derive(Debug)]
pub struct Oracle {
    logs: [UnsafeCell<Vec<Mark>>; COLORS],
    payloads: Arc<AtomicUsize>,
}

// SAFETY: the cells are checked by loom, which is what they are for: an access that overlaps with
// another is reported and not performed.
unsafe impl Sync for Oracle {}
// SAFETY: as above; everything else in here is `Send`.
unsafe impl Send for Oracle {}

/// An event: who posted it and as which of that poster's events.
type Mark = (u32, u32);

/// What an event carries: counted, so that none is lost or dropped twice.
#[derive(Debug)]
pub struct Payload {
    mark: Mark,
    alive: Arc<AtomicUsize>,
}

impl Payload {
    fn new(mark: Mark, alive: &Arc<AtomicUsize>) -> Payload {
        alive.fetch_add(1, Ordering::Relaxed);
        Payload {
            mark,
            alive: Arc::clone(alive),
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        let before = self.alive.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "ORACLE: a payload was dropped twice");
    }
}

impl Oracle {
    /// A judge that has seen nothing.
    #[allow(
        clippy::new_without_default,
        reason = "an Arc is what every model needs"
    )]
    pub fn new() -> Arc<Oracle> {
        Arc::new(Oracle {
            logs: std::array::from_fn(|_| UnsafeCell::new(Vec::new())),
            payloads: Arc::new(AtomicUsize::new(0)),
        })
    }

    /// The `number`-th event of `poster`: logs itself when it runs.
    pub fn event(
        self: &Arc<Oracle>,
        poster: u32,
        number: u32,
    ) -> impl FnOnce(&mut Cx) + Send + 'static {
        let oracle = Arc::clone(self);
        let payload = Payload::new((poster, number), &self.payloads);
        move |cx| oracle.ran(cx.color(), payload)
    }

    fn ran(&self, color: Color, payload: Payload) {
        self.logs[color.value() as usize].with_mut(|log| {
            // SAFETY: loom checks that this access overlaps with no other.
            let log = unsafe { &mut *log };
            log.push(payload.mark);
        });
    }

    /// The events that ran in `color`, in order. Called when every thread has been joined, or by
    /// an event of the color.
    pub fn log(&self, color: Color) -> Vec<(u32, u32)> {
        self.logs[color.value() as usize].with(|log| {
            // SAFETY: loom checks that no write overlaps.
            unsafe { (*log).clone() }
        })
    }

    /// Each of `posts` (poster, number of events) ran in `color` exactly once, those of each poster
    /// in order, and nothing else ran.
    ///
    /// # Panics
    /// If not.
    pub fn assert_ran(&self, color: Color, posts: &[(u32, u32)]) {
        let log = self.log(color);
        let total: u32 = posts.iter().map(|&(_, events)| events).sum();
        assert_eq!(
            log.len(),
            total as usize,
            "ORACLE: events lost or run twice in {color:?}: {log:?} of {posts:?}"
        );
        for &(poster, events) in posts {
            let order: Vec<u32> = log
                .iter()
                .filter(|mark| mark.0 == poster)
                .map(|mark| mark.1)
                .collect();
            let expected: Vec<u32> = (0..events).collect();
            assert_eq!(
                order, expected,
                "ORACLE: order of poster {poster} in {color:?}"
            );
        }
    }

    /// Every payload is gone. Called when the world is.
    ///
    /// # Panics
    /// If not.
    pub fn assert_no_leak(&self) {
        let left = self.payloads.load(Ordering::Relaxed);
        assert_eq!(left, 0, "ORACLE: payloads leaked");
    }
}
