//! Files, for handlers and for tasks.
//!
//! A [`Dir`] is an open directory, and opens all else. A server opens its directories at the start;
//! no path that a client names leads out of them. Each operation returns a [`JoinHandle`]: a task
//! awaits it, a handler gives it a callback ([`JoinHandle::then`]).
//!
//! ```
//! use mely::fs::{Dir, OpenOptions};
//! use mely::task::with_cx;
//! use mely::{Color, Runtime};
//! type Error = Box<dyn std::error::Error + Send + Sync>;
//!
//! /// Replaces a file. After a loss of power it has its old bytes or the new ones.
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
//! operations may be on threads at a time; if their queue is full too ([`Cx::try_blocking`]), the
//! operation fails, and its error names that setting. A ring has no such limit.
//!
//! [`Stream::send_file`](crate::net::Stream::send_file) sends a file to a connection.
//!
//! # Order
//! Operations that are under way at the same time may end in any order. An operation that is
//! started after the result of another has come sees its effect.
//!
//! # Dropping and canceling
//! Dropping the handle detaches the operation. A file or directory stays open while an operation on
//! it is under way. The result says whether [`JoinHandle::cancel`] has won
//! ([`JoinError::Canceled`](crate::task::JoinError::Canceled)). On a thread it wins if the
//! operation has not begun. On a ring and in a simulation it also wins between two calls of the
//! operation; the first calls have had their effect then. For a deadline, give
//! [`timeout`](crate::task::timeout) the handle with
//! [`cancel_on_drop`](JoinHandle::cancel_on_drop).
//!
//! # The end
//! A stop waits for operations under way, as for blocking work, and events of the stage drain may
//! start more. In the stage [close](crate::runtime::Stage::Close), operations that are still on a
//! ring are canceled, with the error `ECANCELED`, as are those that are started from then on.
//!
//! # Errors
//! Each error names the path of the file or directory, with the path that its [`Dir`] was opened
//! by. The `source()` of an error of the system is its [`io::Error`], with the error number.
//!
//! # Simulation
//! In a simulation (`mely::sim`) files are on a [`SimDisk`], in memory. A test sets faults and
//! latency, or has the seed draw them.

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

/// Returns a handle with this result.
fn settled<T: Send + 'static>(cx: &mut Cx, result: io::Result<T>) -> JoinHandle<io::Result<T>> {
    Asked::settled(&cx.worker_ref().inner, result)
}

/// Runs `work` on a thread for blocking work. If the pool refuses, the error names `path`.
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
