//! Operations on files, where the event source has them.
//!
//! An operation is under way on the ring of the core that started it, its *home*, and what it came
//! to is an event of the core that finds it: of that core's control color, which nobody holds. The
//! event settles the cell of the handle.
//!
//! The run does not end by itself while one is under way. A stop waits for it in its stages, as for
//! blocking work; in the stage close those that are left are canceled, and told so.

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

/// What an operation on a file was started for.
pub(crate) trait FileJob: Send {
    /// Of the file.
    fn path(&self) -> &Path;

    /// In an event. `canceled`: by its handle.
    fn end(self: Box<Self>, result: Result<(), Errno>, op: FileOp, canceled: bool);
}

/// An operation under way, as its driver has it.
pub(super) struct FileUnderWay {
    pub(super) job: Box<dyn FileJob>,
    canceled: Arc<AtomicBool>,
}

impl FileUnderWay {
    /// Tells what it came to; in an event.
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

/// What the handle has.
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
        // Before the operation can be told to have ended so.
        self.canceled.store(true, Ordering::Release);
        let op = self.op;
        let cancel = move |cx: &mut Cx| {
            // The handle of an operation that is over has no effect.
            Driver::with(cx.worker(), |driver, _| driver.cancel(op));
        };
        let home = control(self.home);
        // Refused once the run has ended: it is over then.
        let _ = self.poster.post_own_until(Until::End, None, home, cancel);
    }
}

/// Starts an operation, or gives it back where the event source has none of the kind. `cell` is
/// settled by the job.
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
