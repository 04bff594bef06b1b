//! Host names: looking them up, and connecting to one.
//!
//! A name is looked up by the system (`getaddrinfo`), on a thread for blocking work; in a
//! simulation, in the names that its network was given. What follows is an event: a [`Dial`] tries
//! the addresses one after the other, as RFC 8305 says (sections 4 and 5): families take turns, and
//! the next attempt begins when one has failed or has taken a while, beside it. The first that is
//! connected ends the others.
//!
//! A dial belongs to no color. Its events are of the control color of the core that began it, and
//! what they share is behind a lock, under which nothing is called that is the user's. It reports
//! once: whichever event takes the report out of the lock gives it.

use super::connect::OnConnected;
use super::driver::control;
use super::registry::Registry;
use super::{Driver, Incoming, Timer};
use crate::ask::{Asked, JoinError, JoinHandle};
use crate::callback::Callback;
use crate::io::{Addr, Owner};
use crate::sync::Mutex;
use crate::{Color, Cx, Handler};
use std::collections::VecDeque;
use std::fmt;
#[cfg(feature = "dns")]
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// How long an attempt may take before the next address is tried beside it (RFC 8305, section 5).
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);

/// Looks up the IP addresses of `addr`, in the order in which they should be tried. The system's
/// resolver does it, by its own configuration and limits of time, on a thread for blocking work
/// ([`Builder::blocking_threads_max`](crate::Builder::blocking_threads_max)). An address that is no
/// name is returned as it is. A simulation knows the names that
/// [`SimNet::add_host`](super::SimNet::add_host) gave it.
///
/// [`Cx::connect`] and [`aio::connect`](crate::aio::connect) take names, and look them up.
///
/// ```
/// use mely::task::with_cx;
/// use mely::{Color, Runtime, net};
/// let found = Runtime::builder().build()?.run_until(|cx, finish| {
///     cx.spawn(Color::from(1), async move {
///         finish.finish(with_cx(|cx| net::resolve(cx, "localhost:80")).await);
///     });
/// })?;
/// assert!(found??.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The handle's value, with the name: if there is no such name, or it cannot be looked up; if no
/// thread can be had; `InvalidInput` for a text that is not `host:port`, and for a Unix socket.
pub fn resolve(cx: &mut Cx, addr: impl Into<Addr>) -> JoinHandle<io::Result<Vec<SocketAddr>>> {
    let addr = addr.into();
    match look_up(cx, &addr) {
        Ok(handle) => handle,
        Err(error) => Asked::settled(&cx.worker_ref().inner, Err(error)),
    }
}

/// Its errors name the address.
fn look_up(cx: &mut Cx, addr: &Addr) -> io::Result<JoinHandle<io::Result<Vec<SocketAddr>>>> {
    let Addr::Name(name) = addr else {
        let found = addr.to_socket_addrs()?.collect();
        return Ok(Asked::settled(&cx.worker_ref().inner, Ok(found)));
    };
    let (host, port) = Addr::host_and_port(name)?;
    let owner = super::owner(cx)?;
    let lookup = Registry::of_runtime(&cx.worker_ref().inner)
        .lookup
        .lock()
        .unwrap()
        .clone();
    if let Some(lookup) = lookup {
        return Ok((lookup.0)(cx, host, port));
    }
    let (host, addr) = (host.to_owned(), addr.clone());
    let name = addr.clone();
    let search = move || {
        let found = match owner {
            Owner::Kernel => (host.as_str(), port).to_socket_addrs().map(Vec::from_iter),
            Owner::Sim(net) => net.host(&host).map(|found| {
                let with_port = |ip| SocketAddr::new(ip, port);
                found.into_iter().map(with_port).collect()
            }),
        };
        found.map_err(|error| addr.name_error(error))
    };
    cx.try_blocking(search)
        .map_err(|refused| name.name_error(io::Error::other(refused.reason)))
}

/// What looks up a host, for a port; its errors name both.
#[derive(Clone)]
pub(crate) struct Lookup(Arc<LookupFn>);

type LookupFn = dyn Fn(&mut Cx, &str, u16) -> JoinHandle<io::Result<Vec<SocketAddr>>> + Send + Sync;

#[cfg(feature = "dns")]
impl Lookup {
    pub(crate) fn new<F>(f: F) -> Lookup
    where
        F: Fn(&mut Cx, &str, u16) -> JoinHandle<io::Result<Vec<SocketAddr>>>,
        F: Send + Sync + 'static,
    {
        Lookup(Arc::new(f))
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

/// Has names looked up by this instead of the system.
#[cfg(feature = "dns")]
pub(crate) fn set_lookup(cx: &Cx, lookup: Lookup) {
    let registry = Registry::of_runtime(&cx.worker_ref().inner);
    let before = registry.lookup.lock().unwrap().replace(lookup);
    drop(before);
}

/// A number that nobody can guess; in a simulation, one that follows from the seed.
#[cfg(feature = "dns")]
pub(crate) fn random_number(cx: &mut Cx) -> io::Result<u64> {
    Ok(match super::owner(cx)? {
        Owner::Kernel => RandomState::new().hash_one(0),
        Owner::Sim(net) => net.random_number(),
    })
}

/// A connection being made to a name.
pub(super) struct Dial {
    name: Addr,
    limit: Duration,
    state: Mutex<DialState>,
}

#[derive(Default)]
struct DialState {
    /// What it is to be told to; None once that is done.
    report: Option<Report>,
    /// Addresses that were not tried yet.
    untried: VecDeque<SocketAddr>,
    /// Attempts that are not over.
    under_way: usize,
    /// Why the first attempt has failed.
    failed: Option<io::Error>,
    /// When it gives up, as [`Cx::now`].
    until: Duration,
    /// It begins the next attempt, or gives up.
    timers: [Option<Timer>; 2],
}

/// To whom it is told.
struct Report {
    callback: OnConnected,
    handler: Option<&'static Handler>,
    color: Color,
}

/// Of [`DialState::timers`].
const NEXT: usize = 0;
const LIMIT: usize = 1;

impl Dial {
    /// Looks `name` up and connects to it. See [`Cx::connect`].
    pub(super) fn begin(
        cx: &mut Cx,
        name: Addr,
        limit: Duration,
        callback: Callback<OnConnected>,
    ) -> io::Result<()> {
        let lookup = look_up(cx, &name)?;
        let Callback { handler, color, f } = callback;
        let report = Report {
            callback: f,
            handler,
            color,
        };
        let state = DialState {
            report: Some(report),
            until: cx.now().saturating_add(limit),
            ..DialState::default()
        };
        let dial = Arc::new(Dial {
            name,
            limit,
            state: Mutex::new(state),
        });
        let late = Arc::clone(&dial);
        dial.set_timer(cx, LIMIT, limit, move |cx| late.give_up(cx));
        let found = move |cx: &mut Cx, found| dial.found(cx, found);
        lookup.then(cx, Callback::new(None, control(cx.core_id()), found));
        Ok(())
    }

    fn set_timer<F>(&self, cx: &mut Cx, which: usize, after: Duration, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let here = control(cx.core_id());
        // A stop may find the lookup under way, which it waits for.
        let timer = cx.deadline(after, Callback::new(None, here, f));
        let old = self.state.lock().unwrap().timers[which].replace(timer);
        if let Some(old) = old {
            old.cancel(cx);
        }
    }

    /// The lookup is over.
    fn found(self: &Arc<Dial>, cx: &mut Cx, found: Result<io::Result<Vec<SocketAddr>>, JoinError>) {
        match found.map_err(io::Error::other).flatten() {
            Ok(found) if found.is_empty() => {
                let text = format!("{}: a name without addresses", self.name);
                self.tell(cx, Err(io::Error::new(io::ErrorKind::NotFound, text)));
            }
            Ok(found) => {
                self.state.lock().unwrap().untried = in_turns(found);
                self.next(cx);
            }
            Err(error) => self.tell(cx, Err(error)),
        }
    }

    /// Begins the next attempt, or tells that all have failed.
    fn next(self: &Arc<Dial>, cx: &mut Cx) {
        loop {
            let (addr, left) = {
                let state = &mut *self.state.lock().unwrap();
                let addr = match state.untried.pop_front() {
                    _ if state.report.is_none() => return,
                    None if state.under_way > 0 => return,
                    addr => addr,
                };
                state.under_way += usize::from(addr.is_some());
                (addr, state.until.saturating_sub(cx.now()))
            };
            let Some(addr) = addr else {
                let failed = self.state.lock().unwrap().failed.take();
                let failed = failed.unwrap_or_else(|| io::ErrorKind::NotConnected.into());
                return self.tell(cx, Err(self.name.name_error(failed)));
            };
            let its = Arc::clone(self);
            let over = move |cx: &mut Cx, result| its.over(cx, result);
            let over = Callback::new(None, control(cx.core_id()), Box::new(over) as OnConnected);
            match cx.connect_at(Addr::Ip(addr), left, over, Some(Arc::clone(self))) {
                Ok(()) => break,
                Err(error) => self.failed(error),
            }
        }
        if !self.state.lock().unwrap().untried.is_empty() {
            let its = Arc::clone(self);
            self.set_timer(cx, NEXT, NEXT_ATTEMPT, move |cx| its.next(cx));
        }
    }

    /// An attempt is over.
    fn over(self: &Arc<Dial>, cx: &mut Cx, result: io::Result<Incoming>) {
        match result {
            Ok(connected) => {
                self.state.lock().unwrap().under_way -= 1;
                self.tell(cx, Ok(connected));
            }
            Err(error) => {
                self.failed(error);
                self.next(cx);
            }
        }
    }

    fn failed(&self, error: io::Error) {
        let mut state = self.state.lock().unwrap();
        state.under_way -= 1;
        if super::is_canceled(&error) {
            // The end is told as the end.
            state.failed = Some(error);
        } else {
            state.failed.get_or_insert(error);
        }
    }

    fn give_up(self: &Arc<Dial>, cx: &mut Cx) {
        let text = format!(
            "{}: not connected within the limit of {:?}",
            self.name, self.limit
        );
        self.tell(cx, Err(io::Error::new(io::ErrorKind::TimedOut, text)));
    }

    /// Posts the outcome, unless another one was, and ends all that is under way. A connection that
    /// was made beside another one is closed.
    fn tell(self: &Arc<Dial>, cx: &mut Cx, result: io::Result<Incoming>) {
        let (report, timers, under_way) = {
            let state = &mut *self.state.lock().unwrap();
            state.untried.clear();
            (
                state.report.take(),
                std::mem::take(&mut state.timers),
                state.under_way,
            )
        };
        let Some(report) = report else { return };
        for timer in timers.into_iter().flatten() {
            timer.cancel(cx);
        }
        Driver::with(cx.worker(), |driver, core| {
            if under_way > 0 {
                driver.end_attempts(self);
            }
            let callback = report.callback;
            core.post_own(report.handler, report.color, move |cx: &mut Cx| {
                callback(cx, result);
            });
        });
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The families take turns, beginning with that of the first one.
fn in_turns(found: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first = found[0].is_ipv4();
    let of = |family| {
        let its = found.iter().filter(move |addr| addr.is_ipv4() == family);
        its.copied().collect::<VecDeque<SocketAddr>>()
    };
    let (mut ones, mut others) = (of(first), of(!first));
    let mut turns = VecDeque::new();
    while !(ones.is_empty() && others.is_empty()) {
        turns.extend(ones.pop_front());
        turns.extend(others.pop_front());
    }
    turns
}
