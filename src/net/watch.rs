//! What has no stream of its own: signals, and descriptors that become ready.
//!
//! A watch is a `ready` operation of the event source of one core, its *home*, which tells of edges.
//! An edge posts an event to the callback's color; one that is queued already stands for it. The
//! event asks the descriptor itself whether it is ready, calls the callback, and asks again: a
//! callback that has not read everything is called once more, behind what waits in the color by
//! then. So an edge is never lost, since whoever misses it asks afterwards.
//!
//! A descriptor is a duplicate of the caller's, and the watch's alone: the kernel can be waited for
//! though the caller has closed its own, and two watches of one descriptor do not meet.
//!
//! **What can never happen.** A call after [`Watch::cancel`] in the callback's color; a descriptor
//! that is closed while the kernel waits on it; a callback that is dropped outside its color, unless
//! the run has ended.

use super::driver::{Driver, control};
use super::registry::Registry;
use crate::callback::Callback;
use crate::color::CoreId;
#[cfg(feature = "sim")]
use crate::host::inner::Inner;
use crate::host::poster::Poster;
use crate::io::{Fd, Op, Raises, Side, Signals};
use crate::process::Signal;
use crate::sched::core::Core;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};
use crate::{Color, Cx, Handler};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Weak;

/// What is watched, and who is told.
struct Told<S, F> {
    source: S,
    callback: F,
}

/// Signals, and those that have come and were not told yet: a callback may panic at one.
struct Watched(Signals, VecDeque<i32>);

/// Something that becomes ready.
trait Source: Send {
    fn fd(&self) -> BorrowedFd<'_>;

    /// Calls back, if there is something to tell. True: there may be more.
    fn tell(&mut self, cx: &mut Cx) -> bool;

    /// The operation has failed.
    fn fail(&mut self, cx: &mut Cx, error: io::Error);
}

impl<F: FnMut(&mut Cx, Signal) + Send> Source for Told<Watched, F> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.source.0.as_fd()
    }

    fn tell(&mut self, cx: &mut Cx) -> bool {
        let Watched(signals, came) = &mut self.source;
        came.extend(signals.take());
        while let Some(signal) = came.pop_front() {
            (self.callback)(cx, Signal::from(signal));
        }
        false
    }

    /// Does not happen to a pair of sockets.
    fn fail(&mut self, _cx: &mut Cx, _error: io::Error) {}
}

impl<F: FnMut(&mut Cx, io::Result<()>) + Send> Source for Told<(OwnedFd, Side), F> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.source.0.as_fd()
    }

    fn tell(&mut self, cx: &mut Cx) -> bool {
        if self.is_ready() {
            (self.callback)(cx, Ok(()));
        }
        self.is_ready()
    }

    fn fail(&mut self, cx: &mut Cx, error: io::Error) {
        (self.callback)(cx, Err(error));
    }
}

impl<F> Told<(OwnedFd, Side), F> {
    fn is_ready(&self) -> bool {
        let flags = match self.source.1 {
            Side::Reader => PollFlags::IN | PollFlags::RDHUP,
            Side::Writer => PollFlags::OUT,
        };
        let mut polled = [PollFd::new(&self.source.0, flags)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
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
    /// In a simulation: what raises its signals.
    simulated: Option<Raises>,
    home: CoreId,
}

impl Watching {
    /// Whether it is the core's, and there is no operation whose end would be its end.
    pub(super) fn is_simulated_at(&self, home: CoreId) -> bool {
        self.simulated.is_some() && self.home == home
    }

    /// The operation has told of something.
    pub(super) fn ready(watching: &Arc<Watching>, result: io::Result<()>, core: &mut Core) {
        if let Err(error) = result {
            // Its end follows, which drops the callback behind this event.
            let this = Arc::clone(watching);
            let event = move |cx: &mut Cx| {
                this.call(cx, |source, cx| {
                    source.fail(cx, error);
                    false
                });
            };
            return core.post_own(watching.handler, watching.color, event);
        }
        if !watching.queued.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(watching);
            core.post_own(watching.handler, watching.color, |cx| this.event(cx));
        }
    }

    fn event(self: Arc<Self>, cx: &mut Cx) {
        // What comes from here on is told by an event of its own.
        self.queued.store(false, Ordering::Release);
        self.call(cx, |source, cx| source.tell(cx));
    }

    /// Calls what is there, unless the watch is over. If there is more to tell, or it panics, it is
    /// called again.
    fn call(self: &Arc<Self>, cx: &mut Cx, f: impl FnOnce(&mut dyn Source, &mut Cx) -> bool) {
        if self.over.load(Ordering::Acquire) {
            return;
        }
        let source = self.source.lock().unwrap().take();
        let mut lent = Lent {
            of: self,
            source,
            again: true,
        };
        lent.again = match &mut lent.source {
            Some(source) => f(&mut **source, cx),
            None => false,
        };
    }

    /// Behind what waits in the color by now.
    fn again(self: &Arc<Self>) {
        if !self.over.load(Ordering::Acquire) && !self.queued.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(self);
            // Refused once the run has ended.
            let _ = self
                .poster
                .post_own(self.color, move |cx: &mut Cx| this.event(cx));
        }
    }

    /// The operation is over: drops the callback and what it was told of, in its color.
    pub(super) fn discard(watching: Arc<Watching>, core: &mut Core) {
        Registry::of_runtime(&watching.poster.inner).remove_watch(&watching);
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

/// The source while it is called: given back also if that panics, since the next one is to be told
/// all the same.
struct Lent<'a> {
    of: &'a Arc<Watching>,
    source: Option<Box<dyn Source>>,
    again: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.of.source.lock().unwrap() = self.source.take();
        if self.again {
            self.of.again();
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
/// Dropping it detaches it: the watch goes on until the runtime is asked to stop. To end it instead,
/// see [`cancel_on_drop`](Self::cancel_on_drop).
pub struct Watch {
    /// Weak: the callback may have this handle.
    watching: Weak<Watching>,
    /// None in a simulation.
    op: Option<Op>,
    cancels_on_drop: bool,
}

impl Watch {
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
        if !self.cancels_on_drop {
            return;
        }
        let Some(watching) = self.watching.upgrade() else {
            return;
        };
        watching.over.store(true, Ordering::Release);
        let (op, poster, home) = (self.op, watching.poster.clone(), control(watching.home));
        // Refused once the run has ended: it is over then. The handle of an operation that is over
        // has no effect.
        let _ = poster.post_own(home, move |cx: &mut Cx| {
            Driver::with(cx.worker(), |driver, core| match op {
                Some(op) => driver.cancel(op),
                None => Watching::discard(watching, core),
            });
        });
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
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
    /// Calls back in the callback's color with each signal of these that the process gets, until the
    /// runtime is asked to stop. The same signal several times in a row may be one call. There may
    /// be any number of watches for a signal. From now on, for the life of the process, it does not
    /// have its default effect, such as killing the process, any more. One that the process ignores
    /// goes on being ignored: SIGINT, if a shell without job control has started it in the
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
        let is_simulated = super::with_driver(self, |driver, _| driver.owner.is_simulated())?;
        let signals = Signals::new(signals.into_iter().map(Signal::number), is_simulated)?;
        let raises = is_simulated.then(|| signals.raises());
        let source = Watched(signals, VecDeque::new());
        let Callback { handler, color, f } = callback;
        let callback = f;
        let told = Told { source, callback };
        self.watch(told, Side::Reader, handler, color, raises)
    }

    /// Calls back whenever the process gets SIGINT (Ctrl-C) or SIGTERM: [`on_signal`](Self::on_signal)
    /// of these two. Typically the callback finishes what is under way and calls
    /// [`stop`](Self::stop).
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

    /// Calls back in the callback's color as long as `fd` is readable, until the runtime is asked to
    /// stop: for descriptors that are no stream of mely's, as a library's socket, an eventfd, inotify
    /// or a pipe. Readable is also what has ended or failed. The callback reads, without blocking;
    /// if something is left to read afterwards it is called again, behind other events of its color.
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
    /// At once and instead of the callback: `InvalidInput` for files and directories, which are
    /// always readable; if a descriptor is refused; `Unsupported` in a simulation, which has none;
    /// `ECANCELED` once the runtime was asked to stop. Later, as the callback's argument, if the
    /// event source cannot wait for it; then the watch is over.
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

    fn on_ready<F>(
        &mut self,
        fd: BorrowedFd<'_>,
        side: Side,
        callback: Callback<F>,
    ) -> io::Result<Watch>
    where
        F: FnMut(&mut Cx, io::Result<()>) + Send + 'static,
    {
        let of = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        if matches!(of, FileType::RegularFile | FileType::Directory) {
            let text = "a file is always ready: there is nothing to wait for";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let source = (fd.try_clone_to_owned()?, side);
        let Callback { handler, color, f } = callback;
        let callback = f;
        self.watch(Told { source, callback }, side, handler, color, None)
    }

    fn watch(
        &mut self,
        source: impl Source + 'static,
        side: Side,
        handler: Option<&'static Handler>,
        color: Color,
        simulated: Option<Raises>,
    ) -> io::Result<Watch> {
        let (home, poster) = (self.core_id(), self.poster());
        let is_simulated = simulated.is_some();
        let fd = Fd::from_raw(source.fd().as_raw_fd());
        let watching = Arc::new(Watching {
            source: Mutex::new(Some(Box::new(source))),
            handler,
            color,
            poster,
            queued: AtomicBool::new(false),
            over: AtomicBool::new(false),
            simulated,
            home,
        });
        let its = Arc::clone(&watching);
        let begun = super::with_driver(self, |driver, _| {
            if driver.is_ending() {
                return Err(super::ending());
            }
            if driver.owner.is_simulated() != is_simulated {
                let text = "a simulation has no descriptors of the system's";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            Registry::of_runtime(&its.poster.inner).add_watch(Arc::clone(&its));
            Ok((!is_simulated).then(|| driver.begin_watch(its, fd, side)))
        })?;
        Ok(Watch {
            op: begun?,
            watching: Arc::downgrade(&watching),
            cancels_on_drop: false,
        })
    }
}
