//! A machine as numbers: what each access and each wake-up costs.

use mely_topology::{CacheKind, Distance, Topology};
use std::collections::BTreeMap;
use std::fmt;

/// Most cores of a machine.
pub const CORES_MAX: usize = 512;
/// Most ns of anything: a second.
pub const NS_MAX: f64 = 1e9;
/// Largest cache, in bytes.
pub const CACHE_BYTES_MAX: u64 = 16 << 30;

/// Where a line of memory may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a cache of this level on the core's own way to memory.
    Cache(u8),
    /// In the memory of the core's NUMA node.
    Memory,
    /// In that of another node.
    FarMemory,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Cache(level) => write!(f, "cache {level}"),
            Place::Memory => f.write_str("memory"),
            Place::FarMemory => f.write_str("far-memory"),
        }
    }
}

/// For so long a core has slept where [`Key::Sleeper`] is measured, in ns.
pub const SHORT_SLEEP_NS: u64 = 200_000;
/// For so long a core has slept where [`Key::LongSleeper`] is measured, in ns.
pub const LONG_SLEEP_NS: u64 = 5_000_000;

/// A number of a machine, by its name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The size of each cache of a level, in bytes.
    Bytes(u8),
    /// What a load takes that the next one waits for, in ns.
    Hit(Place),
    /// What a line takes in a row of lines that are read one after the other, in ns.
    Row(Place),
    /// What a load takes if a core at this distance has written the line, in ns.
    Transfer(Distance),
    /// The same for each line of a row, in ns.
    TransferRow(Distance),
    /// What a read-modify-write takes if the line is with a core at this distance, in ns.
    Rmw(Distance),
    /// What it costs to wake a core that sleeps in the kernel, in ns.
    Waker,
    /// From then until that core runs, in ns, if it has slept for [`SHORT_SLEEP_NS`] or less.
    Sleeper,
    /// The same, if it has slept for [`LONG_SLEEP_NS`] or more; between the two it grows with the
    /// time slept.
    LongSleeper,
    /// What reading the clock takes, in ns.
    Clock,
    /// A pause in a loop that polls, in ns.
    Pause,
    /// Posting an event, its memory at hand and all in the first cache, in ns.
    Post,
    /// Running an empty event, in ns.
    Run,
    /// To hand events in a row to a color other than the one that runs, in ns.
    Send,
    /// A turn of a color, in ns.
    Turn,
    /// Putting a color into a core's queue and taking it out again, in ns.
    Queue,
    /// A step of a core, in ns.
    Step,
    /// For how long a core that has a line may go on before others get it, in ns.
    Hold,
    /// For how much work a core goes on with what follows a load whose line is on its way, in ns.
    Reorder,
    /// How many cores have a line after one of them has loaded what the other has written: one, if
    /// the line migrates, or two.
    Holders,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Bytes(level) => write!(f, "cache {level} bytes"),
            Key::Hit(place) => write!(f, "{place} hit"),
            Key::Row(place) => write!(f, "{place} row"),
            Key::Transfer(distance) => write!(f, "transfer {distance}"),
            Key::TransferRow(distance) => write!(f, "transfer-row {distance}"),
            Key::Rmw(distance) => write!(f, "rmw {distance}"),
            Key::Waker => f.write_str("wake waker"),
            Key::Sleeper => f.write_str("wake sleeper"),
            Key::LongSleeper => f.write_str("wake long-sleeper"),
            Key::Clock => f.write_str("clock"),
            Key::Pause => f.write_str("pause"),
            Key::Post => f.write_str("post"),
            Key::Run => f.write_str("run"),
            Key::Send => f.write_str("send"),
            Key::Turn => f.write_str("turn"),
            Key::Queue => f.write_str("queue"),
            Key::Step => f.write_str("step"),
            Key::Hold => f.write_str("hold"),
            Key::Reorder => f.write_str("reorder"),
            Key::Holders => f.write_str("holders"),
        }
    }
}

/// A number, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// In ns, bytes, or cores.
    pub amount: f64,
    /// `measured`, `assumed`, or the source.
    pub source: String,
}

/// A machine: its topology, and a number for each [`Key`] that it has.
///
/// ```
/// use mely_hardware::{Key, Machine};
///
/// let machine = Machine::shipped("xeon-e5410").expect("it comes with the crate");
/// assert_eq!(machine.topology().cores().len(), 8);
/// assert!(machine.ns(Key::Clock) > 0.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub(crate) name: String,
    /// As the file names it, if it is one that comes with `mely-topology`.
    pub(crate) recorded: Option<String>,
    pub(crate) topology: Topology,
    pub(crate) numbers: BTreeMap<Key, Number>,
}

impl Machine {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its cores, caches and distances.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its numbers.
    pub fn numbers(&self) -> impl Iterator<Item = (Key, &Number)> {
        self.numbers.iter().map(|(key, number)| (*key, number))
    }

    /// A number.
    ///
    /// # Panics
    /// If the machine has no such thing: a distance that no two of its cores are at, say.
    pub fn ns(&self, key: Key) -> f64 {
        match self.numbers.get(&key) {
            Some(number) => number.amount,
            None => panic!("{}: there is no `{key}`", self.name),
        }
    }

    /// Whether it has this number, of this amount.
    #[cfg(feature = "simulate")]
    pub(crate) fn has(&self, key: Key, amount: f64) -> bool {
        let number = self.numbers.get(&key);
        number.is_some_and(|number| number.amount == amount)
    }

    /// The same machine with another number, for a sweep.
    ///
    /// # Errors
    /// What would be wrong with it.
    pub fn with(&self, key: Key, amount: f64, source: &str) -> Result<Machine, MachineError> {
        let mut machine = self.clone();
        let source = source.to_owned();
        machine.numbers.insert(key, Number { amount, source });
        machine.check(0, &|_| 0)?;
        Ok(machine)
    }

    /// The same machine with the `cores` cores that keep best company, all of them if it has no
    /// more.
    ///
    /// # Errors
    /// If that is none, or more than it has.
    pub fn take(&self, cores: usize) -> Result<Machine, MachineError> {
        let have = self.topology.cores().len();
        let wrong = |reason: String| MachineError {
            line: 0,
            name: "cores".into(),
            reason,
        };
        if cores > have {
            return Err(wrong(format!("{cores} are asked for, and it has {have}")));
        }
        let topology = self.topology.take(cores);
        let topology = topology.map_err(|error| wrong(error.to_string()))?;
        let keys = Machine::keys(&topology);
        let mut machine = Machine {
            topology,
            recorded: None,
            ..self.clone()
        };
        machine.numbers.retain(|key, _| keys.contains(key));
        Ok(machine)
    }

    /// The levels of caches for data that it has, ascending.
    pub fn levels(&self) -> Vec<u8> {
        levels(&self.topology)
    }

    /// The keys that a machine of this topology has.
    pub fn keys(topology: &Topology) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut places: Vec<Place> = levels(topology).into_iter().map(Place::Cache).collect();
        keys.extend(levels(topology).into_iter().map(Key::Bytes));
        places.push(Place::Memory);
        if topology.nodes().len() > 1 {
            places.push(Place::FarMemory);
        }
        keys.extend(places.iter().map(|&place| Key::Hit(place)));
        keys.extend(places.iter().map(|&place| Key::Row(place)));
        let distances = distances(topology);
        keys.extend(distances.iter().map(|&distance| Key::Transfer(distance)));
        keys.extend(distances.iter().map(|&distance| Key::TransferRow(distance)));
        keys.push(Key::Rmw(Distance::SameCore));
        keys.extend(distances.iter().map(|&distance| Key::Rmw(distance)));
        keys.extend([
            Key::Waker,
            Key::Sleeper,
            Key::LongSleeper,
            Key::Clock,
            Key::Pause,
            Key::Post,
            Key::Run,
            Key::Send,
            Key::Turn,
            Key::Queue,
            Key::Step,
            Key::Hold,
            Key::Reorder,
        ]);
        if !distances.is_empty() {
            keys.push(Key::Holders);
        }
        keys
    }

    /// Whether all numbers are there and go together; `line` says where each is.
    pub(crate) fn check(
        &self,
        topology_line: usize,
        line: &dyn Fn(Key) -> usize,
    ) -> Result<(), MachineError> {
        let wrong = |key: Key, reason: String| MachineError {
            line: line(key),
            name: key.to_string(),
            reason,
        };
        let bare = |core: &&mely_topology::Core| {
            let mut caches = core.caches.iter().map(|&at| &self.topology.caches()[at]);
            caches.all(|cache| cache.kind == CacheKind::Instruction)
        };
        if let Some(core) = self.topology.cores().iter().find(bare) {
            return Err(MachineError {
                line: topology_line,
                name: "topology".into(),
                reason: format!("no cache for data is known of CPU {}", core.cpu),
            });
        }
        let keys = Machine::keys(&self.topology);
        for &key in self.numbers.keys() {
            if !keys.contains(&key) {
                return Err(wrong(key, "this topology has no such thing".into()));
            }
        }
        for &key in &keys {
            let Some(number) = self.numbers.get(&key) else {
                return Err(wrong(key, "the number is missing".into()));
            };
            in_bounds(key, number.amount).map_err(|reason| wrong(key, reason))?;
        }
        self.check_sizes(&wrong)?;
        // What is farther is not cheaper.
        for of in [Key::Hit, Key::Row] {
            let far = (keys.iter().copied()).filter(|key| match key {
                Key::Hit(place) => of(*place) == *key,
                Key::Row(place) => of(*place) == *key,
                _ => false,
            });
            self.ascends(far, &wrong)?;
        }
        for of in [
            Key::Transfer,
            Key::TransferRow,
            Key::Rmw as fn(Distance) -> Key,
        ] {
            let far = Distance::ALL.into_iter().map(of);
            let far = far.filter(|key| self.numbers.contains_key(key));
            self.ascends(far, &wrong)?;
        }
        if self.ns(Key::LongSleeper) < self.ns(Key::Sleeper) {
            let reason = format!("a longer sleep is cheaper than `{}`", Key::Sleeper);
            return Err(wrong(Key::LongSleeper, reason));
        }
        for &key in &keys {
            let (row, one) = match key {
                Key::Row(place) => (key, Key::Hit(place)),
                Key::TransferRow(distance) => (key, Key::Transfer(distance)),
                _ => continue,
            };
            if self.ns(row) > self.ns(one) {
                let reason = format!("a line of a row is dearer than a single one, `{one}`");
                return Err(wrong(row, reason));
            }
        }
        Ok(())
    }

    fn ascends(
        &self,
        keys: impl Iterator<Item = Key>,
        wrong: &dyn Fn(Key, String) -> MachineError,
    ) -> Result<(), MachineError> {
        let keys: Vec<Key> = keys.collect();
        for pair in keys.windows(2) {
            if self.ns(pair[0]) > self.ns(pair[1]) {
                let reason = format!("what is nearer is dearer than `{}`", pair[1]);
                return Err(wrong(pair[0], reason));
            }
        }
        Ok(())
    }

    /// Caches are as large as the topology says, and no larger than those they lie in.
    fn check_sizes(&self, wrong: &dyn Fn(Key, String) -> MachineError) -> Result<(), MachineError> {
        let levels = self.levels();
        for cache in data_caches(&self.topology) {
            let key = Key::Bytes(cache.level);
            let bytes = self.ns(key) as u64;
            if let Some(size) = cache.size_bytes
                && size != bytes
            {
                let reason = format!("{bytes} bytes, and the topology says {size}");
                return Err(wrong(key, reason));
            }
        }
        for pair in levels.windows(2) {
            let (inner, outer) = (Key::Bytes(pair[0]), Key::Bytes(pair[1]));
            if self.ns(inner) > self.ns(outer) {
                let reason = format!("it is larger than `{outer}`, in which it lies");
                return Err(wrong(inner, reason));
            }
        }
        Ok(())
    }
}

fn in_bounds(key: Key, amount: f64) -> Result<(), String> {
    let most = match key {
        Key::Bytes(_) => CACHE_BYTES_MAX as f64,
        _ => NS_MAX,
    };
    if amount.is_nan() {
        return Err("it is no number".into());
    }
    if amount <= 0.0 {
        return Err(format!("{amount} is not more than 0"));
    }
    if amount > most {
        // What is absurd has hundreds of digits.
        return Err(match amount {
            1e15.. => format!("{amount:e} is more than {most}"),
            _ => format!("{amount} is more than {most}"),
        });
    }
    if key == Key::Holders && amount != 1.0 && amount != 2.0 {
        return Err(format!("{amount} is neither 1 nor 2"));
    }
    if let Key::Bytes(_) = key
        && amount < 64.0
    {
        return Err(format!("{amount} bytes are less than a line of 64"));
    }
    Ok(())
}

pub(crate) fn data_caches(topology: &Topology) -> impl Iterator<Item = &mely_topology::Cache> {
    let caches = topology.caches().iter();
    caches.filter(|cache| cache.kind != CacheKind::Instruction)
}

fn levels(topology: &Topology) -> Vec<u8> {
    let mut levels: Vec<u8> = data_caches(topology).map(|cache| cache.level).collect();
    levels.dedup();
    levels
}

/// The distances that two of its cores are at.
fn distances(topology: &Topology) -> Vec<Distance> {
    let n = topology.cores().len();
    let mut found = [false; Distance::COUNT];
    for a in 0..n {
        for b in a + 1..n {
            found[topology.distance(a, b).index()] = true;
        }
    }
    let all = Distance::ALL.into_iter();
    all.filter(|distance| found[distance.index()]).collect()
}

/// What is wrong with a machine: one sentence, with the line of the file and the name of what is
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    /// Counted from 1; 0 if it is in no line.
    pub line: usize,
    /// The name of the number.
    pub name: String,
    /// In words.
    pub reason: String,
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "`{}`: {}", self.name, self.reason)
    }
}

impl std::error::Error for MachineError {}
