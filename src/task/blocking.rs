//! Blocking work that a task waits for.

use super::time::within_task;
use crate::ask::Asked;
use crate::host::blocking::Blocking;
use crate::host::panics::Caught;
use crate::memory::boxed;
use crate::rejected::Rejected;
use crate::sync::{Arc, Mutex};
use crate::{Callback, Color, Cx};
use std::future::pending;

/// Cancels work that has not begun when it is dropped.
struct CancelOnDrop(Option<Blocking>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work.cancel();
        }
    }
}

/// Runs `work` on a thread of the runtime, and returns what it returns; see [`Cx::try_blocking`]. The
/// task waits, its core does not.
///
/// A panic of the work goes on in the task. If the task is canceled, work that has not begun is
/// dropped.
///
/// ```
/// use mely::{Color, Runtime, blocking};
/// let lines = Runtime::builder().build()?.run_until(|cx, finish| {
///     cx.spawn(Color::from(7), async move {
///         let text = blocking(|| std::fs::read_to_string("/proc/self/status")).await;
///         match text {
///             Ok(text) => finish.finish(text.map_or(0, |text| text.lines().count())),
///             Err(refused) => eprintln!("{refused}"),
///         }
///     })
///     .detach();
/// })?;
/// assert!(lines > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Rejected`](crate::Rejected) gives the closure back, of which nothing was run.
///
/// # Panics
/// If it is polled outside of a task of mely.
pub async fn blocking<T, W>(work: W) -> Result<T, Rejected<W>>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    // So that it can come back.
    let kept = Arc::new(Mutex::new(Some(work)));
    let its = Arc::clone(&kept);
    let (given, reply) = within_task("blocking", |cx| {
        let (asked, reply) = Asked::new(&cx.worker_ref().inner);
        // Not of the task's color, which may be held until this is over.
        let color = Color::control(cx.core());
        let told = Callback::new(None, color, move |cx: &mut Cx, result| {
            asked.answer(cx, result);
        });
        let work = move || {
            let work = its.lock().unwrap().take().expect("it runs once");
            // In a box, because the value may be large, and goes through much.
            Caught::catching(|| boxed(work))
        };
        (cx.try_blocking(work, told), reply)
    });
    let back = || kept.lock().unwrap().take().expect("it has not run");
    let _cancels = match given {
        Ok(blocking) => CancelOnDrop(Some(blocking)),
        Err(refused) => return Err(Rejected::new(refused.reason, back())),
    };
    match reply.await {
        Ok(Ok(value)) => Ok(*value),
        Ok(Err(panic)) => panic.resume(),
        // The run is cut short, and the task with it.
        Err(_) => pending().await,
    }
}
