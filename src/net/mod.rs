//! The event source as handlers see it: connections, datagrams, timers, signals.
//!
//! Everything here is completion-shaped: an operation is started, and what it comes to is an event
//! of the color it was started for. One backend a core, io_uring or epoll
//! ([`Builder::backend`](crate::Builder::backend)); what each core runs on, and why, is told by
//! [`Poster::backends`](crate::Poster::backends).
//!
//! A connection's *home* is the core that accepted it or connected it; that core receives for it as
//! long as it lives, while its color may be stolen like any other. While that core is inside a long
//! handler, another one that idles looks for it; then it is home to the connections that it
//! accepts. (On io_uring a signal, SIGURG, then has that core enter its ring: a call of the
//! handler's that blocks may end with EINTR.) A core receives at most [`AHEAD_BYTES_MAX`] more of a
//! connection than its color has taken up.
//!
//! Two ways to serve a connection: a [`Session`], which is called, and an
//! [`AsyncStream`](crate::aio::AsyncStream), from which a task reads. A client is served in the
//! same way as a server's connections:
//!
//! ```
//! use mely::net::{Acceptors, Incoming, RecvBuf, Session, Stream};
//! use mely::runtime::Finish;
//! use mely::{Color, Cx, Handler, Runtime};
//! use std::io;
//! use std::time::Duration;
//! static SERVER: Handler = Handler::new("server");
//! static CLIENT: Handler = Handler::new("client");
//!
//! struct Server(Stream);
//! impl Session for Server {
//!     fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
//!         if self.0.write(cx, data).is_err() {
//!             self.0.abort(cx);
//!         }
//!     }
//! }
//!
//! struct Client {
//!     _stream: Stream,
//!     echoed: Vec<u8>,
//!     finish: Finish<Vec<u8>>,
//! }
//! impl Session for Client {
//!     fn data(&mut self, _cx: &mut Cx, data: RecvBuf) {
//!         self.echoed.extend_from_slice(&data);
//!     }
//!     fn end(&mut self, _cx: &mut Cx, _end: io::Result<()>) {
//!         self.finish.finish(std::mem::take(&mut self.echoed));
//!     }
//! }
//!
//! fn start(cx: &mut Cx, finish: Finish<Vec<u8>>) -> io::Result<()> {
//!     let open = |_: &mut Cx, stream, _: &_| Server(stream);
//!     let listener = cx.serve("127.0.0.1:0", Acceptors::PerCore, &SERVER, open)?;
//!     let addr = listener.local_addr();
//!     let connected = CLIENT.on_value(Color::DEFAULT, move |_, incoming: io::Result<_>| {
//!         let incoming: Incoming = incoming.expect("the server listens");
//!         incoming.serve(&CLIENT, move |cx, stream, _me| {
//!             let _ = stream.write(cx, "hello");
//!             let _ = stream.shutdown_write(cx);
//!             Client { _stream: stream, echoed: Vec::new(), finish }
//!         });
//!     });
//!     cx.connect(addr, Duration::from_secs(5), connected)
//! }
//!
//! let echoed = Runtime::builder().build()?.run_until(|cx, finish| {
//!     start(cx, finish).expect("a free port");
//! })?;
//! assert_eq!(echoed, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod child;
mod confined;
mod conn;
mod connect;
mod datagram;
mod driver;
mod file;
mod framing;
mod listener;
mod names;
mod pipe;
mod registry;
mod session;
mod stream;
mod timer;
mod timers;
mod watch;
mod when;

pub use self::conn::AHEAD_BYTES_MAX;
#[cfg(feature = "tls")]
pub(crate) use self::conn::Records;
pub use self::datagram::DatagramSocket;
pub(crate) use self::driver::control;
pub(crate) use self::framing::too_long;
pub use self::framing::{LengthPrefixed, Lines};
pub use self::listener::{Acceptors, Listener};
pub use self::names::resolve;
#[cfg(feature = "dns")]
pub(crate) use self::names::{Lookup, random_number, set_lookup};
pub use self::pipe::PIPE_BYTES_MAX;
pub use self::session::Session;
pub use self::stream::{Incoming, Stream};
pub use self::timer::Timer;
pub use self::watch::Watch;
#[cfg(feature = "sim")]
pub(crate) use self::watch::raise;
pub use self::when::When;
pub use crate::io::{
    Addr, Backend, Credentials, DATAGRAM_BYTES_MAX, Datagram, Endpoint, RecvBuf, Report, SendBuf,
    SimCall, SimClient, SimNet,
};

pub(crate) use self::driver::Driver;
pub(crate) use self::file::{FileJob, begin_on_ring};
pub(crate) use self::registry::Registry;

use crate::Cx;
use crate::io::SimDisk;
use crate::sched::core::Core;
use std::io;

/// Raises the process's limit of open descriptors to its hard maximum, and returns it. For programs
/// to call at start: a descriptor a connection needs more than shells grant.
///
/// # Errors
/// If the system refuses.
pub fn raise_open_file_limit() -> io::Result<u64> {
    crate::io::raise_open_file_limit()
}

/// Calls `f` with this core's driver, as [`Driver::with`], for whatever has to do with the world
/// outside of the process.
fn with_driver<R>(cx: &mut Cx, f: impl FnOnce(&mut Driver, &mut Core) -> R) -> io::Result<R> {
    if cx.worker().inner.config.is_on_machine() {
        let why = "a run on a described machine has no network and gets no signals: what comes to \
                   it from outside is posted through `OnMachine::outside`";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let done = Driver::with(cx.worker(), f);
    done.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "a runtime without I/O"))
}

/// Whether this is what an operation comes to that was asked to end.
pub(crate) fn is_canceled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error())
}

/// Whether this is a simulation.
fn is_simulated(cx: &mut Cx) -> io::Result<bool> {
    with_driver(cx, |driver, _| driver.owner.is_simulated())
}

/// The simulated disk, in a simulation.
pub(crate) fn simulated_disk(cx: &mut Cx) -> io::Result<Option<SimDisk>> {
    with_driver(cx, |driver, _| driver.owner.disk().cloned())
}

/// Whose descriptors this core deals in, unless the end has begun.
fn owner(cx: &mut Cx) -> io::Result<crate::io::Owner> {
    with_driver(cx, |driver, _| match driver.is_ending() {
        true => Err(ending()),
        false => Ok(driver.owner.clone()),
    })?
}

pub(crate) fn ending() -> io::Error {
    // As what was under way is told: `ErrorKind::Interrupted` would say "try again".
    rustix::io::Errno::CANCELED.into()
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::{Acceptors, Addr, Incoming};
    use crate::host::worker::lend_current;
    use crate::sim::{Simulation, Step};
    use crate::{Builder, Callback, Color, Cx, Poster};
    use std::io;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    /// A simulated runtime of one core that listens, and where.
    pub(super) fn listening<F>(
        builder: Builder,
        seed: u64,
        on_accept: Callback<F>,
    ) -> (Simulation, Addr)
    where
        F: FnMut(&mut Cx, io::Result<Incoming>) + Send + 'static,
    {
        let mut simulation = builder.cores(1).simulate(seed).unwrap();
        let (tell, addr) = channel();
        let begin = move |cx: &mut Cx| {
            let any = "127.0.0.1:0";
            let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr()).unwrap();
        };
        simulation.start(begin).unwrap();
        settle(&mut simulation);
        (simulation, addr.recv().unwrap())
    }

    /// Steps until nothing is left to do.
    pub(super) fn settle(simulation: &mut Simulation) {
        while !matches!(simulation.step(), Step::Stalled | Step::Ended) {}
    }

    /// Where callbacks were dropped: each in an event of this color, or in none.
    #[derive(Clone, Default)]
    pub(super) struct Drops(Arc<Mutex<Vec<Option<Color>>>>);

    impl Drops {
        /// What a callback of the user's holds.
        pub(super) fn witness(&self, poster: Poster) -> Witness {
            Witness(self.clone(), poster)
        }

        pub(super) fn seen(&self) -> Vec<Option<Color>> {
            self.0.lock().unwrap().clone()
        }
    }

    pub(super) struct Witness(Drops, Poster);

    impl Drop for Witness {
        fn drop(&mut self) {
            let seen = lend_current(Arc::as_ptr(&self.1.inner), (), |worker, ()| {
                let current = &worker.core.current;
                current.slot.is_some().then(|| current.color())
            });
            let seen = seen.ok().flatten();
            self.0.0.lock().unwrap().push(seen);
        }
    }
}
