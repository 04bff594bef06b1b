//! Handlers: a name and the annotations that tune stealing (Mely §III-B, §III-C).

use std::time::Duration;

/// A named handler with its annotations. Both annotations are optional: the runtime measures what
/// is not given, and an annotation is the prior of that measurement.
///
/// Declare handlers as statics; the runtime keys its statistics by their address.
///
/// ```
/// use mely::Handler;
/// use std::time::Duration;
/// static PARSE: Handler = Handler::new("parse").time(Duration::from_micros(2)).penalty(8);
/// assert_eq!(PARSE.name(), "parse");
/// ```
#[derive(Debug)]
pub struct Handler {
    name: &'static str,
    time_ns: u32,
    penalty: u32,
    working_set_bytes: Option<u64>,
}

/// The largest penalty; larger annotations are clamped.
const PENALTY_MAX: u32 = 1 << 20;

impl Handler {
    /// A handler without annotations. `name` appears in reports, warnings and panic messages.
    pub const fn new(name: &'static str) -> Handler {
        Handler {
            name,
            time_ns: 0,
            penalty: 1,
            working_set_bytes: None,
        }
    }

    /// The average processing time of one event of this handler, Mely's time-left annotation.
    /// Clamped to 4.2 s; zero means "not annotated".
    pub const fn time(mut self, time: Duration) -> Handler {
        let ns = time.as_nanos();
        self.time_ns = if ns > u32::MAX as u128 {
            u32::MAX
        } else {
            ns as u32
        };
        self
    }

    /// Mely's `ws_penalty`: an event counts `time / penalty` when the thief looks for the color to
    /// steal, so a handler that walks a large, long-lived data set is stolen last. A preference
    /// among colors, never a veto. On its own core a color whose events together have a penalty of
    /// ten or more goes on where its turn would be over, for up to four quanta of 0.6 to 2.4 us (or
    /// a steal cost, if that is more), since what it works on is in the caches. Who waits behind
    /// colors of short events waits the longer: ten events of 20 ns are 0.2 us, four quanta 9.6.
    ///
    /// Without it the penalty is 1; zero counts as 1.
    pub const fn penalty(mut self, penalty: u32) -> Handler {
        self.penalty = if penalty == 0 {
            1
        } else if penalty > PENALTY_MAX {
            PENALTY_MAX
        } else {
            penalty
        };
        self
    }

    /// Annotates the working set of one event: about how many bytes of its color's data it reads
    /// and writes. The scheduler does not use it. It is for a recording ([`Builder::record`]) that
    /// is replayed on the model of another machine, where data has to be fetched from other caches.
    /// Without it the data costs nothing there.
    ///
    /// ```
    /// use mely::Handler;
    /// static SORT: Handler = Handler::new("sort").working_set_bytes(64 << 10);
    /// ```
    ///
    /// [`Builder::record`]: crate::Builder::record
    pub const fn working_set_bytes(mut self, bytes: u64) -> Handler {
        self.working_set_bytes = Some(bytes);
        self
    }

    /// The handler's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The annotated time, if any.
    pub(crate) const fn annotated_time(&self) -> Option<Duration> {
        if self.time_ns == 0 {
            None
        } else {
            Some(Duration::from_nanos(self.time_ns as u64))
        }
    }

    /// The annotated bytes, if any.
    pub(crate) const fn annotated_bytes(&self) -> Option<u64> {
        self.working_set_bytes
    }

    /// The annotated penalty, 1 if none was given.
    pub(crate) const fn annotated_penalty(&self) -> u32 {
        self.penalty
    }
}
