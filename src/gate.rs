//! A color that waits: what is put aside while a hold is out, and who may run meanwhile.
//!
//! A *hold* ([`crate::Hold`]) suspends one color. Its *gate* has a *level* for each hold that is
//! out, the innermost last, and a *backlog*: the color's events that arrived meanwhile, in order.
//! Gates lie beside the scheduler. The scheduler does not know that a color waits: events of it are
//! queued, moved and stolen like any others, and a core that is about to begin one asks the gate.
//!
//! **Who asks.** Nobody, until a runtime's first hold. That one marks all profiles
//! ([`Profiles::gate`]), and from then on each event looks whether its slot has a gate, which is
//! one word. The events that a hold is ended by, and those that are posted through it, are never
//! marked: they *pass*, and find out by themselves what they may do ([`Gates::arrive`]).
//!
//! **By exact color.** Two colors may share a slot, and one of them may wait for the other. So a
//! gate has the color's own value, and other colors of its slot run.
//!
//! **What happens at a gate.** An ordinary event is put aside at the end of the backlog. An event
//! through a hold runs if that hold is the innermost; else it waits at its level. A hold ends when
//! its last event, which passes too, finds it innermost: the level goes. What waits then is *let
//! go* one by one: the first of it is put before all other events of the color where it runs, and
//! when that event begins, the next one is. If one of them holds again, the next one arrives at a
//! gate with a level, and is put back before the others. So each step takes the same time however
//! many events wait, and none is ever overtaken by one that was posted later.
//!
//! **Readers.** A level can be shared: readers of the color's states ([`crate::colored`]) made it,
//! who run in other colors meanwhile. An event that begins to read passes too. It runs if all
//! levels are shared and nobody waits before it, else it waits in the backlog like any other
//! ([`Gates::may_read`]). Shared levels end in any order, and each lets the first go that waits,
//! which may be a reader.
//!
//! **What can never happen.** No ordinary event of a color begins while a hold of the color is out.
//! No event of the backlog is lost: it counts as posted and not as executed, so no run ends before
//! it, and a run that is cut short drops it like what is queued. No run ends while a hold is out:
//! the hold counts as an event posted, which its last event executes.
//!
//! **Who may touch a gate.** Whoever runs the color: only there are levels added, and events put
//! aside or let go. Gates lie in slabs, one for each sixty-fourth of all slots, and a mutex guards
//! each slab. Beyond that a gate needs no protocol: it changes hands with its color, by whatever
//! lock the color does.

use crate::Color;
use crate::color::{CoreId, SlotId};
use crate::event::fifo::Fifo;
use crate::event::node::Event;
use crate::event::profile::Profiles;
use crate::event::tag::ProfileId;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, check, fault, relaxed};
use slab::Slab;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// One hold, of all that a runtime ever makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldId(u64);

impl HoldId {
    /// Of the number of its core; there are fewer than 512.
    const CORE_BITS: u32 = 9;

    /// The `number`-th of a core.
    pub(crate) fn new(core: CoreId, number: u64) -> HoldId {
        HoldId(number << HoldId::CORE_BITS | u64::from(core.number()))
    }

    /// As a number that no other hold has.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The core that made it.
    pub(crate) fn core(self) -> usize {
        (self.0 % (1 << HoldId::CORE_BITS)) as usize
    }
}

/// The event that made a hold: its profile, and about when it began. For reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBy {
    pub(crate) profile: ProfileId,
    pub(crate) since_ns: u64,
}

/// A hold that is out, as it is reported.
#[derive(Debug)]
pub(crate) struct HoldOut {
    pub(crate) color: Color,
    pub(crate) by: HeldBy,
    pub(crate) shared: bool,
    /// Events that wait at the gate.
    pub(crate) behind: u64,
}

/// A hold that is out.
#[derive(Debug)]
struct Level {
    hold: HoldId,
    by: HeldBy,
    /// Events through it that came while another was innermost.
    through: Fifo,
    /// Of readers.
    shared: bool,
}

/// See the module text.
#[derive(Debug)]
struct Gate {
    color: Color,
    /// One, nearly always: in the gate itself, so that a hold allocates nothing.
    levels: SmallVec<[Level; 1]>,
    backlog: Fifo,
    /// The next event of the color to begin is one that was let go.
    let_go: bool,
}

// SAFETY: a gate owns the nodes in it, and their closures are `Send` (the bound of `Maker::make`).
unsafe impl Send for Gate {}

impl Gate {
    fn new(color: Color) -> Gate {
        Gate {
            color,
            levels: SmallVec::new(),
            backlog: Fifo::EMPTY,
            let_go: false,
        }
    }

    /// Whether no hold is out and nothing waits.
    fn is_open(&self) -> bool {
        self.levels.is_empty() && self.backlog.is_empty() && !self.let_go
    }

    /// Events that wait.
    fn waiting(&self) -> u64 {
        let levels = self.levels.iter().map(|level| level.through.len());
        levels.chain([self.backlog.len()]).map(u64::from).sum()
    }

    /// Whether nobody has the color but readers.
    fn is_shared(&self) -> bool {
        self.levels.iter().all(|level| level.shared)
    }

    /// The next event that waits and may run, or find out whether it may.
    fn let_go(&mut self) -> Option<Event> {
        let waiting = match self.levels.last_mut() {
            Some(level) if !level.shared => &mut level.through,
            _ => &mut self.backlog,
        };
        let event = waiting.pop();
        self.let_go = event.is_some();
        event
    }

    /// An event that could not begin waits again: at the end, or where it was let go from.
    fn put_aside(waiting: &mut Fifo, event: Event, again: bool) {
        if again && !fault("put aside again behind the others") {
            waiting.prepend(event.into());
        } else {
            waiting.push(event);
        }
    }
}

/// What an ordinary event does that is about to begin.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It begins. The other event is let go, and goes before all others of the color.
    Begins(Event, Option<Event>),
    /// The gate has it.
    PutAside,
}

/// What an event does that passes gates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    Runs,
    /// Another hold is innermost: it is to be handed to [`Gates::wait`].
    Waits(WaitsAt),
    /// Its hold has ended before it.
    Late,
}

/// Where an event waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitsAt {
    /// At the level of this hold; none: in the backlog.
    hold: Option<HoldId>,
    /// Before the others.
    first: bool,
    /// As an event that passes.
    passes: bool,
}

impl WaitsAt {
    /// Whether it still passes: it came through its hold, or reads.
    pub(crate) fn passes(self) -> bool {
        self.passes
    }
}

/// The gates of a slot: one, but where two colors that share the slot wait.
#[derive(Debug)]
struct AtSlot {
    slot: SlotId,
    gates: SmallVec<[Gate; 1]>,
}

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };
const _: () = assert!(SHARDS.is_power_of_two());

/// The gates of a runtime.
#[derive(Debug)]
pub(crate) struct Gates {
    slots: usize,
    /// For each slot, where in its shard its gates are, plus one; 0 if it has none. There from the
    /// first hold on. Written and read by whoever runs the slot.
    places: OnceLock<Box<[AtomicU32]>>,
    shards: [Mutex<Slab<AtSlot>>; SHARDS],
    /// Holds that threads have ended that are no cores: for reports.
    pub(crate) ended_outside: relaxed::AtomicU64,
}

impl Gates {
    pub(crate) fn new(slots: usize) -> Gates {
        Gates {
            slots,
            places: OnceLock::new(),
            shards: std::array::from_fn(|_| Mutex::new(Slab::new())),
            ended_outside: relaxed::AtomicU64::new(0),
        }
    }

    /// Whether any color of this slot has a gate. Asked by whoever runs the slot.
    #[inline]
    pub(crate) fn any_at(&self, slot: SlotId) -> bool {
        self.places
            .get()
            .is_some_and(|places| places[slot.number() as usize].load(Ordering::Relaxed) != 0)
    }

    /// Works on the gate of a color, which is made if there is none. It is taken away once no
    /// hold is out and nothing waits.
    fn with<R>(&self, slot: SlotId, color: Color, work: impl FnOnce(&mut Gate) -> R) -> R {
        let number = slot.number() as usize;
        let place = &self.places.get().expect("there was a hold")[number];
        let mut shard = self.shards[number & (SHARDS - 1)].lock().unwrap();
        let key = match place.load(Ordering::Relaxed) {
            0 => {
                let gates = SmallVec::new();
                let key = shard.insert(AtSlot { slot, gates });
                place.store(key as u32 + 1, Ordering::Relaxed);
                key
            }
            found => found as usize - 1,
        };
        let gates = &mut shard[key].gates;
        let at = match gates.iter().position(|gate| gate.color == color) {
            Some(at) => at,
            None => {
                gates.push(Gate::new(color));
                gates.len() - 1
            }
        };
        let result = work(&mut gates[at]);
        if gates[at].is_open() {
            gates.swap_remove(at);
        }
        if gates.is_empty() {
            shard.remove(key);
            place.store(0, Ordering::Relaxed);
        }
        result
    }

    /// The color that runs is held from now on, by one alone or `shared` by readers.
    pub(crate) fn hold(
        &self,
        slot: SlotId,
        color: Color,
        (hold, by): (HoldId, HeldBy),
        shared: bool,
        profiles: &Profiles,
    ) {
        profiles.gate();
        self.places
            .get_or_init(|| (0..self.slots).map(|_| AtomicU32::new(0)).collect());
        self.with(slot, color, |gate| {
            check!(gate.is_shared() || !shared, "read while it is held");
            gate.levels.push(Level {
                hold,
                by,
                through: Fifo::EMPTY,
                shared,
            });
        });
    }

    /// An event has begun that would read. Whether it may, and where it waits otherwise.
    pub(crate) fn may_read(&self, slot: SlotId, color: Color) -> (bool, WaitsAt) {
        let place = |first| WaitsAt {
            hold: None,
            first,
            passes: true,
        };
        if !self.any_at(slot) {
            return (true, place(false));
        }
        self.with(slot, color, |gate| {
            let again = std::mem::take(&mut gate.let_go);
            let due = again || gate.backlog.is_empty() || fault("reader before who waits");
            let may = gate.is_shared() && due;
            (may || fault("reader beside a hold"), place(again))
        })
    }

    /// An event reads that would have waited there. What is let go goes before all others of the
    /// color.
    pub(crate) fn reads(&self, slot: SlotId, color: Color, place: WaitsAt) -> Option<Event> {
        place
            .first
            .then(|| self.with(slot, color, Gate::let_go))
            .flatten()
    }

    /// An ordinary event of this color is about to begin, in a slot that has a gate.
    pub(crate) fn admit(&self, slot: SlotId, color: Color, event: Event) -> Admission {
        self.with(slot, color, |gate| {
            let again = std::mem::take(&mut gate.let_go);
            if !gate.levels.is_empty() {
                Gate::put_aside(&mut gate.backlog, event, again);
                return Admission::PutAside;
            }
            debug_assert!(again || gate.backlog.is_empty(), "what waits goes first");
            Admission::Begins(event, gate.let_go())
        })
    }

    /// An event that passes has begun: it came through this hold, and `ends` it or not. The event
    /// is let go, and goes before all others of the color.
    pub(crate) fn arrive(
        &self,
        slot: SlotId,
        color: Color,
        hold: HoldId,
        ends: bool,
    ) -> (Arrival, Option<Event>) {
        self.with(slot, color, |gate| {
            let again = std::mem::take(&mut gate.let_go);
            let Some(at) = gate.levels.iter().position(|level| level.hold == hold) else {
                return gate.late(again, ends);
            };
            let innermost = at + 1 == gate.levels.len() || gate.levels[at].shared;
            if !innermost && !fault("outer hold ends before the inner one") {
                let place = WaitsAt {
                    hold: Some(hold),
                    first: again,
                    passes: true,
                };
                return (Arrival::Waits(place), None);
            }
            if ends {
                let mut late = gate.levels.remove(at).through;
                // Posted through it after its deadline's event, say. They are due before the
                // backlog.
                if !late.is_empty() {
                    if !gate.backlog.is_empty() {
                        late.append_all(gate.backlog.take());
                    }
                    gate.backlog = late;
                }
            }
            // Only an event that was let go lets the next one go.
            let next = if ends || again { gate.let_go() } else { None };
            (Arrival::Runs, next)
        })
    }

    /// An event that arrived waits here, made anew.
    pub(crate) fn wait(&self, slot: SlotId, color: Color, place: WaitsAt, event: Event) {
        self.with(slot, color, |gate| {
            let level = place
                .hold
                .and_then(|hold| gate.levels.iter_mut().find(|level| level.hold == hold));
            let waiting = match level {
                Some(level) => &mut level.through,
                None => &mut gate.backlog,
            };
            Gate::put_aside(waiting, event, place.first);
        });
    }

    /// Events that wait at all gates; for reports, and at limits.
    pub(crate) fn waiting(&self) -> u64 {
        let of_shard = |shard: &Slab<AtSlot>| -> u64 {
            let gates = shard.iter().flat_map(|(_, at_slot)| &at_slot.gates);
            gates.map(Gate::waiting).sum()
        };
        let shards = self.shards.iter();
        shards.map(|shard| of_shard(&shard.lock().unwrap())).sum()
    }

    /// What waits at each gate; for reports.
    pub(crate) fn depths(&self) -> Vec<(SlotId, Color, u64)> {
        let mut depths = Vec::new();
        for shard in &self.shards {
            for (_, AtSlot { slot, gates }) in shard.lock().unwrap().iter() {
                let of_gate = |gate: &Gate| (*slot, gate.color, gate.waiting());
                depths.extend(gates.iter().map(of_gate));
            }
        }
        depths
    }

    /// All holds that are out; for reports.
    pub(crate) fn held(&self) -> Vec<HoldOut> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap();
            for gate in shard.iter().flat_map(|(_, at_slot)| &at_slot.gates) {
                held.extend(gate.levels.iter().map(|level| HoldOut {
                    color: gate.color,
                    by: level.by,
                    shared: level.shared,
                    behind: gate.waiting(),
                }));
            }
        }
        held
    }

    /// Takes what waits at all gates, of a run that is over.
    pub(crate) fn take_all(&self) -> Vec<Fifo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap();
            let gates = shard.iter_mut().flat_map(|(_, at_slot)| &mut at_slot.gates);
            for gate in gates {
                all.push(gate.backlog.take());
                let levels = gate.levels.iter_mut();
                all.extend(levels.map(|level| level.through.take()));
            }
        }
        all.retain(|fifo| !fifo.is_empty());
        all
    }
}

impl Gate {
    /// An event whose hold has ended before. What was posted through it is an ordinary event by
    /// now.
    fn late(&mut self, again: bool, ends: bool) -> (Arrival, Option<Event>) {
        if !ends && !self.levels.is_empty() {
            let place = WaitsAt {
                hold: None,
                first: again,
                passes: false,
            };
            return (Arrival::Waits(place), None);
        }
        let next = if again { self.let_go() } else { None };
        (Arrival::Late, next)
    }
}
