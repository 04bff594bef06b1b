//! Who rings those that are owed a ring, and when.

use super::*;
use crate::shared::idle::bells::Bell;
use std::sync::{Arc as StdArc, Weak};

/// Which cores were rung, and how many were due at that time.
type Rung = StdArc<Mutex<Vec<(usize, usize)>>>;

#[derive(Debug)]
struct Tells {
    core: usize,
    shared: Weak<Shared>,
    rung: Rung,
    /// Who is rung takes this one out, as a core does that has woken.
    takes: Option<usize>,
}

impl Bell for Tells {
    fn ring(&self) {
        let shared = self.shared.upgrade().unwrap();
        let is_due = |&core: &usize| shared.idle.bells.due.contains(CoreId::of(core));
        let due = (0..shared.cores.len()).filter(is_due).count();
        self.rung.lock().unwrap().push((self.core, due));
        if let Some(takes) = self.takes {
            assert!(shared.idle.bells.due.clear(CoreId::of(takes)));
        }
    }
}

/// A machine of which all cores but the first one sleep.
fn asleep(cores: usize, takes: impl Fn(usize) -> Option<usize>) -> (Machine, Rung) {
    let machine = Machine::flat(cores, Stealing::ALL);
    let rung = Rung::default();
    for core in 1..cores {
        let bell = Tells {
            core,
            shared: Arc::downgrade(&machine.shared),
            rung: StdArc::clone(&rung),
            takes: takes(core),
        };
        machine
            .shared
            .idle
            .bells
            .hang(CoreId::of(core), Box::new(bell));
        machine.sleep(core);
    }
    (machine, rung)
}

impl Machine {
    /// Posts an event to this core, worth a wake-up. A long event publishes it.
    fn post_to(&mut self, core: usize) {
        self.post(self.color(core, 0), 2 * WAKE_COST_NS);
    }

    /// The same to each of these, and publishes them.
    fn wake(&mut self, cores: impl IntoIterator<Item = usize>) {
        cores.into_iter().for_each(|core| self.post_to(core));
        self.cores[0].flush();
    }
}

fn who(rung: &Rung) -> Vec<usize> {
    let rung = rung.lock().unwrap();
    rung.iter().map(|&(core, _)| core).collect()
}

#[test]
fn a_few_are_rung_by_one_and_more_are_shared_out() {
    for (cores, due) in [(4, vec![0; 4]), (5, vec![4, 3, 2, 1, 0])] {
        let (mut machine, rung) = asleep(8, |_| None);
        machine.wake(1..=cores);
        let expected: Vec<_> = (1..=cores).zip(due).collect();
        assert_eq!(*rung.lock().unwrap(), expected);
        assert!(machine.cores[0].bells.is_empty());
        assert_eq!(machine.cores[0].own.stats.wakes.get(), cores as u64);
        // And by who is no core.
        let (machine, rung) = asleep(8, |_| None);
        let bells: Vec<_> = (1..=cores).map(CoreId::of).collect();
        machine.shared.idle.bells.ring_all(&bells);
        assert_eq!(*rung.lock().unwrap(), expected);
    }
}

#[test]
fn who_is_taken_out_by_another_is_rung_by_that_one() {
    let (mut machine, rung) = asleep(8, |core| (core == 1).then_some(4));
    machine.wake(1..=6);
    assert_eq!(who(&rung), [1, 2, 3, 5, 6]);
    assert!(machine.cores[0].bells.is_empty());
    assert_eq!(machine.cores[0].own.stats.wakes.get(), 5);
}

#[test]
fn who_wakes_up_rings_four_others() {
    let (mut machine, rung) = asleep(8, |_| None);
    let due = &machine.shared.idle.bells.due;
    (1..8).for_each(|core| due.set(CoreId::of(core)));
    machine.cores[1].help_ring();
    assert_eq!(who(&rung), [2, 3, 4, 5], "not itself");
    assert_eq!(machine.cores[1].own.stats.wakes.get(), 4);
    assert!(!machine.shared.idle.bells.due.contains(CoreId::of(1)));
    machine.cores[5].help_ring();
    assert_eq!(who(&rung), [2, 3, 4, 5, 6, 7]);
    machine.cores[6].help_ring();
    assert_eq!(who(&rung).len(), 6);
}

#[test]
fn what_is_due_is_rung_when_all_are_woken() {
    let (machine, rung) = asleep(4, |_| None);
    assert!(machine.shared.cores[2].pokes.unpark());
    machine.shared.idle.bells.due.set(CoreId::of(2));
    machine.shared.wake_all();
    assert_eq!(*rung.lock().unwrap(), [(1, 2), (2, 1), (3, 0)]);
    assert!(!machine.shared.idle.bells.due.any());
}
