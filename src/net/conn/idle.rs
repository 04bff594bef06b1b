//! The idle timeout: a connection whose peer does nothing for too long.
//!
//! A connection *waits for its peer* while it receives, or has bytes that the kernel has not taken.
//! While it does, a timer is set. The timer is an event of the connection's color, which looks at
//! when something last moved, and sets the timer for what is left: once per limit, however much
//! moves. A connection that waits for its own program has no timer, and one of its next calls sets
//! it again ([`Conn::stir`]).
//!
//! If the color has moved to another core, the timer is there. The home core may be busy for longer
//! than the limit, and has not looked at its event source then. So the color does not decide: it
//! asks the home core how many bytes that one has received ([`Conn::ask_home`]). The answer comes
//! behind those bytes, and if the connection is idle then, the home core ends it unless more has
//! come since ([`Conn::time_out`]). The home core tells the end once, whatever it is.

use super::{ColorHalf, Conn, Phase};
use crate::callback::Callback;
use crate::net::driver::Driver;
use crate::net::timer::Timer;
use crate::sched::core::Core;
use crate::{Cx, Handler};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What the timers run under.
static IDLE: Handler = Handler::new("mely: idle");

/// The idle timeout of a connection that has one.
pub(super) struct Idle {
    limit: Duration,
    /// When something last moved, or the wait for the peer began.
    since: Duration,
    /// While the connection waits for its peer.
    timer: Option<Timer>,
}

/// What the color finds.
enum Look {
    Again(Duration),
    AskHome,
    /// There is nobody to be told any more.
    Close,
}

fn timed_out(limit: Duration) -> io::Error {
    let text = format!("nothing was received or sent for the limit of {limit:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

impl ColorHalf {
    fn waits_for_peer(&self) -> bool {
        let receives = self.phase == Phase::Open && self.receives && !self.ended;
        receives || self.sending
    }

    /// None: there is nothing to wait for, or no limit.
    fn look(&self, now: Duration) -> Option<Look> {
        let waits = self.waits_for_peer();
        let idle = self.idle.as_ref().filter(|_| waits)?;
        let idle_for = now.saturating_sub(idle.since);
        Some(match idle.limit.checked_sub(idle_for) {
            Some(left) if !left.is_zero() => Look::Again(left),
            _ if self.phase == Phase::Open && !self.ended => Look::AskHome,
            _ => Look::Close,
        })
    }
}

impl Conn {
    /// Sets the limit, or takes it away; an event of the color.
    pub(in crate::net) fn set_idle_timeout(self: &Arc<Conn>, cx: &mut Cx, limit: Option<Duration>) {
        self.forget_idle(cx);
        let since = cx.now();
        let idle = limit.map(|limit| Idle {
            limit,
            since,
            timer: None,
        });
        // Of one that is closed nothing is left to be noticed.
        self.in_color(cx).idle = idle.map(Box::new);
        self.stir(cx);
    }

    /// The application wants to receive, or not; an event of the color.
    pub(in crate::net) fn note_wanted(self: &Arc<Conn>, cx: &mut Cx, wanted: bool) {
        let watched = {
            let mut colored = self.in_color(cx);
            colored.receives = wanted;
            colored.idle.is_some()
        };
        if watched {
            self.stir(cx);
        }
    }

    /// Something has moved, or the connection begins to wait for its peer; an event of the color.
    pub(in crate::net) fn stir(self: &Arc<Conn>, cx: &mut Cx) {
        let now = cx.now();
        let limit = {
            let mut colored = self.in_color(cx);
            let waits = colored.waits_for_peer();
            let Some(idle) = &mut colored.idle else {
                return;
            };
            idle.since = now;
            if idle.timer.is_some() || !waits {
                return;
            }
            idle.limit
        };
        self.set_idle_timer(cx, limit);
    }

    fn set_idle_timer(self: &Arc<Conn>, cx: &mut Cx, after: Duration) {
        let conn = Arc::downgrade(self);
        let due = move |cx: &mut Cx| {
            // In the color, where a connection may be dropped.
            if let Some(conn) = conn.upgrade() {
                if let Some(idle) = &mut conn.in_color(cx).idle {
                    idle.timer = None;
                }
                conn.look_at_idle(cx);
            }
        };
        let timer = cx.timer(after, Callback::new(Some(&IDLE), self.color(), due));
        if let Some(idle) = &mut self.in_color(cx).idle {
            idle.timer = Some(timer);
        }
    }

    /// The timer is due.
    fn look_at_idle(self: Arc<Conn>, cx: &mut Cx) {
        let now = cx.now();
        let look = self.in_color(cx).look(now);
        match look {
            None => {}
            Some(Look::Again(left)) => self.set_idle_timer(cx, left),
            Some(Look::AskHome) => self.call_home(cx, Conn::ask_home),
            Some(Look::Close) => self.give_up_sending(cx),
        }
    }

    /// Closes at once. Nobody hears of what is received any more, but somebody may hear of what is
    /// sent.
    fn give_up_sending(self: Arc<Conn>, cx: &mut Cx) {
        let told = {
            let mut colored = self.in_color(cx);
            let limit = colored.idle.as_ref().map(|idle| idle.limit);
            let callback = colored.place_of_on_drained().and_then(Option::take);
            // Its last call.
            colored.broken |= callback.is_some();
            callback.zip(limit)
        };
        let called = told.map(|(callback, limit)| {
            let this = Arc::clone(&self);
            this.call(
                cx,
                callback,
                ColorHalf::place_of_on_drained,
                Err(timed_out(limit)),
            )
        });
        // The close drops those that are left.
        self.time_marks_out(cx);
        self.close(cx, true);
        // Last: it may panic.
        drop(called);
    }

    /// Answers how much was received, behind that; on the home core.
    fn ask_home(self: Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let received_bytes = self.at_home.borrow(&mut driver.here).received_bytes;
        let color = self.color();
        let answer = move |cx: &mut Cx| self.idle_after(cx, received_bytes);
        core.post_home(Some(&IDLE), color, answer);
    }

    /// So much has been received and given to the application; an event of the color.
    fn idle_after(self: Arc<Conn>, cx: &mut Cx, received_bytes: u64) {
        let now = cx.now();
        let limit = {
            let colored = self.in_color(cx);
            let is_idle = matches!(colored.look(now), Some(Look::AskHome));
            let limit = colored.idle.as_ref().map(|idle| idle.limit);
            limit.filter(|_| is_idle)
        };
        // If not, something has moved meanwhile and has set the timer.
        if let Some(limit) = limit {
            self.call_home(cx, move |conn, driver, core| {
                conn.time_out(driver, core, received_bytes, limit);
            });
        }
    }

    /// Ends the receive if no more has come; on the home core. If more has, its delivery sets the
    /// timer again.
    fn time_out(
        self: Arc<Conn>,
        driver: &mut Driver,
        core: &mut Core,
        received_bytes: u64,
        limit: Duration,
    ) {
        let unread_bytes = driver.unread_bytes(&self);
        let is_over = {
            let home = self.at_home.borrow(&mut driver.here);
            let has_more = home.received_bytes != received_bytes || home.wanted && unread_bytes > 0;
            has_more || home.ended || home.closing
        };
        // A stop is told as such.
        if is_over || driver.is_ending() {
            return;
        }
        self.received(Err(timed_out(limit)), &mut driver.here, core);
        // Which ends the receive under way.
        self.adjust(driver);
    }

    /// No limit any more; an event of the color.
    pub(super) fn forget_idle(&self, cx: &mut Cx) {
        let idle = self.in_color(cx).idle.take();
        if let Some(timer) = idle.and_then(|idle| idle.timer) {
            timer.cancel(cx);
        }
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use crate::Post;
    use crate::net::tests::{listening, settle};
    use crate::net::{Incoming, RecvBuf, Session, SimClient, Stream};
    use crate::sim::{self, Simulation};
    use crate::state::WeakColored;
    use crate::{Callback, Color, Cx, Handler, Runtime};
    use std::io::{self, ErrorKind, Read, Write};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    static SERVE: Handler = Handler::new("serve");
    const LIMIT: Duration = Duration::from_secs(10);
    /// More than the simulated network takes for a client that does not read.
    const MUCH: usize = 1 << 20;

    /// What a session was told, and when.
    type Told = (&'static str, Duration);

    struct Watched {
        stream: Stream,
        tell: Sender<Told>,
    }

    impl Watched {
        fn tell(&self, what: &'static str, cx: &Cx) {
            self.tell.send((what, cx.now())).unwrap();
        }
    }

    impl Session for Watched {
        fn data(&mut self, cx: &mut Cx, _data: RecvBuf) {
            self.tell("data", cx);
        }

        fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
            match end.map_err(|error| error.kind()) {
                Ok(()) => self.tell("end", cx),
                Err(ErrorKind::TimedOut) => self.tell("timed out", cx),
                Err(_) => self.tell("error", cx),
            }
            self.stream.set_half_open(cx, true).unwrap();
        }
    }

    /// A simulated server of one core with one connection that has this limit, and its client.
    struct Server {
        simulation: Simulation,
        client: SimClient,
        me: WeakColored<Watched>,
        told: Receiver<Told>,
    }

    impl Server {
        fn new() -> Server {
            let ((tell, told), (give, me)) = (channel(), channel());
            let accept = move |_cx: &mut Cx, incoming: io::Result<Incoming>| {
                let (tell, give) = (tell.clone(), give.clone());
                incoming.unwrap().serve(&SERVE, move |cx, stream, me| {
                    stream.set_idle_timeout(cx, Some(LIMIT)).unwrap();
                    give.send(me.clone()).unwrap();
                    Watched { stream, tell }
                });
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
            let client = simulation.network().connect(addr).unwrap();
            let me = loop {
                match me.try_recv() {
                    Ok(me) => break me,
                    Err(_) => simulation.step(),
                };
            };
            Server {
                simulation,
                client,
                me,
                told,
            }
        }

        fn post(&self, f: fn(&mut Watched, &mut Cx)) {
            let session = self.me.upgrade().unwrap();
            session.try_post(&self.simulation.poster(), f).unwrap();
        }

        /// Goes on until this time, by an event then.
        fn until(&mut self, time: Duration) {
            let (tell, told) = channel();
            let after = time.saturating_sub(self.simulation.now());
            let then = Callback::anonymous(Color::from(2), move |_| tell.send(()).unwrap());
            let _timer = self.simulation.poster().timer(after, then).unwrap();
            while told.try_recv().is_err() {
                self.simulation.step();
            }
        }

        /// All that is told until nothing is left to do, and whether the connection is closed then.
        fn rest(&mut self) -> (Vec<Told>, bool) {
            settle(&mut self.simulation);
            (self.told.try_iter().collect(), self.me.upgrade().is_none())
        }

        /// Times out a limit after this, and not much later.
        fn times_out_after(mut self, since: Duration) {
            let (told, is_gone) = self.rest();
            let [("timed out", at)] = told[..] else {
                panic!("{told:?}");
            };
            let early = since + LIMIT;
            assert!(
                (early..early + LIMIT / 100).contains(&at),
                "{since:?} {at:?}"
            );
            assert!(is_gone);
        }
    }

    /// Told once, whatever the session returns.
    #[test]
    fn a_peer_that_does_nothing_is_timed_out() {
        let server = Server::new();
        let now = server.simulation.now();
        server.times_out_after(now);
    }

    #[test]
    fn a_peer_that_sends_is_not() {
        let mut server = Server::new();
        for round in 1..=10 {
            server.until(round * LIMIT * 3 / 4);
            server.client.write_all(b"!").unwrap();
            server.until(round * LIMIT * 3 / 4 + LIMIT / 100);
            let told: Vec<_> = server.told.try_iter().collect();
            assert!(matches!(told[..], [("data", _)]), "{told:?}");
        }
        server.times_out_after(10 * LIMIT * 3 / 4);
    }

    #[test]
    fn a_peer_that_takes_what_is_sent_is_not() {
        let mut server = Server::new();
        for round in 1..=10 {
            server.until(round * LIMIT * 3 / 4);
            server.post(|its, cx| its.stream.write(cx, "tick").unwrap());
        }
        server.until(10 * LIMIT * 3 / 4 + LIMIT / 100);
        assert!(server.told.try_recv().is_err());
        server.times_out_after(10 * LIMIT * 3 / 4);
    }

    #[test]
    fn a_paused_stream_waits_for_nobody() {
        let mut server = Server::new();
        server.post(|its, cx| its.stream.pause(cx).unwrap());
        assert_eq!(server.rest(), (vec![], false));
        server.until(3 * LIMIT);
        server.client.write_all(b"!").unwrap();
        assert_eq!(server.rest(), (vec![], false));
        server.until(4 * LIMIT);
        server.post(|its, cx| its.stream.resume(cx).unwrap());
        server.until(4 * LIMIT + LIMIT / 100);
        assert!(matches!(server.told.try_recv(), Ok(("data", _))));
        server.times_out_after(4 * LIMIT);
    }

    /// Though it has sent what is not received yet.
    #[test]
    fn a_peer_that_does_not_read_is_timed_out_though_the_stream_is_paused() {
        let mut server = Server::new();
        server.post(|its, cx| {
            its.stream.pause(cx).unwrap();
            its.stream.write(cx, vec![7; MUCH]).unwrap();
        });
        server.until(LIMIT / 2);
        server.client.write_all(b"!").unwrap();
        let (told, is_gone) = server.rest();
        assert!(matches!(told[..], [("timed out", _)]), "{told:?}");
        assert!(is_gone, "a close waits no longer than the limit");
        assert!(server.simulation.now() < 3 * LIMIT);
    }

    /// Its own end has come before: nothing more is received.
    #[test]
    fn a_peer_that_ends_and_does_not_read_is_timed_out() {
        let mut server = Server::new();
        server.client.shutdown_write();
        server.until(LIMIT / 2);
        assert!(matches!(server.told.try_recv(), Ok(("end", _))));
        server.post(|its, cx| {
            its.stream.write(cx, vec![7; MUCH]).unwrap();
        });
        assert_eq!(server.rest(), (vec![], true));
        let now = server.simulation.now();
        assert!(now >= 3 * LIMIT / 2 && now < 2 * LIMIT, "{now:?}");
    }

    #[test]
    fn a_close_waits_no_longer_than_the_limit() {
        let mut server = Server::new();
        server.post(|its, cx| {
            its.stream.write(cx, vec![7; MUCH]).unwrap();
            its.stream.close(cx);
        });
        server.until(LIMIT / 2);
        // Whoever reads is given the time to.
        server.client.read_exact(&mut [0; 1 << 15]).unwrap();
        assert_eq!(server.rest(), (vec![], true));
        assert!(server.simulation.now() < 2 * LIMIT);
    }

    #[test]
    fn a_limit_can_be_changed_and_taken_away_and_ends_with_a_close() {
        let mut server = Server::new();
        server.until(LIMIT / 2);
        server.post(|its, cx| its.stream.set_idle_timeout(cx, None).unwrap());
        assert_eq!(server.rest(), (vec![], false));
        assert!(server.simulation.now() < LIMIT, "no timer is left");
        server.post(|its, cx| its.stream.set_idle_timeout(cx, Some(3 * LIMIT)).unwrap());
        let since = server.simulation.now() + 2 * LIMIT;
        server.times_out_after(since);
        let mut server = Server::new();
        server.post(|its, cx| its.stream.close(cx));
        assert_eq!(server.rest(), (vec![], true));
        assert!(server.simulation.now() < LIMIT, "no timer is left");
    }

    /// What has come while the core was busy is looked at first.
    #[test]
    fn a_core_that_is_late_does_not_time_out_who_was_in_time() {
        let mut server = Server::new();
        let (poster, mut client) = (server.simulation.poster(), server.client);
        let (give, client) = (channel(), move |cx: &mut Cx| {
            sim::work(cx, 2 * LIMIT);
            client.write_all(b"!").unwrap();
            client
        });
        let (give, given) = give;
        let busy = move |cx: &mut Cx| give.send(client(cx)).unwrap();
        poster.try_post(Color::from(2), busy).unwrap();
        settle(&mut server.simulation);
        let told: Vec<_> = server.told.try_iter().collect();
        let [("data", came), ("timed out", at)] = told[..] else {
            panic!("{told:?}");
        };
        assert!(
            came > 2 * LIMIT - LIMIT / 100 && at >= came + LIMIT,
            "{told:?}"
        );
        drop(given);
    }

    #[test]
    fn a_stop_is_told_as_such() {
        let mut server = Server::new();
        server.simulation.poster().stop();
        let (told, _) = server.rest();
        assert!(matches!(told[..], [("error", _)]), "{told:?}");
        assert!(server.simulation.now() < LIMIT, "no timer is left");
    }
}
