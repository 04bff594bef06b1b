//! The job runner of `examples/jobs.rs`, as a process that is fed lines and sent signals.

#[path = "../../examples/jobs.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod example;

use crate::common::{LONG, eventually, undisturbed};
use mely::Runtime;
use mely::state::Bounded;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The runner, in a process of its own: this test program, with this test.
#[test]
#[ignore = "run in a process of its own"]
fn child_runs_jobs() {
    let grace_ms = env::var("JOBS_GRACE_MS").map_or(Ok(60_000), |text| text.parse());
    let grace = Duration::from_millis(grace_ms.unwrap());
    example::run(std::io::stdin(), 2, grace).unwrap();
}

struct Runner {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// What was read so far.
    seen: Vec<String>,
    /// A directory of its own.
    dir: PathBuf,
}

impl Runner {
    fn start(name: &str, variables: &[(&str, &str)]) -> Runner {
        let dir = env::temp_dir().join(format!("mely-jobs-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("jobs.limit"), "60").unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "jobs::child_runs_jobs",
                "--ignored",
                "--nocapture",
            ])
            .envs(variables.iter().copied())
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = undisturbed(&mut command).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, output) = channel();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .all(|line| tell.send(line).is_ok());
        });
        let mut runner = Runner {
            input: child.stdin.take(),
            child,
            output,
            seen: Vec::new(),
            dir,
        };
        // From here on it is told of signals.
        runner.expect("a command may take 60s");
        runner
    }

    /// Has it read another limit.
    fn set_limit(&mut self, seconds: u64) {
        fs::write(self.dir.join("jobs.limit"), format!("{seconds}\n")).unwrap();
        self.signal(Signal::HUP);
        let limit = Duration::from_secs(seconds);
        self.expect(&format!("a command may take {limit:?}"));
    }

    fn job(&mut self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    /// A command that tells when it has begun, and ends when [`Runner::let_go`] is called.
    fn job_that_waits(&mut self, customer: &str) {
        self.job(&format!(
            "{customer} echo pid $$ has begun; while ! test -e go; do sleep 0.01; done"
        ));
    }

    fn let_go(&self) {
        fs::write(self.dir.join("go"), "").unwrap();
    }

    /// Reads up to a line that has this in it.
    fn expect(&mut self, text: &str) -> &str {
        loop {
            let line = self.output.recv_timeout(LONG);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} after {:#?}", self.seen));
            self.seen.push(line);
            if self.seen.last().unwrap().contains(text) {
                return self.seen.last().unwrap();
            }
        }
    }

    /// Where in the output this is; there once.
    fn place(&self, text: &str) -> usize {
        let has = |line: &&String| line.contains(text);
        assert_eq!(
            self.seen.iter().filter(has).count(),
            1,
            "{text}: {:#?}",
            self.seen
        );
        self.seen
            .iter()
            .position(|line| line.contains(text))
            .unwrap()
    }

    /// Reads all that is left. Returns whether the runner ended well.
    fn end(&mut self) -> bool {
        let begun = Instant::now();
        while let Ok(line) = self
            .output
            .recv_timeout(LONG.saturating_sub(begun.elapsed()))
        {
            self.seen.push(line);
        }
        eventually("the runner's end", || {
            self.child.try_wait().unwrap().is_some()
        });
        self.child.wait().unwrap().success()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.dir));
    }
}

#[test]
fn jobs_of_a_customer_run_in_order_and_all_are_done_at_the_end_of_the_input() {
    let mut runner = Runner::start("order", &[]);
    runner.job_that_waits("ann");
    runner.expect("has begun");
    runner.job("ann test -e go && echo second");
    // Another customer waits for nobody.
    runner.job("bob echo hello; exit 3");
    runner.expect("job 3 of bob done: exit status: 3");
    runner.job("ann echo third");
    runner.expect("job 4 of ann accepted");
    runner.let_go();
    drop(runner.input.take());
    assert!(runner.end(), "{:#?}", runner.seen);
    let places = [
        "job 1 of ann done: exit status: 0",
        "second",
        "job 2 of ann done: exit status: 0",
        "third",
        "job 4 of ann done: exit status: 0",
    ]
    .map(|text| runner.place(text));
    assert!(places.is_sorted(), "{:#?}", runner.seen);
}

#[test]
fn a_customer_with_too_many_jobs_is_refused_and_no_other() {
    let mut runner = Runner::start("refused", &[]);
    runner.job_that_waits("ann");
    runner.expect("has begun");
    for _ in 0..3 {
        runner.job("ann true");
    }
    runner.expect("job 4 of ann refused: too many wait");
    runner.place("job 2 of ann accepted");
    runner.place("job 3 of ann accepted");
    runner.job("bob true");
    runner.expect("job 5 of bob done");
    runner.let_go();
    runner.expect("job 3 of ann done");
    runner.job("ann true");
    runner.expect("job 6 of ann done: exit status: 0");
    drop(runner.input.take());
    assert!(runner.end());
}

/// Who has no job that waits is forgotten, and has its jobs in order all the same.
#[test]
fn a_customer_that_comes_back_waits_for_its_job_that_runs() {
    let mut runner = Runner::start("comes-back", &[]);
    runner.job_that_waits("ann");
    runner.expect("has begun");
    for i in 0..40 {
        runner.job(&format!("customer{i} true"));
    }
    runner.job("ann test -e go && echo second");
    runner.expect("job 42 of ann accepted");
    runner.expect("job 41 of customer39 done");
    runner.let_go();
    drop(runner.input.take());
    assert!(runner.end(), "{:#?}", runner.seen);
    let first = runner.place("job 1 of ann done: exit status: 0");
    assert!(first < runner.place("second"), "{:#?}", runner.seen);
    runner.place("job 42 of ann done: exit status: 0");
}

#[test]
fn customers_without_a_job_that_waits_are_forgotten() {
    let runtime = Runtime::builder().cores(1).build().unwrap();
    let poster = runtime.poster();
    let mut customers = HashMap::new();
    for i in 0..50 {
        let queue = example::queue_of(&mut customers, &format!("busy{i}"), &poster, 2);
        queue.try_post(&poster, |(), _cx| ()).unwrap();
    }
    for i in 0..10_000 {
        example::queue_of(&mut customers, &format!("idle{i}"), &poster, 2);
    }
    assert!(customers.len() < 1_000, "{}", customers.len());
    for i in 0..50 {
        let queue = example::queue_of(&mut customers, &format!("busy{i}"), &poster, 2);
        assert_eq!(queue.waiting(), 1);
    }
    let color = |customers: &HashMap<String, Bounded<()>>| customers["idle0"].state().color();
    example::queue_of(&mut customers, "idle0", &poster, 2);
    let before = color(&customers);
    customers.remove("idle0");
    example::queue_of(&mut customers, "idle0", &poster, 2);
    assert_eq!(color(&customers), before);
}

#[test]
fn a_job_that_takes_too_long_is_killed_and_the_next_one_runs() {
    let mut runner = Runner::start("timeout", &[]);
    runner.set_limit(3);
    runner.job_that_waits("ann");
    let pid = pid_in(runner.expect("has begun"));
    runner.expect("job 1 of ann not done: the time was up");
    eventually("it is killed", || test_kill_process(pid).is_err());
    runner.job("ann true");
    runner.expect("job 2 of ann done: exit status: 0");
    drop(runner.input.take());
    assert!(runner.end());
}

#[test]
fn a_limit_that_is_read_at_sighup_is_that_of_later_jobs() {
    let mut runner = Runner::start("reload", &[]);
    runner.job_that_waits("ann");
    runner.expect("has begun");
    runner.set_limit(0);
    runner.job("bob sleep 100");
    runner.expect("job 2 of bob not done: the time was up");
    // A file that cannot be understood changes nothing.
    fs::write(runner.dir.join("jobs.limit"), "soon").unwrap();
    runner.signal(Signal::HUP);
    runner.job("bob sleep 100");
    runner.expect("job 3 of bob not done: the time was up");
    runner.let_go();
    runner.expect("job 1 of ann done: exit status: 0");
    drop(runner.input.take());
    assert!(runner.end());
}

fn pid_in(line: &str) -> Pid {
    let pid = line
        .split("pid ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    Pid::from_raw(pid.parse().unwrap()).unwrap()
}

#[test]
fn at_a_signal_what_was_accepted_is_finished_and_the_rest_is_told() {
    let mut runner = Runner::start("signal", &[]);
    runner.job_that_waits("ann");
    runner.expect("has begun");
    runner.job("ann echo second");
    runner.expect("job 2 of ann accepted");
    runner.signal(Signal::TERM);
    // The signal is taken some time later: a job is accepted until then.
    let mut number = 2;
    loop {
        number += 1;
        runner.job("bob true");
        let told = runner.expect(&format!("job {number} of bob"));
        if told.contains("not done: the end") {
            break;
        }
    }
    runner.let_go();
    // Its input is still open.
    assert!(runner.end(), "{:#?}", runner.seen);
    let first = runner.place("job 1 of ann done: exit status: 0");
    let second = runner.place("job 2 of ann done: exit status: 0");
    assert!(first < second);
}

#[test]
fn what_is_not_finished_in_the_time_of_grace_is_killed_and_told() {
    let mut runner = Runner::start("grace", &[("JOBS_GRACE_MS", "200")]);
    runner.job_that_waits("ann");
    let pid = pid_in(runner.expect("has begun"));
    runner.job("ann echo second");
    runner.expect("job 2 of ann accepted");
    runner.signal(Signal::TERM);
    assert!(!runner.end(), "a run that was cut short is an error");
    runner.place("job 1 of ann not done: the end has come");
    runner.place("job 2 of ann not done: the end has come");
    eventually("it is killed", || test_kill_process(pid).is_err());
}
