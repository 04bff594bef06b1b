//! What the kernel is promised, and no compiler can check: whose a descriptor's number is, and that
//! memory stays where the kernel was told that it is.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use arrayvec::ArrayVec;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::epoll::Event;
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, SocketFlags};

use super::datagram::{BATCH, DATAGRAM_BYTES_MAX, Datagram, SEGMENTS_MAX};
use super::{Addr, Fd, Op, Operation, Piece, Side, State};

/// Let the kernel go on by itself after a short send, and no SIGPIPE.
const SEND_FLAGS: i32 = (RecvFlags::WAITALL.bits() | SendFlags::NOSIGNAL.bits()) as i32;
const ACCEPT_FLAGS: i32 = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK).bits() as i32;
const POLL_IN: u32 = PollFlags::IN.bits() as u32;
const POLL_OUT: u32 = PollFlags::OUT.bits() as u32;
const POLL_RECV: u32 = PollFlags::IN.union(PollFlags::RDHUP).bits() as u32;

impl Fd {
    /// The form that `rustix` takes.
    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        debug_assert!(self.0 >= 0, "{self:?} is not a descriptor");
        // SAFETY: the number is not -1 (asserted). That it is open is the duty of the layer above,
        // which closes only through `close` and uses no `Fd` afterwards; should it fail in that,
        // the kernel answers EBADF or serves the number's new owner, and no memory is at stake:
        // no mapping or buffer of this crate is keyed by a descriptor number.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Closes the descriptor.
    pub(super) fn close(self) {
        debug_assert!(self.0 >= 0, "{self:?} is not a descriptor");
        // SAFETY: the contract makes the caller the owner and this call the last use. Should it
        // lie, a descriptor of somebody else is closed, which is wrong but no memory is touched.
        unsafe { rustix::io::close(self.0) }
    }
}

/// Waits like `epoll_wait`, with a timeout that counts nanoseconds instead of milliseconds; since
/// Linux 5.11. Appends to `events`, as far as they have space.
pub(super) fn epoll_pwait2(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    timeout: &Timespec,
) -> Result<(), Errno> {
    let space = events.spare_capacity_mut();
    // SAFETY: the kernel writes to `space` no more events than it has room for, which is the number
    // that it is given. It reads `timeout`, and the mask of signals is none. `Event` and `Timespec`
    // have the form of the kernel's: `rustix` gives them to this very call where it makes it.
    let told = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            space.as_mut_ptr(),
            space.len() as libc::c_int,
            ptr::from_ref(timeout),
            ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    let told = usize::try_from(told).map_err(|_| last_errno())?;
    // SAFETY: the kernel has written this many events behind those that were there, and no more
    // than there was space for.
    unsafe { events.set_len(events.len() + told) };
    Ok(())
}

/// Has the kernel join datagrams of one source and one length that arrive in a row: they are
/// received as one buffer, with that length. Since Linux 5.0.
pub(super) fn set_udp_gro(socket: impl AsFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads an `int`, of as many bytes as it is told.
    let told = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match told {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// The control messages of a datagram, in words. The length of joined datagrams comes behind time
/// stamps and marks, which a socket that was made elsewhere may ask for: 200 bytes of them.
const CONTROL_WORDS: usize = 32;

/// What one call receives datagrams into.
struct Batch {
    bytes: Box<[u8]>,
    names: [libc::sockaddr_storage; BATCH],
    controls: [[u64; CONTROL_WORDS]; BATCH],
}

crate::sync::thread_local! {
    // Shared by the sockets of a thread, since it is large. The pages that no datagram reaches are
    // never touched.
    static RECEIVED: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

/// Receives datagrams that are there, and copies them to `out`: those of [`BATCH`] buffers at most,
/// each of which holds one, or several that the kernel has joined.
pub(super) fn receive_datagrams(fd: Fd, out: &mut impl FnMut(Datagram)) -> Result<(), Errno> {
    RECEIVED.with_borrow_mut(|batch| {
        let batch = batch.get_or_insert_with(|| Batch {
            bytes: vec![0; BATCH * DATAGRAM_BYTES_MAX].into_boxed_slice(),
            // SAFETY: a name of all zeros is one of no family.
            names: unsafe { std::mem::zeroed() },
            controls: [[0; CONTROL_WORDS]; BATCH],
        });
        let mut pieces = batch.bytes.chunks_exact_mut(DATAGRAM_BYTES_MAX);
        let mut parts: [libc::iovec; BATCH] = std::array::from_fn(|_| {
            let piece = pieces.next().unwrap_or_default();
            libc::iovec {
                iov_base: piece.as_mut_ptr().cast(),
                iov_len: piece.len(),
            }
        });
        let mut heads: [libc::mmsghdr; BATCH] = std::array::from_fn(|i| {
            // SAFETY: a head of all zeros is valid, and has no name and no parts.
            let mut head: libc::mmsghdr = unsafe { std::mem::zeroed() };
            head.msg_hdr.msg_name = ptr::from_mut(&mut batch.names[i]).cast();
            head.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            head.msg_hdr.msg_iov = ptr::from_mut(&mut parts[i]);
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_control = ptr::from_mut(&mut batch.controls[i]).cast();
            head.msg_hdr.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
            head
        });
        // SAFETY: the kernel writes to the heads, at most as many as there are, and to the names,
        // controls and pieces that they point to, no more than the lengths in them. All of it is
        // borrowed here until the call has returned, each piece, control and name by one head.
        let told = unsafe {
            libc::recvmmsg(
                fd.raw(),
                heads.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let told = usize::try_from(told).map_err(|_| last_errno())?;
        for (i, head) in heads[..told].iter().enumerate() {
            let len = (head.msg_len as usize).min(DATAGRAM_BYTES_MAX);
            let start = i * DATAGRAM_BYTES_MAX;
            let from = match head.msg_hdr.msg_namelen {
                // A Unix socket that is not bound.
                0..2 => Addr::Unnamed,
                len => {
                    // SAFETY: the kernel has written a name of this length, which is the storage's
                    // size at most.
                    let from =
                        unsafe { SocketAddrAny::read(ptr::from_ref(&batch.names[i]).cast(), len) };
                    Addr::from_any(from).unwrap_or(Addr::Unnamed)
                }
            };
            let truncated = head.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            // SAFETY: this is a head that the kernel has filled in, and its control, which is in
            // `batch`, is borrowed until the end of this function.
            let segment = unsafe { segment_bytes(&head.msg_hdr) }.unwrap_or(len);
            let mut rest = &batch.bytes[start..start + len];
            loop {
                let (data, behind) = rest.split_at(segment.min(rest.len()));
                rest = behind;
                // The end of the buffer is what did not fit.
                let truncated = truncated && rest.is_empty();
                out(Datagram::new(data.to_vec(), from.clone(), truncated));
                if rest.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    })
}

/// The length of the datagrams that the kernel has joined, of which the last may be shorter. None
/// if it is one datagram.
///
/// # Safety
/// `head` is one that `recvmmsg` has filled in, and its control is still there.
unsafe fn segment_bytes(head: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has written as many whole messages into the control as the head says, and
    // the caller has kept them. That of the length has an `int`, which need not be aligned.
    let bytes = unsafe {
        let mut message = libc::CMSG_FIRSTHDR(head);
        loop {
            let its = message.as_ref()?;
            if (its.cmsg_level, its.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                break libc::CMSG_DATA(message)
                    .cast::<libc::c_int>()
                    .read_unaligned();
            }
            message = libc::CMSG_NXTHDR(head, message);
        }
    };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

/// The control message that asks the kernel to cut a message into datagrams of this length: its
/// `struct cmsghdr`, and the value.
#[repr(C)]
struct Cut {
    len: usize,
    level: libc::c_int,
    kind: libc::c_int,
    segment_bytes: u16,
}

/// Sends messages by one call, at most [`SEGMENTS_MAX`], and says how many were sent. A message of
/// several parts is cut into datagrams of the length of its first part; since Linux 4.18.
pub(super) fn send_datagrams(
    fd: Fd,
    messages: &[&[IoSlice<'_>]],
    to: Option<&SocketAddrAny>,
) -> Result<usize, Errno> {
    let cut = |parts: &&[IoSlice<'_>]| Cut {
        len: offset_of!(Cut, segment_bytes) + size_of::<u16>(),
        level: libc::SOL_UDP,
        kind: libc::UDP_SEGMENT,
        // What is longer is alone in its message, which has no such control.
        segment_bytes: parts.first().map_or(0, |part| part.len() as u16),
    };
    let cuts: ArrayVec<Cut, SEGMENTS_MAX> = messages.iter().map(cut).collect();
    let head = |(parts, cut): (&&[IoSlice<'_>], &Cut)| {
        // SAFETY: a head of all zeros is valid, and has no name, no parts and no control.
        let mut head: libc::mmsghdr = unsafe { std::mem::zeroed() };
        if let Some(to) = to {
            head.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            head.msg_hdr.msg_namelen = to.addr_len();
        }
        head.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
        head.msg_hdr.msg_iovlen = parts.len() as _;
        if parts.len() > 1 {
            head.msg_hdr.msg_control = ptr::from_ref(cut).cast_mut().cast();
            head.msg_hdr.msg_controllen = size_of::<Cut>() as _;
        }
        head
    };
    let mut heads: ArrayVec<_, SEGMENTS_MAX> = messages.iter().zip(&cuts).map(head).collect();
    // SAFETY: the kernel writes to the heads, as many as there are, how much it has sent. It reads
    // the names, parts and controls that they point to, of the lengths in them: borrowed here until
    // the call has returned, an `IoSlice` in the form of an `iovec`, and a `Cut` in that of a
    // `cmsghdr` with a `u16` behind it.
    let sent = unsafe {
        libc::sendmmsg(
            fd.raw(),
            heads.as_mut_ptr(),
            heads.len() as libc::c_uint,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent).map_err(|_| last_errno())
}

/// The name of a Unix socket, as it stands behind the family.
pub(super) fn unix_name(addr: &SocketAddrAny) -> Vec<u8> {
    let len = (addr.addr_len() as usize).min(size_of::<libc::sockaddr_un>());
    let name = len.saturating_sub(offset_of!(libc::sockaddr_un, sun_path));
    // SAFETY: an address has as many bytes as it says, all of them written; the family comes first,
    // and the rest of them is the name.
    unsafe {
        let start = addr.as_ptr().cast::<u8>();
        std::slice::from_raw_parts(start.add(len - name), name).to_vec()
    }
}

/// Which process is at the other end of a Unix socket. Its number is 0 for one of another
/// container, so it is no `rustix::process::Pid`.
pub(super) fn peer_credentials(fd: Fd) -> Result<libc::ucred, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes a `ucred`, of no more bytes than `len` says.
    let told = unsafe {
        libc::getsockopt(
            fd.raw(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            ptr::from_mut(&mut peer).cast(),
            &raw mut len,
        )
    };
    match told {
        0 => Ok(peer),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    let error = io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

/// What a send of several buffers points to: the kernel's `struct user_msghdr`, and what that
/// points to. Addresses are numbers here, which nothing but the kernel follows: so it may go from
/// thread to thread.
#[derive(Debug)]
pub(super) struct Message {
    header: Box<Header>,
    /// That the header points to.
    _parts: Box<[Part]>,
}

#[derive(Debug)]
#[repr(C)]
struct Header {
    name: usize,
    name_bytes: u32,
    parts: usize,
    parts_len: usize,
    control: usize,
    control_bytes: usize,
    flags: u32,
}

/// The kernel's `struct iovec`.
#[derive(Debug)]
#[repr(C)]
struct Part {
    address: usize,
    bytes: usize,
}

impl Message {
    /// Of bytes that stay where they are for as long as the message is used.
    pub(super) fn of<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Message {
        let part = |bytes: &[u8]| Part {
            address: bytes.as_ptr().expose_provenance(),
            bytes: bytes.len(),
        };
        let parts: Box<[Part]> = slices.map(part).collect();
        let header = Header {
            name: 0,
            name_bytes: 0,
            parts: parts.as_ptr().expose_provenance(),
            parts_len: parts.len(),
            control: 0,
            control_bytes: 0,
            flags: 0,
        };
        Message {
            header: Box::new(header),
            _parts: parts,
        }
    }

    fn as_ptr(&self) -> *const libc::msghdr {
        ptr::from_ref(&*self.header).cast()
    }
}

/// A submission entry. It points to nothing, or to what the operation owns that its `user_data`
/// names.
#[derive(Debug)]
pub(super) struct Submission(squeue::Entry);

impl Submission {
    /// Hands the kernel the operation `op` of a ring's table, of which it may read what
    /// [`State`] owns, and write where a file is read into.
    pub(super) fn of(op: Op, operation: &mut Operation) -> Submission {
        let fd = types::Fd(operation.fd.raw());
        let entry = match &mut operation.state {
            State::Accept => opcode::AcceptMulti::new(fd).flags(ACCEPT_FLAGS).build(),
            State::Recv => opcode::PollAdd::new(fd, POLL_RECV).multi(true).build(),
            State::Ready(Side::Reader) => opcode::PollAdd::new(fd, POLL_IN).multi(true).build(),
            State::Ready(Side::Writer) => opcode::PollAdd::new(fd, POLL_OUT).multi(true).build(),
            State::Send {
                message: Some(message),
                ..
            } => opcode::SendMsg::new(fd, message.as_ptr())
                .flags(SEND_FLAGS as u32)
                .build(),
            State::Send {
                buf, sent_bytes, ..
            } => {
                let rest = buf.rest(*sent_bytes);
                // The length is a u32; what is beyond goes out as after any short send.
                let len = u32::try_from(rest.len()).unwrap_or(i32::MAX as u32);
                opcode::Send::new(fd, rest.as_ptr(), len)
                    .flags(SEND_FLAGS)
                    .build()
            }
            State::Connect { addr } => {
                opcode::Connect::new(fd, addr.as_ptr().cast(), addr.addr_len()).build()
            }
            // A piece is far shorter than a u32.
            State::File { op, .. } => match op.piece() {
                Piece::Read(space, offset) => {
                    opcode::Read::new(fd, space.as_mut_ptr(), space.len() as u32)
                        .offset(offset)
                        .build()
                }
                Piece::Write(bytes, offset) => {
                    opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32)
                        .offset(offset)
                        .build()
                }
                Piece::Sync { data_only } => {
                    let flags = match data_only {
                        true => types::FsyncFlags::DATASYNC,
                        false => types::FsyncFlags::empty(),
                    };
                    opcode::Fsync::new(fd).flags(flags).build()
                }
            },
        };
        Submission(entry.user_data(op.0))
    }

    /// Asks the kernel to end what it has of this name.
    pub(super) fn cancel(op: Op, user_data: u64) -> Submission {
        let entry = opcode::AsyncCancel::new(op.0).build();
        Submission(entry.user_data(user_data))
    }

    /// Does nothing, and completes.
    pub(super) fn nop(user_data: u64) -> Submission {
        Submission(opcode::Nop::new().build().user_data(user_data))
    }

    /// A multishot poll of a descriptor that is no connection's.
    pub(super) fn watch(fd: BorrowedFd<'_>, user_data: u64) -> Submission {
        let fd = types::Fd(fd.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, POLL_IN).multi(true).build();
        Submission(entry.user_data(user_data))
    }

    /// Puts it into the ring's queue. False if that is full.
    pub(super) fn push(&self, ring: &mut IoUring) -> bool {
        // SAFETY: the operation that `of` was given owns the memory that the entry points to (the
        // bytes of a send, or a message and what that points to, which are the bytes of the same
        // send; the bytes of a file; the address of a connect), at a stable address (`State`).
        // Into the memory of a read the kernel writes. Nothing else reads or moves it meanwhile:
        // `FileOp::piece` does, but `of` alone calls it, when no entry of the operation is under
        // way. The ring's table has
        // that operation until the terminal completion is reaped: only `Uring::finish` takes one
        // out, when the kernel's last entry is reaped or the operation is not armed. `Uring::drop`
        // sees to it at the end. The entries that `of` has not made point to nothing.
        unsafe { ring.submission().push(&self.0) }.is_ok()
    }
}
