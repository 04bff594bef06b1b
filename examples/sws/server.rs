//! The server: the paper's handlers as events, one color a connection.
//!
//! ```text
//!   color 1        Accept --------------------------------------------> DecClientAccepted
//!                    |                                                        ^
//!   color = fd       +-> ReadRequest -> ParseRequest => CheckInCache -> WriteResponse -> Close
//!                             ^                                          |
//!                             +------------------------------------------+
//! ```
//!
//! The paper's Epoll and RegisterFdInEpoll (color 0) are the runtime's own event source and its
//! control colors; CheckInCache, whose color the paper does not state, runs in the connection's: the
//! cache is read-only after start-up.
//!
//! `->` is an event, `=>` a call. Calling is allowed where one color would run both in sequence
//! anyway. CheckInCache is called: it is shorter than an event. And a response that the kernel takes
//! at once, as mostly, is accounted for by WriteResponse; ResponseSent, which the paper does not
//! have, is an event only for what had to wait. So a request is three events.

use crate::NAME;
use crate::args::{Accept, Args};
use crate::bytes::Bytes;
use crate::conn::Conn;
use crate::figures::{self, Figures};
use crate::out;
use crate::site::Site;
use crate::stats_page;
use crate::step::{Deadline, Next, Timer};
use mely::net::{Acceptors, Incoming, Listener, RecvBuf, SendBuf, Stream, listen};
use mely::{Color, Colored, Cx, Handler, Poster};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ACCEPT: Handler = Handler::new("Accept");
static READ_REQUEST: Handler = Handler::new("ReadRequest");
static PARSE_REQUEST: Handler = Handler::new("ParseRequest");
static WRITE_RESPONSE: Handler = Handler::new("WriteResponse");
static CLOSE: Handler = Handler::new("Close");
static DEC_CLIENT_ACCEPTED: Handler = Handler::new("DecClientAccepted");
static RESPONSE_SENT: Handler = Handler::new("ResponseSent");
static DEADLINE: Handler = Handler::new("Deadline");
static STOP: Handler = Handler::new("Stop");

/// The paper's color of Accept.
const ACCEPT_COLOR: Color = Color::new(1);
/// How long a connection's last answer may take to be read before the connection is cut.
const LINGER: Duration = Duration::from_secs(2);
/// How long connections have to finish once the server was told to stop.
const FINISH: Duration = Duration::from_secs(5);
/// A slow client has one write deadline for each of these.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// What does not change while the server runs, and the counters of all connections.
///
/// Leaked at start-up: it lives as long as the process, and a reference that is `'static` costs no
/// count in each of a request's events.
pub(crate) struct Server {
    pub(crate) site: Site,
    pub(crate) args: Args,
    pub(crate) started: Instant,
    pub(crate) poster: Poster,
    pub(crate) backend: std::sync::OnceLock<(String, String)>,
    requests: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
    open: AtomicU64,
}

impl Server {
    pub(crate) fn new(site: Site, args: Args, poster: Poster) -> Server {
        Server {
            site,
            args,
            started: Instant::now(),
            poster,
            backend: std::sync::OnceLock::new(),
            requests: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }

    /// What the server and its runtime have done so far.
    pub(crate) fn figures(&self) -> Figures {
        let stats = self.poster.stats();
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (backend, backend_reason) = self.backend.get().cloned().unwrap_or_default();
        let cores = stats.cores.iter().map(|core| figures::Core {
            cpu: core.cpu.unwrap_or(0) as usize,
            events: core.events,
            posts_local: core.posts_local,
            posts_remote: core.posts_remote,
            steals_tried: core.steals.iter().map(|s| s.tried).sum(),
            steals_won: core.steals.iter().map(|s| s.won).sum(),
            steal_cost_median_ns: core.steal_cost_median().map(nanos),
            stolen: core.stolen(),
            parks: core.parks,
            wakes: core.wakes,
            handler_max_ns: nanos(core.handler_max),
            queued: core.events_queued,
        });
        let steals = stats.steal_cost.iter().map(|&(distance, _)| {
            let of = || {
                stats
                    .cores
                    .iter()
                    .flat_map(|c| &c.steals)
                    .filter(|s| s.distance == distance)
            };
            figures::Steals {
                distance: distance.to_string(),
                tried: of().map(|s| s.tried).sum(),
                won: of().map(|s| s.won).sum(),
            }
        });
        Figures {
            uptime: self.started.elapsed(),
            requests: self.requests.load(Ordering::Relaxed),
            backend,
            backend_reason,
            stealing: self.args.stealing,
            connections: figures::Connections {
                open: self.open.load(Ordering::Relaxed),
                accepted: self.accepted.load(Ordering::Relaxed),
                rejected: self.rejected.load(Ordering::Relaxed),
                open_max: self.args.clients_max as u64,
            },
            cores: cores.collect(),
            steals: steals.collect(),
            steal_cost_median_ns: stats.steal_cost_median().map(nanos),
        }
    }
}

/// The state of [`ACCEPT_COLOR`].
struct Clients {
    server: &'static Server,
    listener: Option<Listener>,
    /// By the number that Accept gave them.
    open: HashMap<u64, Colored<Session>>,
    next: u64,
    stopping: bool,
}

/// Listens, and announces it. An error is the reason why the server cannot run.
pub(crate) fn start(cx: &mut Cx, server: &'static Server) -> io::Result<SocketAddr> {
    let clients = Clients {
        server,
        listener: None,
        open: HashMap::new(),
        next: 0,
        stopping: false,
    };
    let clients = Colored::new(cx, ACCEPT_COLOR, clients);
    let acceptors = match server.args.accept {
        Accept::PerCore => Acceptors::PerCore,
        Accept::Single => Acceptors::Single,
    };
    let its = clients.clone();
    let on_accept = move |cx: &mut Cx, incoming| {
        let _ = its.with(cx, |clients, cx| clients.accept(cx, &its, incoming));
    };
    if let Some(report) = cx.backends().first() {
        let _ = server
            .backend
            .set((report.name().to_owned(), report.refused().join("; ")));
    }
    let listener = listen(
        cx,
        server.args.listen,
        acceptors,
        ACCEPT.on(ACCEPT_COLOR, on_accept),
    )?;
    let addr = listener.local_addr();
    let its = clients.clone();
    cx.on_stop_signal(STOP.on(ACCEPT_COLOR, move |cx: &mut Cx| {
        let _ = its.with(cx, |clients, cx| clients.stop(cx, &its));
    }))?;
    let keep = move |clients: &mut Clients, _: &mut Cx| clients.listener = Some(listener);
    clients
        .post_as(cx, &ACCEPT, keep)
        .map_err(io::Error::other)?;
    if let Err(error) = out::print(&format!("listening on {addr}\n")) {
        out::try_say(
            NAME,
            format_args!("listening on {addr}; standard output: {error}"),
        );
    }
    Ok(addr)
}

impl Clients {
    /// Accept.
    fn accept(&mut self, cx: &mut Cx, me: &Colored<Clients>, incoming: io::Result<Incoming>) {
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(error) => {
                // The runtime goes on a little later: connections wait in the kernel meanwhile.
                out::try_say(NAME, format_args!("accept: {error}"));
                return;
            }
        };
        let server = self.server;
        let refused = self.open.len() >= server.args.clients_max || self.stopping;
        let counter = if refused {
            &server.rejected
        } else {
            &server.accepted
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let color = Color::from(incoming.fd() as u64);
        let number = self.next;
        self.next += 1;
        let session = Session {
            server,
            http: Conn::default(),
            stream: incoming.open(cx, color),
            me: None,
            timer: None,
            noted: (
                Timer {
                    deadline: Deadline::None,
                    round: 0,
                },
                Instant::now(),
            ),
            paused: false,
            closing: false,
            clients: me.clone(),
            number,
        };
        let session = Colored::new(cx, color, session);
        if !refused {
            server.open.fetch_add(1, Ordering::Relaxed);
            self.open.insert(number, session.clone());
        }
        let its = session.clone();
        let begin = move |session: &mut Session, cx: &mut Cx| session.begin(cx, its, refused);
        // Refused only once the runtime has ended.
        let _ = session.post_as(cx, &READ_REQUEST, begin);
    }

    /// DecClientAccepted.
    fn dec_client_accepted(&mut self, cx: &mut Cx, number: u64) {
        if self.open.remove(&number).is_some() {
            self.server.open.fetch_sub(1, Ordering::Relaxed);
        }
        if self.stopping && self.open.is_empty() {
            cx.stop();
        }
    }

    /// SIGINT or SIGTERM: no new clients; those there finish the request under way.
    fn stop(&mut self, cx: &mut Cx, me: &Colored<Clients>) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        self.listener = None;
        if self.open.is_empty() {
            cx.stop();
            return;
        }
        for session in self.open.values() {
            let _ = session.post_as(cx, &CLOSE, Session::wind_down);
        }
        let me = me.clone();
        let give_up = move |cx: &mut Cx| {
            let _ = me.with(cx, Clients::give_up);
        };
        cx.timer(FINISH, STOP.on(ACCEPT_COLOR, give_up));
    }

    /// Those who have not finished are cut: the runtime waits for sends, and a client that does not
    /// read would make it wait in vain.
    fn give_up(&mut self, cx: &mut Cx) {
        for session in self.open.values() {
            let _ = session.post_as(cx, &CLOSE, |s: &mut Session, cx| s.close(cx, true));
        }
    }
}

/// The state of one connection's color.
struct Session {
    server: &'static Server,
    http: Conn,
    stream: Stream,
    /// Itself, from `begin` to `close`.
    me: Option<Colored<Session>>,
    timer: Option<mely::net::Timer>,
    /// The deadline that applied at the last tick, and since when.
    noted: (Timer, Instant),
    paused: bool,
    /// To be closed when the last answer has been sent, or has not been for too long.
    closing: bool,
    clients: Colored<Clients>,
    number: u64,
}

impl Session {
    fn begin(&mut self, cx: &mut Cx, me: Colored<Session>, refused: bool) {
        let its = me.clone();
        let on_data = move |cx: &mut Cx, _: &Stream, data: io::Result<RecvBuf>| {
            let _ = its.with(cx, |session, cx| session.read_request(cx, data));
        };
        let its = me.clone();
        let on_drained = move |cx: &mut Cx, _: &Stream, sent: io::Result<()>| {
            let _ = its.with(cx, |session, cx| session.response_sent(cx, sent));
        };
        self.me = Some(me);
        self.noted = (self.http.timer(), Instant::now());
        self.tick_later(cx);
        // Not refused: this is the stream's color. `Conn` bounds what is queued, to a little and one
        // answer of any size; a bound of the stream's own could only lose a part of that.
        let _ = self.stream.set_write_limit(cx, usize::MAX);
        let _ = self.stream.on_drained(cx, &RESPONSE_SENT, on_drained);
        let _ = self.stream.on_data(cx, &READ_REQUEST, on_data);
        if refused {
            let next = self.http.turn_away();
            self.go(cx, next);
        }
    }

    /// ReadRequest.
    fn read_request(&mut self, cx: &mut Cx, data: io::Result<RecvBuf>) {
        let next = match data {
            Ok(data) if data.is_empty() => self.http.on_eof(),
            Ok(data) => self.http.read_request(&data),
            // Reset by the client, or the runtime is ending: nobody is there to answer.
            Err(_) => Next::Abort,
        };
        self.go(cx, next);
    }

    fn parse_request(&mut self, cx: &mut Cx) {
        let next = self.http.parse_request();
        self.go(cx, next);
    }

    fn check_in_cache(&mut self, cx: &mut Cx) {
        let server = self.server;
        let next = self
            .http
            .check_in_cache(&server.site, || stats_page::render(&server.figures()));
        self.go(cx, next);
    }

    /// WriteResponse.
    fn write_response(&mut self, cx: &mut Cx) {
        let (bytes, next) = self.http.write_response();
        let mut sent = false;
        if let Some(bytes) = bytes {
            self.server.requests.fetch_add(1, Ordering::Relaxed);
            for piece in pieces(bytes) {
                // Never full: see `begin`. A stream that is broken says so to `on_drained`.
                sent = self.stream.write_now(cx, piece).unwrap_or(false);
            }
        }
        self.go(cx, next);
        if sent {
            self.response_sent(cx, Ok(()));
        }
    }

    fn response_sent(&mut self, cx: &mut Cx, sent: io::Result<()>) {
        let next = match sent {
            Ok(()) => self.http.on_drained(),
            Err(_) => Next::Abort,
        };
        self.go(cx, next);
    }

    /// The server was told to stop: an idle connection ends, a busy one after its request.
    fn wind_down(&mut self, cx: &mut Cx) {
        let next = self.http.wind_down();
        self.go(cx, next);
    }

    /// Posts the next handler of the paper's flow.
    fn go(&mut self, cx: &mut Cx, next: Next) {
        let Some(me) = &self.me else { return };
        match next {
            Next::Wait => {}
            Next::ParseRequest => drop(me.post_as(cx, &PARSE_REQUEST, Session::parse_request)),
            // A look at a table needs no event of its own.
            Next::CheckInCache => return self.check_in_cache(cx),
            Next::WriteResponse => drop(me.post_as(cx, &WRITE_RESPONSE, Session::write_response)),
            Next::Close => self.closing = true,
            Next::Abort => drop(me.post_as(cx, &CLOSE, |s: &mut Session, cx| s.close(cx, true))),
            Next::Linger => {
                let _ = self.stream.shutdown_write(cx);
            }
        }
        if self.closing && self.http.timer().deadline != Deadline::Write {
            self.closing = false;
            let me = self.me.as_ref().expect("looked at above");
            drop(me.post_as(cx, &CLOSE, |s: &mut Session, cx| s.close(cx, false)));
        }
        self.throttle(cx);
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
    fn close(&mut self, cx: &mut Cx, at_once: bool) {
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
        let number = self.number;
        let dec = move |c: &mut Clients, cx: &mut Cx| c.dec_client_accepted(cx, number);
        let _ = self.clients.post_as(cx, &DEC_CLIENT_ACCEPTED, dec);
    }

    /// Looks at the deadlines a little later. One timer a connection, not one a request: it looks
    /// twice in the shortest deadline, so each is met to within half of that.
    fn tick_later(&mut self, cx: &mut Cx) {
        let Some(me) = self.me.clone() else { return };
        let args = &self.server.args;
        let shortest = args.idle_timeout_ms.min(args.header_timeout_ms);
        let period = Duration::from_millis(shortest).min(LINGER) / 2;
        let tick = move |cx: &mut Cx| {
            // Not refused: the timer's color is the session's.
            let _ = me.with(cx, Session::tick);
        };
        self.timer = Some(cx.timer(period, DEADLINE.on(self.stream.color(), tick)));
    }

    fn tick(&mut self, cx: &mut Cx) {
        // A part of what is queued may have left: that is progress, and restarts the deadline.
        let queued_bytes = self.stream.queued_bytes(cx).unwrap_or(0);
        let sent_bytes = self.http.queued_bytes().saturating_sub(queued_bytes);
        if sent_bytes > 0 {
            let next = self.http.on_sent(sent_bytes);
            self.go(cx, next);
        }
        let now = self.http.timer();
        if now != self.noted.0 {
            self.noted = (now, Instant::now());
        } else if self.noted.1.elapsed() >= self.limit(now.deadline) {
            let next = self.http.on_deadline(now.deadline);
            self.go(cx, next);
        }
        self.tick_later(cx);
    }

    fn limit(&self, deadline: Deadline) -> Duration {
        match deadline {
            Deadline::None => Duration::MAX,
            Deadline::Idle | Deadline::Write => {
                Duration::from_millis(self.server.args.idle_timeout_ms)
            }
            Deadline::Header => Duration::from_millis(self.server.args.header_timeout_ms),
            Deadline::Linger => LINGER,
        }
    }
}

/// What is sent at once. Large answers are cut, so that a slow client is seen to make progress.
fn pieces(bytes: Bytes) -> impl Iterator<Item = SendBuf> {
    let (whole, shared): (Option<SendBuf>, &'static [u8]) = match bytes {
        Bytes::Static(bytes) => (None, bytes),
        Bytes::Owned(bytes) => (Some(bytes.into()), &[]),
    };
    whole
        .into_iter()
        .chain(shared.chunks(PIECE_BYTES_MAX).map(SendBuf::from))
}
