//! What has callbacks of the user's, for as long as it lives: connections by their home core,
//! listeners, and watches. And connections that have no color yet, whose descriptors the end closes
//! as well.
//!
//! A callback holds the very state that owns what calls it: a session has its stream, and the
//! stream's `on_data` has a handle to the session. Nobody would ever drop such a ring. So a
//! callback is dropped after its last call, and when the runtime is gone all that are left are
//! dropped from here.

use super::conn::Conn;
use super::listener::Listening;
use super::names::Lookup;
use super::watch::Watching;
use crate::color::CoreId;
use crate::host::inner::{Ended, Inner};
use crate::host::panics::InTurn;
use crate::host::source::Attached;
use crate::io::{Fd, Owner};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use slab::Slab;
use std::sync::{Arc, Weak};

/// A connection, from its accept or connect until its last handle is dropped.
#[derive(Debug)]
enum Entry {
    /// It has no color yet.
    Incoming(Fd, Owner),
    Conn(Weak<Conn>),
    /// It had no color at the end, which has closed it.
    Closed,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Registry {
    conns: Box<[Mutex<Slab<Entry>>]>,
    listeners: Mutex<Vec<Weak<Listening>>>,
    watches: Mutex<Slab<Arc<Watching>>>,
    /// What looks host names up instead of the system.
    pub(super) lookup: Mutex<Option<Lookup>>,
    /// Which cores' drivers have been made.
    claimed: Box<[AtomicBool]>,
}

impl Registry {
    pub(crate) fn new(cores: usize) -> Registry {
        Registry {
            conns: (0..cores).map(|_| Mutex::new(Slab::new())).collect(),
            listeners: Mutex::new(Vec::new()),
            watches: Mutex::new(Slab::new()),
            lookup: Mutex::new(None),
            claimed: (0..cores).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// A runtime's.
    pub(super) fn of_runtime(inner: &Inner) -> &Registry {
        &inner.attached
    }

    /// True for the first caller, which is the core's one driver.
    pub(super) fn claim(&self, core: CoreId) -> bool {
        !self.claimed[core.index()].swap(true, Ordering::Relaxed)
    }

    /// Notes a connection of this core, under the key that it is given back by.
    pub(super) fn add(&self, home: CoreId, fd: Fd, owner: Owner) -> usize {
        let incoming = Entry::Incoming(fd, owner);
        self.conns[home.index()].lock().unwrap().insert(incoming)
    }

    /// The connection has got its color. False: the end has closed it before.
    #[must_use]
    pub(super) fn opened(&self, home: CoreId, key: usize, conn: Weak<Conn>) -> bool {
        let mut conns = self.conns[home.index()].lock().unwrap();
        let before = std::mem::replace(&mut conns[key], Entry::Conn(conn));
        matches!(before, Entry::Incoming(..))
    }

    /// Calls `f` unless the end has closed the connection, and lets it wait meanwhile.
    pub(super) fn unless_closed<R>(
        &self,
        home: CoreId,
        key: usize,
        f: impl FnOnce() -> R,
    ) -> Option<R> {
        let conns = self.conns[home.index()].lock().unwrap();
        (!matches!(conns[key], Entry::Closed)).then(f)
    }

    /// Forgets a connection whose last handle is dropped. True if its descriptor is the caller's to
    /// close: it had no color, and the end has not closed it.
    pub(super) fn remove(&self, home: CoreId, key: usize) -> bool {
        // Dropped when the lock is free, though a weak reference runs nobody's code.
        let entry = self.conns[home.index()].lock().unwrap().remove(key);
        matches!(entry, Entry::Incoming(..))
    }

    /// The connections whose home this core is.
    pub(super) fn of(&self, home: CoreId) -> Vec<Arc<Conn>> {
        let conns = self.conns[home.index()].lock().unwrap();
        conns
            .iter()
            .filter_map(|(_, entry)| match entry {
                Entry::Conn(conn) => conn.upgrade(),
                Entry::Incoming(..) | Entry::Closed => None,
            })
            .collect()
    }

    /// Closes the connections that have no color: a handle to one may be kept for long after the
    /// end, and its peer would wait.
    fn close_incoming(&self) {
        for conns in &self.conns {
            for (_, entry) in &mut *conns.lock().unwrap() {
                if let Entry::Incoming(fd, owner) = entry {
                    owner.close(*fd);
                    *entry = Entry::Closed;
                }
            }
        }
    }

    /// Notes a listener.
    pub(super) fn add_listener(&self, listening: Weak<Listening>) {
        let mut listeners = self.listeners.lock().unwrap();
        listeners.retain(|listening| listening.strong_count() > 0);
        listeners.push(listening);
    }

    /// Notes a watch, under the key that it is given back by.
    pub(super) fn add_watch(&self, watching: Arc<Watching>) -> usize {
        self.watches.lock().unwrap().insert(watching)
    }

    /// Forgets a watch that is over. In a simulation it may have been forgotten before, and its key
    /// be another's.
    pub(super) fn remove_watch(&self, key: usize, watching: &Arc<Watching>) {
        let mut watches = self.watches.lock().unwrap();
        let is_there = |its: &Arc<Watching>| Arc::ptr_eq(its, watching);
        if watches.get(key).is_some_and(is_there) {
            watches.remove(key);
        }
    }

    /// The watches there are.
    pub(super) fn watches(&self) -> Vec<Arc<Watching>> {
        let watches = self.watches.lock().unwrap();
        watches.iter().map(|(_, its)| Arc::clone(its)).collect()
    }
}

impl Attached for Registry {
    fn drop_callbacks(&self, ended: &mut Ended<'_>, drops: &mut InTurn) {
        self.close_incoming();
        for home in 0..self.conns.len() {
            for conn in self.of(CoreId::of(home)) {
                conn.end(ended, drops);
            }
        }
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap());
        for listening in listeners.iter().filter_map(Weak::upgrade) {
            drops.run(|| listening.drop_callback());
        }
        let watches = std::mem::take(&mut *self.watches.lock().unwrap());
        for (_, watching) in watches {
            drops.run(|| watching.drop_callback());
        }
        let lookup = self.lookup.lock().unwrap().take();
        drops.run(|| drop(lookup));
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::Registry;
    use crate::Post;
    use crate::net::tests::{listening, settle};
    use crate::net::{Acceptors, Incoming, RecvBuf, Session, Stream};
    use crate::sim::Step;
    use crate::{Callback, Color, Cx, Handler, Runtime};
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Weak};

    static READ: Handler = Handler::new("read");

    struct Reads(#[expect(dead_code, reason = "owned")] Stream);

    impl Session for Reads {
        fn data(&mut self, _: &mut Cx, _: RecvBuf) {}
    }

    /// Connections and listeners that are gone leave nothing behind, however long the runtime
    /// lives.
    #[test]
    fn nothing_is_noted_of_who_is_gone() {
        let mut simulation = Runtime::builder().cores(1).simulate(1).unwrap();
        let (tell, addr) = channel();
        let poster = simulation.poster();
        simulation
            .start(move |cx| {
                let serve = |_: &mut Cx, incoming: io::Result<Incoming>| {
                    incoming.unwrap().serve(&READ, |_, stream, _| Reads(stream));
                };
                let any = "127.0.0.1:0";
                let mut on_any = || {
                    let on_accept = Callback::anonymous_each(Color::from(1), serve);
                    cx.listen(any, Acceptors::Single, on_accept).unwrap()
                };
                let listener = on_any();
                for listener in [on_any(), on_any(), on_any()] {
                    listener.close();
                }
                tell.send(listener.local_addr()).unwrap();
            })
            .unwrap();
        let registry = Registry::of_runtime(&poster.inner);
        let noted = || registry.conns[0].lock().unwrap().len();
        while simulation.step() != Step::Stalled {}
        let (addr, net) = (addr.recv().unwrap(), simulation.network().clone());
        for _ in 0..3 {
            let clients = [(); 4].map(|()| net.connect(&addr).unwrap());
            while simulation.step() != Step::Stalled {}
            assert_eq!(noted(), clients.len());
            drop(clients);
            while simulation.step() != Step::Stalled {}
            assert_eq!(noted(), 0);
        }
        // One more listener finds those that are gone.
        let again = |cx: &mut Cx| {
            let on_accept = Callback::anonymous_each(Color::from(1), |_: &mut Cx, _| ());
            let any = "127.0.0.1:0";
            cx.listen(any, Acceptors::Single, on_accept).unwrap();
        };
        poster.try_post(Color::from(1), again).unwrap();
        while simulation.step() != Step::Stalled {}
        let listeners = registry.listeners.lock().unwrap();
        let counts: Vec<_> = listeners.iter().map(Weak::strong_count).collect();
        assert!(counts.len() == 2 && !counts.contains(&0), "{counts:?}");
    }

    /// Counts drops, and each panics.
    struct Bomb(Arc<AtomicUsize>);

    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("planted");
        }
    }

    /// The callbacks own their streams: nobody else would ever drop them.
    #[test]
    fn a_callback_whose_drop_panics_keeps_no_other_from_being_dropped() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let all = Arc::clone(&dropped);
        let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
            let bomb = Bomb(Arc::clone(&all));
            let stream = Arc::new(incoming.unwrap().open_unique());
            cx.post(stream.color(), move |cx| {
                let its = Arc::clone(&stream);
                let read = move |_: &mut Cx, _: &Stream, _: io::Result<RecvBuf>| {
                    let _ = (&its, &bomb);
                };
                stream.on_data(cx, &READ, read).unwrap();
            });
        };
        let on_accept = Callback::anonymous_each(Color::from(1), accept);
        let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
        let net = simulation.network().clone();
        let _clients = [(); 3].map(|()| net.connect(&addr).unwrap());
        settle(&mut simulation);
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(simulation))).is_err());
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }
}
