//! Futures of time: sleeping, giving up, letting others go first; and of the request to stop.

use super::ambient::try_with_cx;
use crate::host::inner::Inner;
use crate::net::{Timer, When};
use crate::sync::{Arc, Mutex};
use crate::{Callback, Cx, Handler};
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// What the end of a sleep runs under.
static SLEEP: Handler = Handler::new("mely: sleep");

/// Returns no earlier than `when`: a [`Duration`](std::time::Duration) from the first poll, an
/// [`Instant`](std::time::Instant) or a [`SystemTime`](std::time::SystemTime); see [`When`], and
/// [`Cx::timer`](crate::Cx::timer) for how late.
///
/// Unlike a timer it goes on when the runtime was asked to stop: the task, which keeps the run from
/// ending, does what it does to its end. A task that sleeps in a loop ends the loop by
/// [`stopping`]. Dropped, on whatever thread, it is canceled.
///
/// # Panics
/// If it is polled outside of a task of mely.
///
/// ```
/// use mely::task::sleep;
/// use mely::{Color, Runtime};
/// use std::time::Duration;
/// let slept = Runtime::builder().build()?.run_until(|cx, finish| {
///     let begun = cx.now();
///     cx.spawn(Color::from(7), async move {
///         sleep(Duration::from_millis(2)).await;
///         finish.finish(mely::task::with_cx(|cx| cx.now() - begun));
///     });
/// })?;
/// assert!(slept >= Duration::from_millis(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sleep<W: Into<When>>(when: W) -> impl Future<Output = ()> + Send + use<W> {
    Sleep::new(when.into())
}

/// The future of [`sleep`].
pub(crate) struct Sleep {
    when: When,
    timer: Option<(Timer, Arc<Mutex<Alarm>>)>,
}

enum Alarm {
    Set(Waker),
    Rung,
}

impl Sleep {
    pub(crate) fn new(when: When) -> Sleep {
        Sleep { when, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A waker's code is somebody's: cloned before the lock, dropped after it.
        let waker = context.waker().clone();
        let Some((_, alarm)) = &self.timer else {
            let alarm = Arc::new(Mutex::new(Alarm::Set(waker)));
            let its = Arc::clone(&alarm);
            let timer = within_task("sleep", |cx| {
                let ring = move |_cx: &mut Cx| {
                    let before = std::mem::replace(&mut *its.lock().unwrap(), Alarm::Rung);
                    if let Alarm::Set(waker) = before {
                        waker.wake();
                    }
                };
                cx.deadline(self.when, Callback::new(Some(&SLEEP), cx.color(), ring))
            });
            self.timer = Some((timer, alarm));
            return Poll::Pending;
        };
        let mut alarm = alarm.lock().unwrap();
        if matches!(*alarm, Alarm::Rung) {
            return Poll::Ready(());
        }
        let before = std::mem::replace(&mut *alarm, Alarm::Set(waker));
        drop(alarm);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((timer, alarm)) = self.timer.take() {
            // Whoever it would wake is let go of now, and not when the timer is removed.
            let before = std::mem::replace(&mut *alarm.lock().unwrap(), Alarm::Rung);
            if let Alarm::Set(waker) = before {
                drop(waker);
                timer.cancel_from_anywhere();
            }
        }
    }
}

/// Calls `f` with the context of the task that polls the future `what`.
///
/// # Panics
/// If none does.
#[track_caller]
pub(super) fn within_task<R>(what: &str, f: impl FnOnce(&mut Cx) -> R) -> R {
    match try_with_cx(f) {
        Ok(result) => result,
        Err(_) => panic!("`mely::{what}` is polled outside of a task of mely, or inside `with_cx`"),
    }
}

/// The time was up; see [`timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the future was ready")
    }
}

impl std::error::Error for Elapsed {}

/// Returns the output of `future`; or drops it, if it is not ready by `when`, which is counted as by
/// [`sleep`].
///
/// # Errors
/// [`Elapsed`].
///
/// # Panics
/// As [`sleep`].
pub async fn timeout<F: Future>(when: impl Into<When>, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut sleep) = (pin!(future), pin!(sleep(when.into())));
    poll_fn(move |context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(context).map(|()| Err(Elapsed))
    })
    .await
}

/// Lets the events go first that wait in the task's color, and other colors of its core after its
/// turn.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns when the runtime is asked to stop, or at once if it was. For tasks that go on for as
/// long as there is something to do: a run does not end before its tasks. Nor does one by itself
/// ([`Builder::exit_when_idle`](crate::Builder::exit_when_idle)): a task that waits for the stop
/// waits for somebody who asks for it.
///
/// # Panics
/// If it is polled outside of a task of mely.
pub fn stopping() -> impl Future<Output = ()> + Send + use<> {
    Stopping { noted: None }
}

/// The future of [`stopping`].
struct Stopping {
    /// The runtime, where it has noted the waker, and which.
    noted: Option<(Arc<Inner>, usize, Waker)>,
}

impl Future for Stopping {
    type Output = ();

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some((inner, _, waker)) = &self.noted
            && waker.will_wake(context.waker())
            && !inner.is_stopping()
        {
            return Poll::Pending;
        }
        let (inner, key) = match self.noted.take() {
            Some((inner, key, _)) => (inner, Some(key)),
            None => {
                let inner = |cx: &mut Cx| Arc::clone(&cx.worker_ref().inner);
                (within_task("stopping", inner), None)
            }
        };
        match inner.wake_when_stopping(key, context.waker().clone()) {
            None => Poll::Ready(()),
            Some(key) => {
                self.noted = Some((inner, key, context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if let Some((inner, key, _)) = self.noted.take() {
            inner.do_not_wake_when_stopping(key);
        }
    }
}
