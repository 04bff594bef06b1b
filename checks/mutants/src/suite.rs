//! The test programs of one build: their tests, what each takes, and which mutants it reaches.

use crate::Result;
use crate::compile::Build;
use crate::process::{End, Ran, Run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A test may take this many times what it took without a mutant, and a margin. The machine may be
/// busy with something else by then.
const TIMES: u32 = 5;
const MARGIN: Duration = Duration::from_secs(2);
/// Before it is known what a test takes.
const FIRST_LIMIT: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(crate) struct Test {
    /// The place of its program among the suite's.
    pub(crate) program: usize,
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// The mutants whose places it comes to.
    pub(crate) reaches: BTreeSet<u32>,
}

#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    directory: PathBuf,
    /// By name.
    pub(crate) programs: Vec<(String, PathBuf)>,
    pub(crate) tests: Vec<Test>,
}

impl Suite {
    /// Builds the copy and lists its tests, of the wanted programs, and without those that
    /// `left_out` names.
    pub(crate) fn build(
        build: &Build,
        tree: &Path,
        wanted: &[String],
        left_out: impl Fn(&str) -> bool,
    ) -> Result<Suite> {
        let programs = build.programs(tree, wanted)?;
        let mut tests = Vec::new();
        for (place, (_, path)) in programs.iter().enumerate() {
            let ignored = list(path, &["--ignored"])?;
            for name in list(path, &[])? {
                if !ignored.contains(&name) && !left_out(&name) {
                    let (took, reaches) = (FIRST_LIMIT, BTreeSet::new());
                    tests.push(Test {
                        program: place,
                        name,
                        took,
                        reaches,
                    });
                }
            }
        }
        let directory = tree.to_owned();
        Ok(Suite {
            name: build.name,
            directory,
            programs,
            tests,
        })
    }

    /// What a test is called in results.
    pub(crate) fn full_name(&self, test: &Test) -> String {
        format!("{} {}", self.programs[test.program].0, test.name)
    }

    /// The limit of several tests of one program.
    pub(crate) fn limit(tests: &[&Test]) -> Duration {
        tests.iter().map(|test| test.took).sum::<Duration>() * TIMES + MARGIN
    }

    /// Runs some tests of one program.
    pub(crate) fn run(&self, tests: &[&Test], mutant: Option<u32>, limit: Duration) -> Result<Ran> {
        let mutant = mutant.unwrap_or(0).to_string();
        self.run_as(tests, &mutant, Path::new(""), limit)
    }

    fn run_as(&self, tests: &[&Test], mutant: &str, seen: &Path, limit: Duration) -> Result<Ran> {
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        let run = Run {
            program: &self.programs[tests[0].program].1,
            directory: &self.directory,
            tests: &names,
            mutant,
            seen,
            limit,
        };
        Ok(run.run()?)
    }

    /// Runs each test by itself without a mutant, and notes what it takes and what it reaches. One
    /// that fails twice can tell nothing, and is left out.
    pub(crate) fn measure(&mut self, jobs: usize) -> Result<()> {
        let measured = in_parallel(jobs, &self.tests, |at, test| -> Result<_> {
            let seen = self.directory.with_file_name(format!("seen-{at}"));
            fs::write(&seen, "")?;
            let mut ran = self.run_as(&[test], "cover", &seen, FIRST_LIMIT)?;
            if ran.end != End::Passed {
                eprintln!("a second try: {}: {}", self.full_name(test), ran.why);
                ran = self.run_as(&[test], "cover", &seen, FIRST_LIMIT)?;
            }
            let mutants = fs::read(&seen)?;
            fs::remove_file(&seen)?;
            let (words, _) = mutants.as_chunks();
            let reaches = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            Ok((ran.end == End::Passed).then_some((ran.took, reaches)))
        });
        let mut tests = Vec::new();
        for (mut test, measured) in std::mem::take(&mut self.tests).into_iter().zip(measured) {
            let Some((took, reaches)) = measured? else {
                println!(
                    "left out, since it fails without a mutant: {}",
                    self.full_name(&test)
                );
                continue;
            };
            (test.took, test.reaches) = (took, reaches);
            tests.push(test);
        }
        self.tests = tests;
        self.write_times()
    }

    /// What each test takes, the slowest first, for whoever wants faster tests.
    fn write_times(&self) -> Result<()> {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by_key(|test| std::cmp::Reverse(test.took));
        let line = |test: &&Test| {
            let (took, reaches) = (test.took.as_millis(), test.reaches.len());
            format!("{took:6} ms {reaches:5} mutants {}\n", self.full_name(test))
        };
        let times: String = tests.iter().map(line).collect();
        let path = self
            .directory
            .with_file_name(format!("times-{}", self.name));
        Ok(fs::write(path, times)?)
    }

    /// Leaves out slow tests; how many.
    pub(crate) fn leave_out_longer_than(&mut self, limit: Duration) -> usize {
        let all = self.tests.len();
        self.tests.retain(|test| test.took <= limit);
        all - self.tests.len()
    }
}

/// The names of a program's tests.
fn list(program: &Path, which: &[&str]) -> Result<Vec<String>> {
    let arguments = ["--list", "--format", "terse"];
    let output = Command::new(program).args(arguments).args(which).output()?;
    if !output.status.success() {
        return Err(format!("{} does not list its tests", program.display()).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

/// What `job` makes of each, several at a time, in order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    all: &[T],
    job: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(at) else { return };
                    let result = job(at, one);
                    done.lock().expect("no job panics").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no job panics");
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
