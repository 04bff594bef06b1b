//! Connecting to somebody.

use super::driver::control;
use super::names::Dial;
use super::timer::{Timers, in_ns};
use super::{Driver, Incoming, Timer};
use crate::callback::Callback;
use crate::color::CoreId;
use crate::io::{Addr, Fd, Owner};
use crate::sched::core::Core;
use crate::sync::Arc;
use crate::{Color, Cx, Handler};
use std::fmt;
use std::io;
use std::time::Duration;

pub(super) type OnConnected = Box<dyn FnOnce(&mut Cx, io::Result<Incoming>) + Send>;

/// A connection being made.
pub(super) struct Connecting {
    callback: OnConnected,
    handler: Option<&'static Handler>,
    color: Color,
    poster: crate::Poster,
    addr: Addr,
    limit: Option<(Duration, Timer)>,
    /// The connection to a name, of which this is one attempt.
    dial: Option<Arc<Dial>>,
    /// The limit has passed, and the operation was asked to end.
    pub(super) gave_up: bool,
}

impl Connecting {
    /// The operation is over, one way or another; called by the driver that has the timer. From now
    /// on its key may be another's, which the timer must not end.
    pub(super) fn settle(&mut self, result: io::Result<()>, timers: &mut Timers) -> io::Result<()> {
        let result = result.map_err(|error| self.addr.name_error(error));
        let Some((limit, timer)) = self.limit.take() else {
            return result;
        };
        timer.forget(timers);
        match result {
            // Unless it has come to something before it could end.
            Err(error) if self.gave_up && super::is_canceled(&error) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{}: not connected within the limit of {limit:?}", self.addr),
            )),
            result => result,
        }
    }

    pub(super) fn addr(&self) -> &Addr {
        &self.addr
    }

    /// Whether this is one of its attempts.
    pub(super) fn is_of(&self, dial: &Arc<Dial>) -> bool {
        self.dial.as_ref().is_some_and(|its| Arc::ptr_eq(its, dial))
    }

    /// Posts the outcome.
    pub(super) fn connected(
        self,
        result: io::Result<Fd>,
        home: CoreId,
        owner: &Owner,
        core: &mut Core,
    ) {
        let Connecting {
            callback,
            handler,
            color,
            poster,
            ..
        } = self;
        let result = result.map(|fd| Incoming::new(fd, home, owner.clone(), poster));
        core.post_own(handler, color, move |cx: &mut Cx| callback(cx, result));
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

impl Cx {
    /// Connects to `addr` and calls back with the connection or the error, in the callback's color.
    /// This core becomes the connection's home.
    ///
    /// A host name is looked up first, see [`resolve`](crate::net::resolve). Its addresses are
    /// tried one after the other, IPv6 and IPv4 in turns; each next one when the one before has
    /// failed, or beside it after 250 ms (RFC 8305). A stop ends attempts, and waits for a lookup
    /// to end.
    ///
    /// If there is no connection after `limit`, the callback gets an error of the kind `TimedOut`,
    /// which names the limit. The attempt is ended, and no connection comes of it later. As any
    /// timer, the limit is noticed late by as much as this core is inside a handler; a connection
    /// that was made by then is delivered. The system gives up by itself after some minutes.
    ///
    /// # Errors
    /// At once and instead of the callback, which is then dropped: if the socket cannot be made, if
    /// `addr` is no address or no thread can be had for looking it up, and `ECANCELED` once the
    /// runtime was asked to stop. A refused connection is told by the callback, and a name that
    /// does not exist; all with the address. `WouldBlock`: the listener of a Unix socket has its
    /// queue full.
    ///
    /// ```
    /// use mely::net::Incoming;
    /// use mely::{Color, Handler, Runtime};
    /// use std::{io, time::Duration};
    /// static CONNECTED: Handler = Handler::new("connected");
    /// // Nobody listens there: refused at once, or never answered.
    /// let addr = "127.0.0.1:9";
    /// let error = Runtime::builder().build()?.run_until(move |cx, finish| {
    ///     let connected = CONNECTED.on_value(Color::from(1), move |_cx, incoming| {
    ///         let incoming: io::Result<Incoming> = incoming;
    ///         finish.finish(incoming.err().map(|error| error.kind()));
    ///     });
    ///     if let Err(error) = cx.connect(addr, Duration::from_secs(1), connected) {
    ///         eprintln!("{error}");
    ///         cx.stop();
    ///     }
    /// })?;
    /// # let _ = error;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect<F>(
        &mut self,
        addr: impl Into<Addr>,
        limit: Duration,
        callback: Callback<F>,
    ) -> io::Result<()>
    where
        F: FnOnce(&mut Cx, io::Result<Incoming>) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        let callback = Callback {
            handler,
            color,
            f: Box::new(f) as OnConnected,
        };
        match addr.into() {
            name @ Addr::Name(_) => Dial::begin(self, name, limit, callback),
            addr => self.connect_at(addr, limit, callback, None),
        }
    }

    /// Connects to an address that is no name, perhaps as one attempt of a dial.
    pub(super) fn connect_at(
        &mut self,
        addr: Addr,
        limit: Duration,
        callback: Callback<OnConnected>,
        dial: Option<Arc<Dial>>,
    ) -> io::Result<()> {
        let connecting = Box::new(Connecting {
            callback: callback.f,
            handler: callback.handler,
            color: callback.color,
            poster: self.poster(),
            addr,
            limit: None,
            dial,
            gave_up: false,
        });
        let (here, poster) = (control(self.core_id()), self.poster());
        // What is not connected is dropped here, in the handler that asked, outside the runtime.
        let (connected, _left) = super::with_driver(self, |driver, core| {
            if driver.is_ending() {
                return (Err(super::ending()), Some(connecting));
            }
            let key = match driver.connect(connecting) {
                Ok(key) => key,
                Err((error, connecting)) => return (Err(error), Some(connecting)),
            };
            let give_up = move |cx: &mut Cx| {
                Driver::with(cx.worker(), |driver, _| driver.give_up_connecting(key));
            };
            let (timer, pending) = Timer::ready(poster, Callback::new(None, here, give_up));
            let at_ns = core.clock.now_ns().saturating_add(in_ns(limit));
            driver.set_timer(at_ns, pending, core);
            // Under the same lock: another core may find the attempt over.
            driver.connecting(key).limit = Some((limit, timer));
            (Ok(()), None)
        })?;
        connected
    }
}
