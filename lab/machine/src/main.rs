//! `mely-machine`: files of machines.

use mely_hardware::Machine;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Usage: mely-machine measure [--quick]
       mely-machine check FILE...
       mely-machine show NAME
       mely-machine run RECORDING MACHINE [--cores N] [--load closed|open]
                        [--seed N] [--give-up-after S]

measure   writes the file of this machine to standard output: what accesses,
          locks and wake-ups cost, measured; a number that differs by more than
          a tenth from one time to the next is called unsteady. Takes a minute,
          for which nothing else should run; --quick takes seconds, and is for
          trying out.
check     reads files, and says what is wrong with the first that is wrong.
show      writes the file of a machine that comes with this program.
run       runs a recorded program (Builder::record, or sws --record) on a machine,
          which is a file or one that comes with this program, once in each mode
          of mely; prints rates, latencies, the use of cores and the costliest
          lines of memory. In a build with the feature `simulate`.

Options of run:
      --cores N           on N cores; by default all that the machine has
      --load closed|open  closed: what arrives in a color comes after the event
                          that it answers, and the recorded think time; that is
                          the default. open: at the recorded times
      --seed N            decides all that is chance; 0 by default
      --give-up-after S   gives a run up after S seconds of virtual time; by
                          default that is some times what one core would take

Options:
  -h, --help       this text
  -V, --version    the version
";

fn main() -> ExitCode {
    match run() {
        Ok(text) => print(&text),
        Err(message) => {
            let _ = writeln!(io::stderr(), "mely-machine: {message}");
            ExitCode::from(2)
        }
    }
}

/// Writes in one go. A reader who has seen enough and closed the pipe is no error.
fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "mely-machine: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The command line, understood.
#[derive(Default)]
struct Request {
    command: Option<String>,
    values: Vec<PathBuf>,
    quick: bool,
    /// Options of `run` that were given, each with its value.
    run: Vec<(String, OsString)>,
}

const RUN_OPTIONS: [&str; 4] = ["cores", "load", "seed", "give-up-after"];

fn run() -> Result<String, String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_env();
    let mut request = Request::default();
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(HELP.to_owned()),
            Short('V') | Long("version") => {
                return Ok(format!("mely-machine {}\n", env!("CARGO_PKG_VERSION")));
            }
            Long("quick") => request.quick = true,
            Long(name) if RUN_OPTIONS.contains(&name) => {
                let name = name.to_owned();
                let value = parser.value().map_err(|error| error.to_string())?;
                request.run.push((name, value));
            }
            Value(value) if request.command.is_none() => {
                request.command = Some(value.string().map_err(|error| error.to_string())?);
            }
            Value(value) => request.values.push(PathBuf::from(value)),
            other => return Err(other.unexpected().to_string()),
        }
    }
    answer(request)
}

fn answer(request: Request) -> Result<String, String> {
    let Request {
        command,
        values,
        quick,
        run,
    } = request;
    match command.as_deref() {
        Some("run") if values.len() == 2 && !quick => what_if::run(&values[0], &values[1], &run),
        Some("measure") if values.is_empty() && run.is_empty() => {
            mely_machine::measure::measure(quick)
        }
        Some("check") if !values.is_empty() && !quick && run.is_empty() => {
            for path in &values {
                Machine::read(path)?;
            }
            Ok(String::new())
        }
        Some("show") if values.len() == 1 && !quick && run.is_empty() => {
            show(&values[0].to_string_lossy())
        }
        Some(command @ ("measure" | "check" | "show" | "run")) => {
            Err(format!("`{command}` is used otherwise: see --help"))
        }
        Some(command) => Err(format!("no command `{command}`: see --help")),
        None => Err("a command is missing: see --help".into()),
    }
}

#[cfg(not(feature = "simulate"))]
mod what_if {
    use std::ffi::OsString;
    use std::path::Path;

    pub(crate) fn run(
        _recording: &Path,
        _machine: &Path,
        _options: &[(String, OsString)],
    ) -> Result<String, String> {
        Err("`run` simulates: it is in a build with `--features simulate`".into())
    }
}

#[cfg(feature = "simulate")]
mod what_if {
    use mely_hardware::Machine;
    use mely_machine::replay::{GIVE_UP_S_MAX, Load, Question, answer};
    use mely_recording::Recording;
    use std::ffi::OsString;
    use std::path::Path;

    pub(crate) fn run(
        recording: &Path,
        machine: &Path,
        options: &[(String, OsString)],
    ) -> Result<String, String> {
        let mut question = Question::default();
        for (name, value) in options {
            let text = value.to_string_lossy();
            let wrong = |wanted: &str| format!("`--{name} {text}`: {wanted} is wanted");
            match name.as_str() {
                "cores" => question.cores = Some(text.parse().map_err(|_| wrong("a number"))?),
                "load" => {
                    question.load = match &*text {
                        "closed" => Load::Closed,
                        "open" => Load::Open,
                        _ => return Err(wrong("`closed` or `open`")),
                    }
                }
                "seed" => question.seed = text.parse().map_err(|_| wrong("a number"))?,
                _ => {
                    let seconds = text.parse().ok();
                    let seconds = seconds.filter(|s: &f64| (0.0..=GIVE_UP_S_MAX).contains(s));
                    let seconds = seconds.ok_or_else(|| wrong("from 0 to 1000000 seconds"))?;
                    question.give_up_ns = Some((seconds * 1e9) as u64);
                }
            }
        }
        let machine = match machine.to_str().and_then(Machine::shipped) {
            Some(machine) => machine,
            None => Machine::read(machine)?,
        };
        let path = recording.display();
        let recording = Recording::open(recording).map_err(|error| format!("{path}: {error}"))?;
        let answer = answer(&recording, &machine, &question);
        answer.map_or_else(
            |error| Err(format!("{path}: {error}")),
            |answer| Ok(answer.to_string()),
        )
    }
}

fn show(name: &str) -> Result<String, String> {
    let machine = Machine::shipped(name).ok_or_else(|| {
        let names: Vec<_> = Machine::shipped_names().collect();
        format!("{name:?} is none of {}", names.join(", "))
    })?;
    Ok(machine.to_text())
}
