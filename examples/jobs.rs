//! How do I run jobs in order per customer, with limits, and end well? Reads lines of the form
//! `CUSTOMER COMMAND`, and runs each command in a shell.
//! `printf 'ann sleep 1\nbob echo hi\nann echo bye\n' | cargo run --release --example jobs`
//!
//! A customer is a color. A job holds it until its command is over, so the jobs of one customer run
//! one after the other, and those of different customers in parallel. A few may wait, and further
//! ones are refused. A command that takes too long is killed. At the end of the input, at Ctrl-C
//! and SIGTERM no more jobs are accepted, and those that were have some time to finish. Whatever
//! becomes of a job is told: refused or not done; or accepted, and then done or not done.

use mely::state::Bounded;
use mely::task::{timeout, with_cx};
use mely::{Color, Colored, Cx, Handler, Poster, Runtime};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{collections::HashMap, error::Error, hash::BuildHasher, os::unix::process::CommandExt};
use std::{sync::Arc, sync::Mutex, thread, time::Duration};

static JOB: Handler = Handler::new("job");
static STOP: Handler = Handler::new("stop");

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

#[derive(Default)]
struct Process {
    /// The shell, until it was waited for.
    child: Option<Child>,
    killed: bool,
}

/// Kills the command when it is dropped: before it runs, while it does, or too late.
struct Guard(Arc<Mutex<Process>>);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut process = self.0.lock().unwrap();
        process.killed = true;
        // With all that the shell has started. Its number is nobody else's until it was waited for.
        if let Some(child) = &process.child {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        }
    }
}

/// Runs the command, on a thread that may block.
fn execute(command: &str, process: &Mutex<Process>) -> io::Result<ExitStatus> {
    let mut locked = process.lock().unwrap();
    if locked.killed {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    let child = shell.process_group(0).spawn()?;
    let pid = Pid::from_child(&child);
    locked.child = Some(child);
    drop(locked);
    // Without giving its number back.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), look))?;
    // Taken first: after this its number may be somebody else's, whom nobody is to kill.
    let child = process.lock().unwrap().child.take();
    child.expect("waited for once").wait()
}

async fn run_for(limit: Duration, command: String) -> String {
    let guard = Guard(Arc::default());
    let process = Arc::clone(&guard.0);
    let work = with_cx(|cx| cx.try_blocking(move || execute(&command, &process)));
    let mut work = match work {
        Ok(work) => work.cancel_on_drop(),
        Err(refused) => return format!("not done: {refused}"),
    };
    match timeout(limit, &mut work).await {
        Ok(Ok(Ok(status))) => format!("done: {status}"),
        Ok(Ok(Err(error))) => format!("not done: {error}"),
        Ok(Err(error)) => format!("not done: {error}"),
        Err(late) => {
            drop(guard);
            work.cancel();
            // The customer's next job waits until this one is dead.
            drop(work.await);
            format!("not done: {late}")
        }
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
fn accept(input: impl BufRead, poster: &Poster, waiting_max: usize, limit: Duration) {
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
        let (command, accepted) = (command.to_owned(), format!("{} accepted", job.name));
        let begin = move |_: &mut (), cx: &mut Cx| {
            let over = async move { job.end(&run_for(limit, command).await) };
            cx.hold().until(over);
        };
        // Told once that is certain, and before anybody tells that it is done.
        let _first = io::stdout().lock();
        if room.try_post(poster, begin).is_ok() {
            println!("{accepted}");
        }
    }
    poster.stop();
}

/// At most `waiting_max` jobs of a customer wait while one runs. A command has the time `limit`; at
/// the end, all that was accepted has the time `grace`.
pub(crate) fn run(
    input: impl Read + Send + 'static,
    waiting_max: usize,
    limit: Duration,
    grace: Duration,
) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().drain_deadline(grace).build()?;
    Ok(runtime.run(move |cx| {
        if let Err(error) = cx.on_stop_signal(STOP.on_each(Color::DEFAULT, |cx, ()| cx.stop())) {
            eprintln!("signals end this at once: {error}");
        }
        let poster = cx.poster();
        thread::spawn(move || accept(BufReader::new(input), &poster, waiting_max, limit));
    })?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let [limit, grace] = [30, 60].map(Duration::from_secs);
    run(io::stdin(), 4, limit, grace)
}
