//! The virtual clients as events: each core's share of them has one color, and its connections run
//! in it. So a share's counters need no lock, and what a response costs the injector is little.

use crate::file_set::Files;
use crate::measure::{Errors, Measure};
use crate::response::{Progress, Reader, Wrong};
use crate::work::{Until, Work};
use mely::net::{Incoming, RecvBuf, Session, Stream, Timer};
use mely::state::WeakColored;
use mely::{Color, Colored, Cx, Handler};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

static CONNECT: Handler = Handler::new("Connect");
static RESPONSE: Handler = Handler::new("Response");
static RETRY_CONNECT: Handler = Handler::new("Retry");
static SHARE: Handler = Handler::new("Share");
static SILENCE: Handler = Handler::new("Silence");

/// How long an attempt to connect may last.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(60);
/// After a connection could not be made, so long until the next try.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// Colors of the shares: this and the next ones.
const SHARE_COLOR: u64 = 16;

/// What is asked for, made once.
#[derive(Debug)]
pub(crate) struct Plan {
    work: Work,
    files: Files,
    /// The request for each file.
    requests: Vec<Vec<u8>>,
}

impl Plan {
    pub(crate) fn new(work: Work) -> Plan {
        let files = work.set.files();
        let request = |index| {
            let (name, host) = (files.name(index), work.targets[0]);
            format!("GET /{name} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
        };
        Plan {
            requests: (0..files.len()).map(request).collect(),
            files,
            work,
        }
    }
}

/// All clients of this injector.
pub(crate) struct Load {
    shares: Vec<Colored<Share>>,
}

/// One core's clients.
struct Share {
    plan: &'static Plan,
    me: Option<Colored<Share>>,
    clients: Vec<Client>,
    random: fastrand::Rng,
    measure: Measure,
    measuring: bool,
    /// How many more responses, wrong ones included, if their number is what ends it.
    left: Option<u64>,
    /// When something last came from the server.
    heard: Instant,
    /// Fires when that may be too long ago.
    silence: Option<Timer>,
    on_end: Option<OnEnd>,
}

type OnEnd = Arc<dyn Fn(&mut Cx, Measure) + Send + Sync>;

/// What a share knows of a client.
#[derive(Default)]
struct Client {
    connection: Option<WeakColored<Connection>>,
    /// Responses in measured time.
    measured: u64,
}

/// A client's connection.
struct Connection {
    stream: Stream,
    share: Colored<Share>,
    client: usize,
    plan: &'static Plan,
    reader: Reader,
    file: usize,
    /// Of this connection, so far.
    responses: u64,
    began: Instant,
    asked: Instant,
}

impl Load {
    /// Makes the clients; nothing is asked for yet. `number` tells injectors apart. `on_end` is
    /// called once a share with what it measured.
    pub(crate) fn new(
        cx: &mut Cx,
        plan: &'static Plan,
        number: u64,
        on_end: impl Fn(&mut Cx, Measure) + Send + Sync + 'static,
    ) -> Load {
        let on_end: OnEnd = Arc::new(on_end);
        let cores = cx.cores().min(plan.work.clients);
        let part = |whole: u64, core: usize| {
            let (core, cores) = (core as u64, cores as u64);
            whole / cores + u64::from(core < whole % cores)
        };
        let shares = (0..cores).map(|core| {
            let color = Color::from(SHARE_COLOR + core as u64);
            cx.place(color, core);
            let seed = plan.work.set.seed ^ (number << 32 | core as u64) << 8;
            let left = match plan.work.until {
                Until::Time { .. } => None,
                Until::Total(responses) => Some(part(responses, core)),
            };
            let clients = part(plan.work.clients as u64, core);
            let share = Share {
                plan,
                me: None,
                clients: (0..clients).map(|_| Client::default()).collect(),
                random: fastrand::Rng::with_seed(seed),
                measure: Measure::default(),
                measuring: false,
                left,
                heard: Instant::now(),
                silence: None,
                on_end: Some(Arc::clone(&on_end)),
            };
            Colored::new(cx, color, share)
        });
        Load {
            shares: shares.collect(),
        }
    }

    /// How many shares there are.
    pub(crate) fn shares(&self) -> usize {
        self.shares.len()
    }

    /// All clients connect.
    pub(crate) fn start(&self, cx: &mut Cx) {
        for share in &self.shares {
            let me = share.clone();
            share
                .via(&SHARE)
                .post(cx, |share: &mut Share, cx| share.start(cx, me));
        }
    }

    /// From here on it counts.
    pub(crate) fn measure(&self, cx: &mut Cx) {
        for share in &self.shares {
            share
                .via(&SHARE)
                .post(cx, |share: &mut Share, _cx| share.measuring = true);
        }
    }

    /// That was it; shares that have not ended by themselves end now.
    pub(crate) fn end(&self, cx: &mut Cx) {
        for share in &self.shares {
            share.via(&SHARE).post(cx, Share::end);
        }
    }
}

impl Share {
    fn start(&mut self, cx: &mut Cx, me: Colored<Share>) {
        self.me = Some(me);
        if self.left == Some(0) {
            return self.end(cx);
        }
        self.heard = Instant::now();
        self.listen(cx, self.plan.work.silence_max);
        for client in 0..self.clients.len() {
            self.connect(cx, client);
        }
    }

    /// Looks after this time whether the server is silent.
    fn listen(&mut self, cx: &mut Cx, after: Duration) {
        let Some(me) = &self.me else { return };
        let look = me.on(&SILENCE, |share, cx| {
            let silent = share.heard.elapsed();
            match share.plan.work.silence_max.checked_sub(silent) {
                Some(left) if !left.is_zero() => share.listen(cx, left),
                _ => {
                    share.measure.errors.silent += share.clients.len() as u64;
                    share.end(cx);
                }
            }
        });
        self.silence = Some(cx.timer(after, look));
    }

    fn end(&mut self, cx: &mut Cx) {
        self.me = None;
        if let Some(silence) = self.silence.take() {
            silence.cancel(cx);
        }
        let Some(on_end) = self.on_end.take() else {
            return;
        };
        self.measure.clients = self.clients.len() as u64;
        let starved = self.clients.iter().filter(|client| client.measured == 0);
        self.measure.starved = starved.count() as u64;
        for client in self.clients.drain(..) {
            if let Some(connection) = client.connection {
                connection.post(cx, |connection, cx| connection.stream.close(cx));
            }
        }
        on_end(cx, std::mem::take(&mut self.measure));
    }

    fn connect(&mut self, cx: &mut Cx, client: usize) {
        let Some(me) = self.me.clone() else { return };
        let began = Instant::now();
        let connected = me.on_value(&CONNECT, move |share, cx, incoming| {
            share.connected(cx, client, began, incoming);
        });
        let targets = &self.plan.work.targets;
        let target = targets[client % targets.len()];
        if cx.connect(target, CONNECT_MAX, connected).is_err() {
            self.retry(cx, client);
        }
    }

    fn retry(&mut self, cx: &mut Cx, client: usize) {
        if self.measuring {
            self.measure.errors.connect += 1;
            if self.is_last() {
                return self.end(cx);
            }
        }
        let Some(me) = self.me.clone() else { return };
        let again = me.on(&RETRY_CONNECT, move |share, cx| share.connect(cx, client));
        cx.timer(RETRY_AFTER, again);
    }

    fn connected(
        &mut self,
        cx: &mut Cx,
        client: usize,
        began: Instant,
        incoming: io::Result<Incoming>,
    ) {
        let Some(me) = self.me.clone() else { return };
        self.heard = Instant::now();
        let Ok(incoming) = incoming else {
            return self.retry(cx, client);
        };
        if self.measuring {
            self.measure.connections += 1;
        }
        let (plan, asked) = (self.plan, self.heard);
        let stream = incoming.open(me.color());
        let connection = stream.serve(&RESPONSE, move |cx, stream, _| {
            let mut connection = Connection {
                stream,
                share: me,
                client,
                plan,
                reader: Reader::default(),
                file: 0,
                responses: 0,
                began,
                asked,
            };
            connection.ask(cx, asked);
            connection
        });
        self.clients[client].connection = Some(connection.downgrade());
    }

    /// Counts a response that came after `took`, and after `first` since its connection was begun
    /// if it is that one's first. False: that was all.
    fn response(
        &mut self,
        cx: &mut Cx,
        index: usize,
        bytes: usize,
        took: Duration,
        first: Option<Duration>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(index) else {
            return false;
        };
        if !self.measuring {
            return true;
        }
        client.measured += 1;
        self.measure.response(took, bytes);
        if let Some(first) = first {
            self.measure.first_response(first);
        }
        self.goes_on(cx)
    }

    /// Counts what came instead of a response. False: that was all.
    fn wrong(&mut self, cx: &mut Cx, count: impl FnOnce(&mut Errors)) -> bool {
        if self.clients.is_empty() {
            return false;
        }
        self.heard = Instant::now();
        if !self.measuring {
            return true;
        }
        count(&mut self.measure.errors);
        self.goes_on(cx)
    }

    /// Counts one towards the total, and ends if it was the last.
    fn goes_on(&mut self, cx: &mut Cx) -> bool {
        let is_last = self.is_last();
        if is_last {
            self.end(cx);
        }
        !is_last
    }

    /// Counts one towards the total. Errors count too: a server that gives nothing else must not
    /// keep us forever.
    fn is_last(&mut self) -> bool {
        let Some(left) = &mut self.left else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

impl Session for Connection {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        let expected = self.plan.files.body(self.file);
        let check = self.plan.work.check;
        match self.reader.advance(&data, expected, check) {
            Ok(Progress::More) => self.in_share(cx, |share, _cx| share.heard = Instant::now()),
            Ok(Progress::Done { close }) => self.response(cx, expected.len(), close),
            Err(wrong) => self.wrong(cx, |errors| match wrong {
                Wrong::Framing => errors.framing += 1,
                Wrong::Status => errors.status += 1,
                Wrong::Body => errors.body += 1,
            }),
        }
    }

    fn end(&mut self, cx: &mut Cx, _end: io::Result<()>) {
        self.wrong(cx, |errors| errors.closed += 1);
    }
}

impl Connection {
    /// Lends the share, which is of the same color.
    fn in_share<R: Default>(&self, cx: &mut Cx, f: impl FnOnce(&mut Share, &mut Cx) -> R) -> R {
        // Refused only if an event has panicked that had it.
        self.share.with(cx, f).unwrap_or_default()
    }

    fn ask(&mut self, cx: &mut Cx, now: Instant) {
        self.file = self.in_share(cx, |share, _cx| share.plan.files.choose(&mut share.random));
        self.asked = now;
        // If sending it fails, this session is told.
        let _ = self
            .stream
            .write(cx, self.plan.requests[self.file].as_slice());
    }

    fn response(&mut self, cx: &mut Cx, bytes: usize, close: bool) {
        let now = Instant::now();
        self.responses += 1;
        let client = self.client;
        let first = (self.responses == 1).then(|| now - self.began);
        let took = now - self.asked;
        let goes_on = self.in_share(cx, |share, cx| {
            share.heard = now;
            share.response(cx, client, bytes, took, first)
        });
        if !goes_on {
            return;
        }
        if close || self.responses == self.plan.work.requests_per_connection {
            self.reconnect(cx);
        } else {
            self.ask(cx, now);
        }
    }

    fn wrong(&mut self, cx: &mut Cx, count: impl FnOnce(&mut Errors)) {
        if self.in_share(cx, |share, cx| share.wrong(cx, count)) {
            self.reconnect(cx);
        }
    }

    fn reconnect(&mut self, cx: &mut Cx) {
        self.stream.close(cx);
        let client = self.client;
        self.in_share(cx, |share, cx| share.connect(cx, client));
    }
}
