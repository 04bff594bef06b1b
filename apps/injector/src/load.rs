//! The virtual clients as events: each core's share of them has one color, and its connections run
//! in it. So a share's counters need no lock, and what a response costs the injector is little.

use crate::file_set::Files;
use crate::measure::Measure;
use crate::response::{Progress, Reader, Wrong};
use crate::work::{Until, Work};
use mely::net::{Incoming, RecvBuf, Stream, Timer};
use mely::{Color, Colored, Cx, Handler};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

static CONNECT: Handler = Handler::new("Connect");
static RESPONSE: Handler = Handler::new("Response");
static RETRY_CONNECT: Handler = Handler::new("Retry");
static SHARE: Handler = Handler::new("Share");
static SILENCE: Handler = Handler::new("Silence");

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

#[derive(Default)]
struct Client {
    /// Dropping it closes it.
    stream: Option<Stream>,
    reader: Reader,
    file: usize,
    /// Of this connection, so far.
    responses: u64,
    /// Of all connections, in measured time.
    measured: u64,
    times: Option<Times>,
}

#[derive(Clone, Copy)]
struct Times {
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
        // With it the connections' callbacks have nobody to call.
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
        self.clients.clear();
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
        if cx.connect(target, connected).is_err() {
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
        let stream = incoming.open(me.color());
        let on_data = move |cx: &mut Cx, _: &Stream, data: io::Result<RecvBuf>| {
            let _ = me.with(cx, |share, cx| share.data(cx, client, data));
        };
        // Not refused: this is the stream's color.
        let _ = stream.on_data(cx, &RESPONSE, on_data);
        self.clients[client] = Client {
            stream: Some(stream),
            measured: self.clients[client].measured,
            times: Some(Times {
                began,
                asked: began,
            }),
            ..Client::default()
        };
        self.ask(cx, client, self.heard);
    }

    fn ask(&mut self, cx: &mut Cx, index: usize, now: Instant) {
        let file = self.plan.files.choose(&mut self.random);
        let client = &mut self.clients[index];
        client.file = file;
        if let (Some(stream), Some(times)) = (&client.stream, &mut client.times) {
            times.asked = now;
            // One that is broken says so to its `on_data`.
            let _ = stream.write(cx, self.plan.requests[file].as_slice());
        }
    }

    fn data(&mut self, cx: &mut Cx, index: usize, data: io::Result<RecvBuf>) {
        let plan = self.plan;
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let expected = plan.files.body(client.file);
        let errors = &mut self.measure.errors;
        let wrong = match data {
            Ok(data) if !data.is_empty() => {
                match client.reader.advance(&data, expected, plan.work.check) {
                    Ok(Progress::More) => {
                        self.heard = Instant::now();
                        return;
                    }
                    Ok(Progress::Done { close }) => {
                        return self.response(cx, index, expected.len(), close);
                    }
                    Err(Wrong::Framing) => &mut errors.framing,
                    Err(Wrong::Status) => &mut errors.status,
                    Err(Wrong::Body) => &mut errors.body,
                }
            }
            _ => &mut errors.closed,
        };
        self.heard = Instant::now();
        if self.measuring {
            *wrong += 1;
            if self.is_last() {
                return self.end(cx);
            }
        }
        self.reconnect(cx, index);
    }

    fn response(&mut self, cx: &mut Cx, index: usize, bytes: usize, close: bool) {
        let now = Instant::now();
        self.heard = now;
        let client = &mut self.clients[index];
        client.responses += 1;
        let over = close || client.responses == self.plan.work.requests_per_connection;
        if let (true, Some(times)) = (self.measuring, client.times) {
            client.measured += 1;
            self.measure.response(now - times.asked, bytes);
            if client.responses == 1 {
                self.measure.first_response(now - times.began);
            }
            if self.is_last() {
                return self.end(cx);
            }
        }
        if over {
            self.reconnect(cx, index);
        } else {
            self.ask(cx, index, now);
        }
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

    fn reconnect(&mut self, cx: &mut Cx, index: usize) {
        if let Some(stream) = self.clients[index].stream.take() {
            stream.close(cx);
        }
        self.connect(cx, index);
    }
}
