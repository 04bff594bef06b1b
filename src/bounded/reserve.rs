//! Waiting for room: a future, and a thread that blocks on one.

use super::{Bounded, Permit};
use crate::Cx;
use crate::host::inner::Inner;
use crate::host::quiesce::Until;
use crate::host::worker;
use crate::post::{Post, until_of};
use crate::rejected::{Reason, Rejected};
use crate::sync::{Arc, Condvar, Mutex};
use std::fmt;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Ready when there is room, with a [`Permit`]; see [`Bounded::reserve`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Reserve<T: Send + 'static> {
    bounded: Bounded<T>,
    /// Its place in the line, once it stands there.
    ticket: Option<u64>,
}

impl<T: Send + 'static> Bounded<T> {
    /// Waits for room, in a task: a future that is ready with a [`Permit`]. It joins the line when
    /// it is first polled, and leaves it when it is dropped. Once room was given to it, it has that
    /// room whether it is polled or not.
    ///
    /// ```
    /// use mely::state::{Backlog, Bounded};
    /// use mely::task::with_cx;
    /// use mely::{Color, Colored, Runtime};
    /// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let sum = Bounded::new(Colored::new(cx, Color::from(9), 0), Backlog::events(4));
    ///     cx.spawn(Color::from(7), async move {
    ///         for n in 1..=100 {
    ///             // Never more than four wait, whatever is read faster than it is added.
    ///             let room = sum.reserve().await;
    ///             with_cx(|cx| room.try_post(cx, move |sum, _cx| *sum += n)).unwrap();
    ///         }
    ///         let room = sum.reserve().await;
    ///         with_cx(|cx| room.try_post(cx, move |sum, _cx| finish.finish(*sum))).unwrap();
    ///     });
    /// })?;
    /// assert_eq!(sum, 5_050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self) -> Reserve<T> {
        Reserve {
            bounded: self.clone(),
            ticket: None,
        }
    }

    /// Posts `f` as [`try_post`](Self::try_post) does, and waits for room meanwhile, for at most
    /// this time: on a thread that is no core. It stands in the line with all others who wait.
    ///
    /// In a simulation (`mely::sim`) the thread that steps must not wait, since nothing goes on
    /// meanwhile.
    ///
    /// ```
    /// use mely::state::{Backlog, Bounded};
    /// use mely::{Color, Colored, Runtime};
    /// use std::time::Duration;
    /// let runtime = Runtime::builder().build()?;
    /// let poster = runtime.poster();
    /// let sum = Bounded::new(Colored::new(&poster, Color::from(9), 0), Backlog::events(4));
    /// let reader = std::thread::spawn(move || {
    ///     for n in 1..=1_000 {
    ///         let add = move |sum: &mut i32, _cx: &mut mely::Cx| *sum += n;
    ///         if let Err(refused) = sum.post_wait(&poster, Duration::from_secs(60), add) {
    ///             eprintln!("{refused}"); // and `refused.value` is the closure
    ///             break;
    ///         }
    ///     }
    ///     poster.stop();
    /// });
    /// runtime.run(|_cx| ())?;
    /// reader.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`Reason::TimedOut`](crate::Reason::TimedOut) if no room has come in time.
    /// - [`Reason::Ended`](crate::Reason::Ended) when the runtime is asked to stop, ends by itself or is cut short,
    ///   also if that is while it waits. By a strong [`Poster`](crate::Poster) only if the run is
    ///   cut short.
    /// - [`Reason::InsideHandler`](crate::Reason::InsideHandler) in a handler of whatever runtime, at once.
    /// - [`Reason::Full`](crate::Reason::Full) at the builder's limit of queued events: for that nobody waits.
    ///
    /// All give the closure back.
    pub fn post_wait<P, F>(&self, by: &P, timeout: Duration, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        if worker::would_block() {
            return Err(Rejected {
                reason: Reason::InsideHandler,
                value: f,
            });
        }
        match self.wait(until_of(by, self.inner()), timeout) {
            Ok(permit) => Ok(permit.try_post(by, f)?),
            Err(NoPermit::Ended) => Err(Rejected {
                reason: Reason::Ended,
                value: f,
            }),
            Err(NoPermit::TimedOut) => {
                self.count_refused();
                Err(Rejected {
                    reason: Reason::TimedOut,
                    value: f,
                })
            }
        }
    }

    /// Waits for a permit on this thread.
    fn wait(&self, until: Until, timeout: Duration) -> Result<Permit<T>, NoPermit> {
        if let Some(permit) = self.take() {
            return Ok(permit);
        }
        let deadline = Instant::now().checked_add(timeout);
        let asleep = Arc::new(Asleep::new());
        let waker = Waker::from(Arc::clone(&asleep));
        let inner = self.inner();
        let _noted = Noted::new(inner, &waker);
        let mut reserve = self.reserve();
        loop {
            let polled = Pin::new(&mut reserve).poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(permit) = polled {
                return Ok(permit);
            }
            if inner.quiesce.refuses(until) {
                return Err(NoPermit::Ended);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(NoPermit::TimedOut);
            }
            asleep.sleep(left);
        }
    }
}

/// Why no room has come.
enum NoPermit {
    Ended,
    TimedOut,
}

impl<T: Send + 'static> Future for Reserve<T> {
    type Output = Permit<T>;

    /// Polled after it was ready, it waits for another permit.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<T>> {
        let waker = context.waker().clone();
        let Reserve { bounded, ticket } = &mut *self;
        match bounded.cell.permits.poll(ticket, waker) {
            true => Poll::Ready(Permit::of(bounded.clone())),
            false => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Drop for Reserve<T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && self.bounded.cell.permits.leave(ticket)
        {
            self.bounded.give_back();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Reserve<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").finish_non_exhaustive()
    }
}

/// A thread that waits until it is woken.
struct Asleep {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Asleep {
    fn new() -> Asleep {
        Asleep {
            woken: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Waits, for at most this time. It may return without cause.
    fn sleep(&self, at_most: Option<Duration>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            woken = match at_most {
                Some(left) => {
                    let waited = self.changed.wait_timeout(woken, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(woken);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        *woken = false;
    }
}

impl Wake for Asleep {
    fn wake(self: std::sync::Arc<Self>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        *woken = true;
        drop(woken);
        self.changed.notify_one();
    }
}

/// A thread is woken when the end is asked for and when it has come, for as long as this is there.
struct Noted<'a> {
    inner: &'a Inner,
    key: usize,
}

impl<'a> Noted<'a> {
    fn new(inner: &'a Inner, waker: &Waker) -> Noted<'a> {
        let key = inner.wait_until_the_end(waker.clone());
        Noted { inner, key }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.inner.end_of_waiting(self.key);
    }
}
