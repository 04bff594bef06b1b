//! Several injectors, started together by a master that gathers what they measured.
//!
//! ```text
//! injector                     master
//!    | ------- connects -------> |   until all are there
//!    | <--- work N OPTIONS ----- |   N tells injectors apart
//!    | -------- ready ---------> |   until all are
//!    | <------- start ---------- |
//!    | ------ a Measure -------> |   as JSON; the master adds them up
//! ```
//!
//! Each message is a line. Until they are started, injectors may come and go, and so may others who
//! talk something else: the master waits until all that it was told of are ready, and starts those.

use crate::args::{self, Args, Command, Role};
use crate::measure::{Measure, Outcome};
use crate::run::{self, Clock};
use crate::work::{Until, Work};
use crate::{NAME, out};
use mely::net::{Acceptors, Incoming, Listener, RecvBuf, Stream};
use mely::runtime::Finish;
use mely::{Color, Colored, Cx, Handler, Runtime};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;

static MASTER: Handler = Handler::new("Master");

const MASTER_COLOR: Color = Color::new(3);
/// A measure has some thousand numbers.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Of what a thread may tell another.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

struct Master {
    me: Option<Colored<Master>>,
    work: Work,
    listener: Option<Listener>,
    wanted: usize,
    /// By their numbers, each the smallest that was free.
    joined: BTreeMap<usize, Joined>,
    started: bool,
    clock: Clock,
    sum: Measure,
    gathered: usize,
    finish: Finish<Result<Outcome>>,
}

struct Joined {
    stream: Stream,
    lines: Lines,
    is_ready: bool,
    /// It has sent its measure.
    is_done: bool,
}

/// What has arrived, cut into lines.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// None: no line will come of it.
    fn push(&mut self, bytes: &[u8]) -> Option<Vec<String>> {
        self.0.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', &self.0) {
            let line = self.0.drain(..=end).collect::<Vec<u8>>();
            lines.push(String::from_utf8(line).ok()?.trim_end().to_owned());
        }
        (self.0.len() <= LINE_BYTES_MAX).then_some(lines)
    }
}

/// Waits for this many injectors, has them do the work, and adds up what they measured. `listens`
/// is told where, once they can connect.
///
/// # Errors
/// If it cannot listen, or an injector is lost.
pub(crate) fn lead(
    runtime: Runtime,
    addr: SocketAddr,
    wanted: usize,
    work: Work,
    server_pids: Vec<u32>,
    listens: impl FnOnce(SocketAddr) + Send + 'static,
) -> Result<Outcome> {
    runtime.run_until(move |cx, finish| {
        let master = Master {
            me: None,
            work,
            listener: None,
            wanted,
            joined: BTreeMap::new(),
            started: false,
            clock: Clock::new(server_pids),
            sum: Measure::default(),
            gathered: 0,
            finish,
        };
        let master = Colored::new(cx, MASTER_COLOR, master);
        let its = master.clone();
        master
            .via(&MASTER)
            .post(cx, move |master: &mut Master, cx| {
                match master.listen(cx, its, addr) {
                    Ok(addr) => listens(addr),
                    Err(error) => master.give_up(format!("{addr}: {error}")),
                }
            });
    })?
}

impl Master {
    fn listen(
        &mut self,
        cx: &mut Cx,
        me: Colored<Master>,
        addr: SocketAddr,
    ) -> io::Result<SocketAddr> {
        let accept = me.on_each(&MASTER, |master, cx, incoming| match incoming {
            Ok(incoming) => master.joined(cx, incoming),
            Err(error) => master.give_up(io::Error::to_string(&error)),
        });
        let listener = cx.listen(addr, Acceptors::Single, accept)?;
        let addr = listener.local_addr();
        self.me = Some(me);
        self.listener = Some(listener);
        Ok(addr)
    }

    fn give_up(&mut self, why: String) {
        // Told already, or the runtime has ended.
        self.finish.finish(Err(why.into()));
    }

    fn joined(&mut self, cx: &mut Cx, incoming: Incoming) {
        let Some(me) = self.me.clone() else { return };
        if self.started {
            // It came too late, and is closed.
            return;
        }
        let stream = incoming.open(MASTER_COLOR);
        let is_free = |number: &usize| !self.joined.contains_key(number);
        let number = (0..).find(is_free).expect("fewer than numbers");
        let on_data = move |cx: &mut Cx, _: &Stream, data: io::Result<RecvBuf>| {
            let _ = me.with(cx, |master, cx| {
                let Err(error) = master.heard(cx, number, data) else {
                    return;
                };
                let error = format!("injector {number}: {error}");
                if master.started {
                    master.give_up(error);
                } else {
                    out::try_say(NAME, format_args!("{error}; waiting for another"));
                    master.joined.remove(&number);
                }
            });
        };
        // Not refused: this is the stream's color. A write that fails says so to `on_data`.
        let _ = stream.on_data(cx, &MASTER, on_data);
        let options = self.work.to_options().join(" ");
        let _ = stream.write(cx, format!("work {number} {options}\n"));
        let joined = Joined {
            stream,
            lines: Lines::default(),
            is_ready: false,
            is_done: false,
        };
        self.joined.insert(number, joined);
    }

    fn heard(&mut self, cx: &mut Cx, number: usize, data: io::Result<RecvBuf>) -> Result<()> {
        let Some(joined) = self.joined.get_mut(&number) else {
            // Not one of those that were started.
            return Ok(());
        };
        if joined.is_done {
            // It leaves, while others are still at work.
            return Ok(());
        }
        let data = data?;
        if data.is_empty() {
            return Err("is gone before it was done".into());
        }
        for line in joined.lines.push(&data).ok_or("talks nonsense")? {
            if !self.started {
                if line != "ready" {
                    return Err("talks nonsense".into());
                }
                if let Some(joined) = self.joined.get_mut(&number) {
                    joined.is_ready = true;
                }
                if self
                    .joined
                    .values()
                    .filter(|joined| joined.is_ready)
                    .count()
                    == self.wanted
                {
                    self.start(cx);
                }
                continue;
            }
            let measure = Measure::from_json(&serde_json::from_str(&line)?);
            self.sum.add(&measure.ok_or("sent no measure")?);
            if let Some(joined) = self.joined.get_mut(&number) {
                joined.is_done = true;
            }
            self.gathered += 1;
            if self.gathered == self.wanted {
                let outcome = self.clock.outcome(std::mem::take(&mut self.sum));
                self.finish.finish(outcome.map_err(Into::into));
            }
        }
        Ok(())
    }

    fn start(&mut self, cx: &mut Cx) {
        self.started = true;
        // No more. Those that are not ready are closed.
        self.listener = None;
        self.joined.retain(|_, joined| joined.is_ready);
        for joined in self.joined.values() {
            let _ = joined.stream.write(cx, "start\n");
        }
        let (Until::Time { warm_up, measured }, Some(me)) = (self.work.until, self.me.clone())
        else {
            self.clock.start();
            return;
        };
        // The injectors' own clocks say what they measure; this one is for the server's time.
        let over = me.on(&MASTER, |master, _cx| master.clock.stop());
        let begin = me.on(&MASTER, move |master, cx| {
            master.clock.start();
            cx.timer(measured, over);
        });
        cx.timer(warm_up, begin);
    }
}

/// One of a master's injectors.
struct Worker {
    stream: Option<Stream>,
    lines: Lines,
    work: Option<(u64, Work)>,
    files_max: u64,
    finish: Finish<Result<()>>,
}

/// Does what the master says, once, if this many descriptors are enough for it.
///
/// # Errors
/// If the master cannot be reached, or leaves before the work is done.
pub(crate) fn join(runtime: Runtime, master: SocketAddr, files_max: u64) -> Result<()> {
    runtime.run_until(move |cx, finish| {
        let worker = Worker {
            stream: None,
            lines: Lines::default(),
            work: None,
            files_max,
            finish,
        };
        let worker = Colored::new(cx, MASTER_COLOR, worker);
        let its = worker.clone();
        worker
            .via(&MASTER)
            .post(cx, move |worker: &mut Worker, cx| {
                let me = its.clone();
                let connected = its.on_value(&MASTER, move |worker, cx, incoming| match incoming {
                    Ok(incoming) => worker.connected(cx, me, incoming),
                    Err(error) => {
                        let error: io::Error = error;
                        worker.over(Err(format!("master {master}: {error}").into()));
                    }
                });
                if let Err(error) = cx.connect(master, connected) {
                    worker.over(Err(error.into()));
                }
            });
    })?
}

impl Worker {
    fn over(&mut self, done: Result<()>) {
        // Told already, or the runtime has ended.
        self.finish.finish(done);
    }

    fn connected(&mut self, cx: &mut Cx, me: Colored<Worker>, incoming: Incoming) {
        let stream = incoming.open(MASTER_COLOR);
        let on_data = move |cx: &mut Cx, _: &Stream, data: io::Result<RecvBuf>| {
            let its = me.clone();
            let _ = me.with(cx, |worker, cx| {
                if let Err(error) = worker.heard(cx, its, data) {
                    worker.over(Err(format!("the master {error}").into()));
                }
            });
        };
        let _ = stream.on_data(cx, &MASTER, on_data);
        self.stream = Some(stream);
    }

    fn heard(&mut self, cx: &mut Cx, me: Colored<Worker>, data: io::Result<RecvBuf>) -> Result<()> {
        let data = data?;
        if data.is_empty() {
            return Err("is gone".into());
        }
        for line in self.lines.push(&data).ok_or("talks nonsense")? {
            if let Some(work) = line.strip_prefix("work ") {
                let (number, work) = understand(work)?;
                if let Err(error) = work.fits(self.files_max) {
                    // Not the master's fault: it is told by our leaving.
                    self.over(Err(error.into()));
                    return Ok(());
                }
                self.work = Some((number, work));
                self.say(cx, "ready\n".to_owned());
            } else if line == "start" {
                let (number, work) = self.work.take().ok_or("starts no work")?;
                let me = me.clone();
                run::start(cx, work, number, Vec::new(), move |cx, outcome| {
                    let told = move |worker: &mut Worker, cx: &mut Cx| match outcome {
                        Ok(outcome) => worker.tell(cx, &outcome),
                        Err(error) => worker.over(Err(error.into())),
                    };
                    me.via(&MASTER).post(cx, told);
                });
            } else {
                return Err("talks nonsense".into());
            }
        }
        Ok(())
    }

    fn say(&mut self, cx: &mut Cx, line: String) {
        if let Some(stream) = &self.stream {
            let _ = stream.write(cx, line);
        }
    }

    /// The last word: the runtime ends when it has been sent.
    fn tell(&mut self, cx: &mut Cx, outcome: &Outcome) {
        self.say(cx, format!("{}\n", outcome.measure.to_json()));
        self.over(Ok(()));
    }
}

/// `N OPTIONS`.
fn understand(line: &str) -> Result<(u64, Work)> {
    let (number, options) = line.split_once(' ').ok_or("sends no work")?;
    match args::parse(options.split(' '))? {
        Command::Inject(Args {
            role: Role::Alone(work),
            ..
        }) => Ok((number.parse()?, work)),
        _ => Err("sends no work".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_from_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"wo").unwrap(), Vec::<String>::new());
        assert_eq!(lines.push(b"rk\nsta").unwrap(), ["work"]);
        assert_eq!(lines.push(b"rt\n\n").unwrap(), ["start", ""]);
        assert_eq!(lines.push(&[0xff, b'\n']), None);
        assert_eq!(Lines::default().push(&vec![b'x'; LINE_BYTES_MAX + 1]), None);
    }

    #[test]
    fn work_is_understood() {
        let (number, work) = understand("3 --target=127.0.0.1:80 --clients=9").unwrap();
        assert_eq!((number, work.clients), (3, 9));
        for nonsense in ["3", "x --target=127.0.0.1:80", "3 --join=127.0.0.1:80"] {
            assert!(understand(nonsense).is_err(), "{nonsense}");
        }
    }
}
