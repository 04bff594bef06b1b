//! hyper's time.

use crate::task::ambient::try_with_cx;
use crate::task::time;
use ::hyper::rt::{Sleep, Timer};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The time that tasks have: that of [`sleep`](crate::task::sleep), which is virtual in
/// simulations.
///
/// hyper's timeouts need it (`Builder::timer`): HTTP/1's `header_read_timeout`, HTTP/2's
/// keep-alive.
///
/// # Panics
/// What it makes panics if it is polled outside of a task of mely.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskTimer;

impl Timer for TaskTimer {
    fn sleep(&self, after: Duration) -> Pin<Box<dyn Sleep>> {
        SleepUntil::boxed(self.now().checked_add(after))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        SleepUntil::boxed(Some(deadline))
    }

    fn now(&self) -> Instant {
        // The core's clock counts from there.
        let now = try_with_cx(|cx| cx.worker_ref().inner.start + cx.now());
        now.unwrap_or_else(|_| Instant::now())
    }
}

/// Sleeps until then. The sleep counts from its first poll, and so is begun there.
struct SleepUntil {
    /// None: longer than an [`Instant`] can say.
    deadline: Option<Instant>,
    sleep: Option<time::Sleep>,
}

impl SleepUntil {
    fn boxed(deadline: Option<Instant>) -> Pin<Box<dyn Sleep>> {
        Box::pin(SleepUntil {
            deadline,
            sleep: None,
        })
    }
}

impl Future for SleepUntil {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let begin = || {
            let left = |deadline: Instant| deadline.saturating_duration_since(TaskTimer.now());
            time::Sleep::new(deadline.map_or(Duration::MAX, left))
        };
        Pin::new(self.sleep.get_or_insert_with(begin)).poll(context)
    }
}

impl Sleep for SleepUntil {}
