//! One connection as events: the handlers of the paper around [`Conn`], and its deadlines.

use crate::acknowledged::unacknowledged_bytes;
use crate::clients::Clients;
use crate::clock::{self, Time};
use crate::conn::Conn;
use crate::deadlines::Watch;
use crate::outgoing;
use crate::respond::Live;
use crate::server::Server;
use crate::stats_page;
use crate::step::{Deadline, Next, Unfinished};
use mely::net::{Incoming, RecvBuf, Stream};
use mely::{Color, Colored, Cx, Handler};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

static READ_REQUEST: Handler = Handler::new("ReadRequest");
static PARSE_REQUEST: Handler = Handler::new("ParseRequest");
static WRITE_RESPONSE: Handler = Handler::new("WriteResponse");
pub(crate) static CLOSE: Handler = Handler::new("Close");
static DEADLINE: Handler = Handler::new("Deadline");

/// From bytes that have arrived to their answer it takes two events: ParseRequest, WriteResponse.
const STEPS_MAX: u32 = 2;

/// The state of one connection's color.
pub(crate) struct Session {
    server: &'static Server,
    http: Conn,
    stream: Stream,
    fd: i32,
    /// Bytes of all answers so far.
    answered_bytes: u64,
    /// How many of them the client had taken when that was last looked at.
    taken_bytes: u64,
    /// Itself, from `begin` to `close`.
    me: Option<Colored<Session>>,
    timer: Option<mely::net::Timer>,
    watch: Watch,
    /// A deadline has passed, and bytes that had arrived by then come first.
    asked: bool,
    /// Steps of a request under way that a session still takes when it is cut off.
    steps_left: u32,
    paused: bool,
    /// To be closed when the last answer has been sent, or has not been for too long.
    closing: bool,
    /// To be no client any more when the last answer has been sent.
    leaving: bool,
    clients: Colored<Clients>,
    /// Its number among them.
    number: u64,
}

impl mely::net::Session for Session {
    /// ReadRequest.
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        let next = self.http.read_request(&data);
        self.go(cx, next);
    }

    /// All of the last answers has left.
    fn drained(&mut self, cx: &mut Cx) {
        let next = self.http.on_drained();
        self.go(cx, next);
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        let next = match end {
            Ok(()) => self.http.on_eof(),
            // Reset by the client, or the runtime is ending: nobody is there to answer.
            Err(_) => Next::Abort,
        };
        self.go(cx, next);
    }
}

impl Session {
    /// Gives a connection its color and its state; one that is `refused` gets a 503.
    pub(crate) fn open(
        server: &'static Server,
        incoming: Incoming,
        clients: Colored<Clients>,
        number: u64,
        refused: bool,
    ) -> Colored<Session> {
        let fd = incoming.fd();
        let stream = incoming.open(Color::from(fd as u64));
        stream.serve(&READ_REQUEST, move |cx, stream, me| {
            let http = Conn::default();
            let watch = Watch::new(http.timer(), clock::now());
            let mut session = Session {
                server,
                http,
                stream,
                fd,
                answered_bytes: 0,
                taken_bytes: 0,
                me: me.upgrade(),
                timer: None,
                watch,
                asked: false,
                steps_left: STEPS_MAX,
                paused: false,
                closing: false,
                leaving: false,
                clients,
                number,
            };
            session.begin(cx, refused);
            session
        })
    }

    fn begin(&mut self, cx: &mut Cx, refused: bool) {
        self.watch_on(cx, clock::now());
        // Not refused: this is the stream's color. `Conn` bounds what is queued, to a little and
        // one answer of any size; a bound of the stream's own could only lose a part of that.
        let _ = self.stream.set_write_limit(cx, usize::MAX);
        // `Conn` says when to close.
        let _ = self.stream.set_half_open(cx, true);
        if refused {
            let next = self.http.turn_away();
            self.go(cx, next);
        }
    }

    fn parse_request(&mut self, cx: &mut Cx) {
        let next = self.http.parse_request();
        self.go(cx, next);
    }

    fn check_in_cache(&mut self, cx: &mut Cx) {
        let server = self.server;
        let next = self.http.check_in_cache(&server.site, |live| match live {
            Live::Page => stats_page::render(&server.figures()),
            Live::Values => stats_page::values(&server.figures()),
        });
        self.go(cx, next);
    }

    /// WriteResponse.
    fn write_response(&mut self, cx: &mut Cx) {
        let (reply, next) = self.http.write_response();
        let mut sent = false;
        let tick = clock::at_tick();
        if let Some(reply) = reply {
            self.server.count(cx.core(), reply.status, tick);
            self.answered_bytes += reply.len() as u64;
            let date = clock::date(tick);
            let alone = self.http.queued_bytes() == reply.len();
            outgoing::each(reply, &date, alone, |buffer| {
                // Never full: see `begin`. A stream that is broken says so to `on_drained`.
                sent = self.stream.write_now(cx, buffer).unwrap_or(false);
            });
        }
        // What `on_drained` would have said in an event of its own. If the connection goes on
        // anyway, there is nothing more to it.
        let drained = match sent {
            true => self.http.on_drained(),
            false => Next::Wait,
        };
        self.watch_on(cx, clock::not_before(tick));
        self.go(cx, if next == Next::Wait { drained } else { next });
    }

    /// The server was told to stop: a connection ends after the request that is under way, or has
    /// arrived already; without one, at once.
    pub(crate) fn wind_down(&mut self, cx: &mut Cx) {
        let next = self.http.wind_down();
        self.go(cx, next);
    }

    /// The time to finish is over, except for a request that has arrived before.
    pub(crate) fn cut_off(&mut self, cx: &mut Cx) {
        if !self.after_arrived(cx, Session::cut_off_now) {
            self.cut_off_now(cx);
        }
    }

    /// Closed, and counted if it was in the middle of something.
    fn cut_off_now(&mut self, cx: &mut Cx) {
        let Some(me) = &self.me else { return };
        if self.http.is_at_work() && self.steps_left > 0 {
            // Behind the next step, which is the server's to take.
            self.steps_left -= 1;
            return me.via(&CLOSE).post(cx, Session::cut_off_now);
        }
        self.note_progress(cx);
        let unfinished = self.http.unfinished();
        match unfinished {
            None => {}
            Some(Unfinished::Request) => drop(self.server.cut_requests.fetch_add(1, Relaxed)),
            Some(Unfinished::Answer) => drop(self.server.cut_answers.fetch_add(1, Relaxed)),
        }
        // The kernel has its last answer, and is not to throw that away.
        self.close(cx, unfinished.is_some());
    }

    /// Posts the next handler of the paper's flow.
    fn go(&mut self, cx: &mut Cx, next: Next) {
        let Some(me) = &self.me else { return };
        match next {
            Next::Wait => {}
            Next::ParseRequest => me.via(&PARSE_REQUEST).post(cx, Session::parse_request),
            // A look at a table needs no event of its own.
            Next::CheckInCache => return self.check_in_cache(cx),
            Next::WriteResponse => me.via(&WRITE_RESPONSE).post(cx, Session::write_response),
            Next::LastLook => {
                let looked = me.on(&CLOSE, |session, cx| {
                    let next = session.http.last_look();
                    session.go(cx, next);
                });
                let _ = self.stream.after_received(cx, looked);
            }
            Next::Close => self.closing = true,
            Next::Abort => me
                .via(&CLOSE)
                .post(cx, |s: &mut Session, cx| s.close(cx, true)),
            Next::Linger => {
                let _ = self.stream.shutdown_write(cx);
                self.leaving = true;
            }
        }
        if (self.closing || self.leaving) && self.http.queued_bytes() == 0 {
            if std::mem::take(&mut self.closing) {
                let me = self.me.as_ref().expect("looked at above");
                me.via(&CLOSE)
                    .post(cx, |s: &mut Session, cx| s.close(cx, false));
            }
            if std::mem::take(&mut self.leaving) {
                Clients::leaves(&self.clients, cx, self.number);
            }
        }
        self.throttle(cx);
        // If another step follows, it notes the state that it begins.
        let waits = !matches!(next, Next::ParseRequest | Next::WriteResponse);
        if waits && !self.watch.has_noted(self.http.timer()) {
            self.watch_on(cx, clock::now());
        }
    }

    /// Stops receiving while the client does not read its answers.
    fn throttle(&mut self, cx: &mut Cx) {
        let paused = !self.http.wants_input();
        if paused != self.paused {
            self.paused = paused;
            let _ = if paused {
                self.stream.pause(cx)
            } else {
                self.stream.resume(cx)
            };
        }
    }

    /// Close.
    pub(crate) fn close(&mut self, cx: &mut Cx, at_once: bool) {
        if self.me.take().is_none() {
            return;
        }
        if let Some(timer) = self.timer.take() {
            timer.cancel(cx);
        }
        if at_once {
            self.stream.abort(cx);
        } else {
            self.stream.close(cx);
        }
        Clients::closed(&self.clients, cx, self.number);
    }

    /// Notes which deadline the connection is under now, and has it looked at in time.
    fn watch_on(&mut self, cx: &mut Cx, now: Time) {
        self.watch.note(self.http.timer(), now);
        let Some(me) = &self.me else { return };
        let deadlines = &self.server.deadlines;
        let after = match self.asked {
            // If the answer does not come. No deadline that begins from now on passes before.
            true => self.timer.is_none().then(|| deadlines.shortest()),
            false => self.watch.set(deadlines, now),
        };
        if let Some(after) = after {
            let tick = me.on(&DEADLINE, Session::tick);
            let before = self.timer.replace(cx.timer(after, tick));
            if let Some(before) = before {
                before.cancel(cx);
            }
        }
    }

    /// A part of what is queued may have left.
    fn note_progress(&mut self, cx: &mut Cx) {
        let queued_bytes = self.stream.queued_bytes(cx).unwrap_or(0);
        let sent_bytes = self.http.queued_bytes().saturating_sub(queued_bytes);
        if sent_bytes > 0 {
            let next = self.http.on_sent(sent_bytes);
            self.go(cx, next);
        }
    }

    /// Whether the client has taken more of its answers since the last look, and is not done. The
    /// kernel takes more from us only when a third of its buffer, which may be megabytes, is free:
    /// of a client that reads slowly that says nothing for minutes.
    fn has_taken_more(&mut self) -> bool {
        let in_kernel = unacknowledged_bytes(self.fd).unwrap_or(0);
        let left_bytes = self.http.queued_bytes() + in_kernel;
        let taken_bytes = self.answered_bytes.saturating_sub(left_bytes as u64);
        left_bytes > 0 && std::mem::replace(&mut self.taken_bytes, taken_bytes) != taken_bytes
    }

    fn tick(&mut self, cx: &mut Cx) {
        self.timer = None;
        self.watch.fired();
        if let Some(deadline) = self.passed(cx) {
            // If the server was late, its client may have been in time.
            if self.asked || !self.after_arrived(cx, Session::time_out) {
                self.asked = false;
                self.pass(cx, deadline);
            } else {
                self.asked = true;
            }
        }
        self.watch_on(cx, clock::now());
    }

    /// All that had arrived when the deadline was seen to have passed is dealt with.
    fn time_out(&mut self, cx: &mut Cx) {
        self.asked = false;
        if let Some(deadline) = self.passed(cx) {
            self.pass(cx, deadline);
        }
        self.watch_on(cx, clock::now());
    }

    fn pass(&mut self, cx: &mut Cx, deadline: Deadline) {
        let next = self.http.on_deadline(deadline);
        self.go(cx, next);
    }

    /// The deadline, if it has passed. Progress restarts it.
    fn passed(&mut self, cx: &mut Cx) -> Option<Deadline> {
        self.note_progress(cx);
        if self.http.queued_bytes() > 0 && self.has_taken_more() {
            self.http.on_taken();
        }
        let now = clock::now();
        self.watch.note(self.http.timer(), now);
        let passed = self.watch.passed(&self.server.deadlines, now);
        // The kernel has all of its last answer, and the client has not.
        if passed == Some(Deadline::Idle) && self.has_taken_more() {
            self.http.on_taken();
            return None;
        }
        passed
    }

    /// Calls `then` when all that has arrived by now is read and parsed. False: while nothing is
    /// read, that does not come.
    fn after_arrived(&self, cx: &mut Cx, then: fn(&mut Session, &mut Cx)) -> bool {
        let me = self.me.clone().filter(|_| !self.paused);
        let Some(me) = me else { return false };
        // The last bytes have posted their ParseRequest by then, and `then` comes behind that.
        let arrived = DEADLINE.on(me.color(), move |cx| me.via(&DEADLINE).post(cx, then));
        let _ = self.stream.after_received(cx, arrived);
        true
    }
}
