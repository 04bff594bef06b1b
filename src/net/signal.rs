//! SIGINT and SIGTERM as events.

use crate::callback::Callback;
use crate::io::{Fd, Signals};
use crate::sched::core::Core;
use crate::sync::Mutex;
use crate::{Color, Cx, Handler};
use std::fmt;
use std::io;
use std::sync::Arc;

type OnStop = Box<dyn FnMut(&mut Cx) + Send>;

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
                callback(cx);
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
    /// of the process, these signals no longer kill it.
    ///
    /// Typically the callback finishes what is under way and calls [`stop`](Self::stop).
    ///
    /// # Errors
    /// If the descriptors for it are refused.
    pub fn on_stop_signal<F>(&mut self, callback: Callback<F>) -> io::Result<()>
    where
        F: FnMut(&mut Cx) + Send + 'static,
    {
        if super::driver_of(self)?.draining {
            return Err(super::ending());
        }
        let watching = Arc::new(Watching {
            signals: Signals::to_stop()?,
            callback: Mutex::new(Some(Box::new(callback.f))),
            handler: callback.handler,
            color: callback.color,
        });
        super::driver_of(self)?.watch(watching);
        Ok(())
    }
}
