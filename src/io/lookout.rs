//! Tells one thread of what comes to event sources that nobody waits for, because their owners
//! compute.
//!
//! One epoll set has all sources, and the thread [waits](Lookout::wait) on it. A source that is an
//! epoll instance joins the set when it is first watched, since the kernel does a little more for
//! it from then on. It is told of once for each watch. A ring writes to an eventfd, unless a flag
//! beside its queue forbids that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of the event that ends the wait for good.
const END: u64 = u64::MAX;
/// Beside a core's number: its timer, and not its source.
const TIMER: u64 = 1 << 32;
/// Taken from the kernel at once.
const EVENTS_MAX: usize = 16;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Lookout {
    set: OwnedFd,
    watches: Box<[Watch]>,
    end: super::Doorbell,
}

/// Of a core's source.
#[derive(Debug)]
struct Watch {
    /// Its epoll instance is in the set.
    in_set: AtomicBool,
    /// That is watched.
    watched: AtomicBool,
    /// Rings at a moment, by the clock of the caller in ns; `u64::MAX` while it is not set.
    timer: OwnedFd,
    timer_ns: AtomicU64,
}

impl Lookout {
    /// Of this number of sources.
    ///
    /// # Errors
    /// If the kernel refuses what it takes.
    pub(crate) fn new(cores: usize) -> io::Result<Lookout> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        let end = super::Doorbell::eventfd()?;
        if let Some(fd) = end.watched() {
            epoll::add(&set, fd, EventData::new_u64(END), EventFlags::IN)?;
        }
        let watch = |core| {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let data = EventData::new_u64(core as u64 | TIMER);
            epoll::add(&set, &timer, data, EventFlags::IN | EventFlags::ET)?;
            Ok(Watch {
                in_set: AtomicBool::new(false),
                watched: AtomicBool::new(false),
                timer,
                timer_ns: AtomicU64::new(u64::MAX),
            })
        };
        let watches = (0..cores).map(watch).collect::<io::Result<_>>()?;
        Ok(Lookout { set, watches, end })
    }

    /// From now on the core is told of whenever this eventfd is written to.
    pub(super) fn add_eventfd(&self, core: usize, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        let data = EventData::new_u64(core as u64);
        let edges = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.set, eventfd, data, edges)?)
    }

    /// The core is told of once, when its epoll instance has something to tell, now or later. By
    /// who has the core's source.
    pub(super) fn watch(&self, core: usize, epoll: BorrowedFd<'_>) {
        if !self.watches[core].watched.swap(true, Ordering::AcqRel) {
            self.set_events(core, epoll, EventFlags::IN | EventFlags::ONESHOT);
        }
    }

    /// It is not told of any more.
    pub(super) fn let_go(&self, core: usize, epoll: BorrowedFd<'_>) {
        let watched = &self.watches[core].watched;
        if watched.load(Ordering::Relaxed) && watched.swap(false, Ordering::AcqRel) {
            self.set_events(core, epoll, EventFlags::empty());
        }
    }

    fn set_events(&self, core: usize, epoll: BorrowedFd<'_>, events: EventFlags) {
        let data = EventData::new_u64(core as u64);
        // Where the kernel refuses, what comes waits for its core, as where nobody watches.
        let _ = match self.watches[core].in_set.swap(true, Ordering::Relaxed) {
            true => epoll::modify(&self.set, epoll, data, events),
            false => epoll::add(&self.set, epoll, data, events),
        };
    }

    /// The core is told of at `due_ns`, or before. It is `now_ns`.
    pub(crate) fn watch_timer(&self, core: usize, due_ns: u64, now_ns: u64) {
        let watch = &self.watches[core];
        if due_ns < watch.timer_ns.load(Ordering::Acquire) {
            watch.set_timer(due_ns, now_ns);
        }
    }

    /// Waits until something has come, and names the cores. False: the [end](Self::end).
    pub(crate) fn wait(&self, mut seen: impl FnMut(usize)) -> bool {
        let mut events = Vec::<Event>::with_capacity(EVENTS_MAX);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.set, buffer, None::<&Timespec>) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        for event in events {
            let data = event.data.u64();
            if data == END {
                return false;
            }
            let core = (data & !TIMER) as usize;
            let watch = &self.watches[core];
            // Before the caller looks who sleeps: who has found it watched, and did nothing, has
            // said so before.
            if data & TIMER == 0 {
                watch.watched.swap(false, Ordering::AcqRel);
            } else {
                watch.timer_ns.swap(u64::MAX, Ordering::AcqRel);
            }
            seen(core);
        }
        true
    }

    /// Ends the wait.
    pub(crate) fn end(&self) {
        self.end.ring();
    }
}

impl Watch {
    /// Of two that set it at once the later moment may win; then what is due is seen later, or by
    /// its core.
    fn set_timer(&self, due_ns: u64, now_ns: u64) {
        self.timer_ns.store(due_ns, Ordering::Release);
        // No time at all would mean never.
        let after = Duration::from_nanos(due_ns.saturating_sub(now_ns).max(1));
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: after.as_secs() as i64,
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        let _ = timerfd_settime(self.timer.as_fd(), TimerfdTimerFlags::empty(), &once);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Doorbell;

    /// Who is told of, before a wait that another ring ends.
    fn seen(lookout: &Lookout) -> Vec<usize> {
        let mut all = Vec::new();
        lookout.end();
        while lookout.wait(|core| all.push(core)) {}
        all
    }

    fn once(lookout: &Lookout) -> Vec<usize> {
        let mut all = Vec::new();
        assert!(lookout.wait(|core| all.push(core)));
        all
    }

    #[test]
    fn what_is_watched_is_told_once() {
        let lookout = Lookout::new(2).unwrap();
        let sources = [(); 2].map(|()| Doorbell::eventfd().unwrap());
        let fd = |core: usize| sources[core].watched().unwrap();
        sources.iter().for_each(Doorbell::ring);
        for _ in 0..2 {
            lookout.watch(1, fd(1));
            lookout.watch(1, fd(1));
            assert_eq!(once(&lookout), [1]);
        }
        lookout.watch(1, fd(1));
        lookout.let_go(1, fd(1));
        assert_eq!(seen(&lookout), [], "it is readable, and not watched");
    }

    #[test]
    fn each_write_to_an_eventfd_is_told() {
        let lookout = Lookout::new(2).unwrap();
        let source = Doorbell::eventfd().unwrap();
        lookout.add_eventfd(1, source.watched().unwrap()).unwrap();
        for _ in 0..2 {
            source.ring();
            assert_eq!(once(&lookout), [1]);
        }
        assert_eq!(seen(&lookout), []);
    }

    #[test]
    fn a_timer_is_told_when_it_is_due() {
        let lookout = Lookout::new(2).unwrap();
        for _ in 0..2 {
            lookout.watch_timer(1, 3_000, 2_000);
            assert_eq!(once(&lookout), [1]);
        }
    }
}
