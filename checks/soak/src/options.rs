//! The command line.

use lexopt::prelude::*;
use mely::net::Backend;
use std::time::Duration;

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) million: bool,
    pub(crate) time: Duration,
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
    /// `None`: drawn for each round; for the million, every one there is.
    pub(crate) backend: Option<Backend>,
    pub(crate) patience: Duration,
    pub(crate) connections: u64,
    pub(crate) at_once: u64,
    pub(crate) growth_max_bytes: f64,
    pub(crate) leak_bytes: usize,
    pub(crate) plant: Option<Plant>,
}

/// A lie told to the oracle, which it must find: how the tests of the soak know that it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// An accepted event is forgotten.
    Lost,
    /// An event enters a color that another is in.
    Overlap,
    /// Two posts of one poster are numbered the wrong way round.
    Order,
    /// An event is never dropped.
    Leak,
    /// A descriptor stays open.
    Descriptor,
    /// A handler does not return.
    Hang,
}

pub(crate) const HELP: &str = "\
Random runtimes, round after round, with an oracle; exit code 1 and the seed on a violation.

  --seconds N        how long; 60 by default
  --rounds N         at most so many rounds
  --seed S           of the first round, each further one has the next; drawn and printed by default
  --backend B        io_uring or epoll; drawn for each round by default
  --patience N       seconds after which a round is called hung; 120 by default
  --plant WHAT       lies to the oracle, which must find it: lost, overlap, order, leak, descriptor, hang

  --million          instead: connections that connect, ask, are answered and close, on each backend;
                     memory after the first fifth must stay flat
  --connections N    so many; a million by default
  --at-once N        so many open at a time, 2000 by default
  --growth-max B     bytes a connection that memory may grow by; 8 by default
  --leak B           leaks so many bytes a connection: must be found

  --help             this";

impl Options {
    /// Reads the process's arguments. None: help was asked for.
    pub(crate) fn parse() -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options {
            million: false,
            time: Duration::from_secs(60),
            rounds: u64::MAX,
            seed: fastrand::u64(..1 << 48),
            backend: None,
            patience: Duration::from_secs(120),
            connections: 1_000_000,
            at_once: 2_000,
            growth_max_bytes: 8.0,
            leak_bytes: 0,
            plant: None,
        };
        let mut parser = lexopt::Parser::from_env();
        let seconds = |value: std::ffi::OsString| -> Result<Duration, lexopt::Error> {
            let seconds: f64 = value.parse()?;
            let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
            match time.is_zero() {
                true => Err(format!("{seconds} seconds: nothing would be run").into()),
                false => Ok(time),
            }
        };
        let mut given = Vec::new();
        while let Some(argument) = parser.next()? {
            if let Long(name) = argument {
                given.push(name.to_owned());
            }
            match argument {
                Long("million") => options.million = true,
                Long("seconds") => options.time = seconds(parser.value()?)?,
                Long("rounds") => options.rounds = parser.value()?.parse()?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("patience") => options.patience = seconds(parser.value()?)?,
                Long("connections") => options.connections = parser.value()?.parse()?,
                Long("at-once") => options.at_once = parser.value()?.parse()?,
                Long("growth-max") => options.growth_max_bytes = parser.value()?.parse()?,
                Long("leak") => options.leak_bytes = parser.value()?.parse()?,
                Long("backend") => {
                    options.backend = Some(match parser.value()?.string()?.as_str() {
                        "io_uring" => Backend::IoUring,
                        "epoll" => Backend::Epoll,
                        other => return Err(format!("--backend {other}: io_uring or epoll").into()),
                    });
                }
                Long("plant") => {
                    options.plant = Some(match parser.value()?.string()?.as_str() {
                        "lost" => Plant::Lost,
                        "overlap" => Plant::Overlap,
                        "order" => Plant::Order,
                        "leak" => Plant::Leak,
                        "descriptor" => Plant::Descriptor,
                        "hang" => Plant::Hang,
                        other => return Err(format!("--plant {other}: not known").into()),
                    });
                }
                Long("help") | Short('h') => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        if options.at_once == 0 || options.connections == 0 || options.rounds == 0 {
            return Err("--rounds, --connections and --at-once are at least 1".into());
        }
        // No option is ignored in silence.
        let others: &[&str] = match options.million {
            true => &["seconds", "rounds", "seed", "patience", "plant"],
            false => &["connections", "at-once", "growth-max", "leak"],
        };
        if let Some(name) = given.iter().find(|name| others.contains(&name.as_str())) {
            let with = if options.million { "with" } else { "without" };
            return Err(format!("--{name} {with} --million: it would change nothing").into());
        }
        Ok(Some(options))
    }
}
