//! hyper's time.

use crate::net::When;
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
        // The sleep counts from this call, and a sleep of mely's from its first poll.
        SleepUntil::boxed(match self.now().checked_add(after) {
            Some(deadline) => deadline.into(),
            None => after.into(),
        })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        SleepUntil::boxed(deadline.into())
    }

    fn now(&self) -> Instant {
        let now = try_with_cx(|cx| cx.instant());
        now.unwrap_or_else(|_| Instant::now())
    }
}

/// A sleep of mely's.
struct SleepUntil(time::Sleep);

impl SleepUntil {
    fn boxed(when: When) -> Pin<Box<dyn Sleep>> {
        Box::pin(SleepUntil(time::Sleep::new(when)))
    }
}

impl Future for SleepUntil {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl Sleep for SleepUntil {}
