//! Time, as exact as each use of it needs, since an answer costs less than reading the clock well.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use crate::respond::DATE_BYTES;

/// The longest time between two ticks of the kernel, with which the cheap clock goes.
const TICK_MAX: Duration = Duration::from_millis(10);

/// A time that has gone by since some point in the past.
pub(crate) type Time = Duration;

/// What time it is.
pub(crate) fn now() -> Time {
    read(libc::CLOCK_MONOTONIC)
}

/// What time it was at the kernel's last tick: at most [`TICK_MAX`] ago, for a fifth of the price.
pub(crate) fn at_tick() -> Time {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// A time that is not over yet, if `tick` is what [`at_tick`] just said: deadlines that are counted
/// from it do not pass early.
pub(crate) fn not_before(tick: Time) -> Time {
    tick + TICK_MAX
}

fn read(clock: libc::clockid_t) -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes a `timespec`, which `time` is, and keeps nothing.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    // These clocks are older than anything else here that asks the kernel.
    assert_eq!(failed, 0, "the kernel has no clock {clock}");
    // Neither is negative, and there are fewer nanoseconds than a second has.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The date of an answer, a line's end included.
pub(crate) type Date = [u8; DATE_BYTES];

/// A date, and until when it is the right one.
#[derive(Clone, Copy)]
struct Dated {
    text: Date,
    until: Time,
}

thread_local! {
    /// Each core keeps its own, so that none waits for another.
    static DATED: Cell<Dated> = const {
        Cell::new(Dated {
            text: [0; DATE_BYTES],
            until: Duration::ZERO,
        })
    };
}

/// The date, if `tick` is what [`at_tick`] just said. Made anew when its second is over.
pub(crate) fn date(tick: Time) -> Date {
    DATED.with(|dated| {
        let mut here = dated.get();
        if tick >= here.until {
            here = dated_now();
            dated.set(here);
        }
        here.text
    })
}

fn dated_now() -> Dated {
    let (real, monotonic) = (SystemTime::now(), now());
    let since_epoch = real
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let into_second = Duration::from_nanos(since_epoch.subsec_nanos().into());
    let text = format!("{}\r\n", httpdate::HttpDate::from(real));
    Dated {
        text: text.as_bytes().try_into().expect("the length of a date"),
        until: monotonic + Duration::from_secs(1) - into_second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(date: Date) -> SystemTime {
        let text = std::str::from_utf8(&date).unwrap();
        let text = text.strip_suffix("\r\n").unwrap();
        httpdate::parse_http_date(text).unwrap()
    }

    #[test]
    fn the_date_is_that_of_the_second() {
        let mut made = 0;
        let mut last = [0; DATE_BYTES];
        let began = SystemTime::now() - Duration::from_secs(1) - TICK_MAX;
        while made < 3 {
            let date = date(at_tick());
            if date != last {
                made += 1;
                last = date;
            }
            let read = read(date);
            assert!(read >= began && read <= SystemTime::now(), "{read:?}");
        }
    }

    #[test]
    fn a_date_is_made_anew_only_when_its_second_is_over() {
        let tick = at_tick();
        let first = date(tick);
        let until = DATED.with(|dated| dated.get().until);
        assert!(until > tick && until <= now() + Duration::from_secs(1));
        // Spoiled, so that it is seen whether it is made anew.
        let spoiled = Dated {
            text: [b'x'; DATE_BYTES],
            until,
        };
        DATED.with(|dated| dated.set(spoiled));
        let just_before = until - Duration::from_nanos(1);
        assert_eq!(date(just_before), spoiled.text);
        let next = date(until);
        assert!(read(next) >= read(first));
    }

    #[test]
    fn the_cheap_clock_is_late_by_a_tick_at_most() {
        for _ in 0..1000 {
            let (before, tick, after) = (now(), at_tick(), now());
            assert!(tick <= after && not_before(tick) >= before);
        }
    }
}
