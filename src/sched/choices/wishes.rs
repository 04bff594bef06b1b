//! Who has the next turn because somebody asked for it.

use super::*;
use crate::color::CoreId;
use crate::shared::remote::wishes;

/// Colors that are queued on core 0, in this order, and what it checks out next.
fn next(machine: &mut Machine) -> Vec<u64> {
    machine.cores[0].exchange::<false>();
    machine.checked_out()
}

pub(super) fn hurry(machine: &Machine, color: u64) {
    wishes::hurry(&machine.shared, Color::from(color));
}

fn counts(machine: &Machine) -> (u64, u64) {
    let stats = &machine.shared.cores[0].stats;
    (stats.hurries.get(), stats.hurries_refused.get())
}

#[test]
fn who_hurries_has_the_next_turns_in_the_order_of_asking() {
    let mut machine = Machine::flat(1, Stealing::ALL);
    let queued = machine.busy(0, &[(takes(20), 1); 6]);
    hurry(&machine, queued[4]);
    hurry(&machine, queued[2]);
    // What it has not published yet is published: a thief may be the one who finds the wish.
    let posted = machine.color(0, 9);
    machine.post(posted, 20);
    machine.cores[0].hurry(Color::from(posted));
    assert!(!machine.cores[0].has_outbox());
    machine.run();
    let [a, b, c, d, e, f] = queued[..] else {
        panic!()
    };
    assert_eq!(next(&mut machine), [e, c, posted, a, b, d, f]);
    assert_eq!(counts(&machine), (3, 0));
    assert_eq!(machine.run(), [e, c, posted, a, b, d, f]);
    machine.cores[0].exchange::<false>();
    assert!(machine.cores[0].has_empty_checkout());
}

/// Its own events keep their order, and the wish is for one turn.
#[test]
fn what_is_left_after_the_turn_waits_like_any_other() {
    let mut machine = Machine::apart(1);
    let queued = machine.busy(0, &[(takes(20_000), 1), (takes(20_000), 15)]);
    let (waits, hurried) = (queued[0], queued[1]);
    hurry(&machine, hurried);
    machine.run();
    assert_eq!(next(&mut machine), [hurried]);
    machine.run();
    assert_eq!(next(&mut machine), [waits]);
    machine.run();
    assert_eq!(next(&mut machine), [hurried]);
    assert_eq!(counts(&machine), (1, 0));
}

/// A color that has nothing to do: the wish is gone.
#[test]
fn a_wish_for_a_color_without_events_is_not_kept() {
    let mut machine = Machine::flat(1, Stealing::ALL);
    let [a, b] = [0, 1].map(|i| machine.color(0, i));
    hurry(&machine, b);
    assert!(next(&mut machine).is_empty());
    machine.post(a, 20);
    machine.post(b, 20);
    assert_eq!(next(&mut machine), [a, b]);
    assert_eq!(counts(&machine), (0, 0));
    // Those of the runtime's own take no wishes.
    wishes::hurry(&machine.shared, Color::control(0));
    let control = machine.shared.slots.map.slot(Color::control(0));
    assert!(!machine.shared.slots.at(control).wish.any());
}

/// It is checked out when the wish comes: what it has left goes first when it comes back.
#[test]
fn a_color_that_runs_has_its_next_turn_first() {
    let mut machine = Machine::apart(1);
    let [runs, a, b] = [0, 1, 2].map(|i| machine.color(0, i));
    (0..2).for_each(|_| machine.post(runs, 20_000));
    machine.post(a, 20_000);
    machine.post(b, 20_000);
    assert_eq!(next(&mut machine), [runs]);
    assert_eq!(machine.step_for(1_000_000), Some(runs));
    hurry(&machine, runs);
    assert_eq!(machine.run(), []);
    assert_eq!(next(&mut machine), [runs]);
    machine.run();
    assert_eq!(next(&mut machine), [a]);
}

/// It is asked to go elsewhere as well: there it has the next turn.
#[test]
fn a_color_that_is_placed_hurries_where_it_comes_to() {
    let mut machine = Machine::apart(2);
    let there = machine.busy(0, &[(takes(20), 1); 3]);
    let moves = machine.color(1, 0);
    post(&mut machine.cores[1], takes(20), moves);
    machine.cores[1].flush();
    hurry(&machine, moves);
    wishes::place(&machine.shared, Color::from(moves), 0);
    machine.cores[1].exchange::<false>();
    machine.run();
    assert_eq!(next(&mut machine), [moves, there[0], there[1], there[2]]);
    assert_eq!(counts(&machine), (1, 0));
}

/// Those that asked first, and the rest stays in its order.
#[test]
fn of_more_wishes_than_are_granted_the_first_ones_are() {
    let mut machine = Machine::apart(1);
    let queued = machine.busy(0, &[(takes(20), 1); 200]);
    queued[100..]
        .iter()
        .for_each(|&color| hurry(&machine, color));
    machine.run();
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), &queued[100..164]);
    assert_eq!(counts(&machine), (64, 36));
    let rest = machine.queue();
    assert_eq!(rest[..100], queued[..100]);
    assert_eq!(rest[100..], queued[164..]);
}

/// A thief takes it first, too; and it keeps its place in its band if there is none to be had.
#[test]
fn who_hurries_is_stolen_first() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let queued = machine.busy(0, &[(takes(30_000), 1); 6]);
    hurry(&machine, queued[4]);
    take_mail(
        &mut Section::enter(&machine.shared, CoreId::of(0)),
        &mut Vec::new(),
    );
    assert_eq!(machine.queue()[0], queued[4]);
    let stolen = machine.steal(1);
    assert_eq!(stolen[0], queued[4]);
}

/// However many ask: of two quanta one goes by the order in which the colors came.
#[test]
fn who_does_not_hurry_has_every_second_quantum() {
    let mut machine = Machine::apart(1);
    let (hurries, waits) = (machine.color(0, 0), machine.color(0, 1));
    let others: Vec<u64> = (2..12).map(|i| machine.color(0, i)).collect();
    let mut turns = (0, 0);
    for quantum in 0..1_000 {
        // Each of them is alone in its quantum.
        for &color in others.iter().chain([&hurries, &waits]) {
            let has_some = machine.queue().contains(&color);
            if !has_some {
                machine.post(color, 50_000);
            }
        }
        hurry(&machine, hurries);
        machine.cores[0].exchange::<false>();
        let ran = machine.run();
        assert_eq!(ran.len(), 1);
        // Once the burst is over.
        if quantum >= 200 {
            turns.0 += usize::from(ran[0] == hurries);
            turns.1 += usize::from(ran[0] == waits);
        }
    }
    assert!((380..=440).contains(&turns.0), "{turns:?}");
    assert!((30..=40).contains(&turns.1), "{turns:?}");
    let (granted, refused) = counts(&machine);
    assert!(
        granted <= 64 + 1_000 / 2 && refused > 0,
        "{granted} {refused}"
    );
}
