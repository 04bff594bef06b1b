//! Waiting in a task until a descriptor is ready.

use crate::Cx;
use crate::ask::Asked;
use crate::io::Side;
use crate::net::Watch;
use crate::task::ambient::try_with_cx;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Waits until `fd` is readable: at once if it is. For descriptors that are no stream of mely's, as
/// [`Cx::on_readable`]. Dropping the future ends the wait.
///
/// ```
/// use mely::{Color, Runtime, aio};
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// let (mut ours, mut theirs) = UnixStream::pair()?;
/// ours.set_nonblocking(true)?;
/// theirs.write_all(b"hello")?;
/// let read = Runtime::builder().build()?.run_until(move |cx, finish| {
///     cx.spawn(Color::from(1), async move {
///         let mut bytes = [0; 5];
///         let read = aio::readable(&ours).await.and_then(|()| ours.read_exact(&mut bytes));
///         finish.finish(read.map(|()| bytes));
///     });
/// })?;
/// assert_eq!(&read?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Cx::on_readable`], and `ECANCELED` when the runtime is asked to stop; one whose source is
/// [`Reason::NoContext`](crate::Reason::NoContext) outside of tasks.
pub async fn readable(fd: impl AsFd) -> io::Result<()> {
    ready(fd.as_fd(), Side::Reader).await
}

/// Waits until there is room to write to `fd`; as [`readable`].
///
/// # Errors
/// As [`readable`].
pub async fn writable(fd: impl AsFd) -> io::Result<()> {
    ready(fd.as_fd(), Side::Writer).await
}

async fn ready(fd: BorrowedFd<'_>, side: Side) -> io::Result<()> {
    told(|cx, asked| cx.watch_once(fd, side, asked)).await
}

/// What a watch tells whoever has asked. Dropping the future ends the watch.
pub(super) async fn told<T: Send + 'static>(
    watch: impl FnOnce(&mut Cx, Asked<io::Result<T>>) -> io::Result<Watch>,
) -> io::Result<T> {
    let waits = try_with_cx(|cx| {
        let (asked, handle) = Asked::new(&cx.worker_ref().inner);
        let watch = watch(cx, asked)?;
        Ok::<_, io::Error>((watch.cancel_on_drop(), handle))
    });
    let (_watch, handle) = waits??;
    // Without a value the watch has ended with the runtime.
    handle.await.unwrap_or_else(|_| Err(crate::net::ending()))
}
