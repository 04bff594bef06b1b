//! What the callbacks of a connection leave for the polls of its tasks.
//!
//! **No wake is lost.** Callbacks and polls are events of one color, one at a time. A poll that
//! finds nothing leaves its waker here in the same event; the callback that brings something takes
//! it out. A paused connection always has bytes here, and the read that takes them resumes it.
//!
//! **An end does not overtake what was sent.** A peer that has all it was sent may end at once. By
//! the time a task is polled both are known then, and one that reads before it flushes (hyper does)
//! would take the peer for one that went too early. So whoever was woken because all has left polls
//! first: one read at the end says "not yet" and wakes its task. Once, since the flush may have
//! been given up.
//!
//! **No ring of references.** The callbacks have this state, and this state has nothing that leads
//! to the connection but the wakers: of tasks that may own the stream. A task that is over,
//! canceled or left over drops its future, with that the stream, and so closes the connection,
//! which drops the callbacks.
//!
//! Received bytes are copied in here: a task that does not read would otherwise keep buffers that
//! its core receives into for all.

use crate::net::{AHEAD_BYTES_MAX, RecvBuf};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// With this many bytes unread, receiving pauses.
const PAUSE_BYTES: usize = 64 << 10;
/// With no more than this unread, it goes on.
const RESUME_BYTES: usize = PAUSE_BYTES / 2;
/// Most bytes that a stream has received and nobody has read yet: what makes it pause, and what the
/// pause comes too late for.
pub const UNREAD_BYTES_MAX: usize = PAUSE_BYTES + AHEAD_BYTES_MAX;
/// After this many bytes that never had to wait, a writing task lets others go first: a peer that
/// reads as fast as it writes would keep its core for ever.
const BURST_BYTES_MAX: usize = 1 << 20;
/// Space that is kept while nothing is unread.
const KEPT_BYTES: usize = 4 << 10;

/// An error that can be told more than once.
#[derive(Clone, Debug)]
pub(super) struct Failure(Arc<io::Error>);

impl Failure {
    fn of(error: io::Error) -> Failure {
        Failure(Arc::new(error))
    }

    pub(super) fn error(&self) -> io::Error {
        match self.0.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None if self.0.get_ref().is_none() => self.0.kind().into(),
            None => io::Error::new(self.0.kind(), self.clone()),
        }
    }
}

/// In an error that is told, it stands for the one that it has.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// See the module text.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    unread: VecDeque<u8>,
    paused: bool,
    /// Nothing more will be received: the end of the stream, or an error.
    end: Option<Result<(), Failure>>,
    /// Why nothing more can be sent.
    broken: Option<Failure>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// After a stop: all that had arrived is here.
    arrived: bool,
    /// And was read, and a read has waited for more.
    stops: bool,
    /// A task that waits for that.
    stopper: Option<Waker>,
    /// Whoever waited to write has been woken, and has not polled since.
    sent_untold: bool,
    /// Bytes written since others went first.
    burst_bytes: usize,
}

/// What a read came to.
pub(super) struct Read {
    pub(super) result: Poll<io::Result<usize>>,
    /// The stream is to be resumed.
    pub(super) resume: bool,
    /// The reader is to be woken at once: it lets the writer go first.
    pub(super) wake: bool,
    /// A task that waits for the moment at which a read waits for bytes that came after a stop.
    pub(super) stop: Option<Waker>,
    /// To be dropped with nothing borrowed, since a waker's code is somebody's.
    pub(super) _replaced: Option<Waker>,
}

impl StreamState {
    /// The state of a stream that was told its end before; with what to say of it.
    pub(super) fn ended(error: io::Error) -> StreamState {
        StreamState {
            end: Some(Err(Failure::of(error))),
            ..StreamState::default()
        }
    }

    /// Takes what `on_data` was given. Returns who is to be woken, and whether the stream is to be
    /// paused.
    pub(super) fn receive(&mut self, result: io::Result<RecvBuf>) -> (Option<Waker>, bool) {
        let mut pause = false;
        match result {
            Ok(data) if !data.is_empty() => {
                self.unread.extend(data.iter());
                debug_assert!(self.unread.len() <= UNREAD_BYTES_MAX);
                pause = self.unread.len() >= PAUSE_BYTES && !self.paused;
                self.paused |= pause;
            }
            Ok(_) => self.end = Some(Ok(())),
            Err(error) => self.end = Some(Err(Failure::of(error))),
        }
        (self.reader.take(), pause)
    }

    /// The connection is closed, and nothing more will come. Returns who is to be woken.
    pub(super) fn no_more_received(&mut self) -> Option<Waker> {
        let gone = || Err(Failure::of(io::ErrorKind::NotConnected.into()));
        self.end.get_or_insert_with(gone);
        self.reader.take()
    }

    /// The connection is closed, and nothing more can be sent. Returns who is to be woken.
    pub(super) fn no_more_sent(&mut self) -> Option<Waker> {
        let gone = || Failure::of(io::ErrorKind::NotConnected.into());
        self.broken.get_or_insert_with(gone);
        self.writer.take()
    }

    /// Gives unread bytes to `take`, which says how many it took; one that takes fewer than it was
    /// given has no more space. With none unread and no end, `waker` waits.
    pub(super) fn read(&mut self, mut take: impl FnMut(&[u8]) -> usize, waker: &Waker) -> Read {
        let mut read = Read {
            result: Poll::Pending,
            resume: false,
            wake: false,
            stop: None,
            _replaced: None,
        };
        if self.unread.is_empty() {
            match &self.end {
                Some(Ok(())) if self.sent_untold => {
                    self.sent_untold = false;
                    read.wake = true;
                }
                Some(end) => {
                    let end = end.as_ref().map(|()| 0);
                    read.result = Poll::Ready(end.map_err(Failure::error));
                }
                None => {
                    read._replaced = wait(&mut self.reader, waker);
                    if self.arrived {
                        self.stops = true;
                        read.stop = self.stopper.take();
                    }
                }
            }
            return read;
        }
        let (first, second) = self.unread.as_slices();
        let mut taken = take(first);
        if taken == first.len() {
            taken += take(second);
        }
        self.unread.drain(..taken);
        if self.unread.is_empty() && self.unread.capacity() > KEPT_BYTES {
            self.unread = VecDeque::new();
        }
        read.resume = self.paused && self.unread.len() <= RESUME_BYTES;
        self.paused &= !read.resume;
        read.result = Poll::Ready(Ok(taken));
        read
    }

    /// After a stop: all that had arrived is here. Returns a task that waits for that, and for a
    /// read that waits.
    pub(super) fn arrived(&mut self) -> Option<Waker> {
        self.arrived = true;
        self.stops = self.unread.is_empty() && self.reader.is_some();
        self.stopper.take_if(|_| self.stops)
    }

    /// Whether all that had arrived at a stop is read, and a read waits; else `waker` waits for
    /// that. Also returns what is to be dropped with nothing borrowed.
    pub(super) fn wait_to_stop(&mut self, waker: &Waker) -> (Poll<()>, Option<Waker>) {
        match self.stops {
            true => (Poll::Ready(()), None),
            false => (Poll::Pending, wait(&mut self.stopper, waker)),
        }
    }

    /// Takes what `on_drained` was given. Returns who is to be woken.
    pub(super) fn drained(&mut self, result: io::Result<()>) -> Option<Waker> {
        if let Err(error) = result {
            self.broken = Some(Failure::of(error));
        }
        let writer = self.writer.take();
        self.sent_untold = writer.is_some();
        writer
    }

    /// A writer polls, and is told now what it waited for. Why nothing more can be sent, if that
    /// is so.
    pub(super) fn polled_to_write(&mut self) -> Option<Failure> {
        self.sent_untold = false;
        self.broken.clone()
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.burst_bytes += bytes;
    }

    /// Whether it is time to let others go first, which then has been done.
    pub(super) fn yields(&mut self) -> bool {
        let yields = self.burst_bytes >= BURST_BYTES_MAX;
        if yields {
            self.burst_bytes = 0;
        }
        yields
    }

    /// Has `waker` wait until all is sent. Returns what is to be dropped with nothing borrowed.
    pub(super) fn wait_to_write(&mut self, waker: &Waker) -> Option<Waker> {
        wait(&mut self.writer, waker)
    }
}

/// Puts a waker into its place, instead of the one that is returned.
fn wait(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if place.as_ref().is_some_and(|place| place.will_wake(waker)) {
        return None;
    }
    place.replace(waker.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The simulated network has no peer that always reads.
    #[test]
    fn a_writer_that_never_waits_lets_others_go_first() {
        let mut state = StreamState::default();
        for _ in 0..3 {
            state.wrote(BURST_BYTES_MAX - 1);
            assert!(!state.yields());
            state.wrote(1);
            assert!(state.yields() && !state.yields());
        }
    }

    /// Takes at most this many bytes.
    fn read(state: &mut StreamState, space: usize) -> (Poll<io::Result<usize>>, bool) {
        let read = state.read(|bytes| bytes.len().min(space), Waker::noop());
        (read.result, read.resume)
    }

    #[test]
    fn what_is_unread_pauses_and_is_resumed() {
        let mut state = StreamState::default();
        state.unread.extend([7; PAUSE_BYTES]);
        state.paused = true;
        let (taken, resume) = read(&mut state, RESUME_BYTES - 1);
        assert!(matches!(taken, Poll::Ready(Ok(len)) if len == RESUME_BYTES - 1) && !resume);
        // Once.
        assert!(read(&mut state, 1).1 && !state.paused && !read(&mut state, 1).1);
        // An end is told behind what came before it, and again.
        assert!(
            state
                .receive(Err(io::ErrorKind::ConnectionReset.into()))
                .0
                .is_none()
        );
        assert!(matches!(
            read(&mut state, PAUSE_BYTES).0,
            Poll::Ready(Ok(_))
        ));
        assert!(state.unread.capacity() <= KEPT_BYTES);
        for _ in 0..2 {
            assert!(matches!(read(&mut state, 1).0, Poll::Ready(Err(_))));
        }
    }

    #[test]
    fn an_end_is_told_after_the_flush_that_is_ready() {
        let woken_at_the_end = |state: &mut StreamState| {
            let read = state.read(|_| 0, Waker::noop());
            match read.result {
                Poll::Ready(Ok(0)) => false,
                Poll::Pending => read.wake,
                other => panic!("{other:?}"),
            }
        };
        let ended = || {
            let mut state = StreamState::default();
            assert!(state.wait_to_write(Waker::noop()).is_none());
            state.end = Some(Ok(()));
            state
        };
        // While it is being sent: the peer may never read it.
        assert!(!woken_at_the_end(&mut ended()));
        // Sent, and nobody polls to write: told by the second read.
        let mut state = ended();
        assert!(state.drained(Ok(())).is_some());
        assert!(woken_at_the_end(&mut state) && !woken_at_the_end(&mut state));
        // Sent, and the writer has polled.
        let mut state = ended();
        assert!(state.drained(Ok(())).is_some() && state.polled_to_write().is_none());
        assert!(!woken_at_the_end(&mut state));
        // Nobody waited, and errors wait for nobody.
        assert!(state.drained(Ok(())).is_none());
        assert!(!woken_at_the_end(&mut state));
        let mut state = ended();
        assert!(state.drained(Ok(())).is_some());
        state.end = Some(Err(Failure::of(io::Error::from_raw_os_error(104))));
        let read = state.read(|_| 0, Waker::noop());
        assert!(matches!(read.result, Poll::Ready(Err(_))) && !read.wake);
    }

    #[test]
    fn who_waits_is_woken_once() {
        let woken = Arc::new(Woken::default());
        let count = || woken.0.load(Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&woken));
        let mut state = StreamState::default();
        for _ in 0..2 {
            assert!(state.read(|_| 0, &waker).result.is_pending());
            assert!(state.wait_to_write(&waker).is_none());
        }
        let (reader, pause) = state.receive(Err(io::ErrorKind::ConnectionReset.into()));
        assert!(reader.is_some() && !pause && state.reader.is_none());
        reader.unwrap().wake();
        state.drained(Ok(())).unwrap().wake();
        assert!(state.drained(Ok(())).is_none() && state.broken.is_none());
        assert_eq!(count(), 2);
        // Another one takes the place, and the first comes back to be dropped.
        assert!(state.wait_to_write(&waker).is_none());
        assert!(state.wait_to_write(Waker::noop()).is_some());
        let error = state.drained(Err(io::Error::from_raw_os_error(104)));
        assert!(error.is_some());
        let broken = state.broken.unwrap().error();
        assert_eq!(broken.raw_os_error(), Some(104));
    }
}
