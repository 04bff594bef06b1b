//! Tells a core that a time of day has come, also if the clock is set meanwhile or the machine was
//! suspended.

use super::Fd;
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A timer of the kernel's by `CLOCK_REALTIME`, whose descriptor becomes readable. The kernel keeps
/// the time itself, and looks at it again when the clock is set.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    /// When it rings, if it is set.
    at_ns: Option<u64>,
}

impl Alarm {
    /// One that is not set.
    pub(crate) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        Ok(Alarm { timer, at_ns: None })
    }

    /// What an event source is to watch, for as long as this is there.
    pub(crate) fn fd(&self) -> Fd {
        Fd::from_raw(self.timer.as_raw_fd())
    }

    /// It rings once it is this long after 1970, and not at the moment that was set before.
    pub(crate) fn set(&mut self, at_ns: u64) -> io::Result<()> {
        if self.at_ns == Some(at_ns) {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: (at_ns / 1_000_000_000) as i64,
                // No time at all would mean never.
                tv_nsec: (at_ns % 1_000_000_000).max(1) as _,
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.at_ns = Some(at_ns);
        Ok(())
    }

    /// It has rung, or may have: from now on it is not set.
    pub(crate) fn hear(&mut self) {
        // One that has not rung would block, which is as good.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.at_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::time::{Duration, SystemTime};

    fn wall_ns() -> u64 {
        let now = SystemTime::now();
        now.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64
    }

    fn rings_within(alarm: &Alarm, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).unwrap();
        let mut polled = [PollFd::new(&alarm.timer, PollFlags::IN)];
        poll(&mut polled, Some(&timeout)).unwrap() == 1
    }

    #[test]
    fn it_rings_at_the_time_that_was_set_last() {
        let mut alarm = Alarm::new().unwrap();
        assert!(!rings_within(&alarm, Duration::ZERO), "not set");
        // Long ago; at the beginning; soon.
        for at_ns in [1, 0, wall_ns() + 2_000_000] {
            alarm.set(wall_ns() + 3_600_000_000_000).unwrap();
            assert!(!rings_within(&alarm, Duration::ZERO));
            alarm.set(at_ns).unwrap();
            assert!(rings_within(&alarm, Duration::from_secs(20)));
            assert!(wall_ns() >= at_ns, "early");
            alarm.hear();
            assert!(!rings_within(&alarm, Duration::ZERO), "heard");
        }
        alarm.set(u64::MAX / 2).unwrap();
        assert!(!rings_within(&alarm, Duration::ZERO));
    }
}
