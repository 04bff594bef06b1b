//! crossbeam's deques of colors that are a queue under a lock each, taken out in batches.

use super::deques::{Cx, Queue};
use super::queue::ColorQueue;

type Job = Box<dyn FnOnce(&mut Cx<Locked>) + Send>;

/// See the module text.
#[derive(Default)]
pub(super) struct Locked(ColorQueue<Job>);

impl Queue for Locked {
    const NAME: &str = "crossbeam";

    #[inline]
    fn push<F>(&self, f: F) -> bool
    where
        F: FnOnce(&mut Cx<Locked>) + Send + 'static,
    {
        self.0.push(Box::new(f))
    }

    #[inline]
    unsafe fn run(&self, cx: &mut Cx<Locked>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.run(|job| job(cx)) }
    }
}
