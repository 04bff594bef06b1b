//! How do I run jobs in order per customer, with limits, and end well? Reads lines of the form
//! `CUSTOMER COMMAND`, and runs each command in a shell.
//! `printf 'ann sleep 1\nbob echo hi\nann echo bye\n' | cargo run --release --example jobs`
//!
//! A customer is a color. A job holds it until its command is over, so the jobs of one customer run
//! one after the other, and those of different customers in parallel. A few may wait, and further
//! ones are refused. A command that takes too long is killed: the file `jobs.limit` of the current
//! directory says how many seconds it has, and SIGHUP has the file read again. At the end of the
//! input, at Ctrl-C and SIGTERM no more jobs are accepted, and those that were have some time to
//! finish. Each job is reported: as refused or not done; or as accepted, and then as done or not.

use mely::fs::{Dir, OpenOptions};
use mely::process::{self, Child, Signal};
use mely::runtime::Stage;
use mely::state::Bounded;
use mely::task::{timeout, with_cx};
use mely::{Color, Colored, Cx, Handler, Poster, Runtime};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::{collections::HashMap, hash::BuildHasher, os::unix::process::CommandExt};
use std::{thread, time::Duration};

type Error = Box<dyn std::error::Error + Send + Sync>;

static JOB: Handler = Handler::new("job");
static RELOAD: Handler = Handler::new("reload");
static STOP: Handler = Handler::new("stop");

/// Has the number of seconds that a command may take.
const LIMIT_FILE: &str = "jobs.limit";
/// Where there is no such file.
const LIMIT: Duration = Duration::from_secs(30);

struct Job {
    name: String,
    told: bool,
}

impl Job {
    fn end(mut self, how: &str) {
        println!("{} {how}", self.name);
        self.told = true;
    }
}

impl Drop for Job {
    /// No job is lost without a word, also when the run is cut short.
    fn drop(&mut self) {
        if !self.told {
            println!("{} not done: the end has come", self.name);
        }
    }
}

/// A shell that was started. If it is dropped before it has ended, it is killed.
struct Shell(Child);

impl Shell {
    /// Starts it in a process group of its own.
    async fn start(command: &str) -> Result<Shell, Error> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null());
        shell.process_group(0);
        Ok(Shell(with_cx(|cx| process::spawn(cx, shell)).await??))
    }

    /// Kills it and all that it has started, unless it has ended.
    fn kill(&self) {
        let _ = self.0.kill_group(Signal::KILL);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the command, and says how it has ended.
async fn execute(command: &str, limit: &Colored<Duration>) -> Result<String, Error> {
    let limit = limit.call(|limit, _cx| *limit).await?;
    let mut shell = Shell::start(command).await?;
    let in_time = timeout(limit, shell.0.wait()).await;
    if in_time.is_err() {
        shell.kill();
        // The customer's next job waits until this one is dead.
        shell.0.wait().await?;
    }
    Ok(in_time??.to_string())
}

/// Reads the limit from its file.
async fn read_limit() -> Result<Duration, Error> {
    let dir = with_cx(|cx| Dir::open(cx, ".")).await??;
    let read = OpenOptions::new().read(true);
    let file = with_cx(|cx| dir.open_file(cx, LIMIT_FILE, read)).await??;
    let text = with_cx(|cx| file.read_at(cx, 0, 100)).await??;
    let seconds = std::str::from_utf8(&text)?.trim().parse()?;
    Ok(Duration::try_from_secs_f64(seconds)?)
}

/// Sets the limit to the one that the file has now; a task of its color.
async fn reload(limit: Colored<Duration>) {
    match read_limit().await {
        Ok(new) => {
            let set = with_cx(|cx| limit.with(cx, |limit, _cx| *limit = new));
            set.expect("this is its color");
            println!("a command may take {new:?}");
        }
        Err(error) => eprintln!("the limit is as before: {error}"),
    }
}

/// The queue of this customer. Before the map grows, those with no job that waits are forgotten.
pub(crate) fn queue_of<'a>(
    customers: &'a mut HashMap<String, Bounded<()>>,
    customer: &str,
    poster: &Poster,
    waiting_max: usize,
) -> &'a Bounded<()> {
    if customers.len() == customers.capacity() {
        customers.retain(|_, queue| queue.waiting() > 0);
        customers.reserve(customers.len());
    }
    // By the name: whoever was forgotten and comes again waits for the job that still runs.
    let color = Color::from(customers.hasher().hash_one(customer));
    customers.entry(customer.to_owned()).or_insert_with(|| {
        let state = Colored::new(poster, color, ());
        state.via(&JOB).bounded(waiting_max)
    })
}

/// Takes jobs until the input ends. At the end of the run those that come are told so.
fn accept(input: impl BufRead, poster: &Poster, waiting_max: usize, limit: &Colored<Duration>) {
    let mut customers = HashMap::new();
    for (number, line) in (1..).zip(input.lines().map_while(Result::ok)) {
        let (customer, command) = line.split_once(' ').unwrap_or((&line, "true"));
        let queue = queue_of(&mut customers, customer, poster, waiting_max);
        let job = Job {
            name: format!("job {number} of {customer}"),
            told: false,
        };
        let Some(room) = queue.try_reserve() else {
            job.end("refused: too many wait");
            continue;
        };
        let (command, limit) = (command.to_owned(), limit.clone());
        let accepted = format!("{} accepted", job.name);
        let begin = move |_: &mut (), cx: &mut Cx| {
            cx.hold().until(async move {
                match execute(&command, &limit).await {
                    Ok(status) => job.end(&format!("done: {status}")),
                    Err(error) => job.end(&format!("not done: {error}")),
                }
            });
        };
        // Told once that is certain, and before anybody tells that it is done.
        let _first = io::stdout().lock();
        if room.try_post(poster, begin).is_ok() {
            println!("{accepted}");
        }
    }
    poster.stop();
}

/// At most `waiting_max` jobs of a customer wait while one runs. At the end, all that was accepted
/// has the time `grace`.
pub(crate) fn run(
    input: impl Read + Send + 'static,
    waiting_max: usize,
    grace: Duration,
) -> Result<(), Error> {
    // All of it: by default half is kept for connections.
    let runtime = Runtime::builder()
        .drain_deadline(grace)
        .stage_limit(Stage::Drain, Duration::MAX)
        .build()?;
    Ok(runtime.run(move |cx| {
        let limit = Colored::new_unique(cx, LIMIT);
        let its = limit.clone();
        let on_hangup = RELOAD.on_each(limit.color(), move |cx, _: Signal| {
            cx.spawn(its.color(), reload(its.clone()));
        });
        let on_stop = STOP.on_each(Color::DEFAULT, |cx, ()| cx.stop());
        let watched = cx.on_signal([Signal::HUP], on_hangup);
        if let Err(error) = watched.and_then(|_| cx.on_stop_signal(on_stop)) {
            eprintln!("signals end this at once: {error}");
        }
        let poster = cx.poster();
        cx.spawn(limit.color(), async move {
            reload(limit.clone()).await;
            thread::spawn(move || accept(BufReader::new(input), &poster, waiting_max, &limit));
        });
    })?)
}

fn main() -> Result<(), Error> {
    run(io::stdin(), 4, Duration::from_secs(60))
}
