//! Operations on files, where the event source has them.
//!
//! An operation is under way on the ring of the core that started it, its *home*. The core that
//! finds it completed, the home or a visitor, posts an event of its own control color, which no
//! hold delays. The event settles the cell of the handle.
//!
//! A run does not end by itself while an operation is under way. A stop waits for it, as for
//! blocking work; in the stage close the operations that are left are canceled.

use super::driver::{Driver, control};
use crate::Cx;
use crate::ask::JoinHandle;
use crate::ask::cell::{JoinCell, Joined};
use crate::color::CoreId;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::io::{FileOp, Op};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The part of an operation that knows its result's type.
pub(crate) trait FileJob: Send {
    /// The path of the file.
    fn path(&self) -> &Path;

    /// Settles the handle, in an event. `canceled`: the handle has asked for that.
    fn end(self: Box<Self>, result: Result<(), Errno>, op: FileOp, canceled: bool);
}

/// An operation under way, in the driver's table.
pub(super) struct FileUnderWay {
    pub(super) job: Box<dyn FileJob>,
    canceled: Arc<AtomicBool>,
}

impl FileUnderWay {
    /// Settles the handle, in an event.
    pub(super) fn end(self, result: Result<(), Errno>, op: FileOp) {
        let canceled = self.canceled.load(Ordering::Acquire);
        self.job.end(result, op, canceled);
    }
}

impl std::fmt::Debug for FileUnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FileUnderWay")
            .field(&self.job.path())
            .finish()
    }
}

/// The handle's part of an operation.
struct OnRing<T> {
    cell: Arc<JoinCell<T>>,
    op: Op,
    home: CoreId,
    poster: Poster,
    canceled: Arc<AtomicBool>,
}

impl<T: Send> Joined<T> for OnRing<T> {
    fn cell(&self) -> &JoinCell<T> {
        &self.cell
    }

    fn cancel(self: Arc<Self>) {
        // Before the driver can end the operation for it.
        self.canceled.store(true, Ordering::Release);
        let op = self.op;
        let cancel = move |cx: &mut Cx| {
            // No effect on an operation that is over.
            Driver::with(cx.worker(), |driver, _| driver.cancel(op));
        };
        let home = control(self.home);
        // Refused once the run has ended: it is over then.
        let _ = self.poster.post_own_until(Until::End, None, home, cancel);
    }
}

/// Starts an operation, or gives it back if the event source has no such operations. `make` returns
/// the job and the cell that the job settles.
pub(crate) fn begin_on_ring<T: Send + 'static>(
    cx: &mut Cx,
    file: Arc<OwnedFd>,
    op: FileOp,
    make: impl FnOnce() -> (Box<dyn FileJob>, Arc<JoinCell<T>>),
) -> Result<JoinHandle<T>, FileOp> {
    let (home, poster) = (cx.core_id(), cx.poster());
    let mut op = Some(op);
    let begun = super::with_driver(cx, |driver, _| {
        if !driver.backend.has_files() {
            return None;
        }
        let op = op.take()?;
        let (job, cell) = make();
        let canceled = Arc::new(AtomicBool::new(false));
        let under_way = FileUnderWay {
            job,
            canceled: Arc::clone(&canceled),
        };
        let op = driver.begin_file(under_way, file, Box::new(op))?;
        Some((cell, op, canceled))
    });
    match (begun, op) {
        (Ok(Some((cell, op, canceled))), _) => {
            // Or the end would have no stages, and so no limit for this one.
            poster.inner.quiesce.has_connections();
            let runtime = Arc::as_ptr(&poster.inner).addr();
            let on_ring = OnRing {
                cell,
                op,
                home,
                poster,
                canceled,
            };
            Ok(JoinHandle::of(Arc::new(on_ring), runtime))
        }
        (_, Some(op)) => Err(op),
        (Ok(None) | Err(_), None) => unreachable!("a ring takes what it is given"),
    }
}
