//! Receiving: on the home core, for a color that may be anywhere and far behind.
//!
//! A color may be far behind what its home core receives for it. So the color acknowledges each
//! [`ACKNOWLEDGED_BYTES`], and receiving *rests* while [`REST_BYTES`] are on their way to the
//! color: neither a pause that comes late nor a long handler lets one client take all buffers, or
//! gives a color more than [`AHEAD_BYTES_MAX`] that it did not want. The acknowledgement is an
//! event of the color behind the data, and it goes home behind any pause: so what arrives after a
//! pause was received before it.

use super::secured::HANDSHAKE;
use super::{Arrival, AtStop, ColorHalf, Conn, Doubt, HomeHalf, Phase};
use crate::host::panics::InTurn;
use crate::io::RecvBuf;
use crate::net::confined::Here;
use crate::net::driver::Driver;
use crate::net::{ending, is_canceled};
use crate::sched::core::Core;
use crate::sync::atomic::{Ordering, fence};
use crate::{Cx, Handler};
use std::io;
use std::sync::Arc;

/// Most bytes that are received and not yet given to the application, of one connection. What
/// [`Stream::pause`](crate::net::Stream::pause) comes too late for is at most that.
pub const AHEAD_BYTES_MAX: usize = 256 << 10;
/// With this many bytes on their way to the color, receiving rests until the color has caught up.
/// Below the maximum by more than one look at the event source brings for a connection, a few
/// buffers.
const REST_BYTES: usize = AHEAD_BYTES_MAX - (64 << 10);
/// Bytes that the color is given between two acknowledgements: few enough that a color which keeps
/// up never makes receiving rest, and enough for the acknowledgements to cost nothing.
const ACKNOWLEDGED_BYTES: usize = 64 << 10;

/// However few bytes a buffer has, it counts for this many: else a peer that sends single bytes to
/// a color that waits would take all buffers.
const CHARGED_BYTES_MIN: usize = AHEAD_BYTES_MAX / 64;

/// What tells the home core how far the color is.
static CAUGHT_UP: Handler = Handler::new("mely: caught up");
/// What tells the color that all has arrived after a stop.
static ARRIVED: Handler = Handler::new("mely: arrived");

impl Conn {
    /// Posts what was received; called by the home core's driver. True if the color is now so far
    /// behind that receiving has to rest.
    pub(in crate::net) fn received(
        self: &Arc<Conn>,
        result: io::Result<RecvBuf>,
        here: &mut Here,
        core: &mut Core,
    ) -> bool {
        let (acknowledged, has_marks, is_far_ahead, is_urgent) = {
            let mut home = self.at_home.borrow(here);
            if home.lingers {
                return false;
            }
            let acknowledged = match &result {
                Err(error) if home.canceling && is_canceled(error) => {
                    return false;
                }
                Ok(buf) if !buf.is_empty() => home.advance(buf.len()),
                _ => {
                    home.ended = true;
                    None
                }
            };
            (
                acknowledged,
                !home.marks.is_empty(),
                home.is_far_ahead(),
                home.urgent,
            )
        };
        let handler = *self.read_handler.get().unwrap_or(&&HANDSHAKE);
        let (handler, color) = (Some(handler), self.color());
        let this = Arc::clone(self);
        match result {
            // Apart, because each fits into an event's node and the result would not.
            Ok(buf) => {
                core.post_home(handler, color, move |cx: &mut Cx| this.deliver(cx, Ok(buf)));
            }
            Err(error) => core.post_home(handler, color, move |cx: &mut Cx| {
                this.deliver(cx, Err(error))
            }),
        }
        if has_marks {
            self.pass_marks(here, core);
        }
        if let Some(bytes) = acknowledged {
            let this = Arc::clone(self);
            let caught_up = move |cx: &mut Cx| {
                this.call_home(cx, move |conn, driver, _| conn.acknowledged(driver, bytes));
            };
            core.post_home(Some(&CAUGHT_UP), color, caught_up);
        }
        if is_urgent {
            core.hurry(color);
        }
        is_far_ahead
    }

    /// Whether what is received from now on hurries.
    pub(in crate::net) fn set_urgent(self: Arc<Conn>, cx: &mut Cx, urgent: bool) {
        self.call_home(cx, move |conn, driver, _| {
            conn.at_home.borrow(&mut driver.here).urgent = urgent;
        });
    }

    /// The runtime is ending and receives no more for this connection; says so to the application,
    /// unless it has been told the end already.
    pub(in crate::net) fn canceled(self: &Arc<Conn>, here: &mut Here, core: &mut Core) {
        let told = {
            let home = self.at_home.borrow(here);
            home.recv.is_some() || home.ended || home.closing
        };
        if !told {
            self.received(Err(ending()), here, core);
        }
    }

    /// The runtime was asked to stop, or the application first wants to receive after that: notes
    /// how much has arrived, if the application has ever wanted to receive; on the home core.
    pub(in crate::net) fn begin_arriving(self: &Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        {
            let home = self.at_home.borrow(&mut driver.here);
            if home.arrival != Arrival::NotAsked || !home.was_wanted || home.closing {
                return;
            }
        }
        // In this order: no bytes come behind the end.
        let with_end = self.owner.has_ended(self.fd);
        let unread_bytes = driver.unread_bytes(self) as u64;
        {
            let is_late = driver.has_begun_arriving;
            let mut home = self.at_home.borrow(&mut driver.here);
            let bytes = home.received_bytes + unread_bytes;
            // A stream that is paused is told only of bytes that it has not read.
            let with_end = with_end && home.wanted;
            home.arrival = Arrival::Until {
                bytes,
                with_end,
                is_late,
            };
            driver.arriving += 1;
        }
        Arc::clone(self).look_at_arrival(driver, core);
    }

    /// Looks whether all has arrived, and starts or stops receiving; on the home core, after a
    /// stop.
    pub(in crate::net) fn look_at_arrival(self: Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let has_arrived = {
            let mut home = self.at_home.borrow(&mut driver.here);
            let received_bytes = home.received_bytes;
            let is_all = match home.arrival {
                Arrival::Until {
                    bytes, with_end, ..
                } => home.ended || received_bytes >= bytes && !with_end,
                Arrival::NotAsked | Arrival::Done => false,
            };
            is_all && home.arrival.end()
        };
        if has_arrived {
            driver.arriving -= 1;
            self.arrived(driver, core);
        } else {
            self.adjust(driver);
        }
    }

    /// The stage is over in which what had arrived is received.
    pub(in crate::net) fn give_up_arriving(self: &Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let gives_up = {
            let mut home = self.at_home.borrow(&mut driver.here);
            let is_late = matches!(home.arrival, Arrival::Until { is_late: true, .. });
            !is_late && home.arrival.end()
        };
        if gives_up {
            driver.arriving -= 1;
            Arc::clone(self).arrived(driver, core);
        }
    }

    /// All that had arrived is received.
    fn arrived(self: Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        match self.at_stop() {
            AtStop::Rests => self.adjust(driver),
            AtStop::Told => self.end_at_home(driver, core),
            AtStop::GoesOn => {
                let color = self.color();
                Arc::clone(&self).adjust(driver);
                core.post_home(Some(&ARRIVED), color, move |cx: &mut Cx| {
                    self.give_kept(cx);
                    let callback = self.in_color(cx).on_arrived.take();
                    if let Some(callback) = callback {
                        callback(cx);
                    }
                });
            }
        }
    }

    /// Tells the application the end, unless it was told one: at once, or when the receive under
    /// way has ended.
    pub(in crate::net) fn end_at_home(self: &Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let op = {
            let mut home = self.at_home.borrow(&mut driver.here);
            if home.arrival.end() {
                driver.arriving -= 1;
            }
            // Never begun: nothing is waited for any more.
            home.arrival = Arrival::Done;
            home.tells_end = true;
            home.recv.filter(|_| !home.canceling && !home.lingers)
        };
        match op {
            Some(op) => driver.cancel(op),
            None => self.canceled(&mut driver.here, core),
        }
    }

    /// Delivers what was received; an event of the color.
    fn deliver(self: Arc<Conn>, cx: &mut Cx, result: io::Result<RecvBuf>) {
        if let Some(result) = self.unless_secured(cx, result) {
            self.give(cx, result);
        }
    }

    /// The end has come in the bytes: what comes behind them is not received; on the home core.
    #[cfg(feature = "tls")]
    pub(super) fn end_receiving(self: Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        self.at_home.borrow(&mut driver.here).ended = true;
        self.pass_marks(&mut driver.here, core);
        match driver.is_ending() {
            true => self.look_at_arrival(driver, core),
            false => self.adjust(driver),
        }
    }

    /// Gives to the application what is for it; in the color.
    pub(super) fn give(self: Arc<Conn>, cx: &mut Cx, result: io::Result<RecvBuf>) {
        let last = result.as_ref().map_or(true, |data| data.is_empty());
        let (callback, watched) = {
            let mut colored = self.in_color(cx);
            if colored.phase != Phase::Open {
                return;
            }
            // From now on none is kept: what it holds may hold the connection.
            colored.ended |= last;
            (colored.on_data.take(), colored.idle.is_some())
        };
        if watched {
            self.stir(cx);
        }
        let Some(callback) = callback else { return };
        let (stream, over) = self.call(cx, callback, ColorHalf::place_of_on_data, result);
        // With nothing borrowed.
        let mut drops = InTurn::default();
        let closes = {
            let colored = stream.conn.in_color(cx);
            last && colored.closes_at_end && !colored.half_open
        };
        if closes {
            drops.run(|| stream.close(cx));
        }
        drops.run(|| drop(over));
        drops.end();
    }

    /// The receive is over; called by the home core's driver.
    pub(in crate::net) fn recv_over(self: &Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let again = {
            let mut home = self.at_home.borrow(&mut driver.here);
            home.recv = None;
            // Canceled before it began to linger.
            let lingers_on = std::mem::take(&mut home.canceling) && home.lingers;
            if home.closing && !lingers_on && !self.closed.swap(true, Ordering::Relaxed) {
                driver.backend.close(self.fd);
            }
            (
                lingers_on || home.should_receive(self.at_stop()),
                home.tells_end,
            )
        };
        let (again, tells_end) = again;
        if tells_end {
            // It was paused, or was to go on, when the end came.
            self.canceled(&mut driver.here, core);
        } else if again {
            Arc::clone(self).start_recv(driver);
        }
    }

    /// The application wants to receive, or not; on the home core. If it is too late, the
    /// application is told the end.
    pub(in crate::net) fn receive(
        self: Arc<Conn>,
        driver: &mut Driver,
        core: &mut Core,
        wanted: bool,
    ) {
        {
            let mut home = self.at_home.borrow(&mut driver.here);
            home.wanted = wanted;
            home.was_wanted |= wanted;
        }
        if driver.tells_the_end() {
            self.end_at_home(driver, core);
        } else if driver.is_ending() {
            self.begin_arriving(driver, core);
            self.look_at_arrival(driver, core);
        } else {
            self.adjust(driver);
        }
    }

    /// The color was given that many bytes more; on the home core.
    fn acknowledged(self: Arc<Conn>, driver: &mut Driver, bytes: usize) {
        self.at_home.borrow(&mut driver.here).ahead_bytes -= bytes;
        // Ending: who does not receive has been told so.
        self.adjust(driver);
    }

    /// Starts or stops receiving, as it should be; on the home core.
    pub(in crate::net) fn adjust(self: Arc<Conn>, driver: &mut Driver) {
        let start = {
            let mut home = self.at_home.borrow(&mut driver.here);
            let should = home.should_receive(self.at_stop());
            match home.recv {
                // A receive that is being canceled is started again once it is over.
                Some(op) if !should && !home.canceling && !home.lingers && !home.tells_end => {
                    home.canceling = true;
                    driver.cancel(op);
                    false
                }
                Some(_) => false,
                None => should,
            }
        };
        if start {
            self.start_recv(driver);
        }
    }

    /// Says what becomes of its receives after a stop; an event of the color.
    pub(in crate::net) fn set_at_stop(self: &Arc<Conn>, cx: &mut Cx, at_stop: AtStop) {
        self.at_stop.store(at_stop as u32, Ordering::Relaxed);
        // Either this sees the stop, or the home core, which fences after it has seen the stop,
        // sees what was stored.
        fence(Ordering::SeqCst);
        if cx.stopping() {
            Arc::clone(self).call_home(cx, |conn, driver, core| {
                let has_arrived = conn.at_home.borrow(&mut driver.here).arrival == Arrival::Done;
                match has_arrived {
                    true => conn.arrived(driver, core),
                    false => conn.adjust(driver),
                }
            });
        }
    }

    pub(in crate::net) fn at_stop(&self) -> AtStop {
        let at_stop = self.at_stop.load(Ordering::Relaxed);
        [AtStop::Rests, AtStop::Told, AtStop::GoesOn][at_stop as usize]
    }

    pub(super) fn start_recv(self: Arc<Conn>, driver: &mut Driver) {
        let op = driver.recv(Arc::clone(&self));
        self.at_home.borrow(&mut driver.here).recv = Some(op);
    }

    /// Has an event of the color under `handler` come behind all that has arrived; on the home
    /// core.
    pub(in crate::net) fn mark(
        self: Arc<Conn>,
        handler: Option<&'static Handler>,
        driver: &mut Driver,
        core: &mut Core,
    ) {
        let unread_bytes = driver.unread_bytes(&self);
        {
            let mut home = self.at_home.borrow(&mut driver.here);
            let at = home.received_bytes + unread_bytes as u64;
            home.marks.push((at, handler));
        }
        self.pass_marks(&mut driver.here, core);
    }

    /// Posts an event for each mark that has been reached; on the home core.
    fn pass_marks(self: &Arc<Conn>, here: &mut Here, core: &mut Core) {
        let mut next = || {
            let mut home = self.at_home.borrow(here);
            let &(at, handler) = home.marks.first()?;
            let is_reached = home.ended || home.received_bytes >= at;
            is_reached.then(|| {
                home.marks.remove(0);
                handler
            })
        };
        while let Some(handler) = next() {
            let this = Arc::clone(self);
            core.post_home(handler, self.color(), move |cx: &mut Cx| {
                this.pass_mark(cx);
            });
        }
    }

    /// All that had arrived when it was marked has been given to the application; an event of the
    /// color.
    fn pass_mark(self: Arc<Conn>, cx: &mut Cx) {
        self.give_kept(cx);
        let callback = {
            let mut colored = self.in_color(cx);
            // None is left once the connection is closed.
            (!colored.after_received.is_empty()).then(|| colored.after_received.remove(0))
        };
        if let Some(callback) = callback {
            let doubt = Doubt(&self);
            callback(cx);
            std::mem::forget(doubt);
        }
    }
}

impl Arrival {
    /// Waits for nothing more. True: it did before.
    pub(super) fn end(&mut self) -> bool {
        let waits = matches!(self, Arrival::Until { .. });
        if waits {
            *self = Arrival::Done;
        }
        waits
    }
}

impl HomeHalf {
    fn should_receive(&self, at_stop: AtStop) -> bool {
        let may = self.arrival != Arrival::Done || at_stop == AtStop::GoesOn;
        let is_open = !self.closing && !self.ended && !self.tells_end;
        self.wanted && may && is_open && !self.is_far_ahead()
    }

    /// Whether the color is so far behind that receiving has to rest.
    fn is_far_ahead(&self) -> bool {
        self.ahead_bytes >= REST_BYTES
    }

    /// Counts bytes that are about to go to the color. Returns how many the color is to acknowledge
    /// behind them, if any.
    fn advance(&mut self, bytes: usize) -> Option<usize> {
        let charged = bytes.max(CHARGED_BYTES_MIN);
        self.ahead_bytes += charged;
        self.unasked_bytes += charged;
        self.received_bytes += bytes as u64;
        let due = self.unasked_bytes >= ACKNOWLEDGED_BYTES;
        due.then(|| std::mem::take(&mut self.unasked_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_is_asked_how_far_it_is_and_receiving_rests_for_it() {
        let mut home = HomeHalf {
            wanted: true,
            ..HomeHalf::default()
        };
        const LEAST: usize = CHARGED_BYTES_MIN;
        assert_eq!(home.advance(ACKNOWLEDGED_BYTES - 1), None);
        // However few they are.
        assert_eq!(home.advance(1), Some(ACKNOWLEDGED_BYTES - 1 + LEAST));
        assert_eq!(home.advance(LEAST), None);
        let received = ACKNOWLEDGED_BYTES + LEAST;
        assert_eq!(home.received_bytes, received as u64);
        assert!(home.should_receive(AtStop::Rests));
        home.advance(REST_BYTES - received - LEAST);
        assert!(!home.is_far_ahead() && home.should_receive(AtStop::Rests));
        home.advance(LEAST);
        assert!(home.is_far_ahead() && !home.should_receive(AtStop::Rests));
        home.ahead_bytes = 0;
        assert!(home.should_receive(AtStop::Rests));
        for stops in [
            |home: &mut HomeHalf| home.wanted = false,
            |home: &mut HomeHalf| home.closing = true,
            |home: &mut HomeHalf| home.ended = true,
        ] {
            let mut home = HomeHalf {
                wanted: true,
                ..HomeHalf::default()
            };
            stops(&mut home);
            assert!(!home.should_receive(AtStop::Rests), "{home:?}");
        }
    }
}
