//! Which descriptor is registered for what.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::super::{Doorbell, Fd, Op};

/// The `data` of the doorbell; that of a watch is its descriptor.
const DOORBELL: u64 = u64::MAX;

/// Longer timeouts are as good as none, and `epoll_wait` counts milliseconds in 31 bits.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

const READ: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);
const HUNG_UP: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// The epoll instance and its registrations, by descriptor number.
pub(super) struct Watches {
    epoll: OwnedFd,
    /// As long as the largest number seen: the process's limit bounds it.
    by_fd: Vec<Watch>,
    registered: usize,
}

#[derive(Clone, Default)]
struct Watch {
    /// The operation that waits for data, a connection, or readability.
    reader: Option<Op>,
    /// The operation that waits for room or for being connected.
    writer: Option<Op>,
    registered: bool,
}

/// What the kernel told about one descriptor.
pub(super) enum Heard {
    Doorbell,
    Fd {
        reader: Option<Op>,
        writer: Option<Op>,
        hung_up: bool,
    },
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Reader,
    Writer,
}

impl Watches {
    pub(super) fn new(doorbell: &Doorbell) -> io::Result<Watches> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(fd) = doorbell.watched() {
            let data = EventData::new_u64(DOORBELL);
            epoll::add(&epoll, fd, data, EventFlags::IN | EventFlags::ET)?;
        }
        Ok(Watches {
            epoll,
            by_fd: Vec::new(),
            registered: 0,
        })
    }

    /// Whether the kernel has anything to tell about, but the doorbell.
    pub(super) fn any(&self) -> bool {
        self.registered > 0
    }

    /// `op` waits on `fd`. Edges that came before are told again.
    pub(super) fn enter(&mut self, fd: Fd, op: Op, side: Side) -> Result<(), Errno> {
        let watch = self.watch(fd);
        let place = match side {
            Side::Reader => &mut watch.reader,
            Side::Writer => &mut watch.writer,
        };
        if *place == Some(op) {
            // Its edge is still to come.
            return Ok(());
        }
        debug_assert!(place.is_none(), "two {side:?}s on {fd:?}");
        *place = Some(op);
        let registered = self.register(fd);
        if registered.is_err() {
            self.forget(fd, op);
        }
        registered
    }

    /// `op` is over.
    pub(super) fn leave(&mut self, fd: Fd, op: Op) {
        if self.forget(fd, op) {
            // Taking away cannot fail while the descriptor is open; if the caller has closed it
            // early, the kernel has already done it.
            let _ = self.register(fd);
        }
    }

    fn forget(&mut self, fd: Fd, op: Op) -> bool {
        let watch = self.watch(fd);
        let before = (watch.reader, watch.writer);
        watch.reader = watch.reader.filter(|&reader| reader != op);
        watch.writer = watch.writer.filter(|&writer| writer != op);
        before != (watch.reader, watch.writer)
    }

    fn watch(&mut self, fd: Fd) -> &mut Watch {
        let index = usize::try_from(fd.raw()).expect("descriptors are not negative");
        if index >= self.by_fd.len() {
            self.by_fd.resize(index + 1, Watch::default());
        }
        &mut self.by_fd[index]
    }

    /// Brings the kernel's registration in line with who waits.
    fn register(&mut self, fd: Fd) -> Result<(), Errno> {
        let watch = self.watch(fd);
        let mut want = EventFlags::ET;
        want.set(READ, watch.reader.is_some());
        want.set(EventFlags::OUT, watch.writer.is_some());
        let known = watch.registered;
        let wanted = want != EventFlags::ET;
        watch.registered = wanted;
        // Just the number: events are turned into keys of operations before the caller can close
        // anything, and those have generations.
        let data = EventData::new_u64(fd.raw() as u64);
        let fd_ref = fd.borrow();
        let res = match (known, wanted) {
            (false, false) => Ok(()),
            (false, true) => epoll::add(&self.epoll, fd_ref, data, want),
            (true, true) => epoll::modify(&self.epoll, fd_ref, data, want),
            (true, false) => epoll::delete(&self.epoll, fd_ref),
        };
        if res.is_err() {
            self.watch(fd).registered = false;
        }
        let now = self.watch(fd).registered;
        self.registered = self.registered + usize::from(now) - usize::from(known);
        res
    }

    /// Asks the kernel for what happened, blocking at most for `timeout`.
    pub(super) fn listen(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        events.clear();
        let timeout = timeout.map(|timeout| {
            let timeout = timeout.min(TIMEOUT_MAX);
            Timespec {
                tv_sec: timeout.as_secs() as _,
                tv_nsec: timeout.subsec_nanos() as _,
            }
        });
        let buffer = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whom an event concerns.
    pub(super) fn hear(&self, event: &Event) -> Option<Heard> {
        let (data, flags) = (event.data.u64(), event.flags);
        if data == DOORBELL {
            return Some(Heard::Doorbell);
        }
        let watch = self.by_fd.get(data as usize)?;
        // An error or a hang-up concerns both sides: their next call will find out.
        let hung_up = flags.intersects(HUNG_UP);
        Some(Heard::Fd {
            reader: watch
                .reader
                .filter(|_| hung_up || flags.contains(EventFlags::IN)),
            writer: watch
                .writer
                .filter(|_| hung_up || flags.contains(EventFlags::OUT)),
            hung_up,
        })
    }
}
