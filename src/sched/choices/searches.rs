//! Who looks for work, what it does when it has found some, and what it takes from whom.

use super::*;
use crate::color::CoreId;
use crate::sched::levelling::compare;
use crate::sched::steal::{Search, Searching};
use crate::shared::load::stats::HistogramSum;

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
        let mut machine = Machine::flat(4, Stealing::ALL);
        prepare(&mut machine);
        if asleep {
            machine.sleep(3);
        }
        let searchers = &machine.shared.idle.searchers;
        for _ in 0..searching {
            assert!(searchers.begin(CoreId::of(1), 100));
        }
        machine.cores[1].search.state = state;
        machine.cores[1].end_search(found);
        assert!(!machine.cores[1].search.is_counted());
        let left = searching - u32::from(state == Searching::Counted);
        let searchers = &machine.shared.idle.searchers;
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
    let mut machine = Machine::flat(4, Stealing::ALL);
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
    let mut machine = Machine::flat(4, Stealing::ALL);
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
    let mut machine = Machine::flat(3, Stealing::ALL);
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
        let mut machine = Machine::flat(2, Stealing::ALL);
        machine.busy(0, &vec![(takes(20_000), 1); colors]);
        assert!(machine.shared.cores[0].pokes.park());
        assert_eq!(machine.steal(1).len(), 1);
        assert_eq!(wakes(&machine, 1), u64::from(left));
        assert_eq!(machine.shared.cores[0].pokes.unpark(), !left);
    }
}

#[test]
fn mail_of_a_victim_is_stolen_too() {
    let mut machine = Machine::flat(3, Stealing::ALL);
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
    let mut machine = Machine::flat(4, Stealing::ALL);
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
    let mut machine = Machine::flat(3, Stealing::ALL);
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

/// Half of the difference, at most a round; nothing if there is none.
#[test]
fn a_core_levels_with_a_victim_that_has_more() {
    let level = |ours: usize, theirs: usize, sleeper: bool| {
        let mut machine = Machine::flat(4, Stealing::ALL);
        machine.lasting(1, &vec![(takes(20), 1); ours]);
        machine.lasting(0, &vec![(takes(20), 1); theirs]);
        if sleeper {
            machine.sleep(3);
        }
        machine.cores[1].search.levelling = Some(2);
        let victim = machine.cores[1].own.victims[2].0;
        assert_eq!(victim, CoreId::of(0));
        machine.cores[1].level(2);
        assert_eq!(machine.cores[1].search.levelling, None);
        (machine.queued(1) - ours, wakes(&machine, 1))
    };
    assert_eq!(level(1, 1, false), (0, 0));
    assert_eq!(level(1, 3, false), (1, 0));
    assert_eq!(level(0, 1, false), (1, 0));
    assert_eq!(level(0, 4, false), (2, 0));
    assert_eq!(level(0, 100, false), (32, 0));
    // There is more than the two need, for one that sleeps.
    assert_eq!(level(0, 4, true), (2, 1));
    assert_eq!(level(1, 1, true), (0, 0));
}

#[test]
fn a_core_does_not_sleep_on_work() {
    let machine = || Machine::flat(2, Stealing::ALL);
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
    let mut alone = Machine::flat(1, Stealing::ALL);
    assert!(!alone.cores[0].anything_to_do());
    alone.post(3, 20);
    assert!(alone.cores[0].anything_to_do());
}

/// Core 0 compares itself with another.
fn compare_with(machine: &Machine, search: &mut Search) -> Option<usize> {
    let Core { own, clock, .. } = &machine.cores[0];
    let section = Section::enter(&machine.shared, CoreId::of(0));
    compare(&section, own, search, clock)
}

/// One that has fewer takes one, and 2 ms later it may be the other's turn.
#[test]
fn colors_that_last_change_sides_where_they_cannot_be_shared_evenly() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.lasting(0, &[(takes(20), 1); 2]);
    machine.lasting(1, &[(takes(20), 1); 3]);
    let mut search = Search::new(1);
    let look = |machine: &Machine, search: &mut Search| {
        let found = compare_with(machine, search);
        assert_eq!(machine.shared.cores[1].hint.is_asked(), found.is_some());
        found
    };
    // Until it has taken one.
    assert_eq!([0, 1].map(|_| look(&machine, &mut search)), [Some(0); 2]);
    machine.cores[0].level(0);
    assert_eq!([0, 1].map(|core| machine.queued(core)), [3, 2]);
    assert!(!machine.shared.cores[1].hint.is_asked());
    let levels_at_ns = machine.cores[0].search.levels_at_ns;
    assert_eq!(
        levels_at_ns,
        machine.now_ns.load(Ordering::Relaxed) + 2_000_000
    );
    machine.cores[0].level(0);
    assert_eq!([0, 1].map(|core| machine.queued(core)), [3, 2]);
    // Never where they have the same, or about the same.
    assert_eq!(look(&machine, &mut search), None);
    for (ours, theirs, more) in [
        (0, 1, true),
        (3, 4, true),
        (4, 5, false),
        (4, 6, true),
        (40, 50, false),
    ] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        machine.lasting(0, &vec![(takes(20), 1); ours]);
        machine.lasting(1, &vec![(takes(20), 1); theirs]);
        let found = compare_with(&machine, &mut Search::new(1));
        assert_eq!(found.is_some(), more, "{ours} and {theirs}");
    }
}

/// One after the other, and all of them every 2 ms.
#[test]
fn a_core_compares_itself_with_each_victim_in_turn() {
    let mut machine = Machine::flat(4, Stealing::ALL);
    let mut search = Search::new(3);
    let looks = |machine: &Machine, search: &mut Search| {
        let before = search.compared;
        let found = compare_with(machine, search);
        (before, found, search.compared)
    };
    assert_eq!(
        [0; 3].map(|_| looks(&machine, &mut search)),
        [(0, None, 1), (1, None, 2), (2, None, 0)]
    );
    machine.lasting(2, &[(takes(20), 1); 1]);
    assert_eq!(looks(&machine, &mut search), (0, None, 0));
    machine.wait(1_999_999);
    assert_eq!(looks(&machine, &mut search), (0, None, 0));
    machine.wait(1);
    let victims: Vec<_> = machine.cores[0]
        .own
        .victims
        .iter()
        .map(|of| of.0.index())
        .collect();
    let rank = victims.iter().position(|&core| core == 2).unwrap();
    (0..rank).for_each(|_| assert_eq!(looks(&machine, &mut search).1, None));
    assert_eq!(looks(&machine, &mut search), (rank, Some(rank), rank));
    let alone = Machine::flat(1, Stealing::ALL);
    assert_eq!(compare_with(&alone, &mut Search::new(0)), None);
}
