//! Where hyper's tasks run.

use crate::task::spawn_own;
use crate::{Color, Post, Poster};
use ::hyper::rt::Executor;
use std::fmt;

/// Spawns hyper's tasks in one color. HTTP/2 has them: a server one for each request, a client one
/// for the connection.
///
/// In the stream's color they run one at a time with the connection; in another one in parallel
/// with it, since they have no part in the stream itself.
///
/// hyper cannot be told that a task was refused, so these are spawned also at the builder's limit
/// of queued events; how many there are at a time is hyper's matter (`max_concurrent_streams`).
/// Once the run is over they are dropped.
#[derive(Clone)]
pub struct ColorExecutor {
    poster: Poster,
    color: Color,
}

impl ColorExecutor {
    /// An executor that spawns in this color of the runtime that `by` posts to.
    pub fn new<P: Post + ?Sized>(by: &P, color: Color) -> ColorExecutor {
        let poster = by.to_poster();
        ColorExecutor { poster, color }
    }
}

impl<F> Executor<F> for ColorExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        drop(spawn_own(&self.poster, self.color, future));
    }
}

impl fmt::Debug for ColorExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColorExecutor")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}
