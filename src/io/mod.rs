//! The event source: one backend a core, completion-shaped.
//!
//! Three backends meet one contract: `uring` (the kernel completes, but for receives, which it
//! announces), `epoll` (the kernel tells that something is ready, we do it, and it looks completed)
//! and `sim` (no kernel, no clock: an in-memory network that a seed can replay). All receive into
//! one kind of pool (`pool.rs`). `tests/` runs one suite over all three. None of them
//! knows of colors, events or handlers; the layer above owns the tables of connections and turns
//! completions into events.
//!
//! # What every backend provides
//!
//! **Whose it is.** An `EventSource` is made and dropped on its core's thread, its *owner*. Whoever
//! uses it has it alone, by a lock of the layer above. `poll`, `catch_up`, `wait` and `connect` are
//! for the owner only, since a ring answers to the thread that made it. The rest is for any thread.
//! Its `Doorbell` and the `RecvBuf`s it handed out may be elsewhere, and they stay valid and
//! harmless after it is gone. Descriptors are the process's: any core may send on any of them.
//!
//! **Operations.** `accept`, `recv`, `send`, `connect`, `ready` and `file` start one and name it by
//! an `Op`. Starting cannot fail, and calls nothing back: what goes wrong, goes wrong in the
//! completion, so that callers have one path for errors. (`connect` can fail at making the socket,
//! when there is nothing yet that could complete.) Of each kind but `file`, at most one operation
//! is under way per descriptor and backend. Of sends there is at most one *in the process*, since
//! two have no order. Both are the caller's duty, the first is asserted in debug builds.
//!
//! **Completions.** Each carries the token given at the start. Every operation has exactly one
//! *terminal* completion (`more == false`), and nothing comes after it.
//! - `accept`: a connection each, all of them with `more`; the terminal one is always an error.
//!   Lack of descriptors or memory is such an error, which may come before a connection does: the
//!   caller starts anew when it has closed something. Connections that died in the queue are
//!   skipped in silence.
//! - `recv`: bytes with `more`; the terminal one is the end of the stream or an error, never bytes.
//!   Lack of buffers is *not* reported: the operation pauses until one returns, costs nothing
//!   meanwhile, and goes on by itself.
//! - `send`: of one buffer, or of several in their order, which are not joined. One completion, when
//!   all bytes are with the kernel or none more will be. Short sends are not seen. The buffer comes back in every case. A send of no bytes completes too.
//! - `connect`: one completion. The descriptor stays the caller's to close also after an error.
//! - `file`: one completion, when all is done: read up to the end of the file, written, synced.
//!   Short reads and writes are not seen. There may be any number on a descriptor, which stays open
//!   until the last is over. Only where `has_files`.
//! - `ready`: a completion when there may be something to read (or room to write) and again when
//!   there is more *after the caller has read until it would block*; several arrivals may be one
//!   completion, and one may be spurious. For pipes, sockets, eventfds and the like, not for files.
//!   The terminal one is always an error.
//!
//! Completions of one operation come in order; those of different operations in any order.
//!
//! `accept_waiting` is no operation: it accepts who waits at a listener at this moment, and is the
//! last call on it but `close`. `unread_bytes` tells what lies in the kernel, for a receive to
//! come.
//!
//! **Cancel** asks the operation to end. Its terminal completion follows: the error `ECANCELED`, or
//! what it came to if that was first. Bytes and connections that were already taken from the kernel
//! are delivered before it. The handle of an operation that is over has no effect.
//!
//! **Descriptors.** `shutdown` and `close` act at once and wait for nothing: for the end of a
//! stream to come after the bytes of a send, the caller awaits that send. `close` only when nothing
//! is under way on the descriptor on any core (asserted in debug builds for this one): the kernel
//! would keep the connection open for a ring's sake. Ending a `recv` first takes `cancel`, or
//! `shutdown` of both directions, which ends it with the end of the stream.
//!
//! **Turning.** `poll` never blocks: it hands over what was started, and appends at most `limit`
//! completions. With nothing to do it costs a load or two (io_uring), or one `epoll_wait` and that
//! only if an operation needs it (epoll). `has_work` is the cheap peek before it: `true` when a
//! `poll` would do something that a backend can know without a system call. What was started is
//! only sure to be under way after the next `poll`, or while a `wait` sleeps; a `connect` is at
//! once. Nothing is dropped when more completes than `limit`: the rest comes with the next `poll`.
//!
//! **Catching up.** A `poll` need not tell all that has happened before it. It has its `limit`, an
//! operation with much to receive has one turn in it, and the kernel brings out some completions at
//! a time. `catch_up` has the kernel bring out everything that has happened by now, and returns how
//! many completions and operations that concerns. It does not block, and appends nothing. A `poll`
//! that then appends fewer than `limit` has told something of each. `has_more` is `true` while an
//! operation is known to have more, or waits for a buffer, or the kernel for room in a queue.
//!
//! **By another thread**, while the owner computes: `bring_out` asks the kernel for what has
//! happened and hands over what was started, as far as that can be had, and `take` appends it, as a
//! `poll` does. From a `watch` until somebody lets it go, the lookout that it is attached to tells
//! its one thread when the kernel has something.
//!
//! **Sleeping.** `wait` blocks until a `poll` is worth calling, the doorbell rings, or the time is
//! over, and hands over what was started before it does. It may return early (signals, the
//! backend's own business); it appends nothing. A ring of the doorbell is never lost: it makes the
//! `wait` that is going on, or else the next one, return, also when a `poll` comes between; many
//! rings may be one. A pool without buffers counts as quiet; the returned buffer wakes the sleeper.
//!
//! **The end.** Dropping a backend cancels what is under way, waits for the kernel to let go of all
//! buffers (bounded; beyond the bound they are leaked, never freed under the kernel's hands),
//! closes connections that nobody was told of, and frees. Completions not yet polled are lost,
//! descriptors that callers know of stay open.

mod addr;
mod alarm;
mod backend;
mod buf;
mod bufs;
mod completion;
mod config;
mod datagram;
mod doorbell;
mod epoll;
mod file;
mod kernel;
mod ledger;
mod limits;
mod lookout;
mod operation;
mod owner;
mod path;
mod pool;
mod signals;
mod sim;
mod slab;
mod socket;
mod uring;

pub use self::addr::{Addr, Credentials, Endpoint};
pub use self::buf::SendBuf;
pub use self::config::{Backend, Report};
pub use self::datagram::{DATAGRAM_BYTES_MAX, Datagram};
pub use self::pool::RecvBuf;
pub use self::sim::{SimCall, SimClient, SimDisk, SimNet};

pub(crate) use self::addr::What;
pub(crate) use self::alarm::Alarm;
pub(crate) use self::backend::EventSource;
pub(crate) use self::bufs::{Bufs, PARTS_MAX};
pub(crate) use self::completion::{Brings, Completion, Done, Fd, How, Op, Side, Token};
pub(crate) use self::config::{Config, ListenOptions};
pub(crate) use self::datagram::Descriptor;
pub(crate) use self::doorbell::Doorbell;
pub(crate) use self::file::{FileOp, Piece};
pub(crate) use self::limits::raise_open_file_limit;
pub(crate) use self::lookout::Lookout;
pub(crate) use self::owner::Owner;
pub(crate) use self::path::{PathError, components, is_end, split, without_slash};
pub(crate) use self::signals::{Raises, Signals};
pub(crate) use self::sim::{HowOpened, NodeKind, NodeStat, SimHandle};

use self::completion::Kind;
use self::ledger::Ledger;
use self::operation::{Operation, State};
use self::pool::Home;
use self::slab::Slab;

/// What a simulation answers where something of the system's is needed.
pub(crate) fn no_descriptors() -> std::io::Error {
    let text = "a simulation has no descriptors of the system's";
    std::io::Error::new(std::io::ErrorKind::Unsupported, text)
}

#[cfg(test)]
mod tests;
