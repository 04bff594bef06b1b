//! Where the rebuilt schedulers and the workloads have their atomics, locks and clock from: std's,
//! or with the feature `machine` those that on virtual cores take the time of a machine that a file
//! describes.

use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Duration;

#[cfg(feature = "machine")]
pub use mely::sim::machine::charge;
#[cfg(feature = "machine")]
pub use mely::sim::machine::sync::{
    Mutex, MutexGuard, MutexGuard as SpinMutexGuard, SpinMutex, atomic,
};
#[cfg(not(feature = "machine"))]
pub use spin::mutex::{SpinMutex, SpinMutexGuard};
#[cfg(not(feature = "machine"))]
pub use std::sync::{Mutex, MutexGuard, atomic};

/// What has no type that charges for itself costs nothing here.
#[cfg(not(feature = "machine"))]
#[allow(missing_docs, reason = "they are nothing")]
pub mod charge {
    #[inline(always)]
    pub fn reach<T>(_: *const T) {}
    #[inline(always)]
    pub fn follow<T>(_: *const T) {}
    #[inline(always)]
    pub fn store<T>(_: *const T) {}
    #[inline(always)]
    pub fn read<T: ?Sized>(_: &T) {}
    #[inline(always)]
    pub fn write<T: ?Sized>(_: &T) {}
    #[inline(always)]
    pub fn name<T: ?Sized>(_: &T, _: &str, _: usize) {}
    #[inline(always)]
    pub fn name_next(_: *const u8, _: usize, _: &str) {}
    #[inline(always)]
    pub fn post() {}
    #[inline(always)]
    pub fn run() {}
    #[inline(always)]
    pub fn pauses(pauses: u32) {
        (0..pauses).for_each(|_| std::hint::spin_loop());
    }
}

/// The time since some moment before the run; on a virtual core it takes a while to read.
#[inline]
pub fn now() -> Duration {
    #[cfg(feature = "machine")]
    if let Some(ns) = charge::clock_ns().or_else(charge::now_ns) {
        return Duration::from_nanos(ns);
    }
    use std::sync::OnceLock;
    use std::time::Instant;
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed()
}

/// Begins a thread that is none of the scheduler's.
pub fn spawn(f: impl FnOnce() + Send + 'static) {
    #[cfg(feature = "machine")]
    if charge::is_charged()
        && let Some(simulator) = crate::simulated::simulator()
    {
        return simulator.begin(Box::new(f));
    }
    std::thread::spawn(f);
}

/// Leaves the processor for so long.
pub fn sleep(time: Duration) {
    #[cfg(feature = "machine")]
    if let Some(now_ns) = charge::now_ns()
        && charge::is_charged()
    {
        return charge::sleep(Some(now_ns + time.as_nanos() as u64));
    }
    std::thread::sleep(time);
}

/// Lets a core sleep until another one wakes it. Threads read a pipe. Virtual cores are all on one
/// thread, which a read would block: they sleep in virtual time.
#[derive(Debug)]
pub struct Pipe {
    #[cfg_attr(not(feature = "machine"), allow(dead_code))]
    core: usize,
    ends: (PipeReader, PipeWriter),
}

impl Pipe {
    /// That of a core.
    ///
    /// # Errors
    /// If the system refuses a pipe.
    pub fn new(core: usize) -> io::Result<Pipe> {
        let ends = pipe()?;
        Ok(Pipe { core, ends })
    }

    /// Sleeps until [`write`](Self::write), which may have been before. May return early.
    pub fn read(&self) {
        #[cfg(feature = "machine")]
        if charge::is_charged() {
            return charge::sleep(None);
        }
        let read = (&self.ends.0).read_exact(&mut [0]);
        read.expect("the writer is open");
    }

    /// Wakes the core that sleeps, or is about to.
    pub fn write(&self) {
        #[cfg(feature = "machine")]
        if charge::is_charged() {
            return charge::wake(self.core);
        }
        let written = (&self.ends.1).write_all(&[0]);
        written.expect("the reader is open, and has read the last byte");
    }
}

/// Runs `body` for each core, by its number: on threads pinned to cores, or on virtual ones.
///
/// # Errors
/// A core whose body panicked; or what stopped the virtual ones.
pub fn on_cores(
    cores: usize,
    name: impl FnOnce() + 'static,
    body: impl Fn(usize) + Clone + Send + 'static,
) -> Result<(), String> {
    #[cfg(feature = "machine")]
    if let Some(simulator) = crate::simulated::simulator() {
        let bodies = (0..cores).map(|core| {
            let body = body.clone();
            Box::new(move || body(core)) as crate::simulated::Body
        });
        return simulator.run(Box::new(name), bodies.collect());
    }
    drop(name);
    let threads: Vec<_> = (0..cores)
        .map(|core| {
            let body = body.clone();
            std::thread::spawn(move || {
                crate::machine::pin(core);
                body(core);
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| {
        let joined = thread.join();
        joined.map_err(|_| "a handler panicked; its message is above".to_owned())
    })
}
