//! Connections: received on their home core, handled in their color, sent from wherever that runs.
//!
//! ```text
//!   home core                         the color, on any core
//!   recv completes --- event -------> on_data
//!                                     write -> queue -> send, at once; what the kernel
//!                                     |                 leaves, on this core's ring
//!   close, pause: events of the       sent  <--- event, or event from that ring
//!   home core's control color <------ close, pause, "so far I am"
//! ```
//!
//! A color may be far behind what its home core receives for it. So it says how far it is, each
//! `ACKNOWLEDGED_BYTES`, and with `REST_BYTES` on their way to it receiving rests: neither a pause
//! that comes late nor a long handler lets one client take all buffers, or a color more than
//! [`AHEAD_BYTES_MAX`] that it did not want. The acknowledgement is an event of the color behind the
//! data, and it goes home behind any pause: so what arrives after a pause was received before.
//!
//! A connection has two halves of state. The *color* half (callbacks, output queue, phase) belongs
//! to the connection's color, as a [`Colored`](crate::Colored) does and by the same checks. The
//! *home* half (the receive under way) belongs to the home core's thread. Whoever frees the
//! descriptor is the home core, and only when no operation is left on it anywhere: a close waits in
//! its color for the send under way, then goes home, cancels the receive, waits for its end, closes.

use super::driver::{Driver, control};
use super::stream::Stream;
use crate::io::{Fd, How, Op, Owner, RecvBuf, SendBuf};
use crate::runtime::poster::Poster;
use crate::runtime::unique::UniqueColor;
use crate::sched::core::Core;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::{Color, Cx, Handler, Refused};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What may be queued for sending by default before [`Stream::write`] refuses, in bytes.
pub(super) const QUEUED_MAX: usize = 1 << 20;
/// Most bytes that are received and not yet given to the application, of one connection. What a
/// [`Stream::pause`] cannot stop any more is at most that.
pub const AHEAD_BYTES_MAX: usize = 256 << 10;
/// With so many on their way to the color, receiving rests until the color has caught up. Below the
/// maximum by more than one look at the event source brings for a connection, a few buffers.
const REST_BYTES: usize = AHEAD_BYTES_MAX - (64 << 10);
/// After so many bytes the color tells the home core that it has come so far: often enough that a color
/// which keeps up never makes receiving rest, and seldom enough to cost nothing.
const ACKNOWLEDGED_BYTES: usize = 64 << 10;
/// Small queued buffers are joined up to this size, so that a burst of answers is one send.
const JOINED_MAX: usize = 64 << 10;

type OnData = Box<dyn FnMut(&mut Cx, &Stream, io::Result<RecvBuf>) + Send>;
type AfterReceived = Box<dyn FnOnce(&mut Cx) + Send>;
type OnDrained = Box<dyn FnMut(&mut Cx, &Stream, io::Result<()>) + Send>;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// To be closed when what is queued has been sent.
    Closing,
    /// The home core has been told to close.
    Closed,
}

/// The half that belongs to the connection's color.
pub(super) struct Colored {
    pub(super) phase: Phase,
    pub(super) on_data: Option<OnData>,
    pub(super) on_drained: Option<OnDrained>,
    /// A callback for each of the home half's marks, in their order.
    pub(super) after_received: Vec<AfterReceived>,
    pub(super) drained_handler: Option<&'static Handler>,
    pub(super) queue: VecDeque<SendBuf>,
    /// Bytes in `queue` and in the send under way.
    pub(super) queued_bytes: usize,
    pub(super) queued_bytes_max: usize,
    pub(super) sending: bool,
    /// The end of the stream is to be sent after what is queued.
    pub(super) shutdown: bool,
    pub(super) broken: bool,
    /// Nobody has a `Stream` that owns it: its home core keeps it until it is closed.
    pub(super) detached: bool,
    /// `on_data` has had its last call.
    pub(super) ended: bool,
}

/// The half that belongs to the home core's thread.
#[derive(Debug, Default)]
pub(super) struct Home {
    pub(super) recv: Option<Op>,
    /// The receive has been canceled and is not over yet.
    pub(super) canceling: bool,
    /// The application wants to receive.
    pub(super) wanted: bool,
    /// All bytes received.
    received_bytes: u64,
    /// At so many received bytes, an event under this handler is due.
    marks: Vec<(u64, &'static Handler)>,
    /// Bytes received that the color has not acknowledged.
    ahead_bytes: usize,
    /// Of these, those that it is not yet asked to acknowledge.
    unasked_bytes: usize,
    /// The application has been told the end of the stream, or an error.
    pub(super) ended: bool,
    pub(super) closing: bool,
    /// The descriptor is no longer ours.
    pub(super) closed: bool,
    /// Under which key the driver keeps the connection, if it is detached.
    pub(super) kept: Option<usize>,
}

/// A connection.
pub(super) struct Conn {
    pub(super) fd: Fd,
    pub(super) home: u32,
    pub(super) owner: Owner,
    pub(super) color: Color,
    pub(super) poster: Poster,
    /// Set once by `on_data`, before the first receive starts.
    pub(super) read_handler: std::sync::OnceLock<&'static Handler>,
    pub(super) colored: UnsafeCell<Colored>,
    pub(super) at_home: UnsafeCell<Home>,
    /// Calls on their way to the home core.
    pub(super) under_way: AtomicU32,
    /// Where it is noted in the registry.
    pub(super) key: usize,
    /// Keeps a color of the connection's own as long as the connection.
    pub(super) _unique: Option<UniqueColor>,
}

// SAFETY: `colored` is reached in events of the connection's color only, one at a time (`check`, and
// the events made here, which are posted to that color); `at_home` on the home core's thread only
// (events of its control color, and its driver). All they hold is `Send`.
unsafe impl Send for Conn {}
// SAFETY: as above.
unsafe impl Sync for Conn {}

impl Conn {
    /// The color half. For one statement or block that runs no user code.
    ///
    /// # Safety
    /// The caller runs in an event of the connection's color, and has no other borrow of it.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the rule of colors")]
    pub(super) unsafe fn colored(&self) -> crate::sync::CellMut<'_, Colored> {
        // SAFETY: the caller's promise.
        unsafe { self.colored.borrow_mut() }
    }

    /// The home half.
    ///
    /// # Safety
    /// The caller runs on the home core's thread and has no other borrow of it.
    pub(super) unsafe fn at_home(&self) -> crate::sync::CellMut<'_, Home> {
        // SAFETY: the caller's promise.
        unsafe { self.at_home.borrow_mut() }
    }

    pub(super) fn is_ours(&self, cx: &Cx) -> Result<(), Refused> {
        if !Arc::ptr_eq(&self.poster.inner, &cx.worker_ref().inner) {
            return Err(Refused::OtherRuntime);
        }
        if cx.color() != self.color {
            return Err(Refused::OtherColor {
                state: self.color,
                handler: cx.color(),
            });
        }
        Ok(())
    }

    /// Posts what was received; called by the home core's driver. True if the color is now so far behind
    /// that receiving has to rest.
    pub(super) fn received(self: &Arc<Conn>, result: io::Result<RecvBuf>, core: &mut Core) -> bool {
        let (acknowledged, has_marks, is_far_ahead) = {
            // SAFETY: the home core's driver calls, on its thread.
            let mut home = unsafe { self.at_home() };
            let acknowledged = match &result {
                Err(error) if home.canceling && error.raw_os_error() == Some(ECANCELED) => {
                    return false;
                }
                Ok(buf) if !buf.is_empty() => home.advance(buf.len()),
                _ => {
                    home.ended = true;
                    None
                }
            };
            (acknowledged, !home.marks.is_empty(), home.is_far_ahead())
        };
        let (handler, color) = (self.read_handler.get().copied(), self.color);
        let this = Arc::clone(self);
        match result {
            // Apart, because each fits into an event's node and the result would not.
            Ok(buf) => {
                core.post_own(handler, color, move |cx: &mut Cx| this.deliver(cx, Ok(buf)));
            }
            Err(error) => core.post_own(handler, color, move |cx: &mut Cx| {
                this.deliver(cx, Err(error))
            }),
        }
        if has_marks {
            self.pass_marks(core);
        }
        if let Some(bytes) = acknowledged {
            let this = Arc::clone(self);
            let caught_up = move |cx: &mut Cx| {
                this.call_home(cx, move |conn, cx| conn.acknowledged(cx, bytes));
            };
            core.post_own(Some(&CAUGHT_UP), color, caught_up);
        }
        is_far_ahead
    }

    /// The runtime is ending and receives no more for this connection; says so to the application,
    /// unless it has been told the end already.
    pub(super) fn canceled(this: &Arc<Conn>, core: &mut Core) {
        let told = {
            // SAFETY: called on the home core's thread.
            let home = unsafe { this.at_home() };
            home.recv.is_some() || home.ended || home.closing
        };
        if !told {
            let error = io::Error::from_raw_os_error(ECANCELED);
            this.received(Err(error), core);
        }
    }

    /// Runs `f` on the home core: now, if this is it and nothing is on its way there that came
    /// before; else by an event.
    pub(super) fn call_home<F>(self: Arc<Conn>, cx: &mut Cx, f: F)
    where
        F: FnOnce(Arc<Conn>, &mut Cx) + Send + 'static,
    {
        // Only the connection's color calls, so what is read as zero stays so.
        if cx.core() as u32 == self.home && self.under_way.load(Ordering::Acquire) == 0 {
            f(self, cx);
            return;
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let home = control(self.home);
        cx.post_own(home, move |cx: &mut Cx| {
            self.under_way.fetch_sub(1, Ordering::Release);
            f(self, cx);
        });
    }

    /// Gives what was received to the application; an event of the color.
    fn deliver(self: Arc<Conn>, cx: &mut Cx, result: io::Result<RecvBuf>) {
        let last = result.as_ref().map_or(true, |data| data.is_empty());
        let callback = {
            // SAFETY: an event of the color.
            let mut colored = unsafe { self.colored() };
            if colored.phase != Phase::Open {
                return;
            }
            // From now on none is kept: what it holds may hold the connection.
            colored.ended |= last;
            colored.on_data.take()
        };
        let Some(callback) = callback else { return };
        let stream = Stream {
            conn: self,
            owner: false,
        };
        let mut lent = Lent {
            conn: &stream.conn,
            callback: Some(callback),
            place: Colored::place_of_on_data,
        };
        if let Some(callback) = &mut lent.callback {
            callback(cx, &stream, result);
        }
        lent.end();
        // SAFETY: an event of the color; the callback is over.
        if last && unsafe { stream.conn.colored() }.detached {
            stream.close(cx);
        }
    }

    /// Posts the outcome of a send; called by the driver of the core that sent.
    pub(super) fn sent(
        this: Arc<Conn>,
        handler: &'static Handler,
        len: usize,
        result: io::Result<()>,
        core: &mut Core,
    ) {
        let color = this.color;
        core.post_own(Some(handler), color, move |cx: &mut Cx| {
            this.after_send(cx, len, result)
        });
    }

    /// Goes on after a send; an event of the color.
    fn after_send(self: Arc<Conn>, cx: &mut Cx, len: usize, result: io::Result<()>) {
        let next = {
            // SAFETY: an event of the color.
            let mut colored = unsafe { self.colored() };
            colored.queued_bytes -= len;
            colored.sending = false;
            if result.is_err() {
                colored.broken = true;
                colored.queue.clear();
                colored.queued_bytes = 0;
            }
            colored.next()
        };
        if let Some(buf) = next {
            self.start_send(cx, buf);
            return;
        }
        self.drained(cx, result);
    }

    /// Nothing is left to send.
    fn drained(self: Arc<Conn>, cx: &mut Cx, result: io::Result<()>) {
        let (phase, shutdown, callback) = {
            // SAFETY: an event of the color.
            let mut colored = unsafe { self.colored() };
            // Left set, so that nothing can be written any more.
            (colored.phase, colored.shutdown, colored.on_drained.take())
        };
        if shutdown && let Some(driver) = cx.worker().source.driver() {
            driver.backend.shutdown(self.fd, How::Write);
        }
        if phase == Phase::Closing {
            drop(callback);
            self.go_home(cx);
            return;
        }
        let Some(callback) = callback else { return };
        let stream = Stream {
            conn: self,
            owner: false,
        };
        let mut lent = Lent {
            conn: &stream.conn,
            callback: Some(callback),
            place: Colored::place_of_on_drained,
        };
        if let Some(callback) = &mut lent.callback {
            callback(cx, &stream, result);
        }
        lent.end();
    }

    /// Drops the callbacks, in the wrong place but in time.
    ///
    /// # Safety
    /// No core of the runtime runs, and none will.
    pub(super) unsafe fn drop_callbacks(&self) {
        let dropped = {
            // SAFETY: no event of the color runs: the caller's promise.
            let mut colored = unsafe { self.colored() };
            colored.take_callbacks()
        };
        drop(dropped);
    }

    /// Sends, and posts what it came to: an event and not a call, because the application is not
    /// called back while it writes.
    pub(super) fn start_send(self: Arc<Conn>, cx: &mut Cx, buf: SendBuf) {
        let len = buf.len();
        let Some(handler) = self.try_send(cx, buf) else {
            return;
        };
        let color = self.color;
        // Until that event, what is written waits.
        // SAFETY: called from events of the color only.
        unsafe { self.colored() }.sending = true;
        let core = &mut cx.worker().core;
        core.post_own(Some(handler), color, move |cx: &mut Cx| {
            self.after_send(cx, len, Ok(()))
        });
    }

    /// Sends, and says whether nothing is left to send; if not, the outcome will be an event.
    pub(super) fn send_now(self: &Arc<Conn>, cx: &mut Cx, buf: SendBuf) -> bool {
        let len = buf.len();
        let sent = self.try_send(cx, buf).is_some();
        if sent {
            // SAFETY: called from events of the color only.
            unsafe { self.colored() }.queued_bytes -= len;
        }
        sent
    }

    /// Sends at once what the kernel takes at once, which is mostly all of it: an answer then costs
    /// no operation and no completion, and leaves before this handler's turn ends. Then it gives the
    /// handler under which to say so. What is left is an operation.
    fn try_send(self: &Arc<Conn>, cx: &mut Cx, mut buf: SendBuf) -> Option<&'static Handler> {
        let worker = cx.worker();
        let driver = worker.source.driver()?;
        // SAFETY: called from events of the color only.
        let mut colored = unsafe { self.colored() };
        let handler = colored.drained_handler.unwrap_or(&SENT);
        let len = buf.len();
        let sent = driver.backend.send_now(self.fd, &buf);
        if sent == len {
            return Some(handler);
        }
        colored.sending = true;
        buf.skip(sent);
        driver.send(Arc::clone(self), handler, buf.into_lasting(), len);
        None
    }

    /// Closes when what is queued has been sent, or at once.
    pub(super) fn close(self: Arc<Conn>, cx: &mut Cx, at_once: bool) {
        let (sending, dropped) = {
            // SAFETY: called from events of the color only.
            let mut colored = unsafe { self.colored() };
            if colored.phase == Phase::Closed {
                return;
            }
            colored.phase = Phase::Closing;
            if at_once {
                let queued: usize = colored.queue.drain(..).map(|buf| buf.len()).sum();
                colored.queued_bytes -= queued;
            }
            let after_received = std::mem::take(&mut colored.after_received);
            (colored.sending, (colored.on_data.take(), after_received))
        };
        // The user's closure, in its color, with nothing borrowed.
        drop(dropped);
        if !sending {
            self.go_home(cx);
        } else if at_once && let Some(driver) = cx.worker().source.driver() {
            // The send under way, on whichever ring, ends with an error; then we go home.
            driver.backend.shutdown(self.fd, How::Both);
        }
    }

    /// Tells the home core to close; nothing of the color's is under way any more.
    fn go_home(self: Arc<Conn>, cx: &mut Cx) {
        let dropped = {
            // SAFETY: called from events of the color only.
            let mut colored = unsafe { self.colored() };
            colored.phase = Phase::Closed;
            colored.take_callbacks()
        };
        drop(dropped);
        let home = control(self.home);
        cx.post_own(home, move |cx: &mut Cx| {
            if let Some(driver) = cx.worker().source.driver() {
                self.close_at_home(driver);
            }
        });
    }

    fn close_at_home(&self, driver: &mut Driver) {
        // SAFETY: an event of the home core's control color.
        let mut home = unsafe { self.at_home() };
        if std::mem::replace(&mut home.closing, true) {
            return;
        }
        if let Some(key) = home.kept.take() {
            // Not the last: our caller has one.
            drop(driver.kept.remove(key));
        }
        match home.recv {
            Some(op) => {
                home.canceling = true;
                driver.backend.cancel(op);
            }
            None => {
                home.closed = true;
                driver.backend.close(self.fd);
            }
        }
    }

    /// Keeps a detached connection, on its home core, until it is closed there or the core leaves.
    pub(super) fn keep(self: Arc<Conn>, driver: &mut Driver) {
        // SAFETY: an event on the home core's thread.
        let mut home = unsafe { self.at_home() };
        if !home.closing && home.kept.is_none() {
            home.kept = Some(driver.kept.insert(Arc::clone(&self)));
        }
    }

    /// The receive is over; called by the home core's driver.
    pub(super) fn recv_over(this: &Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let again = {
            // SAFETY: the home core's driver calls, on its thread.
            let mut home = unsafe { this.at_home() };
            home.recv = None;
            home.canceling = false;
            if home.closing && !std::mem::replace(&mut home.closed, true) {
                driver.backend.close(this.fd);
            }
            home.should_receive()
        };
        if driver.draining {
            // It was paused, or was to go on, when the end came.
            Conn::canceled(this, core);
        } else if again {
            Arc::clone(this).start_recv(driver);
        }
    }

    /// The application wants to receive, or not; on the home core. False: the runtime is ending.
    pub(super) fn receive(self: Arc<Conn>, driver: &mut Driver, wanted: bool) -> bool {
        // SAFETY: an event on the home core's thread.
        unsafe { self.at_home() }.wanted = wanted;
        self.adjust(driver)
    }

    /// The color has come so much further; an event on the home core.
    fn acknowledged(self: Arc<Conn>, cx: &mut Cx, bytes: usize) {
        // SAFETY: an event on the home core's thread.
        unsafe { self.at_home() }.ahead_bytes -= bytes;
        if let Some(driver) = cx.worker().source.driver() {
            // Ending: who does not receive has been told so.
            self.adjust(driver);
        }
    }

    /// Starts or stops receiving, as it should be; on the home core. False: the runtime is ending, and
    /// starts none.
    pub(super) fn adjust(self: Arc<Conn>, driver: &mut Driver) -> bool {
        let start = {
            // SAFETY: on the home core's thread.
            let mut home = unsafe { self.at_home() };
            let should = home.should_receive();
            match home.recv {
                // A receive that is being canceled is started again once it is over.
                Some(op) if !should && !home.canceling => {
                    home.canceling = true;
                    driver.backend.cancel(op);
                    false
                }
                Some(_) => false,
                None => should,
            }
        };
        if start && driver.draining {
            return false;
        }
        if start {
            self.start_recv(driver);
        }
        true
    }

    /// Has an event of the color under `handler` come behind all that has arrived; on the home core.
    pub(super) fn mark(self: Arc<Conn>, handler: &'static Handler, cx: &mut Cx) {
        let worker = cx.worker();
        let unread_bytes = match worker.source.driver() {
            Some(driver) => driver.unread_bytes(&self),
            None => 0,
        };
        {
            // SAFETY: on the home core's thread.
            let mut home = unsafe { self.at_home() };
            let at = home.received_bytes + unread_bytes as u64;
            home.marks.push((at, handler));
        }
        self.pass_marks(&mut worker.core);
    }

    /// Posts an event for each mark that has been reached; on the home core.
    fn pass_marks(self: &Arc<Conn>, core: &mut Core) {
        let next = || {
            // SAFETY: on the home core's thread.
            let mut home = unsafe { self.at_home() };
            let &(at, handler) = home.marks.first()?;
            let is_reached = home.ended || home.received_bytes >= at;
            is_reached.then(|| {
                home.marks.remove(0);
                handler
            })
        };
        while let Some(handler) = next() {
            let this = Arc::clone(self);
            core.post_own(Some(handler), self.color, move |cx: &mut Cx| {
                this.pass_mark(cx);
            });
        }
    }

    /// All that had arrived when it was marked has been given to the application; an event of the color.
    fn pass_mark(self: Arc<Conn>, cx: &mut Cx) {
        let callback = {
            // SAFETY: an event of the color.
            let mut colored = unsafe { self.colored() };
            // None is left once the connection is closed.
            (!colored.after_received.is_empty()).then(|| colored.after_received.remove(0))
        };
        if let Some(callback) = callback {
            callback(cx);
        }
    }

    fn start_recv(self: Arc<Conn>, driver: &mut Driver) {
        let op = driver.recv(Arc::clone(&self));
        // SAFETY: on the home core's thread.
        unsafe { self.at_home() }.recv = Some(op);
    }
}

impl Home {
    fn should_receive(&self) -> bool {
        self.wanted && !self.is_far_ahead() && !self.closing && !self.ended
    }

    /// Whether the color is so far behind that receiving has to rest.
    fn is_far_ahead(&self) -> bool {
        self.ahead_bytes >= REST_BYTES
    }

    /// So many more bytes are on their way to the color. How many it is to acknowledge behind them, if any.
    fn advance(&mut self, bytes: usize) -> Option<usize> {
        self.ahead_bytes += bytes;
        self.unasked_bytes += bytes;
        self.received_bytes += bytes as u64;
        let due = self.unasked_bytes >= ACKNOWLEDGED_BYTES;
        due.then(|| std::mem::take(&mut self.unasked_bytes))
    }
}

impl Colored {
    /// Where `on_data` is kept between its calls, if it may be called again.
    pub(super) fn place_of_on_data(&mut self) -> Option<&mut Option<OnData>> {
        (self.phase == Phase::Open && !self.ended).then_some(&mut self.on_data)
    }

    /// The same of `on_drained`: its last call is the one with an error.
    pub(super) fn place_of_on_drained(&mut self) -> Option<&mut Option<OnDrained>> {
        (self.phase == Phase::Open && !self.broken).then_some(&mut self.on_drained)
    }

    /// All of them, to be dropped with nothing borrowed.
    fn take_callbacks(&mut self) -> (Option<OnData>, Option<OnDrained>, Vec<AfterReceived>) {
        let after_received = std::mem::take(&mut self.after_received);
        (self.on_data.take(), self.on_drained.take(), after_received)
    }

    /// The next buffer to send: several small ones joined.
    pub(super) fn next(&mut self) -> Option<SendBuf> {
        let first = self.queue.pop_front()?;
        let fits = |joined: usize, next: &SendBuf| joined + next.len() <= JOINED_MAX;
        if !self
            .queue
            .front()
            .is_some_and(|next| fits(first.len(), next))
        {
            return Some(first);
        }
        let mut joined = first.to_vec();
        while let Some(next) = self.queue.front()
            && fits(joined.len(), next)
        {
            joined.extend_from_slice(next);
            self.queue.pop_front();
        }
        Some(joined.into())
    }
}

impl Drop for Conn {
    /// A connection that was not closed, because the runtime ended first. Its driver's backend is
    /// gone by then (fields drop in order), so no operation is left on the descriptor.
    fn drop(&mut self) {
        self.poster.inner.net.remove(self.home, self.key);
        // SAFETY: the last reference is gone.
        let closed = unsafe { self.at_home() }.closed;
        if !closed {
            self.owner.close(self.fd);
        }
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("fd", &self.fd)
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

/// A connection's callback while it runs. If it is dropped, and not ended, it has panicked.
struct Lent<'a, F> {
    conn: &'a Arc<Conn>,
    callback: Option<F>,
    /// Where it belongs, if it may be called again.
    place: fn(&mut Colored) -> Option<&mut Option<F>>,
}

impl<F> Lent<'_, F> {
    /// The call is over: gives the callback back, unless another has taken its place meanwhile, or there will be
    /// no other call.
    fn end(mut self) {
        {
            // SAFETY: still inside the event of the color that lent it.
            let mut colored = unsafe { self.conn.colored() };
            if let Some(place @ None) = (self.place)(&mut colored) {
                *place = self.callback.take();
            }
        }
        // The user's closure, with nothing borrowed.
        let callback = self.callback.take();
        std::mem::forget(self);
        drop(callback);
    }
}

impl<F> Drop for Lent<'_, F> {
    fn drop(&mut self) {
        drop(self.callback.take());
        // The callback's state is in doubt: no more data for it, and the peer shall know.
        let conn = Arc::clone(self.conn);
        let poster = conn.poster.clone();
        let _ = poster.post_own(conn.color, move |cx: &mut Cx| conn.close(cx, true));
    }
}

/// What a send's completion runs under if nobody asked to be told.
static SENT: Handler = Handler::new("mely: sent");
/// What tells the home core how far the color is.
static CAUGHT_UP: Handler = Handler::new("mely: caught up");

const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

#[cfg(test)]
mod tests {
    use super::*;

    fn colored(queue: &[&[u8]]) -> Colored {
        Colored {
            phase: Phase::Open,
            on_data: None,
            on_drained: None,
            after_received: Vec::new(),
            drained_handler: None,
            queue: queue.iter().map(|bytes| bytes.to_vec().into()).collect(),
            queued_bytes: 0,
            queued_bytes_max: QUEUED_MAX,
            sending: false,
            shutdown: false,
            broken: false,
            detached: false,
            ended: false,
        }
    }

    /// What is sent at once, one after the other.
    fn sends(queue: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut colored = colored(queue);
        std::iter::from_fn(|| Some(colored.next()?.to_vec())).collect()
    }

    #[test]
    fn small_buffers_are_joined_up_to_the_maximum() {
        assert!(sends(&[]).is_empty());
        assert_eq!(sends(&[b"one"]), [b"one"]);
        assert_eq!(sends(&[b"one", b"two", b"three"]), [b"onetwothree"]);
        let (most, rest) = (vec![1; JOINED_MAX], vec![2; JOINED_MAX - 3]);
        let joined = [&b"one"[..], &rest].concat();
        assert_eq!(sends(&[b"one", &rest, b"two"]), [&joined[..], b"two"]);
        assert_eq!(sends(&[b"four", &rest]), [&b"four"[..], &rest]);
        assert_eq!(sends(&[&most, b"two"]), [&most[..], b"two"]);
        // Larger ones are sent as they are.
        let large = vec![3; JOINED_MAX + 1];
        assert_eq!(sends(&[&large, b"a", b"b"]), [&large[..], b"ab"]);
    }

    #[test]
    fn a_color_is_asked_how_far_it_is_and_receiving_rests_for_it() {
        let mut home = Home {
            wanted: true,
            ..Home::default()
        };
        assert_eq!(home.advance(ACKNOWLEDGED_BYTES - 1), None);
        assert_eq!(home.advance(1), Some(ACKNOWLEDGED_BYTES));
        assert_eq!(home.advance(1), None);
        assert_eq!(home.received_bytes, ACKNOWLEDGED_BYTES as u64 + 1);
        assert!(home.should_receive());
        home.advance(REST_BYTES - ACKNOWLEDGED_BYTES - 2);
        assert!(!home.is_far_ahead() && home.should_receive());
        home.advance(1);
        assert!(home.is_far_ahead() && !home.should_receive());
        home.ahead_bytes = 0;
        assert!(home.should_receive());
        for stops in [
            |home: &mut Home| home.wanted = false,
            |home: &mut Home| home.closing = true,
            |home: &mut Home| home.ended = true,
        ] {
            let mut home = Home {
                wanted: true,
                ..Home::default()
            };
            stops(&mut home);
            assert!(!home.should_receive(), "{home:?}");
        }
    }

    #[test]
    fn callbacks_are_given_back_while_they_may_be_called_again() {
        let mut open = colored(&[]);
        assert!(open.place_of_on_data().is_some() && open.place_of_on_drained().is_some());
        open.ended = true;
        assert!(open.place_of_on_data().is_none() && open.place_of_on_drained().is_some());
        (open.ended, open.broken) = (false, true);
        assert!(open.place_of_on_data().is_some() && open.place_of_on_drained().is_none());
        for phase in [Phase::Closing, Phase::Closed] {
            let mut closed = colored(&[]);
            closed.phase = phase;
            assert!(closed.place_of_on_data().is_none());
            assert!(closed.place_of_on_drained().is_none());
        }
    }
}
