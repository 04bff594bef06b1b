//! Why a recording cannot be read: one sentence each.

use crate::format::{LogId, VERSION};
use std::fmt;

/// Why a recording cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    Io(std::io::Error),
    /// It is no recording.
    NotARecording,
    /// It is of another version.
    #[non_exhaustive]
    Version {
        /// The version.
        found: u32,
    },
    /// It ends before its last page: the program ended, or the disk was full, before the recording
    /// was over.
    #[non_exhaustive]
    CutShort {
        /// Its bytes.
        bytes: usize,
    },
    /// Cores were left behind in their handlers when the run ended, and have not written what they
    /// had recorded last.
    #[non_exhaustive]
    CoresLeft {
        /// How many.
        cores: u64,
    },
    /// A byte is not what could be there.
    #[non_exhaustive]
    Damaged {
        /// At this place of the file, in bytes, or shortly before.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// It has more events and posts than can be told apart by 32 bits.
    TooLong,
    /// Its logs contradict each other.
    Contradiction(&'static str),
    /// A log names a handler that it has not defined.
    #[non_exhaustive]
    UndefinedHandler {
        /// The log.
        log: LogId,
        /// What it calls the handler.
        profile: u32,
    },
    /// An event is of a post that is not there.
    #[non_exhaustive]
    NeverPosted {
        /// The event's handler.
        handler: String,
        /// Its color.
        color: String,
        /// When it began, in ns.
        begin_ns: u64,
    },
    /// An event began before the event that posted it: causes go round in a circle, or the cores'
    /// clocks differ.
    #[non_exhaustive]
    BeforeItsPost {
        /// The event's handler.
        handler: String,
        /// Its color.
        color: String,
        /// By this much, in ns.
        by_ns: u64,
    },
    /// Events are each other's causes.
    #[non_exhaustive]
    Circle {
        /// The handler of one of them.
        handler: String,
        /// Its color.
        color: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::NotARecording => {
                f.write_str("not a recording: it does not begin with `mely-rec`")
            }
            Error::Version { found } => {
                write!(
                    f,
                    "a recording of version {found}: only version {VERSION} is read"
                )
            }
            Error::CutShort { bytes } => write!(
                f,
                "cut short after {bytes} bytes: the last page is missing, which says how it ended"
            ),
            Error::CoresLeft { cores } => write!(
                f,
                "cores left behind in their handlers, with what they had recorded last: {cores}"
            ),
            Error::Damaged { at, what } => write!(f, "damaged at byte {at}: {what}"),
            Error::TooLong => f.write_str(
                "more than 4294967295 events and posts: record with a lower limit of bytes",
            ),
            Error::Contradiction(what) => write!(f, "its logs contradict each other: {what}"),
            Error::UndefinedHandler { log, profile } => {
                write!(f, "{log} names handler {profile}, which it has not defined")
            }
            Error::NeverPosted {
                handler,
                color,
                begin_ns,
            } => write!(
                f,
                "an event of handler `{handler}` in color {color} began at {begin_ns} ns, and \
                 nobody had posted it"
            ),
            Error::BeforeItsPost {
                handler,
                color,
                by_ns,
            } => write!(
                f,
                "an event of handler `{handler}` in color {color} began {by_ns} ns before the event \
                 that posted it: the cores' clocks differ, or the file is damaged"
            ),
            Error::Circle { handler, color } => write!(
                f,
                "an event of handler `{handler}` in color {color} is posted by what it posts"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Io(error)
    }
}
