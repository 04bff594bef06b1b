//! What every model checks of its events.
//!
//! Each event knows what happened before its post: the posts that its poster had made, and those
//! that its poster knew of, because events of its color had made them or known of them. When the
//! event runs, all of these to its own color must have run: that is causal order, of which the
//! order of each poster is the simplest case. What a thread learns by means of the model's own (a
//! join, a channel) is not counted, as it is not promised.

use loom::cell::UnsafeCell;
use loom::thread::{self, ThreadId};
use mely::{Callback, Color, Cx, Handler, Poster, Reason, Rejected};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The judge of a model. Per color it keeps a log in a loom cell which every event of the color
/// writes when it begins and when it ends: two at once, or one that does not see what the one
/// before wrote, are violations that loom reports itself.
#[derive(Debug)]
pub struct Oracle {
    /// Bookkeeping is not part of what is explored, so its locks are std's: no switch of threads
    /// comes while one is held.
    logs: Mutex<HashMap<Color, Arc<Log>>>,
    posts: Mutex<Vec<(Color, Mark)>>,
    threads: Mutex<HashMap<ThreadId, Past>>,
    payloads: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Log(UnsafeCell<Entries>);

#[derive(Clone, Debug, Default)]
struct Entries {
    marks: Vec<Mark>,
    ran: Past,
    /// What happened before whatever the color does next.
    past: Past,
}

// SAFETY: the cells are checked by loom, which is what they are for: an access that overlaps with
// another is reported and not performed.
unsafe impl Sync for Log {}
// SAFETY: as above; everything else in here is `Send`.
unsafe impl Send for Log {}

/// A set of posts, a bit each.
type Past = u64;

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

/// An event that is not posted yet.
pub struct Event {
    oracle: Arc<Oracle>,
    payload: Payload,
    f: Box<dyn FnOnce(&mut Cx) + Send>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event{:?}", self.payload.mark)
    }
}

/// Posts from a thread that is no core.
pub trait Offers {
    /// # Errors
    /// As [`Callback::try_post`].
    fn offer<F: FnOnce(&mut Cx) + Send + 'static>(
        &self,
        callback: Callback<F>,
    ) -> Result<(), Rejected<Callback<F>>>;
}

impl Offers for Poster {
    fn offer<F: FnOnce(&mut Cx) + Send + 'static>(
        &self,
        callback: Callback<F>,
    ) -> Result<(), Rejected<Callback<F>>> {
        callback.try_post(self)
    }
}

impl Event {
    /// What the event does, after what it does already.
    #[must_use]
    pub fn then(self, g: impl FnOnce(&mut Cx) + Send + 'static) -> Event {
        let f = self.f;
        let f = Box::new(move |cx: &mut Cx| {
            f(cx);
            g(cx);
        });
        Event { f, ..self }
    }

    /// Posts from within an event.
    pub fn post(self, cx: &mut Cx, handler: &'static Handler, color: Color) {
        let history = self.oracle.cell(cx.color());
        let past = history.with(|entries| entries.past);
        let bit = self.oracle.posted(color, self.payload.mark);
        history.with(|entries| entries.past |= bit);
        self.callback(handler, color, bit, past).post(cx);
    }

    /// Posts from a thread that is no core. False: refused, because the runtime has ended.
    ///
    /// # Panics
    /// If it was refused because the world is full.
    pub fn offer(self, by: &impl Offers, handler: &'static Handler, color: Color) -> bool {
        let oracle = Arc::clone(&self.oracle);
        let bit = oracle.posted(color, self.payload.mark);
        let past = oracle.thread(|past| std::mem::replace(past, *past | bit));
        match by.offer(self.callback(handler, color, bit, past)) {
            Ok(()) => true,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            }) => {
                oracle.thread(|past| *past &= !bit);
                false
            }
            Err(refused) => panic!("ORACLE: {refused}"),
        }
    }

    /// As [`offer`](Self::offer), to a runtime that has not ended.
    ///
    /// # Panics
    /// If the event was refused.
    pub fn post_from(self, by: &impl Offers, handler: &'static Handler, color: Color) {
        assert!(self.offer(by, handler, color), "ORACLE: a post was refused");
    }

    /// As an event that its core will post by itself: nothing came before.
    pub fn callback_of_core(
        self,
        handler: &'static Handler,
        color: Color,
    ) -> Callback<impl FnOnce(&mut Cx) + Send + 'static> {
        let bit = self.oracle.posted(color, self.payload.mark);
        self.callback(handler, color, bit, 0)
    }

    fn callback(
        self,
        handler: &'static Handler,
        color: Color,
        bit: Past,
        past: Past,
    ) -> Callback<impl FnOnce(&mut Cx) + Send + 'static> {
        handler.on(color, move |cx| {
            assert_eq!(cx.color(), color, "ORACLE: in another color");
            let log = self.oracle.cell(color);
            self.oracle.begin(&log, color, self.payload.mark, bit, past);
            (self.f)(cx);
            log.with(|entries| {
                assert_eq!(
                    entries.marks.last(),
                    Some(&self.payload.mark),
                    "ORACLE: two events of {color:?} at once"
                );
            });
        })
    }
}

impl Log {
    fn with<R>(&self, f: impl FnOnce(&mut Entries) -> R) -> R {
        // SAFETY: loom checks that this access overlaps with no other.
        self.0.with_mut(|entries| f(unsafe { &mut *entries }))
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
            logs: Mutex::default(),
            posts: Mutex::default(),
            threads: Mutex::default(),
            payloads: Arc::new(AtomicUsize::new(0)),
        })
    }

    /// The `number`-th event of `poster`: logs itself when it runs.
    pub fn event(self: &Arc<Oracle>, poster: u32, number: u32) -> Event {
        Event {
            oracle: Arc::clone(self),
            payload: Payload::new((poster, number), &self.payloads),
            f: Box::new(|_cx| ()),
        }
    }

    fn cell(&self, color: Color) -> Arc<Log> {
        let mut logs = self.logs.lock().unwrap();
        let log = logs
            .entry(color)
            .or_insert_with(|| Arc::new(Log(UnsafeCell::new(Entries::default()))));
        Arc::clone(log)
    }

    /// Notes a post; its bit.
    fn posted(&self, color: Color, mark: Mark) -> Past {
        let mut posts = self.posts.lock().unwrap();
        posts.push((color, mark));
        1u64.checked_shl(posts.len() as u32 - 1)
            .expect("a model is small")
    }

    /// What the calling thread has posted.
    fn thread<R>(&self, f: impl FnOnce(&mut Past) -> R) -> R {
        let mut threads = self.threads.lock().unwrap();
        f(threads.entry(thread::current().id()).or_default())
    }

    fn begin(&self, log: &Log, color: Color, mark: Mark, bit: Past, past: Past) {
        log.with(|entries| {
            assert_eq!(entries.ran & bit, 0, "ORACLE: {mark:?} ran twice");
            for (i, (to, cause)) in self.posts.lock().unwrap().iter().enumerate() {
                assert!(
                    *to != color || past & !entries.ran & 1 << i == 0,
                    "ORACLE: {mark:?} ran in {color:?} before its cause {cause:?}"
                );
            }
            entries.marks.push(mark);
            entries.ran |= bit;
            entries.past |= past | bit;
        });
    }

    /// The events that ran in `color`, in order. Called when every thread has been joined, or by
    /// an event of the color.
    pub fn log(&self, color: Color) -> Vec<(u32, u32)> {
        self.cell(color).with(|entries| entries.marks.clone())
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
