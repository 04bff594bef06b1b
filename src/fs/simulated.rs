//! Files in a simulation: each operation is a task on the simulated disk.
//!
//! A call may take virtual time, in which other events of its core run: so it is a task that
//! sleeps. The disk and the event source have no clock. A call takes effect at one moment, at the
//! end of its time; an operation can be canceled before each of its calls.

use super::error::unresolved;
use super::file::Opened;
use crate::Cx;
use crate::ask::JoinHandle;
use crate::io::{FileOp, PathError, Piece, SimCall, SimDisk, SimHandle};
use crate::sync::Arc;
use crate::task::spawn_own;
use crate::task::time::{Sleep, yield_now};
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

fn spawn<F>(cx: &mut Cx, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    // No hold can delay a color of its own.
    let own = cx.unique_color();
    let color = own.color();
    spawn_own(&cx.poster(), color, async move {
        let _own = own;
        future.await
    })
}

/// One call, after the disk's latency, unless the disk makes it fail.
async fn call<T, E: From<Errno>>(
    disk: &SimDisk,
    call: SimCall,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let latency = disk.draw_latency();
    match latency.is_zero() {
        true => yield_now().await,
        false => Sleep::new(latency.into()).await,
    }
    disk.fault(call)?;
    f()
}

/// Starts an operation of one call.
pub(super) fn run<T, F>(
    cx: &mut Cx,
    path: PathBuf,
    disk: &SimDisk,
    which: SimCall,
    f: F,
) -> JoinHandle<io::Result<T>>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, PathError> + Send + 'static,
{
    let disk = disk.clone();
    spawn(cx, async move {
        let result = call(&disk, which, f).await;
        result.map_err(|error| unresolved(&path, error))
    })
}

/// Starts a read, write or sync, of one call for each piece.
pub(super) fn transfer<T>(
    cx: &mut Cx,
    open: Arc<Opened>,
    mut op: FileOp,
    finish: fn(FileOp) -> T,
) -> JoinHandle<io::Result<T>>
where
    T: Send + 'static,
{
    spawn(cx, async move {
        let result = pieces(&open, &mut op).await;
        open.came_to(result, op, finish)
    })
}

async fn pieces(open: &Opened, op: &mut FileOp) -> Result<(), Errno> {
    let Some(handle) = open.simulated() else {
        return Err(Errno::BADF);
    };
    loop {
        let which = match op {
            FileOp::Read { .. } => SimCall::FileRead,
            FileOp::Write { .. } => SimCall::FileWrite,
            FileOp::Sync { .. } => SimCall::FileSync,
        };
        let moved = call(handle.disk(), which, || piece(handle, open.appends, op)).await?;
        if op.moved(moved)? {
            return Ok(());
        }
    }
}

fn piece(handle: &SimHandle, appends: bool, op: &mut FileOp) -> Result<usize, Errno> {
    match op.piece() {
        Piece::Read(space, offset) => handle.read(space, offset),
        Piece::Write(bytes, offset) => handle.write(bytes, (!appends).then_some(offset)),
        Piece::Sync { .. } => {
            handle.sync();
            Ok(0)
        }
    }
}
