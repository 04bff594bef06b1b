//! Files.

use super::error::{failed_with, invalid};
use super::options::Metadata;
use super::{on_pool, settled, simulated};
use crate::Cx;
use crate::ask::{Asked, JoinError, JoinHandle};
use crate::io::{FileOp, SendBuf, SimCall, SimHandle};
use crate::net::{FileJob, begin_on_ring};
use crate::sync::Arc;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An open file or directory.
#[derive(Debug)]
pub(super) enum Handle {
    /// Shared with the operations under way, so that it is not closed before they are over.
    Kernel(Arc<OwnedFd>),
    Simulated(SimHandle),
}

/// A file that is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) handle: Handle,
    /// The path that it was opened by, for errors.
    pub(super) path: PathBuf,
    pub(super) can_read: bool,
    pub(super) can_write: bool,
    pub(super) appends: bool,
}

impl Opened {
    pub(super) fn simulated(&self) -> Option<&SimHandle> {
        match &self.handle {
            Handle::Kernel(_) => None,
            Handle::Simulated(handle) => Some(handle),
        }
    }

    /// Turns the outcome of an operation into its result.
    pub(super) fn came_to<T>(
        &self,
        result: Result<(), Errno>,
        op: FileOp,
        finish: fn(FileOp) -> T,
    ) -> io::Result<T> {
        match result {
            Ok(()) => Ok(finish(op)),
            Err(errno) => {
                let detail = op.written();
                let detail =
                    detail.map(|(done, all)| format!("{done} of {all} bytes were written"));
                Err(failed_with(&self.path, errno, detail))
            }
        }
    }
}

/// An open file, from [`Dir::open_file`](super::Dir::open_file). It has no position: each operation
/// names its offset.
///
/// Operations on one file may run at the same time, and end in any order. To read bytes that
/// another operation writes, start the read when the result of the write has come.
///
/// Clones are the same file. It is closed once the last clone is dropped and the last operation is
/// over, by the thread that drops it last. That may take a while, in which a core runs nothing else:
/// for a large file that was removed, or on a network's file system. Drop such a file in
/// [`Cx::try_blocking`](crate::Cx::try_blocking).
#[derive(Clone)]
pub struct File {
    open: Arc<Opened>,
}

/// The largest offset that the kernel has.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl File {
    pub(super) fn new(open: Opened) -> File {
        File {
            open: Arc::new(open),
        }
    }

    /// Returns the path that the file was opened by: that of its [`Dir`](super::Dir), and the path
    /// in it. The file may have been renamed since.
    pub fn path(&self) -> &Path {
        &self.open.path
    }

    /// Reads `len` bytes from `offset` on, or fewer if the file ends before; no bytes are the end
    /// of the file. Memory grows with the bytes that are read, so a `len` beyond the end costs
    /// nothing.
    /// `usize::MAX` reads to the end, and then only the size of the file bounds the memory.
    ///
    /// # Errors
    /// Those of pread(2); `InvalidInput` if the file is not open to read, or `offset` is larger
    /// than a file can be.
    pub fn read_at(&self, cx: &mut Cx, offset: u64, len: usize) -> JoinHandle<io::Result<Vec<u8>>> {
        if !self.open.can_read {
            return self.refuse(cx, "it is not open to read (`OpenOptions::read`)");
        }
        if offset > OFFSET_MAX {
            return self.refuse(cx, "no file has so many bytes");
        }
        let len = len.min(usize::try_from(OFFSET_MAX - offset).unwrap_or(usize::MAX));
        self.transfer(cx, FileOp::read(offset, len), FileOp::into_read)
    }

    /// Writes all of `bytes`, from `offset` on. A read at the same time may see a part of them.
    ///
    /// # Errors
    /// Those of pwrite(2); `InvalidInput` if the file is open to append, or not open to write. The
    /// error's text says how many bytes were written before the error. No other value has that number:
    /// to go on, write all of them again.
    pub fn write_at(
        &self,
        cx: &mut Cx,
        offset: u64,
        bytes: impl Into<SendBuf>,
    ) -> JoinHandle<io::Result<()>> {
        if self.open.appends {
            return self.refuse(
                cx,
                "it is open to append: it has no other place to write at",
            );
        }
        self.write(cx, offset, bytes.into())
    }

    /// Writes all of `bytes` at the end of a file that was opened with
    /// [`append`](super::OpenOptions::append). Appends that are under way at the same time come in
    /// any order. Up to 64 KiB are written by one call of the system, mostly; if the system writes
    /// only some of them, by more. Between two calls there may be bytes of other appends.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); `InvalidInput` if the file is not open to append. Bytes
    /// that were written before the error stay: if the append is repeated, the file has them twice.
    pub fn append(&self, cx: &mut Cx, bytes: impl Into<SendBuf>) -> JoinHandle<io::Result<()>> {
        if !self.open.appends {
            return self.refuse(cx, "it is not open to append (`OpenOptions::append`)");
        }
        self.write(cx, 0, bytes.into())
    }

    fn write(&self, cx: &mut Cx, offset: u64, bytes: SendBuf) -> JoinHandle<io::Result<()>> {
        if !self.open.can_write {
            return self.refuse(cx, "it is not open to write (`OpenOptions::write`)");
        }
        if offset > OFFSET_MAX - bytes.len() as u64 {
            return self.refuse(cx, "no file has so many bytes");
        }
        self.transfer(cx, FileOp::write(offset, bytes), drop)
    }

    /// Writes the file's bytes and metadata to the disk: all that was written before this call
    /// survives a loss of power. The name of a new file takes a [`Dir::sync`](super::Dir::sync) as
    /// well.
    ///
    /// # Errors
    /// Those of fsync(2). After an error some bytes may be lost, though a later sync succeeds.
    pub fn sync(&self, cx: &mut Cx) -> JoinHandle<io::Result<()>> {
        self.transfer(cx, FileOp::Sync { data_only: false }, drop)
    }

    /// Writes the file's bytes to the disk, as [`sync`](Self::sync), but of its metadata only the
    /// length. That may take less time.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn sync_data(&self, cx: &mut Cx) -> JoinHandle<io::Result<()>> {
        self.transfer(cx, FileOp::Sync { data_only: true }, drop)
    }

    /// Returns the file's metadata.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn metadata(&self, cx: &mut Cx) -> JoinHandle<io::Result<Metadata>> {
        self.call(
            cx,
            |fd| Ok(Metadata::of(&rustix::fs::fstat(fd)?)),
            |handle| Ok(Metadata::simulated(&handle.stat())),
        )
    }

    /// Sets the length of the file, in bytes. Bytes beyond are lost; a longer file is filled with
    /// zeros.
    ///
    /// # Errors
    /// Those of ftruncate(2); `InvalidInput` if the file is not open to write.
    pub fn truncate(&self, cx: &mut Cx, len: u64) -> JoinHandle<io::Result<()>> {
        if !self.open.can_write {
            return self.refuse(cx, "it is not open to write (`OpenOptions::write`)");
        }
        self.call(
            cx,
            move |fd| rustix::fs::ftruncate(fd, len),
            move |handle| handle.truncate(len),
        )
    }

    fn refuse<T: Send + 'static>(&self, cx: &mut Cx, text: &str) -> JoinHandle<io::Result<T>> {
        settled(cx, Err(invalid(&self.open.path, text)))
    }

    /// Starts a call that a ring does not have.
    fn call<T: Send + 'static>(
        &self,
        cx: &mut Cx,
        kernel: impl FnOnce(&OwnedFd) -> Result<T, Errno> + Send + 'static,
        simulated: impl FnOnce(&SimHandle) -> Result<T, Errno> + Send + 'static,
    ) -> JoinHandle<io::Result<T>> {
        let path = self.open.path.clone();
        let open = Arc::clone(&self.open);
        match &self.open.handle {
            Handle::Kernel(fd) => {
                let fd = Arc::clone(fd);
                on_pool(cx, self.path(), move || {
                    kernel(&fd).map_err(|errno| failed_with(&path, errno, None))
                })
            }
            Handle::Simulated(handle) => {
                let call = move || {
                    let handle = open.simulated().ok_or(Errno::BADF)?;
                    Ok(simulated(handle)?)
                };
                simulated::run(cx, path, handle.disk(), SimCall::FileChange, call)
            }
        }
    }

    fn transfer<T: Send + 'static>(
        &self,
        cx: &mut Cx,
        op: FileOp,
        finish: fn(FileOp) -> T,
    ) -> JoinHandle<io::Result<T>> {
        let open = Arc::clone(&self.open);
        match &self.open.handle {
            Handle::Kernel(fd) => {
                let its = Arc::clone(&open);
                let make = || {
                    let (asked, cell) = Asked::of_cell();
                    let job = Transfer {
                        open: its,
                        asked,
                        finish,
                    };
                    let job: Box<dyn FileJob> = Box::new(job);
                    (job, cell)
                };
                let fd = Arc::clone(fd);
                let mut op = match begin_on_ring(cx, Arc::clone(&fd), op, make) {
                    Ok(handle) => return handle,
                    Err(op) => op,
                };
                on_pool(cx, self.path(), move || {
                    let result = op.block(fd.as_fd());
                    open.came_to(result, op, finish)
                })
            }
            Handle::Simulated(_) => simulated::transfer(cx, open, op, finish),
        }
    }
}

/// An operation on a ring.
struct Transfer<T: Send + 'static> {
    open: Arc<Opened>,
    asked: Asked<io::Result<T>>,
    finish: fn(FileOp) -> T,
}

impl<T: Send + 'static> FileJob for Transfer<T> {
    fn path(&self) -> &Path {
        &self.open.path
    }

    fn end(self: Box<Self>, result: Result<(), Errno>, op: FileOp, canceled: bool) {
        let Transfer {
            open,
            mut asked,
            finish,
        } = *self;
        if canceled && result == Err(Errno::CANCELED) {
            // Before the handle says that the operation is over: its bytes, and the file.
            drop((open, op));
            return asked.settle_without(JoinError::Canceled);
        }
        let value = open.came_to(result, op, finish);
        drop(open);
        asked.settle(value);
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.open.path)
            .finish_non_exhaustive()
    }
}
