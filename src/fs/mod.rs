//! Files, for handlers and for tasks.
//!
//! Everything is opened from a [`Dir`], a directory that is open: a server opens its directories at
//! the start, and no path that a client names leads out of them. Each operation returns a
//! [`JoinHandle`]: a task awaits it, a handler gives it a callback ([`JoinHandle::then`]).
//!
//! ```
//! use mely::fs::{Dir, OpenOptions};
//! use mely::task::with_cx;
//! use mely::{Color, Runtime};
//! type Error = Box<dyn std::error::Error + Send + Sync>;
//!
//! /// Replaces a file: after a crash it has its old bytes, or its new ones.
//! async fn replace(dir: &Dir, name: &str, bytes: Vec<u8>) -> Result<(), Error> {
//!     let new = format!("{name}.new");
//!     let options = OpenOptions::new().write(true).create(true).truncate(true);
//!     let file = with_cx(|cx| dir.open_file(cx, &new, options)).await??;
//!     with_cx(|cx| file.write_at(cx, 0, bytes)).await??;
//!     with_cx(|cx| file.sync_data(cx)).await??;
//!     with_cx(|cx| dir.rename(cx, &new, dir, name)).await??;
//!     with_cx(|cx| dir.sync(cx)).await??;
//!     Ok(())
//! }
//!
//! async fn settings() -> Result<Vec<u8>, Error> {
//!     let dir = with_cx(|cx| Dir::open(cx, std::env::temp_dir())).await??;
//!     let name = format!("settings-{}", std::process::id());
//!     replace(&dir, &name, b"color = 7".to_vec()).await?;
//!     let read = OpenOptions::new().read(true);
//!     let file = with_cx(|cx| dir.open_file(cx, &name, read)).await??;
//!     let bytes = with_cx(|cx| file.read_at(cx, 0, 1 << 20)).await??;
//!     with_cx(|cx| dir.remove_file(cx, &name)).await??;
//!     Ok(bytes)
//! }
//!
//! let bytes = Runtime::builder().build()?.run_until(|cx, finish| {
//!     cx.spawn(Color::from(1), async move { finish.finish(settings().await) });
//! })?;
//! assert_eq!(bytes.expect("a file system"), b"color = 7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where it runs
//! | operation | on io_uring | on epoll |
//! |---|---|---|
//! | [`File::read_at`], [`File::write_at`], [`File::append`], [`File::sync`], [`File::sync_data`] | the ring of the core that starts it | a thread for blocking work |
//! | all others | a thread for blocking work | a thread for blocking work |
//!
//! So a slow disk delays no color. A read or write of more than 64 KiB is several calls of the
//! system. [`Builder::blocking_threads_max`](crate::Builder::blocking_threads_max) is how many
//! operations may be on threads at a time; if their queue is full too
//! ([`Cx::try_blocking`]), the operation fails, and its error names that setting.
//!
//! [`Stream::send_file`](crate::net::Stream::send_file) sends a file to a connection.
//!
//! # Order
//! Operations that are under way at the same time may end in any order. All that an operation has
//! done is visible to one that is started when its result has come.
//!
//! # Dropping and canceling
//! A dropped handle detaches: the operation goes on, and its value is dropped. A file or directory
//! stays open as long as an operation on it is under way. The result says whether
//! [`JoinHandle::cancel`] has won ([`JoinError::Canceled`](crate::task::JoinError::Canceled)). On a
//! thread it wins if the operation has not begun; on a ring and in a simulation also between two of
//! its calls, of which the first have had their effect then. For a deadline there is [`timeout`](crate::task::timeout), with
//! [`cancel_on_drop`](JoinHandle::cancel_on_drop).
//!
//! # The end
//! A stop waits for operations under way, as for all blocking work, and events of the drain may
//! start more. Those that a ring still has at the stage close, after the limit of the stage drain,
//! are canceled, with `ECANCELED` as their result.
//!
//! # Errors
//! Each names the path that the file or directory was opened by. The system's error is its source:
//! `error.source()`, an [`io::Error`] with its number.
//!
//! # Simulation
//! In a simulation (`mely::sim`) files are on the [`SimDisk`] of the simulation, with faults that
//! are set or drawn by the seed, and a time for each call.

mod beneath;
mod dir;
mod error;
mod file;
mod options;
mod send;
mod simulated;

pub use self::dir::{Dir, DirEntry, Space};
pub use self::file::File;
pub use self::options::{Metadata, OpenOptions};
pub use crate::io::SimDisk;

use crate::Cx;
use crate::ask::{Asked, JoinHandle};
use std::io;
use std::path::Path;

/// A handle whose result has come.
fn settled<T: Send + 'static>(cx: &mut Cx, result: io::Result<T>) -> JoinHandle<io::Result<T>> {
    let (mut asked, handle) = Asked::new(&cx.worker_ref().inner);
    asked.settle(result);
    handle
}

/// Does `work` on a thread for blocking work; `path` is what a refusal names.
fn on_pool<T, W>(cx: &mut Cx, path: &Path, work: W) -> JoinHandle<io::Result<T>>
where
    T: Send + 'static,
    W: FnOnce() -> io::Result<T> + Send + 'static,
{
    match cx.try_blocking(work) {
        Ok(handle) => handle,
        Err(refused) => {
            let error = io::Error::other(refused.reason);
            settled(cx, Err(error::named(path, error, None)))
        }
    }
}
