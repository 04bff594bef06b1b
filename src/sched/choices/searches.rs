//! Who looks for work, what it does when it has found some, and what it takes from whom.

use super::*;
use crate::color::CoreId;
use crate::sched::levelling::compare;
use crate::sched::steal::{Search, Searching};
use crate::shared::stats::HistogramSum;

fn wakes(machine: &Machine, core: usize) -> u64 {
    machine.cores[core].own.stats.wakes.get()
}

/// The last one that stops searching because it has found something looks whether there is more,
/// for another.
#[test]
fn the_last_to_find_something_wakes_another_if_there_is_more() {
    type Prepare<'a> = &'a dyn Fn(&mut Machine);
    let is_more: Prepare<'_> = &|machine| drop(machine.busy(2, &[(takes(10_000), 1)]));
    let cases: [(&str, Prepare<'_>, bool); 8] = [
        ("nothing", &|_| (), false),
        ("enough", is_more, true),
        (
            "too little",
            &|machine| drop(machine.busy(2, &[(takes(9_999), 1)])),
            false,
        ),
        (
            "of its own",
            &|machine| drop(machine.busy(1, &[(takes(10_000), 1)])),
            true,
        ),
        (
            "of its own, too little",
            &|machine| drop(machine.busy(1, &[(takes(9_999), 1)])),
            false,
        ),
        (
            "behind a long handler",
            &|machine| {
                machine.busy(2, &[(takes(20), 1)]);
                machine.shared.cores[2].progress.set_long(true);
            },
            true,
        ),
        (
            "mailed to a long handler",
            &|machine| {
                let color = machine.color(2, 0);
                machine.post(color, 20);
                machine.cores[0].flush();
                machine.shared.cores[2].progress.set_long(true);
            },
            true,
        ),
        (
            "a long handler",
            &|machine| machine.shared.cores[2].progress.set_long(true),
            false,
        ),
    ];
    let ends = |prepare: Prepare<'_>, state, searching, found, asleep| {
        let mut machine = Machine::flat(4, Heuristics::ALL);
        prepare(&mut machine);
        if asleep {
            machine.sleep(3);
        }
        let searchers = &machine.shared.searchers;
        for _ in 0..searching {
            assert!(searchers.begin(CoreId::of(1), 100));
        }
        machine.cores[1].search.state = state;
        machine.cores[1].end_search(found);
        assert!(!machine.cores[1].search.is_counted());
        let left = searching - u32::from(state == Searching::Counted);
        let searchers = &machine.shared.searchers;
        (0..left).for_each(|_| searchers.end(CoreId::of(1)));
        assert!(!searchers.any());
        wakes(&machine, 1) > 0
    };
    // Who was woken and has work of its own, before it has searched, looks too.
    for (state, own) in [(Searching::Counted, 1), (Searching::Risen, 0)] {
        for (name, prepare, expected) in cases {
            let woke = ends(prepare, state, own, true, true);
            assert_eq!(woke, expected, "{name}, {state:?}");
        }
        let woke = |others: u32, found, asleep| ends(is_more, state, own + others, found, asleep);
        assert!(!woke(0, false, true), "it goes to sleep, and looks itself");
        assert!(!woke(1, true, true), "another one searches");
        assert!(!woke(0, true, false), "nobody sleeps");
    }
    assert!(!ends(is_more, Searching::No, 0, true, true), "it was awake");
}

#[test]
fn who_has_slept_looks_for_more_once_it_runs_something() {
    let mut machine = Machine::flat(4, Heuristics::ALL);
    assert_eq!(machine.cores[1].search.state, Searching::No);
    machine.cores[1].rise();
    assert_eq!(machine.cores[1].search.state, Searching::Risen);
    // It has something of its own, and does not come to search.
    machine.busy(1, &[(takes(1), 1)]);
    machine.cores[1].exchange::<false>();
    assert!(!machine.cores[1].has_empty_checkout());
    machine.busy(2, &[(takes(10_000), 1)]);
    machine.sleep(3);
    machine.cores[1].end_search(true);
    assert_eq!(wakes(&machine, 1), 1);
}

#[test]
fn who_has_slept_wakes_one_only() {
    let mut machine = Machine::flat(4, Heuristics::ALL);
    machine.sleep(2);
    machine.sleep(3);
    machine.cores[1].rise();
    // A burst of its own is made known, and wakes another, which looks for more from now on.
    machine.busy(1, &[(takes(10_000), 1), (takes(10_000), 1)]);
    assert_eq!(wakes(&machine, 1), 1);
    assert_eq!(machine.cores[1].search.state, Searching::No);
    machine.cores[1].end_search(true);
    assert_eq!(wakes(&machine, 1), 1);
}

#[test]
fn nobody_looks_for_more_where_nobody_steals() {
    let mut machine = Machine::apart(4);
    machine.cores[1].rise();
    machine.busy(2, &[(takes(10_000), 1)]);
    machine.shared.cores[2].progress.set_long(true);
    machine.sleep(3);
    machine.cores[1].end_search(true);
    assert_eq!(wakes(&machine, 1), 0);
}

/// A thief that has taken several has some that wait: a quantum like any other begins.
#[test]
fn a_thief_that_took_more_than_it_runs_is_busy() {
    let mut machine = Machine::flat(3, Heuristics::ALL);
    machine.busy(0, &[(takes(20_000), 1); 6]);
    machine.cores[1].rise();
    machine.sleep(2);
    assert_eq!(machine.steal(1).len(), 3);
    assert_eq!(machine.cores[1].checkout.turns(), 1);
    assert!(machine.cores[1].timing.fresh_since_ns.is_none());
}

/// It may be on its way to sleep, and not know of what the thief linked.
#[test]
fn a_victim_that_sleeps_is_woken_for_what_is_left() {
    for (colors, left) in [(1, false), (2, true)] {
        let mut machine = Machine::flat(2, Heuristics::ALL);
        machine.busy(0, &vec![(takes(20_000), 1); colors]);
        assert!(machine.shared.cores[0].pokes.park());
        assert_eq!(machine.steal(1).len(), 1);
        assert_eq!(wakes(&machine, 1), u64::from(left));
        assert_eq!(machine.shared.cores[0].pokes.unpark(), !left);
    }
}

#[test]
fn mail_of_a_victim_is_stolen_too() {
    let mut machine = Machine::flat(3, Heuristics::ALL);
    machine.busy(0, &[]);
    machine.shared.cores[0].progress.set_long(true);
    let color = machine.color(0, 5);
    post(&mut machine.cores[2], takes(20), color);
    machine.cores[2].flush();
    assert_eq!(machine.steal(1), [color]);
    let mut costs = HistogramSum::default();
    machine.cores[1].own.stats.steal_costs.sum_into(&mut costs);
    assert!(costs.median_ns().is_some());
}

/// What it finds there is another's, who sleeps.
#[test]
fn a_thief_in_vain_rings_for_what_it_forwards() {
    let mut machine = Machine::flat(4, Heuristics::ALL);
    machine.shared.cores[0].progress.set_long(true);
    let color = machine.color(0, 0);
    post(&mut machine.cores[3], takes(20), color);
    machine.cores[3].flush();
    machine.shared.slots.set_owner(slot(color), CoreId::of(2));
    assert!(machine.shared.cores[2].pokes.park());
    assert!(machine.steal(1).is_empty());
    assert_eq!(wakes(&machine, 1), 1);
    machine.cores[2].exchange::<false>();
    let taken: Vec<SlotId> = machine.cores[2].checkout.slots().collect();
    assert_eq!(taken, [slot(color)]);
}

/// Its own mail that other thieves left, too.
#[test]
fn a_thief_takes_the_mail_that_was_left() {
    let mut machine = Machine::flat(3, Heuristics::ALL);
    machine.busy(2, &[(takes(20_000), 1); 4]);
    let mailed = machine.color(1, 0);
    // Checked out when its mail was found.
    post(&mut machine.cores[1], takes(20), mailed);
    machine.cores[1].exchange::<false>();
    post(&mut machine.cores[0], takes(21), mailed);
    machine.cores[0].flush();
    take_mail(
        &mut Section::enter(&machine.shared, CoreId::of(1)),
        &mut Vec::new(),
    );
    assert!(machine.cores[1].next_color());
    let event = machine.cores[1].begin_event().unwrap();
    machine.cores[1].skip(event);
    assert!(!machine.cores[1].next_color());
    let mut section = Section::enter(&machine.shared, CoreId::of(1));
    machine.cores[1]
        .checkout
        .end_turns(false, |taken| section.give_back(taken));
    drop(section);
    assert!(machine.steal(1).contains(&mailed));
}

/// Half of the difference, counting what is not worth a steal, and at most a round; nothing if
/// there is none.
#[test]
fn a_core_levels_with_a_victim_that_has_more() {
    let level = |ours: &[u64], theirs: &[u64], sleeper: bool| {
        let mut machine = Machine::flat(4, Heuristics::ALL);
        let queued = |each: &[u64]| each.iter().map(|&ns| (takes(ns), 1)).collect::<Vec<_>>();
        machine.busy(1, &queued(ours));
        machine.busy(0, &queued(theirs));
        if sleeper {
            machine.sleep(3);
        }
        machine.cores[1].search.levelling = Some(2);
        let victim = machine.cores[1].own.victims[2].0;
        assert_eq!(victim, CoreId::of(0));
        machine.cores[1].level(2);
        let taken = machine.queued(1) - ours.len();
        assert_eq!(machine.cores[1].search.levelling, None);
        assert!(
            machine.cores[1].timing.quantum.is_none(),
            "no quantum begins"
        );
        (taken, wakes(&machine, 1))
    };
    assert_eq!(level(&[20_000], &[20_000], false), (0, 0));
    assert_eq!(level(&[20_000], &[20_000; 3], false), (1, 0));
    // What there is more is too little: with a color the thief would have more than the victim has.
    assert_eq!(level(&[20_000], &[20_000, 20, 20], false), (0, 0));
    assert_eq!(level(&[], &[20_000; 4], false), (2, 0));
    // There is more than the two need, for one that sleeps; or too little.
    assert_eq!(level(&[], &[20_000; 4], true), (2, 1));
    assert_eq!(level(&[], &[2_000; 4], true), (2, 0));
    assert_eq!(level(&[20_000], &[20_000], true), (0, 0));
}

#[test]
fn a_core_does_not_sleep_on_work() {
    let machine = || Machine::flat(2, Heuristics::ALL);
    assert!(!machine().cores[1].anything_to_do());
    // Its own posts, its mail, what is queued, and what others have.
    let mut posted = machine();
    post(&mut posted.cores[1], takes(20), 3);
    assert!(posted.cores[1].anything_to_do());
    posted.cores[1].flush();
    assert!(posted.cores[1].anything_to_do());
    let mut mailed = machine();
    mailed.post(3, 20);
    mailed.cores[0].flush();
    assert!(mailed.cores[1].anything_to_do());
    let mut busy = machine();
    busy.busy(0, &[(takes(20_000), 1)]);
    assert!(busy.cores[1].anything_to_do());
    // One that is alone.
    let mut alone = Machine::flat(1, Heuristics::ALL);
    assert!(!alone.cores[0].anything_to_do());
    alone.post(3, 20);
    assert!(alone.cores[0].anything_to_do());
}

/// Core 0 compares itself with another.
fn compare_with(machine: &Machine, search: &mut Search, looks: u64) -> Option<usize> {
    let Core { own, clock, .. } = &machine.cores[0];
    let section = Section::enter(&machine.shared, CoreId::of(0));
    compare(&section, own, looks, search, clock)
}

/// One that has fewer by one takes one in the end, and then it is the other's turn.
#[test]
fn colors_that_last_rotate_where_they_cannot_be_shared_evenly() {
    let mut machine = Machine::flat(2, Heuristics::ALL);
    machine.lasting(0, &[(takes(20), 1); 2]);
    machine.lasting(1, &[(takes(20), 1); 3]);
    let mut search = Search::new(1);
    let look = |machine: &Machine, search: &mut Search| {
        let found = compare_with(machine, search, 0);
        assert_eq!(machine.shared.cores[1].hint.is_asked(), found.is_some());
        found
    };
    assert_eq!(look(&machine, &mut search), None);
    machine.wait(1_999_999);
    assert_eq!(look(&machine, &mut search), None);
    machine.wait(1);
    assert_eq!(look(&machine, &mut search), Some(0));
    // It is as due until it has taken one.
    assert_eq!(look(&machine, &mut search), Some(0));
    machine.cores[0].search.rotates_at_ns = search.rotates_at_ns;
    machine.cores[0].level(0);
    assert_eq!([0, 1].map(|core| machine.queued(core)), [3, 2]);
    // Not at once again, and never where they have the same.
    assert_eq!(machine.cores[0].search.rotates_at_ns, None);
    machine.cores[0].level(0);
    assert_eq!([0, 1].map(|core| machine.queued(core)), [3, 2]);
    let mut machine = Machine::flat(2, Heuristics::ALL);
    machine.lasting(0, &[(takes(20), 1); 3]);
    machine.lasting(1, &[(takes(20), 1); 3]);
    machine.wait(10_000_000);
    assert_eq!(look(&machine, &mut search), None);
    assert_eq!(search.rotates_at_ns, None);
}

/// A quarter more, and more than one more.
#[test]
fn a_victim_has_clearly_more_that_lasts() {
    for (ours, theirs, more) in [
        (0, 1, false),
        (0, 2, true),
        (4, 6, false),
        (4, 7, true),
        (8, 11, false),
        (8, 12, true),
    ] {
        let machine = Machine::flat(2, Heuristics::ALL);
        let lasting = |core, colors| {
            let mut section = Section::enter(&machine.shared, core);
            section.guarded.queues.lasting_out = colors;
            section.write_hint();
        };
        lasting(CoreId::of(0), ours);
        lasting(CoreId::of(1), theirs);
        let found = compare_with(&machine, &mut Search::new(1), 0);
        assert_eq!(found, more.then_some(0), "{ours} and {theirs}");
        assert_eq!(machine.shared.cores[1].hint.is_asked(), more);
        [0, 1].iter().for_each(|&core| lasting(CoreId::of(core), 0));
    }
    // Where many wait on both cores it does not matter where the few are that last.
    for (ours, more) in [(10, true), (300, false)] {
        let mut machine = Machine::flat(2, Heuristics::ALL);
        machine.busy(0, &vec![(takes(20), 1); ours]);
        machine.busy(1, &[(takes(20), 1); 200]);
        let mut section = Section::enter(&machine.shared, CoreId::of(1));
        section.guarded.queues.lasting_out = 9;
        section.write_hint();
        section.guarded.queues.lasting_out = 0;
        drop(section);
        let found = compare_with(&machine, &mut Search::new(1), 0);
        assert_eq!(found, more.then_some(0), "beside {ours}");
    }
    let alone = Machine::flat(1, Heuristics::ALL);
    assert_eq!(compare_with(&alone, &mut Search::new(0), 0), None);
}
