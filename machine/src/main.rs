//! `mely-machine`: files of machines.

use mely_hardware::Machine;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Usage: mely-machine measure [--quick]
       mely-machine check FILE...
       mely-machine show NAME

measure   writes the file of this machine to standard output: what accesses,
          locks and wake-ups cost, measured; a number that differs by more than
          a tenth from one time to the next is called unsteady. Takes a minute,
          for which nothing else should run; --quick takes seconds, and is for
          trying out.
check     reads files, and says what is wrong with the first that is wrong.
show      writes the file of a machine that comes with this program.

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

fn run() -> Result<String, String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_env();
    let (mut command, mut values, mut quick) = (None, Vec::new(), false);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(HELP.to_owned()),
            Short('V') | Long("version") => {
                return Ok(format!("mely-machine {}\n", env!("CARGO_PKG_VERSION")));
            }
            Long("quick") => quick = true,
            Value(value) if command.is_none() => {
                command = Some(value.string().map_err(|error| error.to_string())?);
            }
            Value(value) => values.push(PathBuf::from(value)),
            other => return Err(other.unexpected().to_string()),
        }
    }
    match command.as_deref() {
        Some("measure") if values.is_empty() => mely_machine::measure::measure(quick),
        Some("check") if !values.is_empty() && !quick => {
            for path in &values {
                Machine::read(path)?;
            }
            Ok(String::new())
        }
        Some("show") if values.len() == 1 && !quick => show(&values[0].to_string_lossy()),
        Some(command @ ("measure" | "check" | "show")) => {
            Err(format!("`{command}` is used otherwise: see --help"))
        }
        Some(command) => Err(format!("no command `{command}`: see --help")),
        None => Err("a command is missing: see --help".into()),
    }
}

fn show(name: &str) -> Result<String, String> {
    let machine = Machine::shipped(name).ok_or_else(|| {
        let names: Vec<_> = Machine::shipped_names().collect();
        format!("{name:?} is none of {}", names.join(", "))
    })?;
    Ok(machine.to_text())
}
