//! Waiting for room: a future, and a thread that blocks on one.

use super::{Bounded, Permit};
use crate::Cx;
use crate::host::inner::Inner;
use crate::host::quiesce::Until;
use crate::host::worker;
use crate::post::{Post, until_of};
use crate::rejected::{Reason, Rejected};
use crate::sync::{Arc, Condvar, Mutex};
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The future of [`Bounded::reserve`].
struct Reserve<T: Send + 'static> {
    bounded: Bounded<T>,
    /// Its place in the line, once it stands there.
    ticket: Option<u64>,
}

impl<T: Send + 'static> Bounded<T> {
    /// Returns a future that waits for room, in a task. It joins the line when it is first polled,
    /// and leaves it when it is dropped. Once room was given to it, it has that room whether it is
    /// polled or not.
    ///
    /// ```
    /// use mely::task::with_cx;
    /// use mely::{Color, Colored, Runtime};
    /// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let sum = Colored::new(cx, Color::from(9), 0).bounded(4);
    ///     cx.spawn(Color::from(7), async move {
    ///         for n in 1..=100 {
    ///             // Never more than four wait, however fast this loop is.
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
    pub fn reserve(&self) -> impl Future<Output = Permit<T>> + Send + use<T> {
        Reserve {
            bounded: self.clone(),
            ticket: None,
        }
    }

    /// Posts `f` as [`try_post`](Self::try_post) does, and blocks the thread for at most `timeout`
    /// while there is no room. For threads that are not cores of a runtime. The thread waits in one
    /// line with callbacks and tasks.
    ///
    /// In a simulation (`mely::sim`) the thread that steps must not wait, since no event runs
    /// meanwhile.
    ///
    /// ```
    /// use mely::{Color, Colored, Runtime};
    /// use std::time::Duration;
    /// let runtime = Runtime::builder().build()?;
    /// let poster = runtime.poster();
    /// let sum = Colored::new(&poster, Color::from(9), 0).bounded(4);
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
    /// - [`Reason::TimedOut`] if there is no room within `timeout`.
    /// - [`Reason::Ended`] if the runtime is asked to stop, ends by itself or is cut short, before
    ///   the call or during it. With a strong [`Poster`](crate::Poster), only if the run is cut
    ///   short.
    /// - [`Reason::InsideHandler`] in a handler of any runtime, at once.
    /// - [`Reason::Full`] at the limit of queued events: the call does not wait for that.
    ///
    /// All give the closure back.
    pub fn post_wait<P, F>(&self, by: &P, timeout: Duration, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        match self.wait(until_of(by, self.inner()), timeout) {
            Ok(permit) => permit.try_post(by, f),
            Err(reason) => Err(Rejected::new(reason, f)),
        }
    }

    /// Waits for a permit on this thread.
    fn wait(&self, until: Until, timeout: Duration) -> Result<Permit<T>, Reason> {
        if worker::would_block() {
            return Err(Reason::InsideHandler);
        }
        if let Some(permit) = self.take() {
            return Ok(permit);
        }
        let deadline = Instant::now().checked_add(timeout);
        let asleep = Arc::new(Asleep::default());
        let waker = Waker::from(Arc::clone(&asleep));
        let inner = self.inner();
        let _noted = Noted::new(inner, &waker);
        let mut reserve = std::pin::pin!(self.reserve());
        loop {
            let polled = reserve.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(permit) = polled {
                return Ok(permit);
            }
            if inner.quiesce.refuses(until) {
                return Err(Reason::Ended);
            }
            let left = deadline.map_or(Duration::MAX, |at| {
                at.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                self.count_refused();
                return Err(Reason::TimedOut);
            }
            asleep.sleep(left);
        }
    }
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

/// A thread that waits until it is woken.
#[derive(Default)]
struct Asleep {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Asleep {
    /// Waits, for at most this time. It may return without cause.
    fn sleep(&self, at_most: Duration) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            let waited = self.changed.wait_timeout(woken, at_most);
            woken = waited.unwrap_or_else(PoisonError::into_inner).0;
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

/// Has a thread woken when the end is asked for and when it has come, for as long as this exists.
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
