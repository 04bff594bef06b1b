//! Connecting to somebody.

use super::Incoming;
use crate::callback::Callback;
use crate::io::{Fd, Owner};
use crate::sched::core::Core;
use crate::{Color, Cx, Handler};
use std::fmt;
use std::io;
use std::net::SocketAddr;

type OnConnected = Box<dyn FnOnce(&mut Cx, io::Result<Incoming>) + Send>;

/// A connection being made.
pub(super) struct Connecting {
    callback: OnConnected,
    handler: Option<&'static Handler>,
    color: Color,
    poster: crate::Poster,
}

impl Connecting {
    /// Posts the outcome.
    pub(super) fn connected(
        self,
        result: io::Result<Fd>,
        home: u32,
        owner: &Owner,
        core: &mut Core,
    ) {
        let Connecting {
            callback,
            handler,
            color,
            poster,
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
    /// # Errors
    /// At once and instead of the callback, which is then dropped: if the socket cannot be made,
    /// and `ECANCELED` once the runtime was asked to stop. A refused connection is told by the
    /// callback.
    pub fn connect<F>(&mut self, addr: SocketAddr, callback: Callback<F>) -> io::Result<()>
    where
        F: FnOnce(&mut Cx, io::Result<Incoming>) + Send + 'static,
    {
        let connecting = Box::new(Connecting {
            callback: Box::new(callback.f),
            handler: callback.handler,
            color: callback.color,
            poster: self.poster(),
        });
        let driver = super::driver_of(self)?;
        if driver.draining {
            return Err(super::ending());
        }
        match driver.connect(addr, connecting) {
            Ok(()) => Ok(()),
            // The callback is dropped here, in the handler that asked, outside the runtime.
            Err((error, connecting)) => {
                drop(connecting);
                Err(error)
            }
        }
    }
}
