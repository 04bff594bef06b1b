//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use lexopt::prelude::*;
use mely_apps_common::options::value;

use crate::load::Limits;

/// What `sws --help` prints.
pub(crate) const HELP: &str = "\
SWS, the web server of the Mely paper, on mely

usage: sws [options]

  --root DIR               serve the files under DIR (default: a small built-in site);
                           files are read once, at start-up; names that begin with a dot
                           are left out, and links to such names, except .well-known
  --max-site-mib N         do not start with more than N MiB of files, which are kept in
                           memory (default 256)
  --max-files N            do not start with more than N files and directories
                           (default 65536)
  --listen ADDR:PORT       where to listen (default 127.0.0.1:8080; port 0 picks a free one)
  --cores N                run on N cores (default: all this process may use, each of
                           which is then pinned to its processor)
  --max-clients N          simultaneous clients before new ones get a 503 (default 10000);
                           each takes a file descriptor: with fewer, SWS says at its start
                           how many clients there is room for
  --stealing on|off        work stealing between cores (default on)
  --accept percore|single  a listener on every core, or one acceptor (default percore)
  --backend auto|io_uring|epoll
                           the event source (default auto: what the environment variable
                           MELY_BACKEND says, else io_uring, else epoll); io_uring and epoll
                           override the variable
  --idle-timeout-ms N      close a connection that asks nothing for so long, or whose machine
                           acknowledges nothing more of its answer (default 30000); the answer
                           is looked at each time the shortest of the timeouts is over
  --header-timeout-ms N    answer 408 to a request head that takes longer (default 10000)
  --linger-timeout-ms N    close a connection that its client does not close for so long after
                           the last answer (default 2000); it no longer counts as a client
  --finish-timeout-ms N    how long the requests under way may take to finish once SWS was
                           asked to stop (default 5000)
  --record FILE            record the run in FILE, for mely-recording summary or timeline
  --record-max-mib N       end the recording, and not the run, at N MiB (default 64)
  --help                   print this text

The page /_mely shows what every core is doing.

GET and HEAD are served. A body that announces its length, of up to 16 KiB, is skipped; a
longer or a chunked one, also an empty one, is refused with a 413, and the connection ends.

SIGINT (Ctrl-C), SIGTERM and SIGHUP ask to stop, unless they are ignored from the start
(SIGHUP under nohup, SIGINT in the background of a script): the request under way on each
connection, or the first that has arrived, gets the last answer there, also if the connection
waits to be accepted. Requests behind the last answer are not taken up, as in HTTP. Then a
summary is printed, and for each handler its events, their mean time, the share stolen and the
annotation it should have. Asked again, SWS ends at once, without a summary.

exit code: 0 when each request that was taken up was answered, 1 after an error, 2 for options that are
wrong, 3 when requests were cut off at the finish timeout, 128 and the number of the signal
(130 for SIGINT, 143 for SIGTERM) when it was asked again
";

/// How connections are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    /// A listener on every core; the kernel spreads the connections.
    PerCore,
    /// One acceptor with one color, as in the paper.
    Single,
}

/// Which event source to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// io_uring, or epoll if the kernel refuses it.
    Auto,
    /// io_uring or nothing.
    IoUring,
    /// epoll.
    Epoll,
}

/// A command line that asks for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Args {
    /// The directory to serve; `None` is the built-in site.
    pub(crate) root: Option<PathBuf>,
    /// How much of it.
    pub(crate) limits: Limits,
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// How many cores; `None` is all.
    pub(crate) cores: Option<usize>,
    /// Clients beyond this number get a 503.
    pub(crate) clients_max: usize,
    /// Whether cores steal from each other.
    pub(crate) stealing: bool,
    /// How connections are accepted.
    pub(crate) accept: Accept,
    /// The event source.
    pub(crate) backend: Backend,
    /// How long a connection may ask nothing.
    pub(crate) idle_timeout_ms: u64,
    /// How long a request head may take from its first byte.
    pub(crate) header_timeout_ms: u64,
    /// How long a client may stay after its last answer.
    pub(crate) linger_timeout_ms: u64,
    /// How long what is under way may take once the server was asked to stop.
    pub(crate) finish_timeout_ms: u64,
    /// Where the run is recorded; `None` is nowhere.
    pub(crate) record: Option<PathBuf>,
    /// How large that file may get.
    pub(crate) record_mib_max: u64,
}

impl Default for Args {
    fn default() -> Self {
        Args {
            root: None,
            limits: Limits::default(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            cores: None,
            clients_max: 10_000,
            stealing: true,
            accept: Accept::PerCore,
            backend: Backend::Auto,
            idle_timeout_ms: 30_000,
            header_timeout_ms: 10_000,
            linger_timeout_ms: 2_000,
            finish_timeout_ms: 5_000,
            record: None,
            record_mib_max: 64,
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Serve.
    Serve(Args),
    /// Print [`HELP`] and leave with success.
    Help,
}

/// Reads the arguments after the program's name. The error is one sentence for the user; the
/// caller prints it on stderr and leaves with code 2.
pub(crate) fn parse<I>(arguments: I) -> Result<Command, String>
where
    I: IntoIterator<Item: Into<OsString>>,
{
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut args = Args::default();
    while let Some(argument) = parser.next().map_err(|e| e.to_string())? {
        let Long(name) = argument else {
            return Err(match argument {
                Short('h') => return Ok(Command::Help),
                other => other.unexpected().to_string(),
            });
        };
        let name = name.to_owned();
        match name.as_str() {
            "help" => return Ok(Command::Help),
            "root" => args.root = Some(parser.value().map_err(|e| e.to_string())?.into()),
            "listen" => {
                args.listen = value(
                    &mut parser,
                    &name,
                    "an address like 127.0.0.1:8080",
                    |text| text.parse().ok(),
                )?;
            }
            "max-site-mib" => {
                let mib = count(&mut parser, &name)? as u64;
                args.limits.bytes_max = mib.saturating_mul(1024 * 1024);
            }
            "record" => args.record = Some(parser.value().map_err(|e| e.to_string())?.into()),
            "record-max-mib" => {
                args.record_mib_max =
                    value(&mut parser, &name, "a number from 1 to 1048576", |text| {
                        text.parse().ok().filter(|n| (1..=1 << 20).contains(n))
                    })?;
            }
            "max-files" => args.limits.entries_max = count(&mut parser, &name)?,
            "cores" => args.cores = Some(count(&mut parser, &name)?),
            "max-clients" => args.clients_max = count(&mut parser, &name)?,
            "idle-timeout-ms" => args.idle_timeout_ms = millis(&mut parser, &name)?,
            "header-timeout-ms" => args.header_timeout_ms = millis(&mut parser, &name)?,
            "linger-timeout-ms" => args.linger_timeout_ms = millis(&mut parser, &name)?,
            "finish-timeout-ms" => args.finish_timeout_ms = millis(&mut parser, &name)?,
            "stealing" => {
                args.stealing = value(&mut parser, &name, "on or off", |text| match text {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => None,
                })?;
            }
            "accept" => {
                args.accept = value(&mut parser, &name, "percore or single", |text| match text {
                    "percore" => Some(Accept::PerCore),
                    "single" => Some(Accept::Single),
                    _ => None,
                })?;
            }
            "backend" => {
                let wanted = "auto, io_uring or epoll";
                args.backend = value(&mut parser, &name, wanted, |text| match text {
                    "auto" => Some(Backend::Auto),
                    "io_uring" => Some(Backend::IoUring),
                    "epoll" => Some(Backend::Epoll),
                    _ => None,
                })?;
            }
            _ => return Err(Long(&name).unexpected().to_string()),
        }
    }
    Ok(Command::Serve(args))
}

fn count(parser: &mut lexopt::Parser, name: &str) -> Result<usize, String> {
    value(parser, name, "a number from 1 up", |text| {
        text.parse().ok().filter(|&n| n > 0)
    })
}

/// A day at most: what is longer is a slip of the hand, and must not overflow a clock.
fn millis(parser: &mut lexopt::Parser, name: &str) -> Result<u64, String> {
    value(parser, name, "milliseconds from 1 to 86400000", |text| {
        text.parse().ok().filter(|n| (1..=86_400_000).contains(n))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(line: &str) -> Result<Args, String> {
        match parse(line.split_whitespace())? {
            Command::Serve(args) => Ok(args),
            Command::Help => panic!("help for {line:?}"),
        }
    }

    #[test]
    fn nothing_given_is_the_built_in_site_on_localhost() {
        let args = serve("").unwrap();
        assert_eq!(args, Args::default());
        assert_eq!(args.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(args.root, None);
    }

    #[test]
    fn everything_given() {
        let line = "--root www --listen [::1]:0 --cores 2 --max-clients=7 --stealing off \
            --accept single --backend epoll --idle-timeout-ms 5 --header-timeout-ms 6 \
            --linger-timeout-ms 7 --max-site-mib 8 --max-files 9 --finish-timeout-ms 10 \
            --record run.mely --record-max-mib 11";
        let expected = Args {
            root: Some("www".into()),
            limits: Limits {
                bytes_max: 8 << 20,
                entries_max: 9,
                ..Limits::default()
            },
            listen: "[::1]:0".parse().unwrap(),
            cores: Some(2),
            clients_max: 7,
            stealing: false,
            accept: Accept::Single,
            backend: Backend::Epoll,
            idle_timeout_ms: 5,
            header_timeout_ms: 6,
            linger_timeout_ms: 7,
            finish_timeout_ms: 10,
            record: Some("run.mely".into()),
            record_mib_max: 11,
        };
        assert_eq!(serve(line), Ok(expected));
    }

    #[test]
    fn help_wins() {
        assert_eq!(parse(["--cores", "2", "--help"]), Ok(Command::Help));
        assert_eq!(parse(["-h"]), Ok(Command::Help));
    }

    #[test]
    fn errors_name_the_option_and_what_it_wants() {
        for (line, expected) in [
            ("--cores 0", "--cores wants a number from 1 up, not \"0\""),
            (
                "--cores two",
                "--cores wants a number from 1 up, not \"two\"",
            ),
            (
                "--max-clients -1",
                "--max-clients wants a number from 1 up, not \"-1\"",
            ),
            (
                "--listen 8080",
                "--listen wants an address like 127.0.0.1:8080, not \"8080\"",
            ),
            (
                "--stealing maybe",
                "--stealing wants on or off, not \"maybe\"",
            ),
            (
                "--accept all",
                "--accept wants percore or single, not \"all\"",
            ),
            (
                "--backend kqueue",
                "--backend wants auto, io_uring or epoll, not \"kqueue\"",
            ),
            (
                "--idle-timeout-ms 0",
                "--idle-timeout-ms wants milliseconds from 1 to 86400000, not \"0\"",
            ),
            (
                "--record-max-mib 0",
                "--record-max-mib wants a number from 1 to 1048576, not \"0\"",
            ),
            ("--root", "missing argument for option '--root'"),
            ("--port 1", "invalid option '--port'"),
            ("-x", "invalid option '-x'"),
            ("www", "unexpected argument \"www\""),
        ] {
            assert_eq!(serve(line), Err(expected.to_owned()), "{line}");
        }
    }
}
