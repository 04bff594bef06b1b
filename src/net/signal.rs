//! SIGINT and SIGTERM as events.

use crate::callback::Callback;
use crate::io::{Fd, Signals};
use crate::sched::core::Core;
use crate::sync::Mutex;
use crate::{Color, Cx, Handler};
use std::fmt;
use std::io;
use std::sync::Arc;

type OnStop = Box<dyn FnMut(&mut Cx, ()) + Send>;

/// A watch for the signals that ask a process to stop.
pub(super) struct Watching {
    signals: Signals,
    /// Taken while it runs. A lock that nobody waits for: events of one color take turns.
    callback: Mutex<Option<OnStop>>,
    handler: Option<&'static Handler>,
    color: Color,
}

impl Watching {
    pub(super) fn fd(&self) -> Fd {
        self.signals.fd()
    }

    /// The descriptor is readable.
    pub(super) fn readable(watching: &Arc<Watching>, result: io::Result<()>, core: &mut Core) {
        if result.is_err() || !watching.signals.take().unwrap_or(false) {
            return;
        }
        let this = Arc::clone(watching);
        let event = move |cx: &mut Cx| {
            let callback = this.callback.lock().unwrap().take();
            let mut lent = Lent(&this, callback);
            if let Some(callback) = &mut lent.1 {
                callback(cx, ());
            }
        };
        core.post_own(watching.handler, watching.color, event);
    }

    /// Drops the callback in its color.
    pub(super) fn discard(watching: Arc<Watching>, core: &mut Core) {
        let color = watching.color;
        core.post_own(None, color, move |_cx: &mut Cx| drop(watching));
    }
}

/// The callback while it runs: given back also if it panics, since the process would otherwise not
/// hear the next signal.
struct Lent<'a>(&'a Watching, Option<OnStop>);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.0.callback.lock().unwrap() = self.1.take();
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

impl Cx {
    /// Calls back in the callback's color whenever the process gets SIGINT (Ctrl-C) or SIGTERM,
    /// until the runtime ends. Several signals in a row may be one call. From now on, for the life
    /// of the process, these signals no longer kill it. One that the process ignores goes on being
    /// ignored: SIGINT, if a shell without job control has started it in the background.
    ///
    /// Signals for a child that was forked from it are the child's: it is not told of them. Until
    /// the child calls exec they have no effect there.
    ///
    /// Typically the callback finishes what is under way and calls [`stop`](Self::stop). It is of
    /// those that are made by [`Handler::on_each`]; a signal brings nothing but itself.
    ///
    /// ```no_run
    /// use mely::{Color, Handler, Runtime};
    /// static STOP: Handler = Handler::new("stop");
    /// let watched = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let asked = finish.clone();
    ///     let on_stop = STOP.on_each(Color::DEFAULT, move |_cx, ()| asked.finish(Ok(())));
    ///     if let Err(error) = cx.on_stop_signal(on_stop) {
    ///         finish.finish(Err(error));
    ///     }
    /// })?;
    /// watched?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the descriptors for it are refused; `ECANCELED` once the runtime was asked to stop.
    pub fn on_stop_signal<F>(&mut self, callback: Callback<F>) -> io::Result<()>
    where
        F: FnMut(&mut Cx, ()) + Send + 'static,
    {
        if super::with_driver(self, |driver, _| driver.is_ending())? {
            return Err(super::ending());
        }
        let watching = Arc::new(Watching {
            signals: Signals::to_stop()?,
            callback: Mutex::new(Some(Box::new(callback.f))),
            handler: callback.handler,
            color: callback.color,
        });
        super::with_driver(self, |driver, _| driver.watch_signals(watching))
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::net::tests::Drops;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The watch may be over, or readable for no signal; and the callback is dropped in its color.
    #[test]
    fn called_for_a_signal_and_for_nothing_else() {
        let canceled = || io::Error::from(io::ErrorKind::Interrupted);
        for (result, signaled, expected) in [
            (Ok(()), true, 1),
            (Ok(()), false, 0),
            (Err(canceled()), true, 0),
            (Err(canceled()), false, 0),
        ] {
            let (calls, drops) = (Arc::new(AtomicUsize::new(0)), Drops::default());
            let (count, given) = (Arc::clone(&calls), drops.clone());
            let mut simulation = Runtime::builder().cores(1).simulate(1).unwrap();
            let how = format!("{result:?}, signaled: {signaled}");
            simulation
                .run(move |cx| {
                    let (signals, mut kernel) = Signals::written().unwrap();
                    let witness = given.witness(cx.poster());
                    let callback = move |cx: &mut Cx, ()| {
                        assert_eq!(cx.color(), Color::from(7));
                        let _ = &witness;
                        count.fetch_add(1, Ordering::Relaxed);
                    };
                    let watching = Arc::new(Watching {
                        signals,
                        callback: Mutex::new(Some(Box::new(callback))),
                        handler: None,
                        color: Color::from(7),
                    });
                    if signaled {
                        kernel.write_all(b"X").unwrap();
                    }
                    let core = &mut cx.worker().core;
                    Watching::readable(&watching, result, core);
                    Watching::discard(watching, core);
                    cx.stop();
                })
                .unwrap();
            assert_eq!(calls.load(Ordering::Relaxed), expected, "{how}");
            assert_eq!(drops.seen(), [Some(Color::from(7))], "{how}");
        }
    }
}
