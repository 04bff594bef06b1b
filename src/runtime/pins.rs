//! Which threads are pinned to which processors.
//!
//! A thread that is pinned finds its caches as it left them, and has the distances to others by
//! which thieves go (Mely §IV-C). It is also a claim to a processor, of which no other program
//! knows. Hence, unless the builder says otherwise:
//!
//! - A runtime that takes *all* processors of its affinity mask, as many as its CPU quota grants,
//!   pins its threads. There is one of them on each processor, so wherever the threads of other
//!   programs are, none of its own would be better off elsewhere; and two such programs share each
//!   processor evenly.
//! - One that takes *fewer* does not. It cannot know which of them are free, and if it chose, then
//!   so would the next program: two servers with one core each, or 64 containers with a quota of
//!   one processor and a mask of all, would share the first processor while the others idle. To
//!   choose by the load of the moment, by chance, or anew now and then makes such an encounter
//!   rarer and not shorter, and is what the system's scheduler does all the time, knowing more.
//! - One that follows its processors does not either: sooner or later it has fewer of them working.
//!
//! A processor may go offline before a thread is pinned to it, may have a number beyond those of a
//! mask ([`CpuSet::MAX_CPU`]), or pinning may be forbidden altogether, as sandboxes do. Such a
//! thread runs wherever the system puts it, and [`CoreStats::pin_refused`] says why. It is an
//! error only if the program has asked for pinned threads.
//!
//! [`CoreStats::pin_refused`]: crate::metrics::CoreStats::pin_refused

use crate::topology::Topology;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// The processor of each of so many cores, in turn, if their threads are to be pinned. `available`:
/// of the processors so many may be used at a time. `asked`: what the builder was told.
pub(super) fn choose(
    topology: &Topology,
    cores: usize,
    available: usize,
    follows: bool,
    asked: Option<bool>,
) -> Option<Vec<u32>> {
    let processors = topology.cores();
    let takes_all = cores >= processors.len() && available >= processors.len();
    let pin = |core: usize| processors[core % available].cpu;
    asked
        .unwrap_or(takes_all && !follows)
        .then(|| (0..cores).map(pin).collect())
}

/// Pins the calling thread. The error says to what.
pub(super) fn pin(cpu: u32) -> io::Result<()> {
    let refused = |kind, why: String| {
        let text = format!("sched_setaffinity to processor {cpu}: {why}");
        Err(io::Error::new(kind, text))
    };
    if cpu as usize >= CpuSet::MAX_CPU {
        let why = format!("a mask has room for {}", CpuSet::MAX_CPU);
        return refused(io::ErrorKind::Unsupported, why);
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    match sched_setaffinity(None, &set) {
        Ok(()) => Ok(()),
        Err(errno) => {
            let error = io::Error::from(errno);
            refused(error.kind(), error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_all_processors_is_pinned_unless_the_builder_says_otherwise() {
        let four = Topology::flat(8).unwrap().restrict(&[1, 2, 5, 7]);
        let (four, cpus) = (four.unwrap(), vec![1, 2, 5, 7]);
        let chosen = |cores, available, follows, asked| {
            let chosen = choose(&four, cores, available, follows, asked);
            chosen.map(|pins| pins.len())
        };
        assert_eq!(choose(&four, 4, 4, false, None), Some(cpus));
        assert_eq!(chosen(5, 4, false, None), Some(5), "and shares them");
        assert_eq!(chosen(3, 4, false, None), None, "others have the rest");
        assert_eq!(chosen(2, 2, false, None), None, "a quota of two");
        assert_eq!(chosen(4, 2, false, None), None, "and more cores than that");
        assert_eq!(
            chosen(4, 4, true, None),
            None,
            "sooner or later it has fewer"
        );
        assert_eq!(chosen(4, 4, false, Some(false)), None);
        assert_eq!(choose(&four, 1, 4, true, Some(true)), Some(vec![1]));
        assert_eq!(choose(&four, 3, 2, true, Some(true)), Some(vec![1, 2, 1]));
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error_that_names_it() {
        for (cpu, why) in [
            (1_023, "Invalid argument (os error 22)"),
            (1_024, "a mask has room for 1024"),
            (8_191, "a mask has room for 1024"),
        ] {
            let error = pin(cpu).unwrap_err().to_string();
            let expected = format!("sched_setaffinity to processor {cpu}: {why}");
            assert_eq!(error, expected);
        }
    }
}
