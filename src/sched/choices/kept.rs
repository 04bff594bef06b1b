//! What a core has at hand: what is put straight in, what is kept, and what is given back.

use super::*;
use crate::color::CoreId;

/// A core on which two colors post to each other: `b` runs, and `a`, whose events ran out, is kept.
pub(super) struct Pair {
    pub(super) machine: Machine,
    pub(super) a: u64,
    pub(super) b: u64,
}

impl Pair {
    pub(super) fn on(cores: usize) -> Pair {
        Pair::of(Machine::flat(cores, Stealing::ALL))
    }

    fn of(mut machine: Machine) -> Pair {
        let [a, b] = [0, 1].map(|i| machine.color(0, i));
        // A color that was never posted to does not go straight in.
        machine.settle(&[a, b]);
        machine.post(a, 20);
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.step(), Some(a));
        machine.post(b, 20);
        assert_eq!(machine.step(), None);
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.step(), Some(b));
        assert_eq!(machine.cores[0].checkout.others(true), 1);
        Pair { machine, a, b }
    }

    /// Posts to the kept color until one takes the outbox. How many did not.
    fn fill(&mut self, takes_ns: u64) -> usize {
        let put_in = |_: &usize| {
            self.machine.post(self.a, takes_ns);
            !self.machine.cores[0].has_outbox()
        };
        (0..1_000).take_while(put_in).count()
    }
}

#[test]
fn a_post_to_a_kept_color_goes_straight_in() {
    let mut pair = Pair::on(2);
    (0..2).for_each(|_| pair.machine.post(pair.a, 20));
    assert!(!pair.machine.cores[0].has_outbox());
    assert_eq!(
        pair.machine.cores[0].checkout.fifo(slot(pair.a)).raw_ns(),
        40
    );
    assert_eq!(pair.machine.run(), [pair.a; 2]);
}

#[test]
fn a_post_to_a_color_that_waits_for_its_turn_goes_straight_in() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors: Vec<u64> = (0..5).map(|i| machine.color(0, i)).collect();
    // Not in this order, in which they would be kept in places of their own already.
    machine.settle(&[3, 1, 4, 0, 2].map(|i| colors[i]));
    // By the shorter way and by the longer one: an event alone, and two.
    for events in [1, 2] {
        for &color in &colors {
            (0..events).for_each(|_| machine.post(color, 20));
        }
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.step(), Some(colors[0]));
        if events == 1 {
            machine.post(colors[3], 20);
            assert!(!machine.cores[0].has_outbox());
            assert_eq!(machine.run(), [1, 2, 3, 3, 4].map(|i| colors[i]));
        } else {
            assert_eq!(
                machine.run(),
                [0, 1, 1, 2, 2, 3, 3, 4, 4].map(|i| colors[i])
            );
        }
    }
}

/// An event that hops to and fro between two colors takes the lock once a quantum: but for one
/// quantum in 64, in which limits are worked out anew.
#[test]
fn holding_goes_on_for_as_long_as_it_is_of_use() {
    let Pair { mut machine, a, b } = Pair::on(2);
    let (mut hops, mut at) = (0, b);
    for _ in 0..640 {
        loop {
            let to = if at == a { b } else { a };
            machine.post(to, 20);
            hops += 1;
            match machine.step() {
                Some(color) => at = color,
                None => break,
            }
        }
        machine.cores[0].exchange::<false>();
        at = machine.step().unwrap();
    }
    assert!(hops > 30 * 600, "{hops}");
}

#[test]
fn at_most_32_colors_are_kept() {
    for (colors, kept) in [(32, 32), (33, 0)] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        let colors: Vec<u64> = (0..=colors).map(|i| machine.color(0, i)).collect();
        let (&next, colors) = colors.split_last().unwrap();
        machine.settle(colors);
        machine.settle(&[next]);
        // Whether colors are kept is tried now and then only.
        for _ in 0..100 {
            machine.run();
            machine.cores[0].exchange::<false>();
            colors.iter().for_each(|&color| machine.post(color, 1));
            machine.cores[0].exchange::<false>();
            assert_eq!(machine.run(), colors);
            machine.post(next, 1);
            machine.cores[0].exchange::<false>();
            assert_eq!(machine.checked_out(), [next]);
            if machine.cores[0].checkout.others(true) > 0 {
                break;
            }
        }
        assert_eq!(machine.cores[0].checkout.others(true), kept);
        // Each has a place of its own.
        assert_eq!(machine.step(), Some(next));
        colors.iter().for_each(|&color| machine.post(color, 1));
        assert_eq!(machine.cores[0].has_outbox(), kept == 0);
    }
}

/// Nothing goes on here that a kept color could be posted to by.
#[test]
fn nothing_is_kept_if_the_last_post_went_elsewhere() {
    let Pair { mut machine, a, .. } = Pair::on(2);
    machine.post(a, 20);
    machine.run();
    let elsewhere = machine.color(1, 0);
    machine.post(elsewhere, 20);
    machine.cores[0].exchange::<false>();
    assert!(machine.cores[0].has_empty_checkout());
}

/// Of colors that last, what others see is how many are here besides.
#[test]
fn a_flush_leaves_out_only_the_running_color() {
    for lasts in [true, false] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        let colors: Vec<u64> = (0..3).map(|i| machine.color(0, i)).collect();
        colors.iter().for_each(|&color| machine.post(color, 20));
        machine.cores[0].flush();
        for &color in &colors[usize::from(!lasts)..] {
            let mut section = Section::enter(&machine.shared, CoreId::of(0));
            set_endurance(
                &mut section,
                slot(color),
                Endurance::NONE.and(5_000, Endurance::most(0)),
            );
        }
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.step(), Some(colors[0]));
        let lasting = |machine: &Machine| {
            let section = Section::enter(&machine.shared, CoreId::of(0));
            (
                section.guarded.queues.core_queue.lasting,
                section.guarded.queues.lasting_out,
            )
        };
        assert_eq!(lasting(&machine), (0, 2 + u32::from(lasts)));
        machine.cores[0].flush();
        assert_eq!(lasting(&machine), (2, u32::from(lasts)));
        machine.run();
        machine.cores[0].exchange::<false>();
        machine.run();
    }
}

/// Until what is hidden from thieves is a quantum, of which the color that runs takes 20 ns.
#[test]
fn what_goes_straight_in_is_at_most_a_quantum() {
    for (cores, quantum_ns) in [(2, 600), (1, 2_400)] {
        assert_eq!(Pair::on(cores).fill(20), (quantum_ns - 20) / 20);
        assert_eq!(Pair::on(cores).fill(29), (quantum_ns - 20) / 29);
        // What does not fit is not made up for by what would.
        let mut pair = Pair::on(cores);
        pair.machine.post(pair.a, quantum_ns as u64);
        pair.machine.post(pair.a, 20);
        assert_eq!(pair.machine.run(), []);
        // To the last ns.
        assert_eq!(Pair::on(cores).fill((quantum_ns as u64 - 20) / 2), 2);
    }
}

#[test]
fn what_is_posted_between_quanta_waits_for_the_exchange() {
    let mut pair = Pair::on(2);
    assert_eq!(pair.machine.step(), None);
    pair.machine.post(pair.a, 20);
    assert!(pair.machine.cores[0].has_outbox());
}

#[test]
fn a_flush_gives_back_all_but_the_running_color_in_order() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors: Vec<u64> = (0..5).map(|i| machine.color(0, i)).collect();
    colors[..4]
        .iter()
        .for_each(|&color| machine.post(color, 20));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), colors[..4]);
    assert_eq!(machine.step(), Some(colors[0]));
    machine.cores[0].flush();
    assert_eq!(machine.checked_out(), colors[..1]);
    assert_eq!(machine.queue(), colors[1..4]);
    // Behind them what is posted.
    machine.post(colors[4], 20);
    machine.cores[0].flush();
    assert_eq!(machine.queue(), colors[1..]);
    assert_eq!(machine.run(), []);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), colors[1..]);
}

/// With nothing to give back and nothing to publish, it does not even take the lock.
#[test]
fn a_flush_of_nothing_does_nothing() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let color = machine.color(0, 0);
    machine.post(color, 20);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.step(), Some(color));
    Section::enter(&machine.shared, CoreId::of(0))
        .guarded
        .queues
        .core_queue
        .events = 7;
    machine.cores[0].flush();
    assert_eq!(machine.shared.cores[0].hint.events(), 0);
    Section::enter(&machine.shared, CoreId::of(0))
        .guarded
        .queues
        .core_queue
        .events = 0;
}

#[test]
fn a_core_takes_at_most_64_colors_at_once() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors: Vec<u64> = (0..100).map(|i| machine.color(0, i)).collect();
    colors.iter().for_each(|&color| machine.post(color, 1));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), colors[..64]);
    assert_eq!(machine.queue(), colors[64..]);
}

/// Two colors share a place in the index, and all are found where they are.
#[test]
fn colors_that_share_a_place_in_the_index_run_in_order() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, shares, other] = [0, 128, 1].map(|i| machine.color(0, i));
    assert_eq!(a % 256, shares % 256);
    machine.settle(&[a, shares, other]);
    [a, shares, other, a]
        .iter()
        .for_each(|&color| machine.post(color, 20));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.queue(), []);
    let all = machine.checked_out();
    assert_eq!(machine.step(), Some(all[0]));
    machine.post(other, 20);
    assert!(
        !machine.cores[0].has_outbox(),
        "it is found where it is now"
    );
    let mut ran = machine.run();
    ran.sort();
    let mut expected = vec![a, a, shares, other, other];
    expected.remove(expected.iter().position(|&slot| slot == all[0]).unwrap());
    expected.sort();
    assert_eq!(ran, expected);
}

/// It took the outbox, since it did not go straight in, and comes out of there while its color
/// runs.
#[test]
fn what_was_posted_to_a_color_before_it_runs_runs_in_its_turn() {
    let mut pair = Pair::on(2);
    pair.machine.post(pair.a, 20);
    pair.machine.post(pair.a, 590);
    assert!(pair.machine.cores[0].has_outbox());
    assert_eq!(pair.machine.step(), Some(pair.a));
    pair.machine.cores[0].flush();
    assert_eq!(pair.machine.run(), [pair.a]);
}

/// Else it would have its turn before those that wait.
#[test]
fn nothing_goes_straight_in_while_others_wait() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, waits] = [0, 1, 2].map(|i| machine.color(0, i));
    [a, b].iter().for_each(|&color| machine.post(color, 20));
    machine.post(waits, 5_000);
    machine.cores[0].exchange::<false>();
    assert_eq!(
        (machine.checked_out(), machine.queue()),
        (vec![a, b], vec![waits])
    );
    assert_eq!(machine.step(), Some(a));
    machine.post(b, 20);
    assert!(machine.cores[0].has_outbox());
    // Also if there would be time: no core takes more than 64 colors.
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors: Vec<u64> = (0..65).map(|i| machine.color(0, i)).collect();
    colors.iter().for_each(|&color| machine.post(color, 1));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.queue(), colors[64..]);
    assert_eq!(machine.step(), Some(colors[0]));
    machine.post(colors[1], 1);
    assert!(machine.cores[0].has_outbox());
}

/// One color goes back to the queues in the exchange, and another takes its place in the checkout.
#[test]
fn who_is_still_kept_is_found_in_its_new_place() {
    let Pair { mut machine, a, b } = Pair::on(2);
    machine.post(a, 590);
    assert!(machine.cores[0].has_outbox(), "it does not fit in");
    assert_eq!(machine.step(), None);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), [a]);
    assert_eq!(machine.step(), Some(a));
    machine.post(b, 5);
    assert!(!machine.cores[0].has_outbox(), "it is kept");
    assert_eq!(machine.run(), [b]);
}

/// A color that is kept has no events, so what it has lasted is over.
#[test]
fn who_is_kept_has_finished() {
    let Pair { mut machine, a, .. } = Pair::on(2);
    let endurance = |machine: &Machine, set: Option<Endurance>| {
        let mut section = Section::enter(&machine.shared, CoreId::of(0));
        let mut queue = section.guarded.colors.at(slot(a));
        if let Some(endurance) = set {
            queue.endurance = endurance;
        }
        queue.endurance
    };
    endurance(&machine, Some(Endurance::most(0)));
    let next = machine.color(0, 2);
    machine.post(next, 20);
    assert_eq!(machine.step(), None);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.step(), Some(next));
    assert!(machine.cores[0].checkout.find(slot(a)).is_some());
    assert_eq!(endurance(&machine, None), Endurance::NONE);
}

#[test]
fn what_does_not_fit_does_not_go_straight_to_the_checkout() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors: Vec<u64> = (0..3).map(|i| machine.color(0, i)).collect();
    machine.settle(&colors);
    colors.iter().for_each(|&color| machine.post(color, 400));
    machine.cores[0].exchange::<false>();
    assert_eq!(
        (machine.checked_out(), machine.queue()),
        (colors[..1].to_vec(), colors[1..].to_vec())
    );
}
