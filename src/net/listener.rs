//! Listening: one acceptor, or one a core.

use super::Incoming;
use super::driver::control;
use crate::callback::Callback;
use crate::color::CoreId;
use crate::host::poster::Poster;
use crate::io::{Addr, Endpoint, Fd, ListenOptions, Owner, What};
use crate::net::driver::Driver;
use crate::net::registry::Registry;
use crate::sched::core::Core;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::{Color, Cx, Handler};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Who accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acceptors {
    /// Every core has a listener of its own on the same port (`SO_REUSEPORT`): a connection is at
    /// home where it was accepted, and the kernel spreads them.
    #[default]
    PerCore,
    /// The core that calls `listen` accepts all and is home to all. So it is, whatever is asked
    /// for, on Unix sockets, on sockets that were made elsewhere and in the simulated network.
    Single,
}

/// A listener's descriptor, for which one core at a time accepts: its home, while that works, else
/// another one.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) listening: Arc<Listening>,
    pub(super) fd: Fd,
    pub(super) home: CoreId,
}

impl Acceptor {
    /// The core that accepts for it, as of now.
    pub(super) fn place(&self, core: &Core) -> CoreId {
        core.shared.working.core_for(self.home.number())
    }

    /// Sends it to the core that accepts for it. Connections wait in the kernel meanwhile.
    pub(super) fn send(self, owner: &Owner, core: &mut Core) {
        let to = control(self.place(core));
        let Acceptor {
            listening,
            fd,
            home,
        } = self;
        let sent = Sent(Some(fd), owner.clone());
        core.post_own(None, to, move |cx: &mut Cx| {
            Acceptor::arrive(listening, sent, home, cx);
        });
    }

    /// An event of the core that it was sent to.
    fn arrive(listening: Arc<Listening>, mut sent: Sent, home: CoreId, cx: &mut Cx) {
        let Some(fd) = sent.arrived() else { return };
        let acceptor = Acceptor {
            listening,
            fd,
            home,
        };
        Driver::with(cx.worker(), |driver, core| driver.take_in(acceptor, core));
    }
}

type OnAccept = Box<dyn FnMut(&mut Cx, io::Result<Incoming>) + Send>;

/// A listener's shared part.
pub(super) struct Listening {
    /// Taken while it runs, and when no core will call it any more. A lock that nobody waits for:
    /// events of one color take turns.
    callback: Mutex<Option<OnAccept>>,
    /// Cores that accept for it, or are about to.
    accepting: AtomicU32,
    handler: Option<&'static Handler>,
    color: Color,
    closed: AtomicBool,
    poster: Poster,
}

impl Listening {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Posts accepted connections, or why there are none.
    pub(super) fn accepted(
        this: Arc<Listening>,
        results: Vec<io::Result<Fd>>,
        home: CoreId,
        owner: &Owner,
        core: &mut Core,
    ) {
        let (handler, color) = (this.handler, this.color);
        let incoming = |fd| Incoming::new(fd, home, owner.clone(), this.poster.clone());
        let results = results.into_iter().map(|result| result.map(incoming));
        // Made now: whatever becomes of the event, they are closed.
        let results: Vec<io::Result<Incoming>> = results.collect();
        core.post_own(handler, color, move |cx: &mut Cx| {
            Listening::hand_over(&this, results, cx);
        });
        // Behind the colors of all that are connected already, with one turn in each round of
        // theirs, who comes now would wait for many rounds.
        core.hurry(color);
    }

    /// Calls the callback for each of these; an event of its color. If it panics, the rest are for
    /// another event.
    fn hand_over(this: &Arc<Listening>, results: Vec<io::Result<Incoming>>, cx: &mut Cx) {
        let callback = this.callback.lock().unwrap().take();
        let mut lent = Lent(this, callback);
        let Some(callback) = &mut lent.1 else { return };
        let mut rest = Rest(this, results.into_iter());
        for result in rest.1.by_ref() {
            callback(cx, result);
        }
    }

    /// This core accepts no more for it. Drops the callback in its color, if this was the last one.
    pub(super) fn over(this: Arc<Listening>, core: &mut Core) {
        let color = this.color;
        core.post_own(None, color, move |_cx: &mut Cx| {
            if this.accepting.fetch_sub(1, Ordering::AcqRel) == 1 {
                this.drop_callback();
            }
        });
    }

    /// Nobody calls it any more.
    pub(super) fn drop_callback(&self) {
        // The user's closure, under no lock.
        let callback = self.callback.lock().unwrap().take();
        drop(callback);
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

/// The callback while it runs: given back also if it panics, since nobody would be accepted
/// otherwise.
struct Lent<'a>(&'a Listening, Option<OnAccept>);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.0.callback.lock().unwrap() = self.1.take();
    }
}

/// Connections that are still to be handed over.
struct Rest<'a>(&'a Arc<Listening>, std::vec::IntoIter<io::Result<Incoming>>);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.1.as_slice().is_empty() {
            return;
        }
        let (this, results) = (Arc::clone(self.0), std::mem::take(&mut self.1).collect());
        // Refused once the runtime is ending: then they are closed.
        let _ = self.0.poster.post_own(self.0.color, move |cx: &mut Cx| {
            Listening::hand_over(&this, results, cx);
        });
    }
}

/// A bound port whose connections are delivered to a callback. Dropping this handle detaches it:
/// accepting goes on until the runtime ends. [`close`](Self::close) ends it before.
pub struct Listener {
    listening: Arc<Listening>,
    local_addr: Addr,
    cores: Vec<CoreId>,
}

impl Cx {
    /// Listens on `at` and calls back in the callback's color with each connection.
    ///
    /// `at` is an [`Addr`], or anything that converts into one, or a socket that listens already
    /// ([`Endpoint`]). Port 0 takes a free port; see [`Listener::local_addr`]. The file of a Unix
    /// socket is replaced if nobody listens to it, and stays when the listener is closed. When
    /// accepting fails (no more
    /// descriptors, say) the callback gets the error, and accepting goes on a little later;
    /// connections wait in the kernel meanwhile. All connections come through this one color: give
    /// each its own by [`Incoming::open_unique`]. After a panic of the callback, which resets the
    /// connection that it was given, it is called for the next one.
    ///
    /// # Errors
    /// If the address cannot be bound: in use, not this machine's, not permitted; with its text.
    /// `InvalidInput` for a host name, and for a socket that does not listen. `ECANCELED` once the
    /// runtime was asked to stop.
    ///
    /// ```
    /// use mely::net::Acceptors;
    /// use mely::{Color, Handler, Runtime};
    /// static ACCEPT: Handler = Handler::new("accept");
    /// let listening = Runtime::builder().build()?.run_until(move |cx, finish| {
    ///     let on_accept = ACCEPT.on_each(Color::from(1), |_cx, connection| {
    ///         drop(connection); // closes it
    ///     });
    ///     let listener = cx.listen("127.0.0.1:0", Acceptors::PerCore, on_accept);
    ///     finish.finish(listener.map(|listener| listener.local_addr()));
    /// })?;
    /// assert_ne!(listening?.ip().expect("an IP address").port(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen<F>(
        &mut self,
        at: impl Into<Endpoint>,
        acceptors: Acceptors,
        callback: Callback<F>,
    ) -> io::Result<Listener>
    where
        F: FnMut(&mut Cx, io::Result<Incoming>) + Send + 'static,
    {
        let endpoint = at.into();
        let here = self.core_id();
        let all = (0..self.cores()).map(CoreId::of);
        let poster = self.poster();
        let (cores, fds, bound) = super::with_driver(self, |driver, _| {
            if driver.is_ending() {
                return Err(super::ending());
            }
            let cores: Vec<CoreId> = match acceptors {
                // Nothing else has anything like REUSEPORT.
                Acceptors::PerCore if !driver.owner.is_simulated() && endpoint.is_ip() => {
                    all.collect()
                }
                _ => vec![here],
            };
            let (fds, bound) = bind_all(driver, endpoint, cores.len())?;
            Ok((cores, fds, bound))
        })??;
        let listening = Arc::new(Listening {
            callback: Mutex::new(Some(Box::new(callback.f))),
            accepting: AtomicU32::new(cores.len() as u32),
            handler: callback.handler,
            color: callback.color,
            closed: AtomicBool::new(false),
            poster: poster.clone(),
        });
        poster.inner.quiesce.has_connections();
        Registry::of_runtime(&poster.inner).add_listener(Arc::downgrade(&listening));
        for (&core, sent) in cores.iter().zip(fds) {
            let listening = Arc::clone(&listening);
            self.post_own(control(core), move |cx: &mut Cx| {
                Acceptor::arrive(listening, sent, core, cx);
            });
        }
        Ok(Listener {
            listening,
            local_addr: bound,
            cores,
        })
    }
}

/// Binds as many descriptors to one address. They are the process's, so all are made here and now:
/// an error is then the caller's.
fn bind_all(
    driver: &mut Driver,
    endpoint: Endpoint,
    count: usize,
) -> io::Result<(Vec<Sent>, Addr)> {
    let addr = match endpoint.what {
        What::Addr(addr) => addr,
        What::Socket(socket) => {
            let fd = driver.backend.adopt_listener(socket)?;
            let sent = Sent(Some(fd), driver.owner.clone());
            return Ok((vec![sent], driver.owner.local_addr(fd)?));
        }
    };
    let reuse_port = count > 1;
    let options = ListenOptions {
        reuse_port,
        mode: endpoint.mode,
        ..ListenOptions::default()
    };
    if reuse_port && addr.ip().is_some_and(|ip| ip.port() != 0) {
        // A port that another program has must be an error, although REUSEPORT would let us share
        // it with one of the same user: a listener without the option finds out.
        let probe = driver.backend.listen(&addr, &ListenOptions::default());
        driver
            .backend
            .close(probe.map_err(|error| addr.name_error(error))?);
    }
    let mut fds = Vec::with_capacity(count);
    let mut bound = addr.clone();
    for _ in 0..count {
        let fd = driver.backend.listen(&bound, &options);
        let fd = fd.map_err(|error| addr.name_error(error))?;
        fds.push(Sent(Some(fd), driver.owner.clone()));
        bound = driver.owner.local_addr(fd)?;
    }
    Ok((fds, bound))
}

/// A listener's descriptor on its way to its core: closed if it does not arrive, because another of
/// the same listener cannot be had, or because the runtime ends before.
struct Sent(Option<Fd>, Owner);

impl Sent {
    fn arrived(&mut self) -> Option<Fd> {
        self.0.take()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            self.1.close(fd);
        }
    }
}

impl Listener {
    /// Where it listens: the port that port 0 became.
    pub fn local_addr(&self) -> Addr {
        self.local_addr.clone()
    }

    /// Stops accepting and frees the port. Connections that were made before each core has heard of
    /// it are still delivered; the callback is dropped after the last of them, in its color. A
    /// connection that is made between that and the end of the descriptor is reset by the kernel. A
    /// runtime that is ending delivers no more of them.
    pub fn close(self) {
        self.listening.closed.store(true, Ordering::Release);
        let poster = &self.listening.poster;
        for &core in &self.cores {
            let listening = Arc::clone(&self.listening);
            // Ignored: a runtime that has ended, or is about to, has closed its listeners itself.
            let _ = poster.post_own(control(core), move |cx: &mut Cx| {
                if !close_on(&listening, cx) {
                    close_elsewhere(&listening, cx);
                }
            });
        }
    }
}

/// Stops accepting on this core. False: the acceptor that is at home here is elsewhere.
fn close_on(listening: &Arc<Listening>, cx: &mut Cx) -> bool {
    let close = |driver: &mut Driver, core: &mut Core| driver.close_listener(listening, core);
    Driver::with(cx.worker(), close).unwrap_or(true)
}

/// Stops accepting on all other cores. An acceptor that is under way to one of them comes to its
/// end there, behind this or before it.
fn close_elsewhere(listening: &Arc<Listening>, cx: &mut Cx) {
    let here = cx.core_id();
    for core in (0..cx.cores()).map(CoreId::of).filter(|&core| core != here) {
        let listening = Arc::clone(listening);
        cx.post_own(control(core), move |cx: &mut Cx| {
            let _home_has_asked = close_on(&listening, cx);
        });
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::host::panics::OnPanic;
    use crate::net::SimClient;
    use crate::net::tests::{Drops, listening, settle};
    use crate::sim::Simulation;
    use std::io::Read;
    use std::sync::mpsc::channel;

    /// A simulated runtime of one core that goes on after panics, and listens; and where.
    fn goes_on<F>(accept: F) -> (Simulation, Addr)
    where
        F: FnMut(&mut Cx, io::Result<Incoming>) + Send + 'static,
    {
        let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
        let on_accept = Callback::anonymous_each(Color::from(1), accept);
        listening(builder, 1, on_accept)
    }

    /// The callback has state of its own, which a panic does not take away.
    #[test]
    fn the_callback_goes_on_after_a_panic() {
        let (count, counts) = channel();
        let mut calls = 0;
        let (mut simulation, addr) = goes_on(move |_cx, _connection| {
            calls += 1;
            count.send(calls).unwrap();
            assert_ne!(calls, 2, "planted");
        });
        for number in 1..=4 {
            let _client = simulation.network().connect(&addr).unwrap();
            settle(&mut simulation);
            assert_eq!(counts.try_recv(), Ok(number));
        }
    }

    /// Those that came with one at which the callback panics are handed over all the same. And that
    /// one is reset.
    #[test]
    fn a_panic_costs_one_connection() {
        const CLIENTS: usize = 6;
        let (count, counts) = channel();
        let mut calls = 0;
        let (mut simulation, addr) = goes_on(move |_cx, connection| {
            calls += 1;
            assert_ne!(calls, 2, "planted");
            count.send(connection.unwrap()).unwrap();
        });
        let net = simulation.network().clone();
        let clients = [(); CLIENTS].map(|()| net.connect(&addr).unwrap());
        settle(&mut simulation);
        let served: Vec<_> = counts.try_iter().collect();
        assert_eq!(served.len(), CLIENTS - 1);
        let reset = |mut client: SimClient| {
            let end = client.read(&mut [0]).map_err(|error| error.kind());
            end == Err(io::ErrorKind::ConnectionReset)
        };
        assert_eq!(clients.map(reset).iter().filter(|reset| **reset).count(), 1);
    }

    /// Where cores work, as far as each has seen, is where connections are at home from then on.
    #[test]
    fn acceptors_are_where_cores_work() {
        let builder = Runtime::builder().cores(4);
        let mut simulation = builder
            .stealing(crate::policy::Stealing::OFF)
            .simulate(1)
            .unwrap();
        let (tell, told) = channel();
        let (home, homes) = channel();
        let listens = move |cx: &mut Cx| {
            assert_eq!(cx.core(), 3);
            let accept = move |_: &mut Cx, incoming: io::Result<Incoming>| {
                home.send(incoming.unwrap().home()).unwrap();
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let any = "127.0.0.1:0";
            tell.send(cx.listen(any, Acceptors::Single, on_accept).unwrap())
                .unwrap();
        };
        simulation
            .start(move |cx| cx.post(Color::from(3), listens))
            .unwrap();
        settle(&mut simulation);
        let (listener, net, poster) = (
            told.recv().unwrap(),
            simulation.network().clone(),
            simulation.poster(),
        );
        let addr = listener.local_addr();
        // Some are not seen by any core before the next comes.
        let changes = [(2, 1), (1, 0), (4, 3), (3, 0), (2, 1), (4, 3), (1, 0)];
        for (working, expected) in changes {
            poster.set_working_cores(4).unwrap();
            for _ in 0..working {
                simulation.step();
            }
            poster.set_working_cores(working).unwrap();
            settle(&mut simulation);
            let _clients = [(); 3].map(|()| net.connect(&addr).unwrap());
            settle(&mut simulation);
            assert_eq!(homes.try_iter().collect::<Vec<_>>(), [expected; 3]);
        }
        listener.close();
        settle(&mut simulation);
        assert!(net.connect(addr).is_err(), "its acceptor was elsewhere");
        let gone = std::sync::mpsc::TryRecvError::Disconnected;
        assert_eq!(homes.try_recv(), Err(gone), "the callback is dropped");
    }

    /// Each core that listens may still have connections for it.
    #[test]
    fn the_callback_is_dropped_after_the_last_core_has_left() {
        let drops = Drops::default();
        let given = drops.clone();
        let mut simulation = Runtime::builder().cores(1).simulate(1).unwrap();
        simulation
            .run(move |cx| {
                let witness = given.witness(cx.poster());
                let accept = move |_: &mut Cx, _: io::Result<Incoming>| {
                    let _ = &witness;
                };
                let listening = Arc::new(Listening {
                    callback: Mutex::new(Some(Box::new(accept))),
                    accepting: AtomicU32::new(2),
                    handler: None,
                    color: Color::from(7),
                    closed: AtomicBool::new(true),
                    poster: cx.poster(),
                });
                Listening::over(Arc::clone(&listening), &mut cx.worker().core);
                cx.post(Color::from(7), move |cx| {
                    assert!(given.seen().is_empty());
                    Listening::over(listening, &mut cx.worker().core);
                    cx.stop();
                });
            })
            .unwrap();
        assert_eq!(drops.seen(), [Some(Color::from(7))]);
    }

    /// Who listens alone shares its port with nobody, whatever the other asks for.
    #[test]
    fn the_port_of_a_single_acceptor_is_its_own() {
        let mut simulation = Runtime::builder().simulate(1).unwrap();
        let shared = simulation.run_until(|cx, finish| {
            let on_accept = Callback::anonymous_each(Color::from(1), |_: &mut Cx, _| ());
            let any = "127.0.0.1:0";
            let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
            let options = ListenOptions {
                reuse_port: true,
                ..ListenOptions::default()
            };
            let listen = |driver: &mut Driver, _: &mut Core| {
                driver.backend.listen(&listener.local_addr(), &options)
            };
            let other = crate::net::with_driver(cx, listen).unwrap();
            finish.finish(other.map_err(|error| error.kind()));
        });
        assert_eq!(shared.unwrap(), Err(io::ErrorKind::AddrInUse));
    }
}
