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
use mely::net::{Acceptors, Incoming, Listener, RecvBuf, Session, Stream};
use mely::runtime::Finish;
use mely::state::WeakColored;
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

/// What the master knows of an injector.
struct Joined {
    injector: WeakColored<Injector>,
    is_ready: bool,
    /// It has sent its measure.
    is_done: bool,
}

/// The connection of an injector.
struct Injector {
    stream: Stream,
    lines: Lines,
    number: usize,
    master: Colored<Master>,
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
        let accept = me.on_each(&MASTER, |master, _cx, incoming| match incoming {
            Ok(incoming) => master.joined(incoming),
            Err(error) => master.give_up(io::Error::to_string(&error)),
        });
        let listener = cx.listen(addr, Acceptors::Single, accept)?;
        let addr = listener.local_addr();
        self.me = Some(me);
        self.listener = Some(listener);
        Ok(addr.ip().expect("an IP address was asked for"))
    }

    fn give_up(&mut self, why: String) {
        // Told already, or the runtime has ended.
        self.finish.finish(Err(why.into()));
    }

    fn joined(&mut self, incoming: Incoming) {
        let Some(me) = self.me.clone() else { return };
        if self.started {
            // It came too late, and is closed.
            return;
        }
        let is_free = |number: &usize| !self.joined.contains_key(number);
        let number = (0..).find(is_free).expect("fewer than numbers");
        let work = format!("work {number} {}\n", self.work.to_options().join(" "));
        let stream = incoming.open(MASTER_COLOR);
        let injector = stream.serve(&MASTER, move |cx, stream, _| {
            // If sending it fails, the session is told.
            let _ = stream.write(cx, work);
            Injector {
                stream,
                lines: Lines::default(),
                number,
                master: me,
            }
        });
        let joined = Joined {
            injector: injector.downgrade(),
            is_ready: false,
            is_done: false,
        };
        self.joined.insert(number, joined);
    }

    /// A line has come from an injector.
    fn heard(&mut self, cx: &mut Cx, number: usize, line: &str) -> Result<()> {
        let Some(joined) = self.joined.get_mut(&number) else {
            // Not one of those that were started.
            return Ok(());
        };
        if joined.is_done {
            return Ok(());
        }
        if !self.started {
            if line != "ready" {
                return Err("talks nonsense".into());
            }
            joined.is_ready = true;
            let ready = self.joined.values().filter(|joined| joined.is_ready);
            if ready.count() == self.wanted {
                self.start(cx);
            }
            return Ok(());
        }
        let measure = Measure::from_json(&serde_json::from_str(line)?);
        self.sum.add(&measure.ok_or("sent no measure")?);
        joined.is_done = true;
        self.gathered += 1;
        if self.gathered == self.wanted {
            let outcome = self.clock.outcome(std::mem::take(&mut self.sum));
            self.finish.finish(outcome.map_err(Into::into));
        }
        Ok(())
    }

    /// An injector is gone, or is sent away.
    fn lost(&mut self, number: usize, why: Box<dyn Error + Send + Sync>) {
        if self.joined.get(&number).is_none_or(|joined| joined.is_done) {
            // Not one of those that were started; or it leaves, while others are still at work.
            return;
        }
        let why = format!("injector {number}: {why}");
        if self.started {
            self.give_up(why);
        } else {
            out::try_say(NAME, format_args!("{why}; waiting for another"));
            self.joined.remove(&number);
        }
    }

    fn start(&mut self, cx: &mut Cx) {
        self.started = true;
        // No more. Those that are not ready are closed.
        if let Some(listener) = self.listener.take() {
            listener.close();
        }
        for joined in self.joined.values() {
            let is_ready = joined.is_ready;
            joined.injector.post(cx, move |injector, cx| {
                if is_ready {
                    let _ = injector.stream.write(cx, "start\n");
                } else {
                    injector.stream.close(cx);
                }
            });
        }
        self.joined.retain(|_, joined| joined.is_ready);
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

impl Injector {
    fn leave(&mut self, cx: &mut Cx, why: Box<dyn Error + Send + Sync>) {
        self.stream.close(cx);
        let number = self.number;
        // Refused if the master has panicked.
        let _ = self.master.with(cx, |master, _cx| master.lost(number, why));
    }

    fn heard(&mut self, cx: &mut Cx, data: &[u8]) -> Result<()> {
        let number = self.number;
        for line in self.lines.push(data).ok_or("talks nonsense")? {
            let heard = |master: &mut Master, cx: &mut Cx| master.heard(cx, number, &line);
            self.master.with(cx, heard)??;
        }
        Ok(())
    }
}

impl Session for Injector {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        if let Err(error) = self.heard(cx, &data) {
            self.leave(cx, error);
        }
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        let why = match end {
            Ok(()) => "is gone before it was done".into(),
            Err(error) => error.into(),
        };
        self.leave(cx, why);
    }
}

/// One of a master's injectors, connected to it.
struct Worker {
    stream: Stream,
    me: WeakColored<Worker>,
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
    runtime.run_until(move |cx, finish: Finish<Result<()>>| {
        let failed = finish.clone();
        let connected = move |_: &mut Cx, incoming: io::Result<Incoming>| match incoming {
            Ok(incoming) => {
                let stream = incoming.open(MASTER_COLOR);
                stream.serve(&MASTER, move |_, stream, me| Worker {
                    stream,
                    me: me.clone(),
                    lines: Lines::default(),
                    work: None,
                    files_max,
                    finish,
                });
            }
            Err(error) => finish.finish(Err(format!("master {master}: {error}").into())),
        };
        if let Err(error) = cx.connect(
            master,
            crate::load::CONNECT_MAX,
            MASTER.on_value(MASTER_COLOR, connected),
        ) {
            failed.finish(Err(error.into()));
        }
    })?
}

impl Session for Worker {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        if let Err(error) = self.heard(cx, &data) {
            self.over(Err(format!("the master {error}").into()));
        }
    }

    fn end(&mut self, _cx: &mut Cx, end: io::Result<()>) {
        let why = end.map_or_else(|error| error.to_string(), |()| "is gone".to_owned());
        self.over(Err(format!("the master {why}").into()));
    }
}

impl Worker {
    fn over(&mut self, done: Result<()>) {
        // Told already, or the runtime has ended.
        self.finish.finish(done);
    }

    fn heard(&mut self, cx: &mut Cx, data: &[u8]) -> Result<()> {
        for line in self.lines.push(data).ok_or("talks nonsense")? {
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
                let me = self.me.clone();
                run::start(cx, work, number, Vec::new(), move |cx, outcome| {
                    me.post(cx, move |worker, cx| match outcome {
                        Ok(outcome) => worker.tell(cx, &outcome),
                        Err(error) => worker.over(Err(error.into())),
                    });
                });
            } else {
                return Err("talks nonsense".into());
            }
        }
        Ok(())
    }

    fn say(&mut self, cx: &mut Cx, line: String) {
        // If sending it fails, this session is told.
        let _ = self.stream.write(cx, line);
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
