//! What the machine that this runs on costs.
//!
//! Each number is taken in several rounds, all numbers in each round, so that what drifts shows in
//! all of them; a round takes the median of short trials. What is written is the median of the
//! rounds. If they differ by more than a tenth of it, the number is called unsteady, and the least
//! and the largest are written beside it.

mod events;
mod memory;
mod threads;

use mely::topology::{CacheKind, Distance, Topology};
use mely_hardware::{Key, LONG_SLEEP_NS, Machine, Number, Place, SHORT_SLEEP_NS};
use std::collections::BTreeMap;
use std::time::Instant;

/// Rounds.
const ROUNDS: usize = 7;
/// The same in a hurry.
const ROUNDS_QUICK: usize = 2;
/// Most of what the rounds of a steady number differ by, as a part of it.
const STEADY: f64 = 0.1;
/// The most pairs of cores at one distance that are measured.
const PAIRS_MAX: usize = 3;
/// What a core that has a line is taken to keep it for, in ns: stores that are made one after the
/// other reach the cache together.
const HOLD_NS: f64 = 20.0;
/// For what a core goes on with while it waits for a load, in ns: 256 to 448 instructions, three a
/// cycle.
const REORDER_NS: f64 = 30.0;

/// Measures this machine; returns the text of its file.
///
/// # Errors
/// If the topology cannot be read, or a thread cannot be pinned; and if what was measured is no
/// machine, which the file would be refused for.
pub fn measure(quick: bool) -> Result<String, String> {
    if cfg!(feature = "simulate") {
        return Err(
            "this build simulates, and its scheduler is not the one that ships: \
             measure with a build without the feature `simulate`"
                .into(),
        );
    }
    let topology = Topology::detect().map_err(|error| error.to_string())?;
    let usable = topology.usable_parallelism();
    let topology = topology.take(usable).map_err(|error| error.to_string())?;
    let rounds = if quick { ROUNDS_QUICK } else { ROUNDS };
    let mut taken: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        round(&topology, &mut |key, ns| {
            taken.entry(key).or_default().push(ns)
        })?;
    }
    let mut numbers: BTreeMap<Key, Number> = BTreeMap::new();
    for (key, values) in taken {
        numbers.insert(key, number(values));
    }
    for cache in topology.caches() {
        if cache.kind == CacheKind::Instruction {
            continue;
        }
        let bytes = cache.size_bytes.ok_or_else(|| {
            format!(
                "the system does not say how large the level {} cache is",
                cache.level
            )
        })?;
        let number = Number {
            amount: bytes as f64,
            source: "the topology".into(),
        };
        numbers.insert(Key::Bytes(cache.level), number);
    }
    for (key, amount) in [(Key::Hold, HOLD_NS), (Key::Reorder, REORDER_NS)] {
        let source = "assumed".into();
        numbers.insert(key, Number { amount, source });
    }
    let machine = Machine::new(&name(), topology, numbers).map_err(|error| error.to_string())?;
    Ok(format!(
        "# Measured by `mely-machine measure`: the median of {rounds} rounds is written.\n{}",
        machine.to_text(),
    ))
}

/// The median, and whether it is steady.
fn number(mut values: Vec<f64>) -> Number {
    values.sort_by(f64::total_cmp);
    let round = |ns: f64| (ns * 100.0).round() / 100.0;
    let (least, most) = (values[0], values[values.len() - 1]);
    let median = values[values.len() / 2];
    let source = if most - least > STEADY * median {
        format!("measured, unsteady: {} to {}", round(least), round(most))
    } else {
        "measured".into()
    };
    Number {
        amount: round(median).max(0.01),
        source,
    }
}

/// What the processor calls itself.
fn name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, name)| name.trim());
    model
        .filter(|name| !name.is_empty())
        .unwrap_or("this machine")
        .to_owned()
}

/// Takes each number once.
fn round(topology: &Topology, take: &mut (dyn FnMut(Key, f64) + Send)) -> Result<(), String> {
    let cpu = |core: usize| topology.cores()[core].cpu;
    // In threads of their own: this one stays where it may be.
    threads::on(cpu(0), || {
        levels(topology, &mut *take);
        take(Key::Clock, clock_ns());
        take(Key::Pause, pause_ns());
        take(Key::Rmw(Distance::SameCore), memory::rmw_own_ns());
    })?;
    for (distance, pairs) in pairs(topology) {
        let mut of = |key: fn(Distance) -> Key,
                      measure: &dyn Fn(u32, u32) -> Result<f64, String>| {
            let each = pairs.iter().map(|&(a, b)| measure(cpu(a), cpu(b)));
            let all: Vec<f64> = each.collect::<Result<_, _>>()?;
            take(key(distance), median(all));
            Ok::<(), String>(())
        };
        of(Key::Transfer, &|a, b| {
            memory::transfer_ns(a, b, memory::How::Scattered)
        })?;
        of(Key::TransferRow, &|a, b| {
            memory::transfer_ns(a, b, memory::How::InRow)
        })?;
        of(Key::Rmw, &|a, b| {
            memory::transfer_ns(a, b, memory::How::Rmw)
        })?;
    }
    if let Some((_, near)) = pairs(topology).first() {
        take(Key::Holders, holders(cpu(near[0].0), cpu(near[0].1))?);
    }
    let far = pairs(topology).last().map(|(_, pairs)| pairs[0]);
    let (a, b) = far.unwrap_or((0, 0));
    let (waker, sleeper) = threads::wake_ns(cpu(a), cpu(b), SHORT_SLEEP_NS, 300)?;
    take(Key::Waker, waker);
    take(Key::Sleeper, sleeper);
    let (_, long_sleeper) = threads::wake_ns(cpu(a), cpu(b), LONG_SLEEP_NS, 40)?;
    // Where neighbors wake up meanwhile it may come out shorter, which no file may say.
    take(Key::LongSleeper, long_sleeper.max(sleeper));
    let events = events::costs()?;
    take(Key::Post, events.post);
    take(Key::Run, events.run);
    take(Key::Send, events.send);
    take(Key::Turn, events.turn);
    take(Key::Queue, events.queue);
    take(Key::Step, events.step);
    Ok(())
}

/// Whether a line migrates: then to write it costs little more where it was loaded before.
fn holders(a: u32, b: u32) -> Result<f64, String> {
    let foreign_ns = memory::transfer_ns(a, b, memory::How::Rmw)?;
    let loaded_ns = memory::transfer_ns(a, b, memory::How::RmwLoaded)?;
    Ok(if loaded_ns < foreign_ns / 2.0 {
        1.0
    } else {
        2.0
    })
}

/// Some pairs of cores at each distance.
fn pairs(topology: &Topology) -> Vec<(Distance, Vec<(usize, usize)>)> {
    let mut by_distance: BTreeMap<Distance, Vec<(usize, usize)>> = BTreeMap::new();
    let cores = topology.cores().len();
    for a in 0..cores {
        for b in a + 1..cores {
            by_distance
                .entry(topology.distance(a, b))
                .or_default()
                .push((a, b));
        }
    }
    let some = |pairs: Vec<(usize, usize)>| {
        let step = pairs.len().div_ceil(PAIRS_MAX);
        pairs.into_iter().step_by(step).collect()
    };
    by_distance
        .into_iter()
        .map(|(distance, pairs)| (distance, some(pairs)))
        .collect()
}

fn levels(topology: &Topology, take: &mut dyn FnMut(Key, f64)) {
    let first = &topology.cores()[0].caches;
    let caches = first.iter().map(|&at| &topology.caches()[at]);
    let caches = caches.filter(|cache| cache.kind != CacheKind::Instruction);
    let mut inner = 0;
    for cache in caches {
        let bytes = cache.size_bytes.unwrap_or(0) as usize;
        // Well beyond the one before, and well inside of this one, of which a neighbor in another
        // virtual machine may use the most.
        let working_set = (inner * 3).clamp(bytes.min(1 << 14), bytes * 3 / 4);
        let (hit, row) = memory::level_ns(working_set);
        take(Key::Hit(Place::Cache(cache.level)), hit);
        take(Key::Row(Place::Cache(cache.level)), row);
        inner = bytes;
    }
    let (hit, row) = memory::level_ns((inner * 6).max(256 << 20));
    take(Key::Hit(Place::Memory), hit);
    take(Key::Row(Place::Memory), row);
    if topology.nodes().len() > 1 {
        // To place memory elsewhere takes privileges; read as on the own node.
        take(Key::Hit(Place::FarMemory), hit);
        take(Key::Row(Place::FarMemory), row);
    }
}

fn clock_ns() -> f64 {
    per_trial(|times| {
        for _ in 0..times {
            std::hint::black_box(Instant::now());
        }
    })
}

fn pause_ns() -> f64 {
    per_trial(|times| (0..times).for_each(|_| std::hint::spin_loop()))
}

/// What one of many takes, in ns: the median of trials.
fn per_trial(mut many: impl FnMut(u64)) -> f64 {
    const TIMES: u64 = 20_000;
    let trial = |_| {
        let start = Instant::now();
        many(TIMES);
        start.elapsed().as_nanos() as f64 / TIMES as f64
    };
    median((0..15).map(trial).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
