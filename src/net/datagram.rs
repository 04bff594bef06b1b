//! Datagram sockets: of UDP, and Unix ones.
//!
//! A socket is no connection: it has no color and no session, and what is sent and received keeps
//! its boundaries. Receiving is a watch ([`super::watch`]) of a duplicate of its descriptor, so any
//! number of watches and tasks may receive from one socket, and each datagram goes to one of them.
//! One call receives as many as it brings into the socket's inbox. The event of a watch gives the
//! callback one of them, and is posted again for the next: so a hold that the callback takes holds
//! back the next one, and other events of the color are not kept waiting for a burst.

use super::driver::control;
use super::watch::{AtEnd, Next, On, Source, Watch, Watching};
use crate::Cx;
use crate::ask::Asked;
use crate::callback::Callback;
use crate::io::{Addr, Datagram, Descriptor, Endpoint, Fd, Side};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Arc, Mutex};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Weak;

/// A datagram socket: of UDP, or a Unix one; from [`Cx::bind`]. Clones are the same socket, which
/// is closed with the last of them and the last watch.
#[derive(Clone)]
pub struct DatagramSocket {
    descriptor: Arc<Descriptor>,
    inbox: Arc<Inbox>,
    local_addr: Addr,
    /// Calls of `recv`.
    received: Arc<AtomicU32>,
}

/// Datagrams that were taken from the kernel by one call and are not told yet, of all watches and
/// tasks of a socket.
///
/// Invariant: while it holds one, each watch of the socket has an event queued or running that
/// looks here, or it is over. The kernel tells no watch of them any more:
/// [`receive`](Inbox::receive) posts that event to the watches that were there before,
/// [`wait`](Inbox::wait) to a later one, each after a look under the lock. An event that leaves one
/// is posted again ([`Next::Again`]).
#[derive(Default)]
struct Inbox(Mutex<Untold>);

#[derive(Default)]
struct Untold {
    came: VecDeque<io::Result<Datagram>>,
    /// The watches of the socket, by the duplicate that each has of its descriptor. Those that are
    /// gone are taken out when another one begins.
    watches: Vec<(Fd, Weak<Watching>)>,
}

impl Inbox {
    /// Takes the next datagram, if there is one.
    fn take(&self, descriptor: &Descriptor) -> Option<io::Result<Datagram>> {
        self.receive(descriptor, VecDeque::pop_front)
    }

    /// Whether there is one.
    fn has_more(&self, descriptor: &Descriptor) -> bool {
        self.receive(descriptor, |came| !came.is_empty())
    }

    /// Receives if nothing is there, gives `f` what is, and has other watches than the one of
    /// `descriptor` look for what `f` has left.
    fn receive<T>(
        &self,
        descriptor: &Descriptor,
        f: impl FnOnce(&mut VecDeque<io::Result<Datagram>>) -> T,
    ) -> T {
        let mut its = self.0.lock().unwrap();
        let Untold { came, watches } = &mut *its;
        let receives = came.is_empty();
        if receives {
            let received = descriptor.receive(&mut |it| came.push_back(Ok(it)));
            // Of one that was sent before, as a rule: no socket is at its address.
            came.extend(received.err().map(Err));
        }
        let given = f(came);
        let mut others = SmallVec::<[Arc<Watching>; 1]>::new();
        if receives && !came.is_empty() {
            let watches = watches.iter().filter(|(fd, _)| *fd != descriptor.fd());
            others.extend(watches.filter_map(|(_, watching)| watching.upgrade()));
        }
        drop(its);
        for other in others {
            other.again();
        }
        given
    }

    /// A watch has begun to wait.
    fn wait(&self, fd: Fd, watch: &Watch) {
        let mut its = self.0.lock().unwrap();
        its.watches
            .retain(|(_, watching)| watching.strong_count() > 0);
        its.watches.push((fd, watch.watching()));
        let has_more = !its.came.is_empty();
        drop(its);
        if has_more && let Some(watching) = watch.watching().upgrade() {
            watching.again();
        }
    }
}

/// Receives for a callback.
struct Receives<F> {
    descriptor: Descriptor,
    inbox: Arc<Inbox>,
    callback: F,
}

impl<F: FnMut(&mut Cx, io::Result<Datagram>) + Send> Source for Receives<F> {
    fn tell(&mut self, over: &AtomicBool, cx: &mut Cx) -> Next {
        let Some(came) = self.inbox.take(&self.descriptor) else {
            return Next::Waits;
        };
        (self.callback)(cx, came);
        if over.load(Ordering::Acquire) {
            return Next::Waits;
        }
        if self.descriptor.is_unix() {
            // Nothing is lost there, so nothing is taken before it is told.
            return Next::Again;
        }
        // What comes behind this is told by an edge.
        match self.inbox.has_more(&self.descriptor) {
            true => Next::Again,
            false => Next::Waits,
        }
    }

    fn after_panic(&self) -> Next {
        Next::Again
    }

    fn fail(&mut self, cx: &mut Cx, error: io::Error) {
        (self.callback)(cx, Err(error));
    }
}

/// Waits once until something may have come.
struct Arrives {
    /// What is waited on.
    _descriptor: Descriptor,
    asked: Option<Asked<io::Result<()>>>,
}

impl Source for Arrives {
    fn tell(&mut self, _over: &AtomicBool, _cx: &mut Cx) -> Next {
        if let Some(mut asked) = self.asked.take() {
            asked.settle(Ok(()));
        }
        Next::Over
    }

    fn fail(&mut self, _cx: &mut Cx, error: io::Error) {
        if let Some(mut asked) = self.asked.take() {
            asked.settle(Err(error));
        }
    }
}

impl Cx {
    /// Binds a datagram socket: of UDP to an IP address, a Unix one to a path or an abstract name,
    /// or to [`Addr::Unnamed`], to which nobody can send. Port 0 takes a free port. For options,
    /// multicast groups among them, make the socket elsewhere (std, `socket2`) and pass it instead
    /// of an address; its options stay as they are.
    ///
    /// Linux joins datagrams of one source and length on their way to a UDP socket that is bound
    /// here (`UDP_GRO`, since 5.0), which saves time. They are received one by one all the same.
    ///
    /// # Errors
    /// If the address cannot be bound, with its text; `InvalidInput` for a host name, and for a
    /// socket of another kind; `ECANCELED` once the runtime was asked to stop.
    ///
    /// ```
    /// use mely::net::Datagram;
    /// use mely::{Color, Handler, Runtime};
    /// use std::io;
    /// static RECEIVE: Handler = Handler::new("receive");
    /// let heard = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let server = cx.bind("127.0.0.1:0").expect("a free port");
    ///     let at = server.clone();
    ///     let receive = RECEIVE.on_each(Color::from(1), move |_cx, received: io::Result<_>| {
    ///         let Datagram { data, from, .. } = received.expect("a datagram");
    ///         at.send_to(&data, &from).expect("room in the socket");
    ///     });
    ///     server.on_datagram(cx, receive).expect("a descriptor");
    ///     cx.spawn(Color::from(2), async move {
    ///         let client = mely::task::with_cx(|cx| cx.bind("127.0.0.1:0"))?;
    ///         client.send_to(b"hello", server.local_addr())?;
    ///         finish.finish(client.recv().await?.data);
    ///         Ok::<(), io::Error>(())
    ///     });
    /// })?;
    /// assert_eq!(heard, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(&mut self, at: impl Into<Endpoint>) -> io::Result<DatagramSocket> {
        let descriptor = super::owner(self)?.bind(at.into())?;
        let local_addr = descriptor.local_addr()?;
        Ok(DatagramSocket {
            descriptor: Arc::new(descriptor),
            inbox: Arc::default(),
            local_addr,
            received: Arc::default(),
        })
    }
}

impl DatagramSocket {
    /// Where it is bound: the port that port 0 became.
    pub fn local_addr(&self) -> Addr {
        self.local_addr.clone()
    }

    /// From now on [`send`](Self::send) sends to `addr`, and only datagrams from there are
    /// received, and those that came before.
    ///
    /// # Errors
    /// If the system refuses, with the address.
    pub fn connect(&self, addr: impl Into<Addr>) -> io::Result<()> {
        let addr = addr.into();
        let connected = self.descriptor.connect(&addr);
        connected.map_err(|error| addr.name_error(error))
    }

    /// Sends a datagram to where the socket is connected; see [`send_to`](Self::send_to).
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), without the address.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.descriptor.send(bytes, None)
    }

    /// Sends a datagram at once, from any thread. Of UDP none is known to arrive.
    ///
    /// # Errors
    /// With the address: `WouldBlock` if the socket has no room, or the queue of a Unix socket is
    /// full, and nothing was sent; if it is too long (UDP: 65,507 bytes); if nobody is there, as
    /// far as the system knows.
    pub fn send_to(&self, bytes: &[u8], addr: impl Into<Addr>) -> io::Result<()> {
        let addr = addr.into();
        let sent = self.descriptor.send(bytes, Some(&addr));
        sent.map_err(|error| addr.name_error(error))
    }

    /// Sends a datagram for each payload, at once and in order, to `addr`, or to where the socket
    /// is connected. Returns how many were sent: those at the front, fewer than given if one was
    /// refused. Up to 64 are sent by one system call. Over UDP, payloads of equal length in a row,
    /// and a shorter one behind them, are given to Linux as one message of up to 65,507 bytes,
    /// which it cuts (`UDP_SEGMENT`, since 4.18): they take a fraction of the time.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// let lengths = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     cx.spawn(Color::from(1), async move {
    ///         let socket = mely::task::with_cx(|cx| cx.bind("127.0.0.1:0"))?;
    ///         let file = vec![0; 3_000];
    ///         let sent = socket.send_many(file.chunks(1_200), Some(&socket.local_addr()))?;
    ///         let mut lengths = Vec::new();
    ///         while lengths.len() < sent {
    ///             lengths.push(socket.recv().await?.data.len());
    ///         }
    ///         finish.finish(lengths);
    ///         Ok::<(), std::io::Error>(())
    ///     });
    /// })?;
    /// assert_eq!(lengths, [1_200, 1_200, 600]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), if the first payload is refused: none was sent. An error at a
    /// later one is not told: a call with the payloads that are left meets it again, unless it was
    /// of a datagram that was sent before, which nothing received.
    pub fn send_many<'a, B>(
        &self,
        payloads: impl IntoIterator<Item = &'a B>,
        addr: Option<&Addr>,
    ) -> io::Result<usize>
    where
        B: AsRef<[u8]> + ?Sized + 'a,
    {
        let payloads = payloads.into_iter().map(AsRef::as_ref);
        let sent = self.descriptor.send_many(payloads, addr);
        sent.map_err(|error| match addr {
            Some(addr) => addr.name_error(error),
            None => error,
        })
    }

    /// Sends a datagram with up to 253 descriptors over a Unix socket: to `addr`, or to where the
    /// socket is connected. The receiver gets [duplicates](Datagram::descriptors) of them.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), without the address; `InvalidInput` if there are too many, or
    /// if it is no Unix socket; `Unsupported` in a simulation.
    pub fn send_descriptors(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        addr: Option<&Addr>,
    ) -> io::Result<()> {
        self.descriptor.send_descriptors(bytes, descriptors, addr)
    }

    /// Calls back in the callback's color with each datagram, in the order of arrival, until the
    /// runtime is asked to stop or the watch is canceled. Each is an event of its own; what the
    /// color does not take up waits in the kernel, which drops what is beyond the socket's buffer.
    /// Of UDP, up to 1 MiB is taken from it at once: 16 datagrams, or 16 buffers of joined ones. If
    /// the watch ends, another one or a task receives those that it was not told of. An error, such
    /// as a refusal by the address of an earlier `send`, does not end it.
    ///
    /// To have datagrams handled in a color of their source, receive in a
    /// [unique color](Cx::unique_color), and post each to `Color::of(&datagram.from)`, by
    /// [`try_post`](crate::Post::try_post): where that refuses, drop the datagram.
    ///
    /// # Errors
    /// If a descriptor is refused; `ECANCELED` once the runtime was asked to stop.
    pub fn on_datagram<F>(&self, cx: &mut Cx, callback: Callback<F>) -> io::Result<Watch>
    where
        F: FnMut(&mut Cx, io::Result<Datagram>) + Send + 'static,
    {
        let descriptor = self.descriptor.duplicate()?;
        let on = On::descriptor(&descriptor);
        let Callback { handler, color, f } = callback;
        let fd = descriptor.fd();
        let source = Receives {
            descriptor,
            inbox: Arc::clone(&self.inbox),
            callback: f,
        };
        let watch = cx.watch(source, on, Side::Reader, handler, color, AtEnd::Keeps)?;
        self.inbox.wait(fd, &watch);
        Ok(watch)
    }

    /// Whether a task that receives is to let others run: one call in sixteen.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.received.fetch_add(1, Ordering::Relaxed) % 16 == 15
    }

    /// What is there, without waiting.
    pub(crate) fn try_recv(&self) -> io::Result<Option<Datagram>> {
        self.inbox.take(&self.descriptor).transpose()
    }

    /// Waits once until something may have come.
    pub(crate) fn arrives(&self, cx: &mut Cx, asked: Asked<io::Result<()>>) -> io::Result<Watch> {
        let descriptor = self.descriptor.duplicate()?;
        let on = On::descriptor(&descriptor);
        let fd = descriptor.fd();
        let source = Arrives {
            _descriptor: descriptor,
            asked: Some(asked),
        };
        let color = control(cx.core_id());
        let watch = cx.watch(source, on, Side::Reader, None, color, AtEnd::Keeps)?;
        self.inbox.wait(fd, &watch);
        Ok(watch)
    }
}

impl fmt::Debug for DatagramSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSocket")
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}
