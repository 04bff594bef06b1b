//! Children: programs that the process has started.
//!
//! A child is started by a thread of the pool for blocking work, since that takes a while, and
//! since these threads may use every processor: a child inherits the affinity of the thread that
//! starts it, and a core's would be that of its processor. Its end is told by a descriptor of the
//! kernel's (a pidfd), which the event source watches as any other ([`super::watch`]); and the
//! status is asked of that child and of no other, so that children of other parts of the program
//! are theirs.
//!
//! What a child reads and writes are sockets, not pipes: so they are streams as all others.

use super::stream::Incoming;
use super::watch::{Exits, Reaps, Watch};
use crate::Cx;
use crate::ask::{Asked, JoinHandle};
use crate::callback::Callback;
use crate::color::CoreId;
use crate::host::poster::Poster;
use crate::signal::Signal;
use crate::sync::{Arc, Mutex};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, kill_process_group, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus, Stdio};

/// A child, as its handle and the watches that wait for it have it.
pub(super) struct Started {
    /// None once it is given to who reaps it.
    child: Mutex<Option<std::process::Child>>,
    pidfd: OwnedFd,
    id: u32,
    poster: Poster,
}

impl Started {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The status, or why it cannot be had, once it has ended.
    pub(super) fn status(&self) -> Option<io::Result<ExitStatus>> {
        let mut child = self.child.lock().unwrap();
        child.as_mut()?.try_wait().transpose()
    }
}

impl Drop for Started {
    /// A child that has ended is a zombie until its parent has asked for the status.
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap().take();
        let (Some(mut child), Ok(pidfd)) = (child, self.pidfd.try_clone()) else {
            return;
        };
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let color = super::driver::control(CoreId::of(0));
        // If the runtime was asked to stop, it is left as std leaves it.
        let _ = self.poster.post_own(color, move |cx: &mut Cx| {
            let _ = cx.reap(Reaps(child, pidfd));
        });
    }
}

/// A child that runs, or has ended; from [`spawn`].
///
/// Dropped, it goes on, and nobody is told of its end. No zombie is left of it, unless it ends
/// after the runtime was asked to stop.
///
/// A program that ignores SIGCHLD, or waits for all of its children elsewhere, takes the status
/// away.
pub struct Child {
    started: Arc<Started>,
}

/// Starts a program, on a thread for blocking work
/// ([`Builder::blocking_threads_max`](crate::Builder::blocking_threads_max)). What it reads and
/// writes are the parent's own streams, unless `command` says otherwise; [`stdio`] makes streams of
/// mely's. The child may use the processors that the run may, and ignores the signals that this
/// process ignores. The thread that starts it may end before it, which matters to
/// `PR_SET_PDEATHSIG`.
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
        let mut child = command.spawn()?;
        let id = child.id();
        let lost = |child: &mut std::process::Child| {
            let _ = child.kill();
            let _ = child.wait();
        };
        // Nobody could read them, or close them.
        if child.stdin.is_some() || child.stdout.is_some() || child.stderr.is_some() {
            lost(&mut child);
            let text = "`Stdio::piped` is for std's children: use `process::stdio`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let pid = Pid::from_raw(id as i32).ok_or(Errno::SRCH)?;
        // Nobody waits for it before it is ours: the number is still its.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| {
            lost(&mut child);
            io::Error::new(errno.kind(), format!("pidfd_open: {errno}"))
        })?;
        let started = Started {
            child: Mutex::new(Some(child)),
            pidfd,
            id,
            poster,
        };
        Ok(Child {
            started: Arc::new(started),
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
    Asked::settled(&cx.worker_ref().inner, Err(named(refused)))
}

/// A stream for a child: the end of the parent, to be opened as any connection, and what to give to
/// [`Command::stdin`], [`Command::stdout`] or [`Command::stderr`]. It is a pair of sockets: what
/// the child writes is read here, and what is written here the child reads. When the child, and all
/// that it has given its end to, have closed it, the stream is over.
///
/// A panic, which resets other connections, ends this one as a close does: such sockets know no
/// reset. A shell that opens `/dev/stdout` by name, instead of writing to it, is refused by the
/// kernel: sockets cannot be opened.
///
/// # Errors
/// If the descriptors are refused; `Unsupported` in a simulation.
pub fn stdio(cx: &mut Cx) -> io::Result<(Incoming, Stdio)> {
    let (ours, theirs) = UnixStream::pair()?;
    let ours = Incoming::adopt(cx, ours)?;
    Ok((ours, Stdio::from(OwnedFd::from(theirs))))
}

fn to_send(signal: Signal) -> io::Result<rustix::process::Signal> {
    let named = rustix::process::Signal::from_named_raw(signal.number());
    named.ok_or_else(|| {
        let text = format!("signal {} cannot be sent to a child", signal.number());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

impl Child {
    /// The number of the process. After its end it may be another's.
    pub fn id(&self) -> u32 {
        self.started.id
    }

    /// Sends a signal to the child, and never to another process that has its number by now.
    ///
    /// # Errors
    /// If it has ended, or there is no such signal.
    pub fn kill(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.started.pidfd, to_send(signal)?)?)
    }

    /// Sends a signal to the process group of the child: to the child and the programs that it has
    /// started. The child's command must have set a [process group] of its own.
    ///
    /// ```
    /// use mely::process::{self, Child, Signal};
    /// use mely::task::{timeout, with_cx};
    /// use std::io;
    /// use std::os::unix::process::CommandExt;
    /// use std::process::{Command, ExitStatus};
    /// use std::time::Duration;
    /// async fn run(mut command: Command, limit: Duration) -> io::Result<ExitStatus> {
    ///     command.process_group(0);
    ///     let mut child: Child = with_cx(|cx| process::spawn(cx, command)).await??;
    ///     if let Ok(ended) = timeout(limit, child.wait()).await {
    ///         return ended;
    ///     }
    ///     child.kill_group(Signal::KILL)?;
    ///     child.wait().await
    /// }
    /// ```
    ///
    /// # Errors
    /// If it has ended, leads no group, or there is no such signal.
    ///
    /// [process group]: std::os::unix::process::CommandExt::process_group
    pub fn kill_group(&self, signal: Signal) -> io::Result<()> {
        let signal = to_send(signal)?;
        let mut child = self.started.child.lock().unwrap();
        let child = child.as_mut().ok_or(Errno::SRCH)?;
        let id = Pid::from_raw(self.started.id as i32).ok_or(Errno::SRCH)?;
        // Nobody else asks for the status before the lock is given back: the number is still its.
        match child.try_wait()? {
            None => Ok(kill_process_group(id, signal)?),
            Some(_) => Err(Errno::SRCH.into()),
        }
    }

    /// Calls back once, in the callback's color, with the status that the child ends with. Dropping
    /// the handle detaches it.
    ///
    /// A stop of the runtime waits for the child in its stage
    /// [drain](crate::runtime::Stage::Drain). If that stage's limit passes before, the callback is
    /// dropped, and the child goes on.
    ///
    /// # Errors
    /// If a descriptor is refused; `ECANCELED` from the stage close of a stop on.
    pub fn on_exit<F>(&self, cx: &mut Cx, callback: Callback<F>) -> io::Result<Watch>
    where
        F: FnOnce(&mut Cx, io::Result<ExitStatus>) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        let exits = Exits {
            child: Arc::clone(&self.started),
            pidfd: self.started.pidfd.try_clone()?,
            callback: Some(f),
        };
        cx.watch_child(exits, handler, color)
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.started.id)
            .finish_non_exhaustive()
    }
}
