//! The command line.

use lexopt::prelude::*;
use std::time::Duration;

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Only mutants in these; all of the usual ones if there are none.
    pub(crate) files: Vec<String>,
    /// A file of an earlier run's survivors: only those.
    pub(crate) again: Option<String>,
    pub(crate) list: bool,
    pub(crate) check: bool,
    /// Which of how many parts, from 1.
    pub(crate) shard: (u32, u32),
    pub(crate) jobs: usize,
    /// Only tests of these programs; all if there are none.
    pub(crate) programs: Vec<String>,
    /// Tests that take longer are left out, once they have passed.
    pub(crate) longest: Duration,
    pub(crate) fresh: bool,
    pub(crate) working_tree: bool,
    pub(crate) loom: bool,
    pub(crate) sws: bool,
}

pub(crate) const HELP: &str = "\
Breaks mely in thousands of places, one at a time, and sees which tests notice.

  cargo run -p mely-mutants -- [OPTIONS] [PATH...]

  PATH...           only mutants in these files and folders, from the project's root; --files PATH... too
  --list            prints the mutants, and tries none
  --check           only whether each entry of checks/mutants/survivors.txt names a mutant
  --again FILE      only mutants that are named in FILE, as in target/mutants/survivors.txt
  --shard I/N       the I-th of N parts of the mutants, from 1
  --jobs N          mutants at a time; half of the processors by default
  --programs A,B    only tests of these programs: lib, colors, ...
  --longest MS      leaves out tests that take longer
  --fresh           forgets what earlier runs on the same code have found
  --working-tree    breaks the files as they lie there, not those of the last commit
  --no-loom         tries what survives the tests on no loom models
  --sws             the tests of the programs in apps/ and of the examples too
  --help            this

Exit code 1: there is a survivor that checks/mutants/survivors.txt does not accept, or an entry of it is stale.
Exit code 2: the run is void.";

impl Options {
    /// Reads the process's arguments. None: help was asked for.
    pub(crate) fn parse() -> Result<Option<Options>, lexopt::Error> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = Options {
            files: Vec::new(),
            again: None,
            list: false,
            check: false,
            shard: (1, 1),
            jobs: (processors / 2).max(1),
            programs: Vec::new(),
            longest: Duration::MAX,
            fresh: false,
            working_tree: false,
            loom: true,
            sws: false,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("files") => {
                    for path in parser.values()? {
                        options.files.push(path.string()?);
                    }
                }
                Value(path) => options.files.push(path.string()?),
                Long("list") => options.list = true,
                Long("check") => options.check = true,
                Long("again") => options.again = Some(parser.value()?.string()?),
                Long("shard") => {
                    let shard = parser.value()?.string()?;
                    let parts = shard
                        .split_once('/')
                        .and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
                    options.shard = match parts {
                        Some((i, n)) if 1 <= i && i <= n => (i, n),
                        _ => return Err(format!("--shard {shard}: I/N, with I from 1 to N").into()),
                    };
                }
                Long("jobs") => options.jobs = parser.value()?.parse()?,
                Long("programs") => {
                    let programs = parser.value()?.string()?;
                    options.programs = programs.split(',').map(str::to_owned).collect();
                }
                Long("longest") => {
                    options.longest = Duration::from_millis(parser.value()?.parse()?);
                }
                Long("fresh") => options.fresh = true,
                Long("working-tree") => options.working_tree = true,
                Long("no-loom") => options.loom = false,
                Long("sws") => options.sws = true,
                Long("help") | Short('h') => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        if options.jobs == 0 {
            return Err("--jobs is at least 1".into());
        }
        Ok(Some(options))
    }
}
