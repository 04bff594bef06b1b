//! Pinning, and what the machine itself costs.

use mely::topology::Topology;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

unsafe extern "C" {
    /// The C library's, which std links anyway: not worth a dependency.
    fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
}

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

/// How many cores there are to measure on.
pub fn cores() -> usize {
    processors().len()
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
    let mut mask = [0u64; 16];
    for &core in cores {
        let processor = processors()[core] as usize;
        mask[processor / 64] |= 1 << (processor % 64);
    }
    // SAFETY: the mask lives through the call and is as long as the call is told.
    let result = unsafe { sched_setaffinity(0, size_of_val(&mask), mask.as_ptr()) };
    assert_eq!(result, 0, "cannot pin a thread to cores {cores:?}");
}

#[repr(align(128))]
struct Line(AtomicU64);

/// The raw one-way cost, in ns, of moving a cache line between two cores at this moment: two pinned
/// threads hand a word to and fro. It drifts as a hypervisor moves its processors about, so it is
/// measured beside each repetition.
pub fn line_transfer_ns(a: usize, b: usize) -> f64 {
    const ROUNDS: u64 = 20_000;
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
