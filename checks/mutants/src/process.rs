//! A test program, run with a limit of time and memory, and what it printed.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A mutant may allocate without end. In KiB of address space, of which a test needs little.
const MEMORY_MAX_KIB: u64 = 6 << 20;
/// How often it is looked whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// What it printed comes within this time of its end, also on a machine that is busy with something
/// else.
const LINGER: Duration = Duration::from_millis(500);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    /// A test failed; the rest was not waited for.
    Failed,
    /// The program ended in another way than its tests do.
    Died,
    TimedOut,
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) took: Duration,
    /// The tests that passed.
    pub(crate) passed: Vec<String>,
    /// The test that failed, or was running.
    pub(crate) at: Option<String>,
    /// Where and why it panicked.
    pub(crate) why: String,
}

/// What a test program is run with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Path,
    pub(crate) directory: &'a Path,
    pub(crate) tests: &'a [&'a str],
    /// The value of `MELY_MUTANT`.
    pub(crate) mutant: &'a str,
    /// The value of `MELY_MUTANT_SEEN`.
    pub(crate) seen: &'a Path,
    pub(crate) limit: Duration,
}

impl Run<'_> {
    /// Runs the tests, one after the other, until one fails.
    pub(crate) fn run(&self) -> io::Result<Ran> {
        let begun = Instant::now();
        let script = format!("ulimit -c 0 -v {MEMORY_MAX_KIB}; exec \"$0\" \"$@\"");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .arg(self.program)
            .args(["--test-threads=1", "--exact"])
            .args(self.tests)
            .current_dir(self.directory)
            .env("MELY_MUTANT", self.mutant)
            .env("MELY_MUTANT_SEEN", self.seen)
            .env("CARGO_MANIFEST_DIR", self.directory)
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (sender, chunks) = channel();
        read(child.stdout.take().expect("piped"), sender.clone(), false);
        read(child.stderr.take().expect("piped"), sender, true);
        let (mut printed, mut complaints) = (Vec::new(), Vec::new());
        let mut status = None;
        let mut timed_out = false;
        loop {
            let patience = if status.is_some() { LINGER } else { LOOK };
            match chunks.recv_timeout(patience) {
                Ok((true, chunk)) => complaints.extend(chunk),
                Ok((false, chunk)) => {
                    printed.extend(chunk);
                    // Of several tests, the first that fails is enough; of one, its reason is
                    // wanted.
                    if self.tests.len() > 1 && Log::of(&printed).failed.is_some() {
                        break;
                    }
                }
                // What the program has left running may hold the pipes for ever.
                Err(RecvTimeoutError::Timeout) if status.is_some() => break,
                Err(RecvTimeoutError::Timeout) => status = child.try_wait()?,
                Err(RecvTimeoutError::Disconnected) => {
                    status = child.try_wait()?;
                    if status.is_some() {
                        break;
                    }
                    std::thread::sleep(LOOK);
                }
            }
            if status.is_none() && begun.elapsed() > self.limit {
                timed_out = true;
                break;
            }
        }
        let took = begun.elapsed();
        end(&mut child)?;
        let log = Log::of(&printed);
        let end = match status {
            _ if log.failed.is_some() => End::Failed,
            Some(status) if status.success() && log.complete => End::Passed,
            None if timed_out => End::TimedOut,
            _ => End::Died,
        };
        Ok(Ran {
            end,
            took,
            why: why(&printed)
                .or_else(|| why(&complaints))
                .unwrap_or_default(),
            at: log.failed.or(log.running),
            passed: log.passed,
        })
    }
}

fn read(mut from: impl Read + Send + 'static, to: Sender<(bool, Vec<u8>)>, complaints: bool) {
    std::thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            if to.send((complaints, chunk[..n].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Ends the program and all that it has started.
fn end(child: &mut Child) -> io::Result<()> {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // Nobody is left: all the better.
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait().map(drop)
}

/// What a test program says of its tests, run one after the other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    passed: Vec<String>,
    failed: Option<String>,
    running: Option<String>,
    complete: bool,
}

impl Log {
    fn of(printed: &[u8]) -> Log {
        let mut log = Log::default();
        for line in String::from_utf8_lossy(printed).lines() {
            let test = line
                .strip_prefix("test ")
                .and_then(|line| line.split_once(" ... "));
            if let Some((name, _)) = test {
                // "name - should panic"
                log.running = name.split(' ').next().map(str::to_owned);
            }
            if line.starts_with("test result: ok") {
                log.complete = true;
            } else if line == "ok" || test.is_some() && line.ends_with("ok") {
                log.passed.extend(log.running.take());
            } else if line == "FAILED" || test.is_some() && line.ends_with("FAILED") {
                log.failed = log.failed.or(log.running.take());
            }
        }
        log
    }
}

/// The place and the message of the first panic.
fn why(printed: &[u8]) -> Option<String> {
    let printed = String::from_utf8_lossy(printed);
    let mut lines = printed
        .lines()
        .skip_while(|line| !line.contains("panicked at "));
    let place = lines.next()?.rsplit("panicked at ").next()?;
    let message: String = lines.next().unwrap_or_default().chars().take(120).collect();
    Some(format!("{place} {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_that_was_running_is_known() {
        let log = Log::of(
            b"\nrunning 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... ",
        );
        assert_eq!(log.passed, ["a::b", "c"]);
        assert_eq!(log.running.as_deref(), Some("d"));
        assert!(log.failed.is_none() && !log.complete);
    }

    #[test]
    fn what_a_test_prints_does_not_hide_its_end() {
        let log = Log::of(b"test a ... hello\nworld\nok\ntest b ... FAILED\n\nfailures:\n");
        assert_eq!(
            (log.passed, log.failed),
            (vec!["a".into()], Some("b".into()))
        );
    }

    #[test]
    fn a_panic_has_a_place_and_a_message() {
        let printed =
            b"---- t stdout ----\n\nthread 't' (7) panicked at src/a.rs:1:2:\nno\nnote: x\n";
        assert_eq!(why(printed).as_deref(), Some("src/a.rs:1:2: no"));
    }

    fn shell(script: &str, limit: Duration) -> Ran {
        // The program's first arguments are those for libtest.
        let path = std::env::temp_dir().join(format!(
            "mely-mutants-{}-{}",
            std::process::id(),
            script.len()
        ));
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let run = Run {
            program: &path,
            directory: Path::new("/"),
            tests: &["one", "two"],
            mutant: "",
            seen: Path::new(""),
            limit,
        };
        let ran = run.run().unwrap();
        std::fs::remove_file(path).unwrap();
        ran
    }

    #[test]
    fn a_hang_is_ended_with_all_that_it_started() {
        let ran = shell(
            "echo 'test one ... ok'; printf 'test two ... '; sleep 1000 & wait",
            Duration::from_millis(300),
        );
        assert_eq!((ran.end, ran.at.as_deref()), (End::TimedOut, Some("two")));
    }

    #[test]
    fn nothing_is_waited_for_after_a_failure_or_the_end() {
        let ran = shell(
            "echo 'test one ... FAILED'; sleep 1000",
            Duration::from_secs(100),
        );
        assert_eq!((ran.end, ran.at.as_deref()), (End::Failed, Some("one")));
        let ran = shell(
            "sleep 1000 & printf 'test one ... '; kill -ABRT $$",
            Duration::from_secs(100),
        );
        assert_eq!((ran.end, ran.at.as_deref()), (End::Died, Some("one")));
        let ran = shell(
            "sleep 1000 & echo 'test result: ok'",
            Duration::from_secs(100),
        );
        assert_eq!(ran.end, End::Passed);
    }
}
