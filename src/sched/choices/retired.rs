//! What a retired core does with what it has, and what it leaves to others.

use super::*;
use crate::shared::remote::working::set_working;

/// A machine of which this many cores work, as each core has seen.
fn working(machine: &mut Machine, cores: usize) {
    set_working(&machine.shared, cores).unwrap();
    for core in &mut machine.cores {
        assert!(core.looks_up(), "another number than before");
        assert!(!core.looks_up(), "it was asked once");
    }
}

fn owner(machine: &Machine, color: u64) -> usize {
    machine.shared.slots.owner(slot(color)).index()
}

/// What it had checked out, what is queued and what was posted and not published goes where cores
/// work; events of its own stay.
#[test]
fn a_retired_core_passes_on_what_it_has() {
    let mut machine = Machine::apart(3);
    let colors: Vec<u64> = (0..4).map(|i| machine.color(2, i)).collect();
    let of = &mut machine.cores[2];
    for &color in &colors[..2] {
        post(of, takes(100), color);
    }
    of.exchange::<false>();
    assert!(!of.has_empty_checkout());
    post(of, takes(100), colors[2]);
    let control = Color::control(2);
    assert!(of.post(Some(takes(100)), control, |_cx| ()).is_ok());
    working(&mut machine, 2);
    // From outside, to a color that was never used.
    post(&mut machine.cores[0], takes(100), colors[3]);
    machine.cores[0].exchange::<false>();
    machine.cores[2].exchange::<true>();
    let of = &machine.cores[2];
    let own = machine.shared.slots.map.slot(control);
    assert_eq!(of.checkout.slots().collect::<Vec<_>>(), [own]);
    assert_eq!(of.own.hint.queued(), 0);
    for &color in &colors {
        assert_eq!(owner(&machine, color), color as usize % 2);
    }
    for core in 0..2 {
        machine.cores[core].exchange::<false>();
    }
    let here = |core: usize| {
        let mut queued = Section::enter(&machine.shared, CoreId::of(core)).queued_slots();
        let out = machine.cores[core].checkout.slots();
        queued.extend(out.map(SlotId::number));
        queued.len()
    };
    assert_eq!(here(0) + here(1), colors.len());
}

/// A round at a time; nothing is run before all has gone.
#[test]
fn many_colors_are_passed_on_in_rounds() {
    const COLORS: usize = 70;
    let mut machine = Machine::apart(2);
    for i in 0..COLORS {
        let color = machine.color(1, i);
        post(&mut machine.cores[1], takes(100), color);
    }
    machine.cores[1].flush();
    working(&mut machine, 1);
    let mut left = || {
        machine.cores[1].exchange::<true>();
        let of = &mut machine.cores[1];
        assert!(of.has_empty_checkout());
        (of.anything_to_do(), machine.queued(1))
    };
    assert_eq!(left(), (true, COLORS - 32));
    assert_eq!(left(), (true, COLORS - 64));
    assert_eq!(left(), (false, 0));
    assert_eq!(left(), (false, 0));
}

/// It neither searches nor levels, takes over nothing, and counts for none that sleeps.
#[test]
fn a_retired_core_takes_nothing() {
    let mut machine = Machine::flat(3, Stealing::ALL);
    machine.cores[2].search.levelling = Some(0);
    machine.sleep(1);
    working(&mut machine, 2);
    let of = &machine.cores[2];
    assert_eq!(of.search.levelling, None);
    assert!(
        !machine.shared.cores[0].hint.is_asked(),
        "it wants none of it"
    );
    let color = machine.color(1, 0);
    post(&mut machine.cores[2], takes(100), color);
    machine.cores[2].exchange::<true>();
    assert_eq!(owner(&machine, color), 1);
    machine.busy(0, &[(takes(100_000), 9)]);
    assert!(!machine.cores[2].anything_to_do(), "that is for others");
    assert!(machine.cores[1].anything_to_do());
    working(&mut machine, 3);
    assert!(machine.cores[2].anything_to_do(), "from now on it is not");
    assert!(!machine.steal(2).is_empty());
}

/// Whoever made work known has woken nobody, because a core searched that is retired since.
#[test]
fn who_is_retired_while_it_searches_wakes_another() {
    let mut machine = Machine::flat(4, Stealing::ALL);
    assert!(!machine.cores[3].steal());
    assert!(machine.cores[3].search.is_counted());
    machine.sleep(1);
    machine.busy(0, &[(takes(100_000), 9)]);
    assert!(machine.shared.cores[1].pokes.unpark() && machine.shared.cores[1].pokes.park());
    let rung = |machine: &Machine| machine.cores[3].own.stats.wakes.get();
    let before = rung(&machine);
    assert!(machine.shared.working.set(3));
    assert!(machine.cores[3].work_with(3));
    assert_eq!(rung(&machine), before + 1);
    assert!(!machine.shared.cores[1].pokes.unpark(), "it was woken");
    assert!(!machine.shared.idle.searchers.any());
}

#[test]
fn who_sleeps_knows_of_each_change() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    assert!(!machine.cores[1].anything_to_do());
    assert!(machine.shared.working.set(1));
    assert!(machine.cores[1].anything_to_do() && machine.cores[0].anything_to_do());
    assert!(machine.cores[1].rise() && machine.cores[1].is_retired());
    assert!(machine.cores[0].rise() && !machine.cores[0].is_retired());
    assert!(!machine.cores[1].anything_to_do() && !machine.cores[1].rise());
}
