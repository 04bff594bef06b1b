//! The numbers of a machine as the hardware looks them up: in ps, by index.

use crate::machine::{Key, LONG_SLEEP_NS, Machine, Place, SHORT_SLEEP_NS, data_caches};
use mely_topology::Distance;

/// A thousandth of a ns, so that costs of less than one add up.
pub(crate) type Ps = u64;

/// A number of ns in ps.
pub(crate) fn ps(ns: f64) -> Ps {
    (ns * 1e3).round() as Ps
}

/// A cache on a core's way to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// Which cache.
    pub(crate) cache: usize,
    /// What a hit takes beyond one in the first cache.
    pub(crate) hit: Ps,
    /// The same for a line of a row.
    pub(crate) row: Ps,
}

/// A cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheSpec {
    pub(crate) lines: usize,
    pub(crate) level: u8,
    /// The cores behind it.
    pub(crate) cores: Vec<usize>,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// One more than the machine has: a visitor.
    pub(crate) cores: usize,
    pub(crate) caches: Vec<CacheSpec>,
    /// Each core's caches, the nearest first.
    pub(crate) paths: Vec<Vec<Hop>>,
    /// Of each core, one word or more: its caches.
    pub(crate) path_bits: Vec<u64>,
    /// Words of a set of caches.
    pub(crate) words: usize,
    /// The cores of which a cache is the first one.
    pub(crate) first_of: Vec<Vec<u16>>,
    /// By two cores, the index of their distance.
    distance: Vec<u8>,
    /// By core and cache, the index of the distance to the nearest core behind it.
    cache_distance: Vec<u8>,
    pub(crate) node: Vec<usize>,
    pub(crate) first_hit: Ps,
    pub(crate) transfer: [Ps; Distance::COUNT],
    pub(crate) transfer_row: [Ps; Distance::COUNT],
    pub(crate) rmw: [Ps; Distance::COUNT],
    /// Of the own node, and of another.
    pub(crate) memory: [Ps; 2],
    pub(crate) memory_row: [Ps; 2],
    pub(crate) waker: Ps,
    pub(crate) sleeper: Ps,
    pub(crate) long_sleeper: Ps,
    pub(crate) clock: Ps,
    pub(crate) pause: Ps,
    pub(crate) post: Ps,
    pub(crate) run: Ps,
    pub(crate) send: Ps,
    pub(crate) turn: Ps,
    pub(crate) queue: Ps,
    pub(crate) step: Ps,
    pub(crate) hold: Ps,
    pub(crate) reorder: Ps,
    /// Who loads what its owner has written gets the line whole.
    pub(crate) migrates: bool,
}

impl Costs {
    pub(crate) fn of(machine: &Machine) -> Costs {
        let topology = machine.topology();
        let real = topology.cores().len();
        let caches: Vec<&mely_topology::Cache> = data_caches(topology).collect();
        // In the topology, caches are told apart by their index among all.
        let index_of = |of: usize| {
            let cache = &topology.caches()[of];
            caches.iter().position(|its| std::ptr::eq(*its, cache))
        };
        let get = |key: Key| ps(machine.ns(key));
        let levels = machine.levels();
        let first = Place::Cache(levels[0]);
        let beyond = |hit: Ps, first: Ps| hit.saturating_sub(first);
        let (first_hit, first_row) = (get(Key::Hit(first)), get(Key::Row(first)));
        let path = |core: usize| -> Vec<Hop> {
            let its = topology.cores()[core].caches.iter();
            let its =
                its.filter_map(|&of| index_of(of).map(|at| (at, topology.caches()[of].level)));
            its.map(|(cache, level)| Hop {
                cache,
                hit: beyond(get(Key::Hit(Place::Cache(level))), first_hit),
                row: beyond(get(Key::Row(Place::Cache(level))), first_row),
            })
            .collect()
        };
        let mut paths: Vec<Vec<Hop>> = (0..real).map(path).collect();
        let spec = |cache: &&mely_topology::Cache| CacheSpec {
            lines: (machine.ns(Key::Bytes(cache.level)) as usize / 64).max(1),
            level: cache.level,
            cores: cache.cores.clone(),
        };
        let mut caches: Vec<CacheSpec> = caches.iter().map(spec).collect();
        // A visitor, beside the last core: it shares what that one shares, and has the like of what
        // that one has for itself.
        let last = real - 1;
        let beside = paths[last].iter().map(|&hop| {
            if caches[hop.cache].cores.len() > 1 {
                caches[hop.cache].cores.push(real);
                return hop;
            }
            let own = CacheSpec {
                cores: vec![real],
                ..caches[hop.cache].clone()
            };
            caches.push(own);
            Hop {
                cache: caches.len() - 1,
                ..hop
            }
        });
        let beside = beside.collect();
        paths.push(beside);
        let cores = real + 1;
        let words = caches.len().div_ceil(64);
        let mut path_bits = vec![0; cores * words];
        let mut first_of = vec![Vec::new(); caches.len()];
        for (core, path) in paths.iter().enumerate() {
            for hop in path {
                path_bits[core * words + hop.cache / 64] |= 1 << (hop.cache % 64);
            }
            if let Some(hop) = path.first() {
                first_of[hop.cache].push(core as u16);
            }
        }
        let apart = |a: usize, b: usize| match (a.min(last), b.min(last)) {
            // The visitor is no nearer to the last core than another is.
            (own, other) if own == other && a != b => {
                let others = (0..last).map(|other| topology.distance(last, other));
                others.min().map_or(0, |nearest| nearest.index())
            }
            (a, b) => topology.distance(a, b).index(),
        };
        let mut distance = Vec::with_capacity(cores * cores);
        for a in 0..cores {
            distance.extend((0..cores).map(|b| apart(a, b) as u8));
        }
        let mut cache_distance = Vec::with_capacity(cores * caches.len());
        for core in 0..cores {
            cache_distance.extend(caches.iter().map(|cache| {
                let behind = cache.cores.iter().map(|&b| distance[core * cores + b]);
                behind.min().expect("each cache has cores")
            }));
        }
        let by_distance = |key: fn(Distance) -> Key| {
            let mut all = [0; Distance::COUNT];
            for (at, distance) in all.iter_mut().zip(Distance::ALL) {
                let number = machine.numbers.get(&key(distance));
                *at = number.map_or(0, |number| ps(number.amount));
            }
            all
        };
        let far = |key: fn(Place) -> Key, first: Ps| {
            let near = get(key(Place::Memory));
            let far = machine.numbers.get(&key(Place::FarMemory));
            let far = far.map_or(near, |number| ps(number.amount));
            [beyond(near, first), beyond(far, first)]
        };
        Costs {
            cores,
            caches,
            paths,
            path_bits,
            words,
            first_of,
            distance,
            cache_distance,
            node: (0..cores)
                .map(|core| topology.cores()[core.min(last)].node)
                .collect(),
            first_hit,
            transfer: by_distance(Key::Transfer),
            transfer_row: by_distance(Key::TransferRow),
            rmw: by_distance(Key::Rmw),
            memory: far(Key::Hit, first_hit),
            memory_row: far(Key::Row, first_row),
            waker: get(Key::Waker),
            sleeper: get(Key::Sleeper),
            long_sleeper: get(Key::LongSleeper),
            clock: get(Key::Clock),
            pause: get(Key::Pause),
            post: get(Key::Post),
            run: get(Key::Run),
            send: get(Key::Send),
            turn: get(Key::Turn),
            queue: get(Key::Queue),
            step: get(Key::Step),
            hold: get(Key::Hold),
            reorder: get(Key::Reorder),
            migrates: machine.has(Key::Holders, 1.0),
        }
    }

    /// From a ring until a core runs that has slept for this long.
    pub(crate) fn sleeper(&self, slept: Ps) -> Ps {
        let [least, most] = [SHORT_SLEEP_NS, LONG_SLEEP_NS].map(|ns| ps(ns as f64));
        let share = (slept.clamp(least, most) - least) as f64 / (most - least) as f64;
        let (short, long) = (self.sleeper as f64, self.long_sleeper as f64);
        (short + (long - short) * share) as Ps
    }

    #[inline]
    pub(crate) fn distance(&self, a: usize, b: usize) -> usize {
        self.distance[a * self.cores + b].into()
    }

    #[inline]
    pub(crate) fn cache_distance(&self, core: usize, cache: usize) -> usize {
        self.cache_distance[core * self.caches.len() + cache].into()
    }

    #[inline]
    pub(crate) fn path_of(&self, core: usize) -> &[u64] {
        &self.path_bits[core * self.words..(core + 1) * self.words]
    }
}
