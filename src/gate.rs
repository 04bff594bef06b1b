//! A color that is held: which of its events run meanwhile, and where the others wait.
//!
//! A *hold* ([`crate::Hold`]) suspends one color. The color's *gate* has a *level* for each hold
//! that is out, and a *backlog*: the ordinary events of the color that arrived meanwhile, in order.
//! Gates lie beside the scheduler. The scheduler does not know that a color is held. Its events are
//! queued, moved and stolen like any others, and a core that is about to begin one asks the gate.
//!
//! **Which events ask.** None, until a runtime's first hold. That one marks all profiles
//! ([`Profiles::gate`]), and from then on each event looks whether its slot has a gate, which is
//! one word. The events that end a hold, and those that are posted through it, are never marked:
//! they *pass*, and ask by themselves whether they may run ([`Gates::arrive`]).
//!
//! **By exact color.** Two colors may share a slot, and one of them may wait for the other. So a
//! gate has the color's own value, and other colors of its slot run.
//!
//! **Levels.** The levels of a gate form a list, in the order in which their holds end. The first
//! of them is *due*. The holds that an event takes are put into the list one behind the other, all
//! of them before the levels that the event has found there. So:
//!
//! - Holds of one event are *siblings*: they end in the order in which they were taken.
//! - A hold that is taken by an event through another hold is *nested* in that one, and ends before
//!   it. If it is taken by the continuation, it has the place of the hold that is over, before the
//!   siblings of that one.
//!
//! ```text
//! an event takes a and b                    a b
//! an event through a takes c and d      c d a b
//! the continuation of c takes e         e d a b
//! ```
//!
//! **What happens at a gate.** An ordinary event is put aside at the end of the backlog. An event
//! through a hold runs if its level is due; else it waits at that level. So a hold that is resumed
//! early stays out until those before it are over, and its continuation waits for them. A hold ends
//! when its last event, which passes too, finds it due: the level goes. The events that wait at the
//! next level, or in the backlog if there is none, are then *let go* one by one: the first of them
//! is put before all other events of the color where it runs, and when that event begins, the next
//! one is. If one of them holds again, the next one arrives at a level that is not due, and is put
//! back before the others. So each step takes the same time however many events wait and however
//! many holds are out, and no event is overtaken by one that was posted later.
//!
//! **Readers.** Readers of the color's states ([`crate::colored`]) share the color. They run in
//! other colors meanwhile, so they have no level: their holds are counted, and end in any order. An
//! event that begins to read passes. It runs if no level is there and no event waits before it,
//! else it waits in the backlog like any other ([`Gates::may_read`]). Each end of a shared hold
//! lets the first event go that waits, which may be a reader.
//!
//! **What can never happen.** No ordinary event of a color begins while a hold of the color is out.
//! No event of the backlog is lost: it counts as posted and not as executed, so no run ends before
//! it, and a run that is cut short drops it like what is queued. No run ends while a hold is out:
//! the hold counts as an event posted, which its last event executes. No gate has levels and
//! readers at once.
//!
//! **Which core may touch a gate.** The one that runs the color: only there are levels added, and
//! events put aside or let go. Gates lie in slabs, one for each sixty-fourth of all slots, and a
//! mutex guards each slab. Beyond that a gate needs no protocol: it changes hands with its color,
//! under the same lock.

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

/// The number of a hold, shared or not, which no other hold of the runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldNumber(u64);

impl HoldNumber {
    /// Of the number of its core; there are fewer than 512.
    const CORE_BITS: u32 = 9;

    /// The `number`-th hold that this core makes.
    pub(crate) fn new(core: CoreId, number: u64) -> HoldNumber {
        HoldNumber(number << HoldNumber::CORE_BITS | u64::from(core.number()))
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// The core that made it.
    pub(crate) fn core(self) -> usize {
        (self.0 % (1 << HoldNumber::CORE_BITS)) as usize
    }
}

/// A hold that is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldId {
    number: HoldNumber,
    /// Where its level is, until it is over; afterwards another level may be there.
    level: usize,
}

impl HoldId {
    pub(crate) fn number(self) -> HoldNumber {
        self.number
    }

    fn is_out(self, levels: &Slab<Level>) -> bool {
        let level = levels.get(self.level);
        level.is_some_and(|level| level.hold == self.number)
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
    /// By readers, of which this is the latest.
    pub(crate) shared: bool,
    /// Events that wait at the gate.
    pub(crate) behind: u64,
}

/// The place of a hold that is out.
#[derive(Debug)]
struct Level {
    hold: HoldNumber,
    by: HeldBy,
    /// Events through it that came before it was due.
    through: Fifo,
    /// The level that is due after this one.
    next: Option<usize>,
}

/// See the module text.
#[derive(Debug)]
struct Gate {
    color: Color,
    /// The first level.
    due: Option<usize>,
    /// The level of the latest hold that the running event has taken.
    latest: Option<usize>,
    /// Shared holds that are out.
    readers: u32,
    /// The latest of them.
    reader: Option<HeldBy>,
    backlog: Fifo,
    /// The next event of the color to begin is one that was let go.
    let_go: bool,
}

impl Gate {
    fn new(color: Color) -> Gate {
        Gate {
            color,
            due: None,
            latest: None,
            readers: 0,
            reader: None,
            backlog: Fifo::EMPTY,
            let_go: false,
        }
    }

    fn is_held(&self) -> bool {
        self.due.is_some() || self.readers > 0
    }

    /// Whether no hold is out and no event waits.
    fn is_open(&self) -> bool {
        !self.is_held() && self.backlog.is_empty() && !self.let_go
    }

    /// The levels, in their order.
    fn levels<'a>(&self, levels: &'a Slab<Level>) -> impl Iterator<Item = &'a Level> + use<'a> {
        let due = self.due.map(|due| &levels[due]);
        std::iter::successors(due, |level| level.next.map(|next| &levels[next]))
    }

    /// Events that wait.
    fn waiting(&self, levels: &Slab<Level>) -> u64 {
        let through = self.levels(levels).map(|level| level.through.len());
        through.chain([self.backlog.len()]).map(u64::from).sum()
    }

    /// An event of the color has begun. Whether it is one that was let go.
    fn begin(&mut self) -> bool {
        if !fault("nested hold behind the outer one") {
            self.latest = None;
        }
        std::mem::take(&mut self.let_go)
    }

    /// The next event that waits and may run, or find out whether it may.
    fn let_go(&mut self, levels: &mut Slab<Level>) -> Option<Event> {
        let waiting = match self.due {
            Some(due) => &mut levels[due].through,
            None => &mut self.backlog,
        };
        let event = waiting.pop();
        self.let_go = event.is_some();
        event
    }

    /// The running event takes a hold.
    fn hold(&mut self, levels: &mut Slab<Level>, hold: HoldNumber, by: HeldBy) -> HoldId {
        let before = self.latest.filter(|_| !fault("hold before its siblings"));
        let next = match before {
            Some(before) => levels[before].next,
            None => self.due,
        };
        let level = levels.insert(Level {
            hold,
            by,
            through: Fifo::EMPTY,
            next,
        });
        match before {
            Some(before) => levels[before].next = Some(level),
            None => self.due = Some(level),
        }
        self.latest = Some(level);
        HoldId {
            number: hold,
            level,
        }
    }

    /// The hold that is due ends.
    fn end_due(&mut self, levels: &mut Slab<Level>) {
        let due = self.due.expect("its last event has found it due");
        let Level { through, next, .. } = levels.remove(due);
        self.due = next;
        // Posted through it after its deadline's event, say. They are due before the backlog.
        let mut waiting = through;
        if !self.backlog.is_empty() {
            waiting.append_all(self.backlog.take());
        }
        self.backlog = waiting;
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
    /// Another hold is due: it is to be handed to [`Gates::wait`].
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
}

/// The gates of a slot: one, but where two colors that share the slot wait.
#[derive(Debug)]
struct AtSlot {
    slot: SlotId,
    gates: SmallVec<[Gate; 1]>,
}

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };
const _: () = assert!(SHARDS.is_power_of_two());

/// The gates of a sixty-fourth of the slots.
#[derive(Debug)]
struct Shard {
    at_slots: Slab<AtSlot>,
    levels: Slab<Level>,
}

// SAFETY: gates and levels own the nodes in them, and their closures are `Send` (the bound of
// `Maker::make`).
unsafe impl Send for Shard {}

/// The gates of a runtime.
#[derive(Debug)]
pub(crate) struct Gates {
    slots: usize,
    /// For each slot, where in its shard its gates are, plus one; 0 if it has none. There from the
    /// first hold on. Written and read by whoever runs the slot.
    places: OnceLock<Box<[AtomicU32]>>,
    shards: [Mutex<Shard>; SHARDS],
    /// Holds that threads have ended that are no cores: for reports.
    pub(crate) ended_outside: relaxed::AtomicU64,
}

impl Gates {
    pub(crate) fn new(slots: usize) -> Gates {
        Gates {
            slots,
            places: OnceLock::new(),
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    at_slots: Slab::new(),
                    levels: Slab::new(),
                })
            }),
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
    fn with<R>(
        &self,
        slot: SlotId,
        color: Color,
        work: impl FnOnce(&mut Gate, &mut Slab<Level>) -> R,
    ) -> R {
        let number = slot.number() as usize;
        let place = &self.places.get().expect("there was a hold")[number];
        let mut shard = self.shards[number & (SHARDS - 1)].lock().unwrap();
        let Shard { at_slots, levels } = &mut *shard;
        let key = match place.load(Ordering::Relaxed) {
            0 => {
                let gates = SmallVec::new();
                let key = at_slots.insert(AtSlot { slot, gates });
                place.store(key as u32 + 1, Ordering::Relaxed);
                key
            }
            found => found as usize - 1,
        };
        let gates = &mut at_slots[key].gates;
        let at = match gates.iter().position(|gate| gate.color == color) {
            Some(at) => at,
            None => {
                gates.push(Gate::new(color));
                gates.len() - 1
            }
        };
        let result = work(&mut gates[at], levels);
        if gates[at].is_open() {
            gates.swap_remove(at);
        }
        if gates.is_empty() {
            at_slots.remove(key);
            place.store(0, Ordering::Relaxed);
        }
        result
    }

    /// The color that runs is held from now on.
    pub(crate) fn hold(
        &self,
        slot: SlotId,
        color: Color,
        (hold, by): (HoldNumber, HeldBy),
        profiles: &Profiles,
    ) -> HoldId {
        self.begin_holding(profiles);
        self.with(slot, color, |gate, levels| {
            check!(gate.readers == 0, "held while it is read");
            gate.hold(levels, hold, by)
        })
    }

    /// The color that runs is shared by one reader more.
    pub(crate) fn share(&self, slot: SlotId, color: Color, by: HeldBy, profiles: &Profiles) {
        self.begin_holding(profiles);
        self.with(slot, color, |gate, _| {
            check!(gate.due.is_none(), "read while it is held");
            gate.readers += 1;
            gate.reader = Some(by);
        });
    }

    fn begin_holding(&self, profiles: &Profiles) {
        profiles.gate();
        self.places
            .get_or_init(|| (0..self.slots).map(|_| AtomicU32::new(0)).collect());
    }

    /// An event has begun that ends a shared hold. The event that is returned is let go, and goes
    /// before all others of the color.
    pub(crate) fn end_shared(&self, slot: SlotId, color: Color) -> Option<Event> {
        self.with(slot, color, |gate, levels| {
            // Holds and readers exclude each other, and an event that is let go is the next to
            // begin.
            check!(gate.latest.is_none() && !gate.let_go, "ends out of turn");
            gate.readers -= 1;
            gate.let_go(levels)
        })
    }

    /// An event has begun that would read. Whether it may, and where it waits otherwise.
    pub(crate) fn may_read(&self, slot: SlotId, color: Color) -> (bool, WaitsAt) {
        let place = |first| WaitsAt { hold: None, first };
        if !self.any_at(slot) {
            return (true, place(false));
        }
        self.with(slot, color, |gate, _| {
            let again = gate.begin();
            let first = again || gate.backlog.is_empty() || fault("reader before who waits");
            let may = gate.due.is_none() && first;
            (may || fault("reader beside a hold"), place(again))
        })
    }

    /// An event reads that would have waited there. What is let go goes before all others of the
    /// color.
    pub(crate) fn reads(&self, slot: SlotId, color: Color, place: WaitsAt) -> Option<Event> {
        place
            .first
            .then(|| self.with(slot, color, |gate, levels| gate.let_go(levels)))
            .flatten()
    }

    /// An ordinary event of this color is about to begin, in a slot that has a gate.
    pub(crate) fn admit(&self, slot: SlotId, color: Color, event: Event) -> Admission {
        self.with(slot, color, |gate, levels| {
            let again = gate.begin();
            if gate.is_held() {
                Gate::put_aside(&mut gate.backlog, event, again);
                return Admission::PutAside;
            }
            debug_assert!(again || gate.backlog.is_empty(), "what waits goes first");
            Admission::Begins(event, gate.let_go(levels))
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
        self.with(slot, color, |gate, levels| {
            let again = gate.begin();
            if !hold.is_out(levels) {
                return gate.late(levels, again, ends);
            }
            if gate.due != Some(hold.level) && !fault("hold ends before its turn") {
                let place = WaitsAt {
                    hold: Some(hold),
                    first: again,
                };
                return (Arrival::Waits(place), None);
            }
            if ends {
                gate.end_due(levels);
            }
            // None waits, unless this one was let go, or ends the hold.
            (Arrival::Runs, gate.let_go(levels))
        })
    }

    /// An event that arrived waits here, made anew. It passes: when it is let go, it arrives again.
    pub(crate) fn wait(&self, slot: SlotId, color: Color, place: WaitsAt, event: Event) {
        self.with(slot, color, |gate, levels| {
            let waiting = match place.hold {
                Some(hold) => &mut levels[hold.level].through,
                None => &mut gate.backlog,
            };
            Gate::put_aside(waiting, event, place.first);
        });
    }

    /// Events that wait at all gates; for reports, and at limits.
    pub(crate) fn waiting(&self) -> u64 {
        let of_shard = |shard: &Shard| -> u64 {
            let gates = shard
                .at_slots
                .iter()
                .flat_map(|(_, at_slot)| &at_slot.gates);
            let backlogs = gates.map(|gate| &gate.backlog);
            let through = shard.levels.iter().map(|(_, level)| &level.through);
            through
                .chain(backlogs)
                .map(|fifo| u64::from(fifo.len()))
                .sum()
        };
        let shards = self.shards.iter();
        shards.map(|shard| of_shard(&shard.lock().unwrap())).sum()
    }

    /// What waits at each gate; for reports.
    pub(crate) fn depths(&self) -> Vec<(SlotId, Color, u64)> {
        let mut depths = Vec::new();
        for shard in &self.shards {
            let Shard { at_slots, levels } = &*shard.lock().unwrap();
            for (_, AtSlot { slot, gates }) in at_slots {
                let of_gate = |gate: &Gate| (*slot, gate.color, gate.waiting(levels));
                depths.extend(gates.iter().map(of_gate));
            }
        }
        depths
    }

    /// All holds that are out, of readers of a color one; for reports.
    pub(crate) fn held(&self) -> Vec<HoldOut> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let Shard { at_slots, levels } = &*shard.lock().unwrap();
            for gate in at_slots.iter().flat_map(|(_, at_slot)| &at_slot.gates) {
                let behind = gate.waiting(levels);
                let readers = gate.reader.filter(|_| gate.readers > 0);
                let holds = gate.levels(levels).map(|level| level.by);
                let holds = holds.map(|by| (by, false));
                let all = holds.chain(readers.map(|by| (by, true)));
                held.extend(all.map(|(by, shared)| HoldOut {
                    color: gate.color,
                    by,
                    shared,
                    behind,
                }));
            }
        }
        held
    }

    /// Takes what waits at all gates, of a run that is over.
    pub(crate) fn take_all(&self) -> Vec<Fifo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let Shard { at_slots, levels } = &mut *shard.lock().unwrap();
            let gates = at_slots
                .iter_mut()
                .flat_map(|(_, at_slot)| &mut at_slot.gates);
            all.extend(gates.map(|gate| gate.backlog.take()));
            all.extend(levels.iter_mut().map(|(_, level)| level.through.take()));
        }
        all
    }
}

impl Gate {
    /// An event whose hold has ended before. If the color is held, an event that does not end a
    /// hold waits in the backlog, as an ordinary event does.
    fn late(
        &mut self,
        levels: &mut Slab<Level>,
        again: bool,
        ends: bool,
    ) -> (Arrival, Option<Event>) {
        if !ends && self.is_held() {
            let place = WaitsAt {
                hold: None,
                first: again,
            };
            return (Arrival::Waits(place), None);
        }
        let next = if again { self.let_go(levels) } else { None };
        (Arrival::Late, next)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Cx;
    use crate::event::maker::Maker;
    use crate::event::node::Sort;
    use crate::event::pool::Depot;

    const SLOT: SlotId = SlotId::of(2);
    /// Two colors of the slot.
    const COLORS: [Color; 2] = [Color::new(2), Color::new(6)];

    const BY: HeldBy = HeldBy {
        profile: ProfileId::OVERFLOW,
        since_ns: 7,
    };

    struct World {
        gates: Gates,
        profiles: Profiles,
        maker: Maker,
    }

    impl World {
        fn new() -> World {
            World {
                gates: Gates::new(4),
                profiles: Profiles::new(false),
                maker: Maker::new(&Depot::new(100, 1)),
            }
        }

        fn hold(&self, color: Color, number: u64) -> HoldId {
            let number = HoldNumber::new(CoreId::of(0), number);
            self.gates.hold(SLOT, color, (number, BY), &self.profiles)
        }

        /// An event of the color is about to begin.
        fn admit(&mut self, color: Color) -> Admission {
            let f = |_: &mut Cx| ();
            let made = self
                .maker
                .make_own(&self.profiles, None, color, f, Sort::ORDINARY);
            self.gates.admit(SLOT, color, made.0)
        }

        fn put_aside(&mut self, color: Color) {
            let admission = self.admit(color);
            assert!(matches!(admission, Admission::PutAside), "{admission:?}");
        }

        /// The event that is let go begins. The next one that is let go.
        fn begins(&self, color: Color, event: Option<Event>) -> Option<Event> {
            match self.gates.admit(SLOT, color, event.expect("it waits")) {
                Admission::Begins(event, next) => {
                    self.profiles.discard(event);
                    next
                }
                Admission::PutAside => panic!("it may begin"),
            }
        }

        fn assert_open(&self) {
            assert!(!self.gates.any_at(SLOT));
            for shard in &self.gates.shards {
                let Shard { at_slots, levels } = &*shard.lock().unwrap();
                assert!(at_slots.is_empty() && levels.is_empty());
            }
        }
    }

    #[test]
    fn a_gate_is_gone_when_no_hold_is_out_and_no_event_waits() {
        let mut world = World::new();
        for waiting in 0..3 {
            let holds = COLORS.map(|color| world.hold(color, waiting));
            for color in COLORS {
                (0..waiting).for_each(|_| world.put_aside(color));
            }
            for (color, hold) in COLORS.into_iter().zip(holds) {
                let (arrival, mut next) = world.gates.arrive(SLOT, color, hold, true);
                assert!(matches!(arrival, Arrival::Runs));
                for _ in 0..waiting {
                    assert!(world.gates.any_at(SLOT));
                    next = world.begins(color, next);
                }
                assert!(next.is_none());
            }
            world.assert_open();
        }
    }

    #[test]
    fn readers_are_reported_while_they_read() {
        let mut world = World::new();
        let [color, _] = COLORS;
        world.gates.share(SLOT, color, BY, &world.profiles);
        (0..2).for_each(|_| world.put_aside(color));
        let held = world.gates.held();
        assert_eq!(held.len(), 1);
        assert!(held[0].shared && held[0].by.since_ns == 7 && held[0].behind == 2);
        let next = world.gates.end_shared(SLOT, color);
        assert!(world.gates.held().is_empty());
        let next = world.begins(color, next);
        // The first of them holds the color, and the second waits again.
        let hold = world.hold(color, 0);
        assert!(!world.gates.held()[0].shared);
        assert_eq!(world.gates.held().len(), 1);
        let aside = world.gates.admit(SLOT, color, next.expect("it waits"));
        assert!(matches!(aside, Admission::PutAside));
        let (_, next) = world.gates.arrive(SLOT, color, hold, true);
        assert!(world.begins(color, next).is_none());
        world.assert_open();
    }
}
