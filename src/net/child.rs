//! Children: programs that the process has started.
//!
//! A child is started by a thread of the pool for blocking work, since that takes a while, and since
//! these threads may use every processor: a child inherits the affinity of the thread that starts
//! it, and a core's would be that of its processor. Its end is told by a descriptor of the kernel's
//! (a pidfd), which the event source watches as any other ([`super::watch`]); and the status is asked
//! of that child and of no other, so that children of other parts of the program are theirs.
//!
//! What a child reads and writes are sockets, not pipes: so they are streams as all others.

use super::stream::Incoming;
use super::watch::{Exits, Watch};
use crate::Cx;
use crate::ask::{Asked, JoinHandle};
use crate::callback::Callback;
use crate::host::poster::Poster;
use crate::signal::Signal;
use crate::sync::{Arc, Mutex};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus, Stdio};

/// What is shared with the watches that wait for its end.
pub(super) type Started = Arc<Mutex<std::process::Child>>;

/// A child that runs, or has ended; from [`spawn`].
///
/// Dropped, it goes on: nobody is told of its end, and no zombie is left of it.
pub struct Child {
    child: Started,
    pidfd: OwnedFd,
    id: u32,
    poster: Poster,
}

/// Starts a program, on a thread for blocking work
/// ([`Builder::blocking_threads_max`](crate::Builder::blocking_threads_max)). What it reads and
/// writes are the parent's own streams, unless `command` says otherwise; [`stdio`] makes streams of
/// mely's. The child may use the processors that the run may, and gets every signal that its parent
/// was not told to ignore before the run.
///
/// ```
/// use mely::aio::AsyncStream;
/// use mely::task::with_cx;
/// use mely::{Color, Runtime, process};
/// use futures::io::AsyncReadExt;
/// use std::process::Command;
/// let said = Runtime::builder().build()?.run_until(|cx, finish| {
///     cx.spawn(Color::from(1), async move {
///         let mut command = Command::new("echo");
///         let (output, stdout) = with_cx(process::stdio)?;
///         command.arg("hello").stdout(stdout);
///         let mut child = with_cx(|cx| process::spawn(cx, command)).await.expect("a thread")?;
///         let mut output = with_cx(|cx| {
///             let stream = output.open(cx.color());
///             AsyncStream::new(cx, stream)
///         })
///         .expect("its color");
///         let mut said = String::new();
///         output.read_to_string(&mut said).await?;
///         assert!(child.wait().await?.success());
///         finish.finish(said);
///         Ok::<(), std::io::Error>(())
///     });
/// })?;
/// assert_eq!(said, "hello\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The handle's value: if the program cannot be started, with its name; if no thread can be had for
/// it; `Unsupported` in a simulation.
pub fn spawn(cx: &mut Cx, command: Command) -> JoinHandle<io::Result<Child>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let poster = cx.poster();
    let start = move || {
        let mut command = command;
        let child = command.spawn()?;
        let id = child.id();
        let pid = Pid::from_raw(id as i32).ok_or(Errno::SRCH)?;
        // Nobody waits for it before it is ours: the number is still its.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child {
            child: Arc::new(Mutex::new(child)),
            pidfd,
            id,
            poster,
        })
    };
    let named = move |error: io::Error| io::Error::new(error.kind(), format!("{program}: {error}"));
    let refused = match super::is_simulated(cx) {
        Ok(false) => {
            let its = named.clone();
            match cx.try_blocking(move || start().map_err(its)) {
                Ok(handle) => return handle,
                Err(refused) => io::Error::other(refused.reason),
            }
        }
        Ok(true) => {
            let text = "a simulation starts no programs";
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        Err(error) => error,
    };
    let (mut asked, handle) = Asked::new(&cx.worker_ref().inner);
    asked.settle(Err(named(refused)));
    handle
}

/// A stream for a child: the end of the parent, to be opened as any connection, and what to give to
/// [`Command::stdin`], [`Command::stdout`] or [`Command::stderr`]. It is a pair of sockets: what the
/// child writes is read here, and what is written here the child reads. When the child, and all that
/// it has given its end to, have closed it, the stream is over.
///
/// A shell that opens `/dev/stdout` by name, instead of writing to it, is refused by the kernel:
/// sockets cannot be opened.
///
/// # Errors
/// If the descriptors are refused; `Unsupported` in a simulation.
pub fn stdio(cx: &mut Cx) -> io::Result<(Incoming, Stdio)> {
    let (ours, theirs) = UnixStream::pair()?;
    let ours = Incoming::adopt(cx, ours)?;
    Ok((ours, Stdio::from(OwnedFd::from(theirs))))
}

impl Child {
    /// The number of the process. After its end it may be another's.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends a signal to the child, and never to another process that has its number by now.
    ///
    /// # Errors
    /// If it has ended, or there is no such signal.
    pub fn kill(&self, signal: Signal) -> io::Result<()> {
        let named = rustix::process::Signal::from_named_raw(signal.number());
        let signal = named.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Calls back once, in the callback's color, with the status that the child ends with. Dropping
    /// the handle detaches it.
    ///
    /// A stop of the runtime waits for the child in its stage
    /// [drain](crate::runtime::Stage::Drain). If that stage's limit passes before, the callback is
    /// dropped, and the child goes on.
    ///
    /// # Errors
    /// If a descriptor is refused; `ECANCELED` once the runtime was asked to stop.
    pub fn on_exit<F>(&self, cx: &mut Cx, callback: Callback<F>) -> io::Result<Watch>
    where
        F: FnOnce(&mut Cx, io::Result<ExitStatus>) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        let exits = Exits {
            id: self.id,
            child: Arc::clone(&self.child),
            pidfd: self.pidfd.as_fd().try_clone_to_owned()?,
            callback: Some(f),
        };
        cx.watch_child(exits, handler, color, true)
    }
}

impl Drop for Child {
    /// A child that has ended is a zombie until its parent has asked for the status.
    fn drop(&mut self) {
        let ended = |child: &Started| !matches!(child.lock().unwrap().try_wait(), Ok(None));
        // A watch that waits asks for it.
        if Arc::strong_count(&self.child) > 1 || ended(&self.child) {
            return;
        }
        let Ok(pidfd) = self.pidfd.try_clone() else {
            return;
        };
        let exits = Exits {
            id: self.id,
            child: Arc::clone(&self.child),
            pidfd,
            callback: Some(|_: &mut Cx, _: io::Result<ExitStatus>| ()),
        };
        let color = super::driver::control(crate::color::CoreId::of(0));
        // If the runtime has ended, or is about to, it is left as std leaves it.
        let _ = self.poster.post_own(color, move |cx: &mut Cx| {
            let _ = cx.watch_child(exits, None, color, false);
        });
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
