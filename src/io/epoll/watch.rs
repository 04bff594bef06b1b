//! Which descriptor is registered for what.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::super::{Doorbell, Fd, Op, Side, kernel};

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
    /// The kernel, or a filter of system calls, refuses the wait that counts nanoseconds.
    counts_ms: bool,
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
            counts_ms: false,
        })
    }

    /// The epoll instance, which is readable while the kernel has something to tell.
    pub(super) fn set(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
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
        &mut self,
        events: &mut Vec<Event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.listen_by(kernel::epoll_pwait2, events, timeout)
    }

    /// Does so by the call `exact` where the timeout asks for it, as long as that is not refused.
    /// Otherwise the timeout is rounded up to milliseconds.
    fn listen_by(
        &mut self,
        exact: impl FnOnce(BorrowedFd<'_>, &mut Vec<Event>, &Timespec) -> Result<(), Errno>,
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
        if let Some(timeout) = &timeout
            && !self.counts_ms
            && timeout.tv_nsec % 1_000_000 != 0
        {
            match exact(self.epoll.as_fd(), events, timeout) {
                Ok(()) | Err(Errno::INTR) => return Ok(()),
                Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => self.counts_ms = true,
                Err(errno) => return Err(errno.into()),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_micros(50);

    fn watches() -> (Watches, Vec<Event>) {
        let doorbell = Doorbell::eventfd().unwrap();
        (Watches::new(&doorbell).unwrap(), Vec::with_capacity(8))
    }

    /// Returns the timeout that the exact call is given, if it is called; it answers `answer`.
    fn asked(
        watches: &mut Watches,
        timeout: Option<Duration>,
        answer: Result<(), Errno>,
    ) -> Option<Timespec> {
        let mut asked = None;
        let exact = |_: BorrowedFd<'_>, _: &mut Vec<Event>, timeout: &Timespec| {
            asked = Some(*timeout);
            answer
        };
        let mut events = Vec::with_capacity(8);
        watches.listen_by(exact, &mut events, timeout).unwrap();
        asked
    }

    #[test]
    fn a_timeout_is_not_rounded_to_milliseconds() {
        let (mut watches, _) = watches();
        for (timeout, sec, nsec) in [
            (MOMENT, 0, 50_000),
            (Duration::new(2, 1), 2, 1),
            (Duration::from_nanos(1_000_001), 0, 1_000_001),
        ] {
            let asked = asked(&mut watches, Some(timeout), Ok(())).expect("the exact call");
            assert_eq!((asked.tv_sec, asked.tv_nsec), (sec, nsec), "{timeout:?}");
        }
        // That needs no more than milliseconds.
        for timeout in [Duration::ZERO, Duration::from_millis(1)] {
            assert!(asked(&mut watches, Some(timeout), Ok(())).is_none());
        }
    }

    #[test]
    fn a_kernel_that_refuses_to_count_nanoseconds_is_asked_once() {
        for errno in [Errno::NOSYS, Errno::PERM, Errno::ACCESS] {
            let (mut watches, _) = watches();
            assert!(asked(&mut watches, Some(MOMENT), Err(Errno::INTR)).is_some());
            assert!(asked(&mut watches, Some(MOMENT), Err(errno)).is_some());
            assert!(asked(&mut watches, Some(MOMENT), Err(errno)).is_none());
        }
    }

    #[test]
    fn the_exact_call_tells_the_same_as_the_other() {
        let doorbell = Doorbell::eventfd().unwrap();
        let mut watches = Watches::new(&doorbell).unwrap();
        doorbell.ring();
        let mut events = Vec::with_capacity(8);
        let exact = kernel::epoll_pwait2;
        // A kernel before 5.11 has none, and is asked for the other.
        for expected in [1, 0] {
            watches.listen_by(exact, &mut events, Some(MOMENT)).unwrap();
            assert_eq!(events.len(), expected);
        }
        watches.listen_by(exact, &mut events, Some(MOMENT)).unwrap();
        doorbell.ring();
        watches.listen_by(exact, &mut events, Some(MOMENT)).unwrap();
        let [event] = &events[..] else {
            panic!("{} events", events.len());
        };
        assert!(matches!(watches.hear(event), Some(Heard::Doorbell)));
    }
}
