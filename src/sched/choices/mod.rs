//! What is chosen: which victim and whether any ([`victims`], [`searches`]), which of its colors
//! and how many ([`colors`]); what is kept at hand ([`kept`]), and what a core does between two
//! quanta ([`exchange`]); what goes first ([`newest`]); which events are timed ([`timing`]), who is
//! woken ([`wakes`]), by whom ([`bells`]), and whose colors are taken over instead ([`takeovers`]),
//! who has the next turn because it was asked for ([`wishes`]), what a retired core does
//! ([`retired`]), and what is told of it all ([`reports`]). On cores that are stepped by hand,
//! whose events do nothing; the clock stands where the test puts it.

mod bells;
mod colors;
mod exchange;
mod kept;
mod newest;
mod reports;
mod retired;
mod searches;
mod takeovers;
mod timing;
mod victims;
mod wakes;
mod wishes;

use super::core::Core;
use super::exchange::take_mail;
use super::section::Section;
use crate::clock::Clock;
use crate::color::CoreId;
use crate::color::{HashKey, SlotId};
use crate::policy::head::Newest;
use crate::policy::numbers::{BATCH_EVENTS, STEAL_NS, WAKE_NS};
use crate::policy::quantum::QUANTUM_BUSY_NS;
use crate::policy::worth::Endurance;
use crate::policy::{Policy, Stealing};
use crate::shared::idle::wake_cost::WakeCost;
use crate::shared::queue::color_queue::State;
use crate::shared::queue::limits::Limits;
use crate::shared::{Setup, Shared};
use crate::sync::Arc;
use crate::sync::relaxed::{AtomicU64, Ordering};
use crate::topology::{Distance, Shape, Topology};
use crate::{Color, Handler};
use std::sync::Mutex;
use std::time::Duration;

const WAKE_COST_NS: u64 = WAKE_NS;
/// Until a steal is measured.
const STEAL_COST_NS: u64 = STEAL_NS as u64;

/// A handler whose events take so long, annotated.
fn takes(ns: u64) -> &'static Handler {
    penalized(ns, 1)
}

fn penalized(ns: u64, penalty: u32) -> &'static Handler {
    // Reached from here for ever, so that no checker takes them for leaks.
    static MADE: Mutex<Vec<&'static Handler>> = Mutex::new(Vec::new());
    let handler = Handler::new("takes").time(Duration::from_nanos(ns));
    let handler = Box::leak(Box::new(handler.penalty(penalty)));
    MADE.lock().unwrap().push(handler);
    handler
}

/// All heuristics but these.
fn without(locality: bool, time_left: bool, penalty: bool) -> Stealing {
    Stealing {
        enabled: true,
        locality: !locality,
        time_left: !time_left,
        penalty: !penalty,
    }
}

pub(super) struct Machine {
    pub(super) shared: Arc<Shared>,
    cores: Vec<Core>,
    now_ns: Arc<AtomicU64>,
}

impl Machine {
    /// All cores share a cache of the first level.
    pub(super) fn flat(cores: usize, heuristics: Stealing) -> Machine {
        Machine::new(Machine::near(cores), heuristics)
    }

    /// Nobody steals.
    fn apart(cores: usize) -> Machine {
        let stealing = Stealing {
            enabled: false,
            ..Stealing::ALL
        };
        Machine::new(Machine::near(cores), stealing)
    }

    fn near(cores: usize) -> Vec<Vec<(usize, Distance)>> {
        let near = |thief| (1..cores).map(move |i| ((thief + i) % cores, Distance::SharedL1));
        (0..cores).map(|core| near(core).collect()).collect()
    }

    fn on(topology: &Topology, heuristics: Stealing) -> Machine {
        let victims = |core| topology.victims(core);
        Machine::new(
            (0..topology.cores().len()).map(victims).collect(),
            heuristics,
        )
    }

    fn new(victims: Vec<Vec<(usize, Distance)>>, stealing: Stealing) -> Machine {
        let cores = victims.len();
        let numbered = |(core, distance)| (CoreId::of(core), distance);
        let shared = Arc::new(Shared::new(Setup {
            // Each color that is used here has a slot of its own.
            slot_bits: if cores > 16 { 16 } else { 13 },
            hash_key: HashKey::from_seed(0),
            victims: (victims.into_iter())
                .map(|its| its.into_iter().map(numbered).collect())
                .collect(),
            policy: Policy {
                stealing,
                batch: BATCH_EVENTS,
                // Where there are thieves, as if one were always idle.
                quantum_busy_ns: if cores > 1 { STEAL_NS } else { QUANTUM_BUSY_NS },
            },
            events_max: 1 << 20,
            makers: 1,
            wake_cost: WakeCost::fixed(WAKE_COST_NS),
            watch_at_once: false,
            recorder: None,
        }));
        let now_ns = Arc::new(AtomicU64::new(1_000_000));
        let core = |id| {
            let clock = Clock::Virtual(Arc::clone(&now_ns));
            Core::new(Arc::clone(&shared), CoreId::of(id), clock)
        };
        Machine {
            cores: (0..cores).map(core).collect(),
            shared,
            now_ns,
        }
    }

    /// Core 0 takes up what steals cost by now.
    fn renew(&mut self) {
        let mut section = Section::enter(&self.shared, CoreId::of(0));
        section.renew_limits();
        let quantum_ns = section.limits.quantum_ns(&self.shared);
        drop(section);
        self.cores[0].checkout.quantum_ns = quantum_ns;
    }

    /// The `i`-th color whose home is this core.
    fn color(&self, core: usize, i: usize) -> u64 {
        ((1 + i) * self.cores.len() + core) as u64
    }

    /// This core runs something, and has these colors queued, in this order: for each a handler,
    /// and how many events. Returns the colors.
    fn busy(&mut self, core: usize, queued: &[(&'static Handler, usize)]) -> Vec<u64> {
        let colors: Vec<u64> = (0..queued.len()).map(|i| self.color(core, i)).collect();
        let runs = Color::from(self.color(core, 250));
        let of = &mut self.cores[core];
        post(of, takes(20), runs.value());
        of.exchange::<false>();
        assert!(of.next_color() && of.checkout.turns() == 1);
        let event = of.begin_event().unwrap();
        of.skip(event);
        // They are queued in this order, and not the newest first.
        Section::enter(&self.shared, CoreId::of(core))
            .guarded
            .queues
            .newest = Newest::default();
        for (&(handler, events), &color) in queued.iter().zip(&colors) {
            (0..events).for_each(|_| post(of, handler, color));
        }
        of.flush();
        colors
    }

    /// A core goes to sleep to which nothing was sent.
    fn sleep(&self, core: usize) {
        assert!(self.shared.cores[core].pokes.park());
        self.shared.idle.sleepers.set(CoreId::of(core));
    }

    fn wait(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// This core has these colors queued, for each a handler and how many events, and all of them
    /// have gone on for long.
    fn lasting(&mut self, core: usize, queued: &[(&'static Handler, usize)]) {
        for (i, &(handler, events)) in queued.iter().enumerate() {
            let color = self.color(core, i);
            (0..events).for_each(|_| post(&mut self.cores[core], handler, color));
            self.cores[core].flush();
            let mut section = Section::enter(&self.shared, CoreId::of(core));
            let most = section.limits.endurance_most;
            set_endurance(&mut section, slot(color), most);
            section.write_hint();
        }
    }

    /// What a core that has nothing to run steals: first what it runs at once, then what it queues.
    fn steal(&mut self, thief: usize) -> Vec<u64> {
        let of = &mut self.cores[thief];
        let found = of.steal();
        of.end_search(found);
        let taken: Vec<u64> = of.checkout.slots().map(color_of).collect();
        assert_eq!(found, !taken.is_empty());
        let queued = Section::enter(&self.shared, CoreId::of(thief)).queued_slots();
        taken
            .into_iter()
            .chain(queued.into_iter().map(u64::from))
            .collect()
    }

    /// As `steal`, when the thief has seen before how its victims are getting on, so long ago.
    fn steal_after(&mut self, thief: usize, ns: u64) -> Vec<u64> {
        assert_eq!(self.steal(thief), [0_u64; 0], "stolen before");
        self.wait(ns);
        self.steal(thief)
    }

    fn queued(&self, core: usize) -> usize {
        Section::enter(&self.shared, CoreId::of(core))
            .queued_slots()
            .len()
    }

    /// Steals over this distance come to cost so much.
    fn cost(&self, distance: Distance, ns: u64) {
        for core in &self.shared.cores {
            (0..200).for_each(|_| core.steal_costs.record(distance, ns));
            assert!(core.steal_costs.ns(distance).abs_diff(ns) <= 8);
        }
    }
}

/// What is done on core 0.
impl Machine {
    fn post(&mut self, color: u64, takes_ns: u64) {
        post(&mut self.cores[0], takes(takes_ns), color);
    }

    fn settle(&mut self, colors: &[u64]) {
        for &color in colors {
            self.post(color, 20);
            self.cores[0].exchange::<false>();
            assert_eq!(self.run(), [color]);
        }
        self.cores[0].exchange::<false>();
        assert!(self.cores[0].has_empty_checkout());
    }

    /// Begins and ends an event, whose closure has nothing to do; its color. None if the quantum is
    /// over.
    fn step(&mut self) -> Option<u64> {
        self.step_for(0)
    }

    /// As `step`, with an event that takes so long.
    fn step_for(&mut self, ns: u64) -> Option<u64> {
        let of = &mut self.cores[0];
        if of.is_turn_over() && !of.next_color() {
            return None;
        }
        let event = of.begin_event().expect("nobody asks to look up");
        self.wait(ns);
        let of = &mut self.cores[0];
        of.skip(event);
        let _ = of.end_event();
        of.current.slot.get().map(color_of)
    }

    /// The rest of the quantum.
    fn run(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.step()).collect()
    }

    /// Runs the rest of the quantum.
    fn end_turns(&mut self) {
        self.run();
        self.cores[0].end_quantum(1);
    }

    /// Runs the rest of the quantum, and begins the next.
    fn end_quantum(&mut self) {
        self.end_turns();
        self.cores[0].exchange::<false>();
    }

    fn checked_out(&self) -> Vec<u64> {
        self.cores[0].checkout.slots().map(color_of).collect()
    }

    fn queue(&self) -> Vec<u64> {
        let queued = Section::enter(&self.shared, CoreId::of(0)).queued_slots();
        queued.into_iter().map(u64::from).collect()
    }
}

/// The slot of a color with a slot of its own.
fn slot(color: u64) -> SlotId {
    SlotId::of(color as u32)
}

/// The color of such a slot.
fn color_of(slot: SlotId) -> u64 {
    slot.number().into()
}

/// A queued color comes to have gone on for this long.
fn set_endurance(section: &mut Section<'_>, slot: SlotId, endurance: Endurance) {
    section.unlink(slot);
    {
        let mut queue = section.guarded.colors.at(slot);
        queue.state = State::Idle;
        queue.endurance = endurance;
    }
    section.link(slot);
}

fn post(core: &mut Core, handler: &'static Handler, color: u64) {
    assert!(
        core.post(Some(handler), Color::from(color), |_cx| ())
            .is_ok()
    );
}

fn machines() -> Vec<Topology> {
    // Of 2, 8, 16 and 128 cores.
    let shapes = [
        (1, 1, 1, 1, 2),
        (2, 1, 1, 2, 2),
        (1, 2, 2, 2, 2),
        (2, 4, 2, 4, 2),
    ];
    let shape = |(packages, nodes, l3, l2, cores): (usize, usize, usize, usize, usize)| Shape {
        packages,
        nodes_per_package: nodes,
        l3_per_node: l3,
        l2_per_l3: l2,
        cores_per_l2: cores,
        ..Shape::default()
    };
    let all = shapes
        .into_iter()
        .map(|of| Topology::synthetic(shape(of)).unwrap());
    all.collect()
}
