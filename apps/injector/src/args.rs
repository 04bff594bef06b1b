//! The command line.

use crate::file_set::{FILE_BYTES_MAX, FileSet, Kind};
use crate::work::{Check, Until, Work};
use lexopt::prelude::*;
use mely_apps_common::options::value;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What `injector --help` prints.
pub(crate) const HELP: &str = "\
A closed-loop load injector for web servers, on mely

usage: injector --target ADDR:PORT [options]
       injector --master ADDR:PORT --injectors N --target ADDR:PORT [options]
       injector --join ADDR:PORT [--cores N]
       injector files DIR [--set NAME] [--file-bytes N] [--seed N]

What is asked for:
  --target ADDR:PORT           the server; given several times, clients are spread over them
  --clients N                  virtual clients of this injector, each with one connection at a
                               time (default 64)
  --requests-per-connection N  then a client closes and connects anew (default 150; 0: never)
  --set one|specweb99          one file, or 720 files of 100 MB in SPECweb99's four classes
                               (default one)
  --file-bytes N               the size of the one file (default 1024, at most 1 GiB)
  --seed N                     makes the files and their order (default 1)
  --check none|length|bytes    how bodies are checked (default bytes)

For how long:
  --seconds S                  measured time (default 5)
  --warm-up S                  time before that is measured (default 1)
  --total N                    instead: N responses or errors, all measured
  --silence S                  end with an error if for S seconds nothing comes from the server
                               for any of a core's clients (default 30)

Together:
  --master ADDR:PORT           wait for injectors here, start them together, gather their figures
  --injectors N                for so many (default 1); who leaves before they have started is
                               waited for anew
  --join ADDR:PORT             be one of them: the master says what to ask for

What is told:
  --pid N                      the server's process: its processor time per request is told;
                               may be given several times
  --json                       one JSON object instead of text
  --cores N                    the injector's own cores (default: all this process may use)
  --help                       this text

`injector files DIR` writes the files of a set, for a server to serve.

exit code: 0, 1 after an error, when no request was answered or the server fell silent, 2 for
options that are wrong
";

/// How long a server may be silent, unless the command line says otherwise.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The only injector.
    Alone(Work),
    /// It starts others.
    Master {
        /// Where others join.
        listen: SocketAddr,
        /// This many others.
        injectors: usize,
        /// What each of them does.
        work: Work,
    },
    /// It is started by a master.
    Join(SocketAddr),
}

/// A command line that asks for load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Args {
    /// What this process is.
    pub(crate) role: Role,
    /// The injector's own cores.
    pub(crate) cores: Option<usize>,
    /// The server's processes, whose processor time is measured.
    pub(crate) server_pids: Vec<u32>,
    /// JSON instead of text.
    pub(crate) json: bool,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Load, or lead those that load.
    Inject(Args),
    /// Write the files of a set.
    Files {
        /// Where.
        dir: PathBuf,
        /// Which.
        set: FileSet,
    },
    /// Print [`HELP`].
    Help,
}

/// As given, before it is known whether it fits together.
struct Given {
    targets: Vec<SocketAddr>,
    clients: usize,
    requests_per_connection: u64,
    spec_web: bool,
    file_bytes: usize,
    seed: u64,
    check: Check,
    measured: Duration,
    warm_up: Duration,
    total: Option<u64>,
    silence_max: Duration,
    master: Option<SocketAddr>,
    injectors: usize,
    join: Option<SocketAddr>,
    server_pids: Vec<u32>,
    json: bool,
    cores: Option<usize>,
    files: Option<PathBuf>,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn parse<I>(arguments: I) -> Result<Command, String>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut given = Given {
        targets: Vec::new(),
        clients: 64,
        requests_per_connection: 150,
        spec_web: false,
        file_bytes: 1024,
        seed: 1,
        check: Check::Bytes,
        measured: Duration::from_secs(5),
        warm_up: Duration::from_secs(1),
        total: None,
        silence_max: SILENCE_MAX,
        master: None,
        injectors: 1,
        join: None,
        server_pids: Vec::new(),
        json: false,
        cores: None,
        files: None,
    };
    let mut words = 0;
    let mut names = Vec::new();
    while let Some(argument) = parser.next().map_err(|e| e.to_string())? {
        let name = match argument {
            Long(name) => name.to_owned(),
            Short('h') => return Ok(Command::Help),
            Value(word) if words == 0 && word == "files" => {
                words = 1;
                continue;
            }
            Value(dir) if words == 1 => {
                words = 2;
                given.files = Some(dir.into());
                continue;
            }
            other => return Err(other.unexpected().to_string()),
        };
        let address = "an address like 127.0.0.1:8080";
        let count = "a number from 1 up";
        let parser = &mut parser;
        names.push(name.clone());
        match name.as_str() {
            "help" => return Ok(Command::Help),
            "json" => given.json = true,
            "target" => given.targets.push(value(parser, &name, address, parsed)?),
            "master" => given.master = Some(value(parser, &name, address, parsed)?),
            "join" => given.join = Some(value(parser, &name, address, parsed)?),
            "clients" => given.clients = value(parser, &name, count, positive)?,
            "injectors" => given.injectors = value(parser, &name, count, positive)?,
            "cores" => given.cores = Some(value(parser, &name, count, positive)?),
            "file-bytes" => {
                let wanted = format!("a number from 1 to {FILE_BYTES_MAX}");
                given.file_bytes = value(parser, &name, &wanted, |text| {
                    positive(text).filter(|&bytes| bytes <= FILE_BYTES_MAX)
                })?;
            }
            "requests-per-connection" => {
                given.requests_per_connection = value(parser, &name, "a number", parsed)?;
            }
            "seed" => given.seed = value(parser, &name, "a number", parsed)?,
            "pid" => {
                let pid = value(parser, &name, "a process", parsed)?;
                given.server_pids.push(pid);
            }
            "total" => {
                let total: usize = value(parser, &name, count, positive)?;
                given.total = Some(total as u64);
            }
            "seconds" => given.measured = value(parser, &name, ABOVE_0, above_0)?,
            "silence" => given.silence_max = value(parser, &name, ABOVE_0, above_0)?,
            "warm-up" => given.warm_up = value(parser, &name, "seconds", seconds)?,
            "set" => {
                given.spec_web = value(parser, &name, "one or specweb99", |text| match text {
                    "one" => Some(false),
                    "specweb99" => Some(true),
                    _ => None,
                })?;
            }
            "check" => {
                let wanted = "none, length or bytes";
                given.check = value(parser, &name, wanted, |text| match text {
                    "none" => Some(Check::None),
                    "length" => Some(Check::Length),
                    "bytes" => Some(Check::Bytes),
                    _ => None,
                })?;
            }
            _ => return Err(Long(&name).unexpected().to_string()),
        }
    }
    if words == 1 {
        return Err("files wants a directory".to_owned());
    }
    given.check(&names)?;
    given.command()
}

impl Given {
    /// No option is ignored in silence.
    fn check(&self, names: &[String]) -> Result<(), String> {
        let (role, its): (_, &[&str]) = match (&self.files, self.join, self.master) {
            (Some(_), ..) => ("files", &["set", "file-bytes", "seed"]),
            (None, Some(_), _) => ("--join", &["join", "cores"]),
            (None, None, None) if names.iter().any(|name| name == "injectors") => {
                return Err("--injectors without --master: nobody waits for them".to_owned());
            }
            _ => return Ok(()),
        };
        match names.iter().find(|name| !its.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if role == "--join" => Err(format!(
                "--join and --{name}: that is for the master to say"
            )),
            Some(name) => Err(format!(
                "{role} and --{name}: only --set, --file-bytes, --seed"
            )),
        }
    }

    fn command(self) -> Result<Command, String> {
        let set = FileSet {
            kind: if self.spec_web {
                Kind::SpecWeb99
            } else {
                Kind::One {
                    bytes: self.file_bytes,
                }
            },
            seed: self.seed,
        };
        if let Some(dir) = self.files {
            return Ok(Command::Files { dir, set });
        }
        let role = match (self.join, self.targets.is_empty()) {
            (Some(master), _) => Role::Join(master),
            (None, true) => return Err("--target is missing".to_owned()),
            (None, false) => {
                let work = Work {
                    targets: self.targets,
                    clients: self.clients,
                    requests_per_connection: self.requests_per_connection,
                    until: match self.total {
                        Some(responses) => Until::Total(responses),
                        None => Until::Time {
                            warm_up: self.warm_up,
                            measured: self.measured,
                        },
                    },
                    silence_max: self.silence_max,
                    set,
                    check: self.check,
                };
                match self.master {
                    Some(listen) => Role::Master {
                        listen,
                        injectors: self.injectors,
                        work,
                    },
                    None => Role::Alone(work),
                }
            }
        };
        Ok(Command::Inject(Args {
            role,
            cores: self.cores,
            server_pids: self.server_pids,
            json: self.json,
        }))
    }
}

fn parsed<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn positive(text: &str) -> Option<usize> {
    parsed(text).filter(|&n| n > 0)
}

/// A day at most: what is longer is a slip of the hand.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = parsed(text)?;
    (0.0..=86_400.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

const ABOVE_0: &str = "seconds above 0";

fn above_0(text: &str) -> Option<Duration> {
    seconds(text).filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace())
    }

    fn alone(text: &str) -> Work {
        match line(text) {
            Ok(Command::Inject(Args {
                role: Role::Alone(work),
                ..
            })) => work,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_a_master_sends_is_read_as_what_it_meant() {
        for text in [
            "--target 127.0.0.1:80",
            "--target [::1]:80 --clients 7 --requests-per-connection 0 --set specweb99 --seed 9",
            "--target 127.0.0.1:80 --seconds 0.25 --warm-up 0 --check length --file-bytes 77",
            "--target 127.0.0.1:80 --target 127.0.0.1:81 --total 1000 --check none",
            "--target 127.0.0.1:80 --total 10 --silence 0.5",
        ] {
            let work = alone(text);
            assert_eq!(alone(&work.to_options().join(" ")), work, "{text}");
        }
    }

    #[test]
    fn roles() {
        let Ok(Command::Inject(args)) = line("--join 127.0.0.1:7 --cores 1") else {
            panic!()
        };
        assert_eq!(args.role, Role::Join("127.0.0.1:7".parse().unwrap()));
        let text = "--master 127.0.0.1:0 --injectors 3 --target 127.0.0.1:80 --pid 12 --json";
        let Ok(Command::Inject(args)) = line(text) else {
            panic!()
        };
        assert!(matches!(args.role, Role::Master { injectors: 3, .. }));
        assert_eq!((args.server_pids, args.json), (vec![12], true));
        let Ok(Command::Files { dir, set }) = line("files d --set specweb99 --seed 4") else {
            panic!()
        };
        assert_eq!(dir, PathBuf::from("d"));
        assert_eq!((set.kind, set.seed), (Kind::SpecWeb99, 4));
        assert_eq!(line("--clients 3 --help"), Ok(Command::Help));
    }

    #[test]
    fn errors_name_the_option() {
        for (text, expected) in [
            ("", "--target is missing"),
            ("files", "files wants a directory"),
            (
                "--clients 0",
                "--clients wants a number from 1 up, not \"0\"",
            ),
            ("--seconds 0", "--seconds wants seconds above 0, not \"0\""),
            ("--silence 0", "--silence wants seconds above 0, not \"0\""),
            ("--warm-up -1", "--warm-up wants seconds, not \"-1\""),
            (
                "--join 127.0.0.1:1 --target 127.0.0.1:2",
                "--join and --target: that is for the master to say",
            ),
            (
                "--join 127.0.0.1:1 --pid 1",
                "--join and --pid: that is for the master to say",
            ),
            (
                "--json --join 127.0.0.1:1",
                "--join and --json: that is for the master to say",
            ),
            (
                "--join 127.0.0.1:1 --master 127.0.0.1:2",
                "--join and --master: that is for the master to say",
            ),
            (
                "--target 127.0.0.1:1 --injectors 2",
                "--injectors without --master: nobody waits for them",
            ),
            (
                "files d --clients 3",
                "files and --clients: only --set, --file-bytes, --seed",
            ),
            (
                "--file-bytes 18446744073709551615",
                "--file-bytes wants a number from 1 to 1073741824, not \"18446744073709551615\"",
            ),
            ("--port 1", "invalid option '--port'"),
            ("file", "unexpected argument \"file\""),
        ] {
            assert_eq!(line(text), Err(expected.to_owned()), "{text}");
        }
    }
}
