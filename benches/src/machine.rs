//! Pinning, and what the machine itself costs.

use crate::workloads::spin;
use mely::topology::Topology;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};

/// The processors this process may use, in the order in which mely numbers its cores.
fn processors() -> &'static [u32] {
    static PROCESSORS: OnceLock<Vec<u32>> = OnceLock::new();
    PROCESSORS.get_or_init(|| {
        let topology = Topology::detect().expect("mely reads the same topology");
        let usable = topology.usable_parallelism();
        let cores = topology.cores().iter().take(usable);
        cores.map(|core| core.cpu).collect()
    })
}

/// Looks at the machine now, before any thread is pinned: a pinned one sees a single processor.
pub fn detect() {
    processors();
}

/// How many cores there are to measure on.
pub fn cores() -> usize {
    processors().len()
}

/// Of each of a scheduler's cores, the others by distance, then by number, round about.
///
/// # Errors
/// If the machine has fewer.
pub fn nearest(scheduler_cores: usize) -> Result<Vec<Vec<usize>>, String> {
    #[cfg(feature = "machine")]
    if let Some(simulator) = crate::simulated::simulator() {
        let topology = simulator.topology(scheduler_cores)?;
        return Ok(by_distance(&topology, scheduler_cores));
    }
    let topology = Topology::detect().map_err(|error| error.to_string())?;
    let has = topology.cores().len();
    if scheduler_cores > has {
        return Err(format!("{scheduler_cores} cores on {has} processors"));
    }
    Ok(by_distance(&topology, scheduler_cores))
}

fn by_distance(topology: &Topology, cores: usize) -> Vec<Vec<usize>> {
    let others = |core: usize| {
        let mut others: Vec<_> = (1..cores).map(|by| (core + by) % cores).collect();
        others.sort_by_key(|&other| topology.distance(core, other));
        others
    };
    (0..cores).map(others).collect()
}

/// Pins the calling thread to a core, numbered as mely does.
///
/// # Panics
/// If there is no such core, or the system refuses: a figure of a thread that wanders is none.
pub fn pin(core: usize) {
    pin_to(&[core]);
}

/// Keeps the calling thread, and what it starts, on these cores.
///
/// # Panics
/// As [`pin`].
pub fn pin_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(processors()[core] as usize);
    }
    sched_setaffinity(None, &set)
        .unwrap_or_else(|error| panic!("cannot pin a thread to cores {cores:?}: {error}"));
}

/// Pins a thread that is none of a scheduler's, the `number`-th of them, to a core that the
/// scheduler leaves free, or else as [`pin_over`].
pub fn pin_foreign(number: usize, scheduler_cores: usize) {
    // Virtual cores are not processors.
    #[cfg(feature = "machine")]
    if crate::simulated::is_set() {
        return;
    }
    match cores() - scheduler_cores {
        0 => pin_over(number, scheduler_cores),
        free => pin(scheduler_cores + number % free),
    }
}

/// Pins a thread that is none of a scheduler's, the `number`-th of them, to one of the scheduler's
/// cores.
pub fn pin_over(number: usize, scheduler_cores: usize) {
    pin(number % scheduler_cores);
}

/// CPU time of the whole process so far.
pub fn cpu_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread so far.
pub fn thread_cpu_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of another process so far.
///
/// # Errors
/// If there is no such process.
pub fn cpu_time_of(pid: u32) -> std::io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is this frame's, and may be written to through the call.
    match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) } {
        0 => Ok(time_of(clock)),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// By the C library: rustix looks for the kernel's own function, which is not there under valgrind.
fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is this frame's, and may be written to through the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "every Linux has the CPU time clocks");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How fast a core is at this moment: what a multiplication and a rotation take one after the
/// other, in ns. They are 4 cycles on the x86-64 processors of a decade, so 4 over this is the
/// clock in GHz. A virtual processor has no other way to tell.
pub fn step_ns(core: usize) -> f64 {
    std::thread::scope(|scope| {
        let timer = scope.spawn(move || {
            pin(core);
            spin::step_ns()
        });
        timer.join().expect("the timing thread does not panic")
    })
}

#[repr(align(128))]
struct Line(AtomicU64);

/// The raw one-way cost, in ns, of moving a cache line between two cores at this moment: two pinned
/// threads hand a word to and fro. It drifts as a hypervisor moves its processors about, so it is
/// measured beside each repetition.
pub fn line_transfer_ns(a: usize, b: usize) -> f64 {
    const ROUNDS: u64 = 5_000;
    let (ping, pong) = (&Line(AtomicU64::new(0)), &Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(b);
            for round in 1..=ROUNDS {
                wait(ping, round);
                pong.0.store(round, Release);
            }
        });
        let timer = scope.spawn(move || {
            pin(a);
            // The first round waits for the other thread to start.
            ping.0.store(1, Release);
            wait(pong, 1);
            let start = Instant::now();
            for round in 2..=ROUNDS {
                ping.0.store(round, Release);
                wait(pong, round);
            }
            start.elapsed().as_nanos() as f64 / (2 * (ROUNDS - 1)) as f64
        });
        timer.join().expect("the timing thread does not panic")
    })
}

fn wait(line: &Line, value: u64) {
    while line.0.load(Acquire) != value {
        std::hint::spin_loop();
    }
}
