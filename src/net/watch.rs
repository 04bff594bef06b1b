//! What has no stream of its own: signals, and descriptors that become ready.
//!
//! A watch is a `ready` operation of the event source of one core, its *home*, which tells of
//! edges. An edge posts an event to the callback's color; one that is queued already stands for it.
//! The event asks the descriptor itself whether it is ready, calls the callback, and asks again: a
//! callback that has not read everything is called once more, behind what waits in the color by
//! then. So an edge is never lost, since whoever misses it asks afterwards.
//!
//! A descriptor is a duplicate of the caller's, and the watch's alone: the kernel can be waited for
//! though the caller has closed its own, and two watches of one descriptor do not meet.
//!
//! **What can never happen.** A call after [`Watch::cancel`] in the callback's color; a descriptor
//! that is closed while the kernel waits on it; a callback that is dropped outside its color,
//! unless the run has ended or nothing came of the watch.

use super::child::Started;
use super::driver::{Driver, control};
use super::registry::Registry;
use crate::ask::Asked;
use crate::callback::Callback;
use crate::color::CoreId;
#[cfg(feature = "sim")]
use crate::host::inner::Inner;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::unfinished::Obstacle;
use crate::io::{Descriptor, Fd, Op, Raises, Side, Signals};
use crate::sched::core::Core;
use crate::signal::Signal;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Arc, Mutex};
use crate::{Color, Cx, Handler};
use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::{OnceLock, Weak};

/// What is watched, and who is told.
struct Told<S, F> {
    source: S,
    callback: F,
}

/// Signals, and those that have come and were not told yet: a callback may panic at one.
struct Watched(Signals, VecDeque<i32>);

/// What comes after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The next edge.
    Waits,
    /// Another call, since there may be more to tell.
    Again,
    /// Nothing.
    Over,
}

/// Something that becomes ready.
pub(super) trait Source: Send {
    /// Calls back, if there is something to tell, until the watch is `over`.
    fn tell(&mut self, over: &AtomicBool, cx: &mut Cx) -> Next;

    /// What comes after a panic of the callback.
    fn after_panic(&self) -> Next {
        Next::Over
    }

    /// The operation has failed.
    fn fail(&mut self, cx: &mut Cx, error: io::Error);
}

impl<F: FnMut(&mut Cx, Signal) + Send> Source for Told<Watched, F> {
    fn tell(&mut self, over: &AtomicBool, cx: &mut Cx) -> Next {
        let Watched(signals, came) = &mut self.source;
        came.extend(signals.take());
        while !over.load(Ordering::Acquire)
            && let Some(signal) = came.pop_front()
        {
            (self.callback)(cx, Signal::from(signal));
        }
        Next::Waits
    }

    /// The next signal is to be told all the same.
    fn after_panic(&self) -> Next {
        Next::Again
    }

    /// Reported as a panic is: the callback takes no error.
    fn fail(&mut self, _cx: &mut Cx, error: io::Error) {
        panic!("the event source cannot wait for signals: {error}");
    }
}

impl<F: FnMut(&mut Cx, io::Result<()>) + Send> Source for Told<(OwnedFd, Side), F> {
    fn tell(&mut self, _over: &AtomicBool, cx: &mut Cx) -> Next {
        if is_ready(&self.source.0, self.source.1) {
            (self.callback)(cx, Ok(()));
        }
        match is_ready(&self.source.0, self.source.1) {
            true => Next::Again,
            false => Next::Waits,
        }
    }

    fn fail(&mut self, cx: &mut Cx, error: io::Error) {
        (self.callback)(cx, Err(error));
    }
}

fn is_ready(fd: &OwnedFd, side: Side) -> bool {
    let flags = match side {
        Side::Reader => PollFlags::IN | PollFlags::RDHUP,
        Side::Writer => PollFlags::OUT,
    };
    let mut polled = [PollFd::new(fd, flags)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// A descriptor that somebody waits for once.
struct Once(OwnedFd, Side, Option<Asked<io::Result<()>>>);

impl Source for Once {
    fn tell(&mut self, _over: &AtomicBool, _cx: &mut Cx) -> Next {
        if !is_ready(&self.0, self.1) {
            return Next::Waits;
        }
        if let Some(mut asked) = self.2.take() {
            asked.settle(Ok(()));
        }
        Next::Over
    }

    fn fail(&mut self, _cx: &mut Cx, error: io::Error) {
        if let Some(mut asked) = self.2.take() {
            asked.settle(Err(error));
        }
    }
}

/// A child whose end is waited for, by the descriptor that becomes readable then.
pub(super) struct Exits<F> {
    pub(super) child: Arc<Started>,
    pub(super) pidfd: OwnedFd,
    pub(super) callback: Option<F>,
}

impl<F: FnOnce(&mut Cx, io::Result<ExitStatus>) + Send> Source for Exits<F> {
    fn tell(&mut self, _over: &AtomicBool, cx: &mut Cx) -> Next {
        let Some(status) = self.child.status() else {
            return Next::Waits;
        };
        if let Some(callback) = self.callback.take() {
            callback(cx, status);
        }
        Next::Over
    }

    fn fail(&mut self, cx: &mut Cx, error: io::Error) {
        if let Some(callback) = self.callback.take() {
            callback(cx, Err(error));
        }
    }
}

/// A child that nobody waits for any more: it is asked for its status, or would be a zombie.
pub(super) struct Reaps(pub(super) std::process::Child, pub(super) OwnedFd);

impl Source for Reaps {
    fn tell(&mut self, _over: &AtomicBool, _cx: &mut Cx) -> Next {
        match self.0.try_wait() {
            Ok(None) => Next::Waits,
            Ok(Some(_)) | Err(_) => Next::Over,
        }
    }

    fn fail(&mut self, _cx: &mut Cx, _error: io::Error) {}
}

/// What the event source waits for.
pub(super) enum On {
    Kernel(Fd),
    Sim(Fd),
    /// Nothing: the signals of a simulation are raised by the thread that steps it.
    Raised(Raises),
}

impl On {
    fn kernel(fd: &impl AsRawFd) -> On {
        On::Kernel(Fd::from_raw(fd.as_raw_fd()))
    }

    pub(super) fn descriptor(descriptor: &Descriptor) -> On {
        match descriptor.is_simulated() {
            true => On::Sim(descriptor.fd()),
            false => On::Kernel(descriptor.fd()),
        }
    }
}

/// How the end of a run is about a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// A run may end by itself though the watch goes on; a stop ends it.
    Ignored,
    /// The run does not end by itself; a stop ends the watch.
    Keeps,
    /// A stop waits for it, and so for this child, until the stage drain is over.
    WaitsFor(u32),
}

/// A watch, as its driver and its events have it.
pub(super) struct Watching {
    /// Taken while it is called. A lock that nobody waits for: events of one color take turns. None
    /// once the watch is over.
    source: Mutex<Option<Box<dyn Source>>>,
    handler: Option<&'static Handler>,
    color: Color,
    poster: Poster,
    /// An event is queued, which will ask whether it is ready.
    queued: AtomicBool,
    /// Nobody is called any more.
    over: AtomicBool,
    /// The operation, unless it is simulated.
    op: OnceLock<Op>,
    /// In a simulation: what raises its signals.
    simulated: Option<Raises>,
    pub(super) at_end: AtEnd,
    home: CoreId,
    /// Its place in the registry.
    key: OnceLock<usize>,
}

impl Watching {
    /// Whether it is the core's, and there is no operation whose end would be its end.
    pub(super) fn is_simulated_at(&self, home: CoreId) -> bool {
        self.simulated.is_some() && self.home == home
    }

    /// The child that the end of the run waits for.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match self.at_end {
            AtEnd::WaitsFor(id) => Some(Obstacle::Child {
                id,
                color: self.color,
                handler: self.handler.map_or("(none)", Handler::name),
            }),
            AtEnd::Ignored | AtEnd::Keeps => None,
        }
    }

    /// The operation has told of something.
    pub(super) fn ready(watching: &Arc<Watching>, result: io::Result<()>, core: &mut Core) {
        if let Err(error) = result {
            // Its end follows, which drops the callback behind this event.
            let this = Arc::clone(watching);
            let event = move |cx: &mut Cx| {
                this.call(cx, |source, cx| {
                    source.fail(cx, error);
                    Next::Waits
                });
                this.over.store(true, Ordering::Release);
            };
            return core.post_own(watching.handler, watching.color, event);
        }
        // Either the event that clears the flag sees what is ready by now, or the flag is seen
        // clear.
        fence(Ordering::SeqCst);
        if !watching.queued.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(watching);
            core.post_own(watching.handler, watching.color, |cx| this.event(cx));
        }
    }

    fn event(self: Arc<Self>, cx: &mut Cx) {
        // What comes from here on is told by an event of its own.
        self.queued.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        let over = &self.over;
        self.call(cx, |source, cx| source.tell(over, cx));
    }

    /// Calls what is there, unless the watch is over, and does what comes next.
    fn call(self: &Arc<Self>, cx: &mut Cx, f: impl FnOnce(&mut dyn Source, &mut Cx) -> Next) {
        if self.over.load(Ordering::Acquire) {
            return;
        }
        let source = self.source.lock().unwrap().take();
        let next = source.as_ref().map_or(Next::Waits, |its| its.after_panic());
        let mut lent = Lent {
            of: self,
            source,
            next,
        };
        if let Some(source) = &mut lent.source {
            lent.next = f(&mut **source, cx);
        }
    }

    /// Nobody is called any more, and the operation ends.
    fn cancel(self: &Arc<Self>) {
        self.over.store(true, Ordering::Release);
        let watching = Arc::clone(self);
        let end = move |cx: &mut Cx| {
            Driver::with(cx.worker(), |driver, core| match watching.op.get() {
                Some(&op) => driver.cancel(op),
                None => Watching::discard(watching, core),
            });
        };
        // Refused once the run has ended: it is over then. The handle of an operation that is over
        // has no effect.
        let home = control(self.home);
        let _ = self.poster.post_own_until(Until::End, None, home, end);
    }

    /// Behind what waits in the color by now.
    pub(super) fn again(self: &Arc<Self>) {
        fence(Ordering::SeqCst);
        if !self.over.load(Ordering::Acquire) && !self.queued.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(self);
            // Refused once the run has ended.
            let (handler, color) = (self.handler, self.color);
            let _ = self
                .poster
                .post_own_until(Until::End, handler, color, move |cx: &mut Cx| {
                    this.event(cx)
                });
        }
    }

    /// The operation is over: drops the callback and what it was told of, in its color.
    pub(super) fn discard(watching: Arc<Watching>, core: &mut Core) {
        if let Some(&key) = watching.key.get() {
            Registry::of_runtime(&watching.poster.inner).remove_watch(key, &watching);
        }
        let color = watching.color;
        core.post_own(None, color, move |_cx: &mut Cx| watching.drop_callback());
    }

    /// Nobody calls it any more.
    pub(super) fn drop_callback(&self) {
        let source = self.source.lock().unwrap().take();
        drop(source);
    }

    /// The watch is simulated, and of this signal: it has come.
    #[cfg(feature = "sim")]
    fn raise(self: &Arc<Self>, signal: Signal) {
        if let Some(simulated) = &self.simulated
            && simulated.raise(signal.number())
        {
            self.again();
        }
    }
}

/// The source while it is called: given back also if that panics.
struct Lent<'a> {
    of: &'a Arc<Watching>,
    source: Option<Box<dyn Source>>,
    next: Next,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.of.source.lock().unwrap() = self.source.take();
        match self.next {
            Next::Waits => {}
            Next::Again => self.of.again(),
            Next::Over => self.of.cancel(),
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

/// The handle to a watch that was begun by [`Cx::on_signal`], [`Cx::on_readable`] or
/// [`Cx::on_writable`].
///
/// # Dropping
/// Dropping it detaches it: the watch goes on until the runtime is asked to stop. To end it
/// instead, see [`cancel_on_drop`](Self::cancel_on_drop).
pub struct Watch {
    /// Weak: the callback may have this handle.
    watching: Weak<Watching>,
    cancels_on_drop: bool,
}

impl Watch {
    pub(super) fn watching(&self) -> Weak<Watching> {
        Weak::clone(&self.watching)
    }

    /// Ends the watch. In the callback's own color it is not called any more; from elsewhere it may
    /// be running right now. It is dropped in its color.
    pub fn cancel(self) {
        drop(self.cancel_on_drop());
    }

    /// Returns the handle, which from now on ends the watch when it is dropped, on any thread.
    #[must_use = "dropped, it cancels"]
    pub fn cancel_on_drop(mut self) -> Watch {
        self.cancels_on_drop = true;
        self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.cancels_on_drop
            && let Some(watching) = self.watching.upgrade()
        {
            watching.cancel();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// A duplicate of a descriptor that can be waited for.
fn waitable(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // Files, folders and some devices are always ready, and a ring would say so without an end.
    let probe = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    match epoll::add(
        &probe,
        fd,
        epoll::EventData::new_u64(0),
        epoll::EventFlags::IN,
    ) {
        Err(Errno::PERM) => {
            let text = "what is always ready, as a file is, cannot be waited for";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        added => {
            added?;
            fd.try_clone_to_owned()
        }
    }
}

/// Has the simulated process get a signal.
#[cfg(feature = "sim")]
pub(crate) fn raise(inner: &Inner, signal: Signal) {
    for watching in Registry::of_runtime(inner).watches() {
        watching.raise(signal);
    }
}

impl Cx {
    /// Calls back in the callback's color with each signal of these that the process gets, until
    /// the runtime is asked to stop. The same signal several times in a row may be one call. There
    /// may be any number of watches for a signal. From now on, for the life of the process, it does
    /// not have its default effect, such as killing the process, any more. One that the process
    /// ignores goes on being ignored: SIGINT, if a shell without job control has started it in the
    /// background.
    ///
    /// SIGPIPE is ignored by each Rust program from its start, and no write of mely's raises it.
    ///
    /// Signals for a child that was forked from it are the child's: it is not told of them. Until
    /// the child calls exec they have no effect there.
    ///
    /// ```no_run
    /// use mely::process::Signal;
    /// use mely::{Color, Handler, Runtime};
    /// static RELOAD: Handler = Handler::new("reload");
    /// static STOP: Handler = Handler::new("stop");
    /// Runtime::builder().build()?.run(|cx| {
    ///     let reload = RELOAD.on_each(Color::DEFAULT, |_cx, _: Signal| println!("reading anew"));
    ///     let stop = STOP.on_each(Color::DEFAULT, |cx, _: Signal| cx.stop());
    ///     cx.on_signal([Signal::HUP], reload).expect("descriptors");
    ///     cx.on_signal([Signal::INT, Signal::TERM], stop).expect("descriptors");
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` names a signal that does not exist or cannot be handled (SIGKILL, SIGSTOP,
    /// those of a fault, and SIGURG, by which mely's cores tell each other). If the descriptors for
    /// it are refused; `ECANCELED` once the runtime was asked to stop.
    pub fn on_signal<F>(
        &mut self,
        signals: impl IntoIterator<Item = Signal>,
        callback: Callback<F>,
    ) -> io::Result<Watch>
    where
        F: FnMut(&mut Cx, Signal) + Send + 'static,
    {
        let signals: Vec<i32> = signals.into_iter().map(Signal::number).collect();
        Signals::check(&signals)?;
        // Before anything is changed in the process.
        let is_simulated = super::owner(self)?.is_simulated();
        let signals = Signals::new(&signals, is_simulated)?;
        let on = match is_simulated {
            true => On::Raised(signals.raises()),
            false => On::kernel(&signals.as_fd()),
        };
        let source = Watched(signals, VecDeque::new());
        let Callback { handler, color, f } = callback;
        let callback = f;
        let told = Told { source, callback };
        self.watch(told, on, Side::Reader, handler, color, AtEnd::Ignored)
    }

    /// Calls back whenever the process gets SIGINT (Ctrl-C) or SIGTERM:
    /// [`on_signal`](Self::on_signal) of these two. Typically the callback finishes what is under
    /// way and calls [`stop`](Self::stop).
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
        let Callback {
            handler,
            color,
            mut f,
        } = callback;
        let callback = move |cx: &mut Cx, _: Signal| f(cx, ());
        let stop = [Signal::INT, Signal::TERM];
        let callback = Callback {
            handler,
            color,
            f: callback,
        };
        self.on_signal(stop, callback).map(drop)
    }

    /// Calls back in the callback's color as long as `fd` is readable, until the runtime is asked
    /// to stop: for descriptors that are no stream of mely's, as a library's socket, an eventfd,
    /// inotify or a pipe. The callback reads, without blocking; if something is left to read
    /// afterwards it is called again, behind other events of its color. Readable is also what has
    /// ended or failed, and it stays so: then cancel the watch, or it takes a core's whole time. If
    /// the callback panics, the watch is over.
    ///
    /// The watch has a duplicate of the descriptor, so the caller may close its own; what the
    /// descriptor is of stays open until the watch is over.
    ///
    /// ```
    /// use mely::{Color, Handler, Runtime};
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    /// static READ: Handler = Handler::new("read");
    /// let (mut ours, mut theirs) = UnixStream::pair()?;
    /// ours.set_nonblocking(true)?;
    /// theirs.write_all(b"hello")?;
    /// let read = Runtime::builder().build()?.run_until(move |cx, finish| {
    ///     let fd = ours.try_clone().expect("a descriptor");
    ///     let read = READ.on_each(Color::from(1), move |_cx, ready: std::io::Result<()>| {
    ///         let mut bytes = [0; 5];
    ///         finish.finish(ready.and_then(|()| ours.read_exact(&mut bytes)).map(|()| bytes));
    ///     });
    ///     cx.on_readable(&fd, read).expect("a descriptor");
    /// })?;
    /// assert_eq!(&read?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// At once and instead of the callback: `InvalidInput` for what is always ready, as files,
    /// directories and `/dev/null` are; if a descriptor is refused; `Unsupported` in a simulation,
    /// which has none; `ECANCELED` once the runtime was asked to stop. Later, as the callback's
    /// argument, if the event source cannot wait for it; then the watch is over.
    pub fn on_readable<F>(&mut self, fd: impl AsFd, callback: Callback<F>) -> io::Result<Watch>
    where
        F: FnMut(&mut Cx, io::Result<()>) + Send + 'static,
    {
        self.on_ready(fd.as_fd(), Side::Reader, callback)
    }

    /// As [`on_readable`](Self::on_readable), as long as there is room to write: cancel it when
    /// nothing is left to write.
    ///
    /// # Errors
    /// As [`on_readable`](Self::on_readable).
    pub fn on_writable<F>(&mut self, fd: impl AsFd, callback: Callback<F>) -> io::Result<Watch>
    where
        F: FnMut(&mut Cx, io::Result<()>) + Send + 'static,
    {
        self.on_ready(fd.as_fd(), Side::Writer, callback)
    }

    /// Waits once until a descriptor is ready, for who has asked. In a color that nobody holds.
    pub(crate) fn watch_once(
        &mut self,
        fd: impl AsFd,
        side: Side,
        asked: Asked<io::Result<()>>,
    ) -> io::Result<Watch> {
        let fd = waitable(fd.as_fd())?;
        let on = On::kernel(&fd);
        let source = Once(fd, side, Some(asked));
        let color = control(self.core_id());
        self.watch(source, on, side, None, color, AtEnd::Keeps)
    }

    /// Asks a child for its status when it has ended, for nobody.
    pub(super) fn reap(&mut self, reaps: Reaps) -> io::Result<()> {
        let color = control(self.core_id());
        let on = On::kernel(&reaps.1);
        let watch = self.watch(reaps, on, Side::Reader, None, color, AtEnd::Ignored);
        watch.map(drop)
    }

    /// Waits for a child, as the end of the run does from now on.
    pub(super) fn watch_child<F>(
        &mut self,
        exits: Exits<F>,
        handler: Option<&'static Handler>,
        color: Color,
    ) -> io::Result<Watch>
    where
        F: FnOnce(&mut Cx, io::Result<ExitStatus>) + Send + 'static,
    {
        // Or the end would have no stages, and so no limit for this one.
        self.worker_ref().inner.quiesce.has_connections();
        let at_end = AtEnd::WaitsFor(exits.child.id());
        let on = On::kernel(&exits.pidfd);
        self.watch(exits, on, Side::Reader, handler, color, at_end)
    }

    fn on_ready<F>(
        &mut self,
        fd: BorrowedFd<'_>,
        side: Side,
        callback: Callback<F>,
    ) -> io::Result<Watch>
    where
        F: FnMut(&mut Cx, io::Result<()>) + Send + 'static,
    {
        let source = (waitable(fd)?, side);
        let on = On::kernel(&source.0);
        let Callback { handler, color, f } = callback;
        let callback = f;
        let told = Told { source, callback };
        self.watch(told, on, side, handler, color, AtEnd::Keeps)
    }

    pub(super) fn watch(
        &mut self,
        source: impl Source + 'static,
        on: On,
        side: Side,
        handler: Option<&'static Handler>,
        color: Color,
        at_end: AtEnd,
    ) -> io::Result<Watch> {
        let (home, poster) = (self.core_id(), self.poster());
        let (is_simulated, fd, simulated) = match on {
            On::Kernel(fd) => (false, Some(fd), None),
            On::Sim(fd) => (true, Some(fd), None),
            On::Raised(raises) => (true, None, Some(raises)),
        };
        let watching = Arc::new(Watching {
            source: Mutex::new(Some(Box::new(source))),
            handler,
            color,
            poster,
            queued: AtomicBool::new(false),
            over: AtomicBool::new(false),
            op: OnceLock::new(),
            simulated,
            at_end,
            home,
            key: OnceLock::new(),
        });
        let its = Arc::clone(&watching);
        let begun = super::with_driver(self, |driver, _| {
            // What the stop waits for may begin as long as it waits.
            let is_late = match its.at_end {
                AtEnd::WaitsFor(_) => driver.tells_the_end(),
                AtEnd::Ignored | AtEnd::Keeps => driver.is_ending(),
            };
            if is_late {
                return Err(super::ending());
            }
            if driver.owner.is_simulated() != is_simulated {
                return Err(crate::io::no_descriptors());
            }
            let key = Registry::of_runtime(&its.poster.inner).add_watch(Arc::clone(&its));
            let _first = its.key.set(key);
            if let Some(fd) = fd {
                let op = driver.begin_watch(Arc::clone(&its), fd, side);
                // Under the driver's lock, before anybody can be told.
                let _first = its.op.set(op);
            }
            Ok(())
        })?;
        begun?;
        Ok(Watch {
            watching: Arc::downgrade(&watching),
            cancels_on_drop: false,
        })
    }
}
