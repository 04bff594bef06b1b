//! What the handlers of a workload post with, on whatever scheduler.

use mely::Handler;
use std::time::Duration;

/// What a handler posts with.
///
/// A closure of a workload captures at most three words, and references to leaked worlds rather
/// than counted ones: what is measured is an event, not a reference count.
pub trait Context {
    /// See [`Outside`].
    type Outside: Outside<Self>;

    /// Posts to a color. Colors are small numbers; color `c` starts on core `c % cores`, where the
    /// scheduler has homes for its colors.
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static;

    /// Posts under annotations, which schedulers that have no use for them ignore.
    #[inline]
    fn post_noted<F>(&mut self, color: u32, note: &'static Note, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        let _ = note;
        self.post(color, f);
    }

    /// Makes what was posted visible to other cores now, where that would wait for the handler's
    /// end.
    fn flush(&mut self) {}

    /// Moves a color to a core, at the latest when none of its events are queued: what the papers'
    /// workloads register on one core starts there in each round, wherever it was stolen to.
    /// Schedulers without homes for colors ignore it.
    fn place(&mut self, color: u32, core: usize) {
        let _ = (color, core);
    }

    /// The core that runs this, from 0.
    fn core(&self) -> usize;

    /// A handle for threads that are none of the scheduler's.
    fn outside(&self) -> Self::Outside;

    /// The last event has run.
    fn stop(&mut self);
}

/// Posts from threads that are none of the scheduler's.
pub trait Outside<C: ?Sized>: Clone + Send + 'static {
    /// As [`Context::post`].
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut C) + Send + 'static;
}

/// A handler's name and annotations.
#[derive(Debug)]
pub struct Note {
    /// In reports.
    pub name: &'static str,
    /// What one event takes, if annotated.
    pub time_ns: Option<u64>,
    /// Mely's `ws_penalty`; 1 for none.
    pub penalty: u32,
    /// The same for mely, which wants a static of its own type.
    pub handler: Handler,
}

impl Note {
    /// Without annotations.
    pub const fn new(name: &'static str) -> Note {
        Note {
            name,
            time_ns: None,
            penalty: 1,
            handler: Handler::new(name),
        }
    }

    /// What one event takes.
    pub const fn time_ns(self, time_ns: u64) -> Note {
        Note {
            time_ns: Some(time_ns),
            handler: self.handler.time(Duration::from_nanos(time_ns)),
            ..self
        }
    }

    /// Mely's `ws_penalty`.
    pub const fn penalty(self, penalty: u32) -> Note {
        Note {
            penalty,
            handler: self.handler.penalty(penalty),
            ..self
        }
    }
}
