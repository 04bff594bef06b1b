//! Which colors of a core that sleeps are taken over by a core that posts to them.

use super::*;

/// Core 1 of two sleeps; core 0 has been made ready, and posts an event that takes so long to a
/// color of core 1. Whether core 0 is its owner now, and how many bells it has rung.
fn posts(heuristics: Option<Stealing>, takes_ns: u64, ready: impl Fn(&mut Machine)) -> (bool, u64) {
    let mut machine = match heuristics {
        Some(heuristics) => Machine::flat(2, heuristics),
        None => Machine::apart(2),
    };
    machine.sleep(1);
    ready(&mut machine);
    let color = machine.color(1, 0);
    let before = machine.cores[0].own.stats.wakes.get();
    machine.post(color, takes_ns);
    machine.cores[0].exchange::<false>();
    let core = &machine.cores[0].own;
    let taken = machine.shared.slots.owner(slot(color)) == CoreId::of(0);
    assert_eq!(core.stats.taken_over.get(), taken.into());
    assert_eq!(core.stats.posts_remote.get(), (!taken).into());
    let here = [machine.checked_out(), machine.queue()].concat();
    assert_eq!(here.contains(&color), taken);
    (taken, core.stats.wakes.get() - before)
}

const TAKEN: (bool, u64) = (true, 0);
const WOKEN: (bool, u64) = (false, 1);

#[test]
fn a_short_event_for_a_sleeper_is_run_by_who_posts_it() {
    let ready = |_: &mut Machine| ();
    assert_eq!(posts(Some(Stealing::ALL), 100, ready), TAKEN);
    assert_eq!(posts(Some(Stealing::ALL), WAKE_COST_NS - 1, ready), TAKEN);
    assert_eq!(posts(Some(Stealing::ALL), WAKE_COST_NS, ready), WOKEN);
}

#[test]
fn who_has_enough_to_do_wakes_the_owner() {
    let has = |ns: u64| {
        posts(Some(Stealing::ALL), 1_000, move |machine| {
            let color = machine.color(0, 0);
            machine.post(color, ns);
            // Queued, and not checked out.
            machine.cores[0].flush();
        })
    };
    assert_eq!(has(1_000), TAKEN);
    assert_eq!(has(WAKE_COST_NS - 500), WOKEN);
}

/// What waits behind the long event would wait for its end.
#[test]
fn who_is_inside_a_long_event_wakes_the_owner() {
    let long = |machine: &mut Machine| machine.shared.cores[0].progress.set_long(true);
    assert_eq!(posts(Some(Stealing::ALL), 100, long), WOKEN);
}

/// The program wants it there; also if it was there already.
#[test]
fn what_was_placed_wakes_its_core() {
    let placed = |machine: &mut Machine| {
        let color = machine.color(1, 0);
        crate::shared::remote::wishes::place(&machine.shared, color.into(), 1);
    };
    assert_eq!(posts(Some(Stealing::ALL), 100, placed), WOKEN);
}

#[test]
fn the_owner_is_awake() {
    let awake = |machine: &mut Machine| {
        machine.shared.idle.sleepers.clear(CoreId::of(1));
        assert!(machine.shared.cores[1].pokes.unpark());
    };
    assert_eq!(posts(Some(Stealing::ALL), 100, awake), (false, 0));
}

/// Somebody else is at work there.
#[test]
fn the_owner_s_lock_is_only_tried() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let color = machine.color(1, 0);
    let shared = Arc::clone(&machine.shared);
    shared.idle.sleepers.set(CoreId::of(1));
    let section = Section::enter(&shared, CoreId::of(1));
    machine.post(color, 100);
    machine.cores[0].exchange::<false>();
    drop(section);
    assert_eq!(shared.slots.owner(slot(color)), CoreId::of(1));
    assert!(shared.cores[1].pokes.any());
}

#[test]
fn without_time_left_or_stealing_colors_stay() {
    let ready = |_: &mut Machine| ();
    for heuristics in [
        None,
        Some(Stealing::BASE),
        Some(without(false, true, false)),
    ] {
        assert_eq!(posts(heuristics, 100, ready), WOKEN, "{heuristics:?}");
    }
}

/// A color that has something queued is its core's to run, which somebody has rung for; it stays,
/// and so does a control color.
#[test]
fn what_is_queued_there_and_control_colors_stay() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let color = machine.color(1, 0);
    post(&mut machine.cores[1], takes(100), color);
    machine.cores[1].flush();
    machine.shared.idle.sleepers.set(CoreId::of(1));
    machine.post(color, 100);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.shared.slots.owner(slot(color)), CoreId::of(1));
    let control = Color::control(1);
    let posted = machine.cores[0].post(Some(takes(100)), control, |_cx| ());
    assert!(posted.is_ok());
    machine.cores[0].exchange::<false>();
    let slots = &machine.shared.slots;
    assert_eq!(slots.owner(slots.map.slot(control)), CoreId::of(1));
    assert_eq!(machine.cores[0].own.stats.posts_remote.get(), 2);
}
