//! Which victim is visited and by whom, and who is woken.

use super::*;
use crate::color::CoreId;

#[test]
fn the_nearest_victim_goes_first() {
    for topology in machines() {
        let cores = topology.cores().len();
        for thief in [0, cores / 2, cores - 1] {
            let order: Vec<usize> = topology.victims(thief).iter().map(|its| its.0).collect();
            assert_eq!(order.len(), cores - 1);
            // Whoever has work, the one that comes first in the order of the caches.
            for have in [
                &order[..],
                &order[order.len() / 2..],
                &order[order.len() - 1..],
            ] {
                let mut machine = Machine::on(&topology, Stealing::ALL);
                let mut colors = vec![Vec::new(); cores];
                // The farther the more: the fullest is the farthest.
                for (i, &victim) in have.iter().enumerate() {
                    colors[victim] = machine.busy(victim, &vec![(takes(5_000), 1); 2 + i % 5]);
                }
                let stolen = machine.steal(thief);
                assert_eq!(
                    stolen[0], colors[have[0]][0],
                    "{cores} cores, thief {thief}"
                );
                assert!(stolen.iter().all(|color| colors[have[0]].contains(color)));
            }
        }
    }
}

#[test]
fn without_locality_the_fullest_goes_first_and_then_the_next_numbers() {
    for topology in machines() {
        let cores = topology.cores().len();
        for heuristics in [Stealing::BASE, without(true, false, false)] {
            let mut machine = Machine::on(&topology, heuristics);
            let thief = cores / 2 - 1;
            let others = (0..cores).filter(|&core| core != thief);
            let mut colors = vec![Vec::new(); cores];
            for victim in others.clone() {
                let fullest = victim == cores - 1;
                let queued = vec![(takes(5_000), 1); if fullest { 5 } else { 4 }];
                colors[victim] = machine.busy(victim, &queued);
            }
            let stolen = machine.steal(thief);
            assert!(
                colors[cores - 1].contains(&stolen[0]),
                "{cores} cores: {stolen:?}"
            );
            if heuristics != Stealing::BASE {
                continue;
            }
            // The fullest has nothing that may go: after the last number comes the first.
            let mut machine = Machine::on(&topology, heuristics);
            let majority = machine.busy(cores - 1, &[(takes(50), 100)]);
            let next = machine.busy(0, &[(takes(5_000), 1); 4]);
            let stolen = machine.steal(thief);
            if cores > 2 {
                assert_eq!(stolen[0], next[0], "{cores} cores");
            }
            assert!(!stolen.contains(&majority[0]));
        }
    }
}

#[test]
fn a_victim_is_worth_a_visit_from_the_steal_cost_of_its_distance_on() {
    const NEAR: Distance = Distance::SharedL2;
    const FAR: Distance = Distance::SameMachine;
    let machine = || {
        // Two and two: a core that is far from core 0 is near to another one.
        let victims = |near, far: usize| vec![(near, NEAR), (far, FAR), (far + 1, FAR)];
        let machine = Machine::new(
            vec![victims(1, 2), victims(0, 2), victims(3, 0), victims(2, 0)],
            Stealing::ALL,
        );
        machine.cost(NEAR, 1_000);
        machine.cost(FAR, 5_000);
        for core in 0..4 {
            Section::enter(&machine.shared, CoreId::of(core)).renew_limits();
        }
        machine
    };
    let [near_ns, far_ns] =
        [NEAR, FAR].map(|distance| machine().shared.cores[2].steal_costs.ns(distance));
    // A color is worth a steal by the nearest thief, and all that are together one by a farther.
    for (each_ns, near, far) in [
        (near_ns - 1, false, false),
        (near_ns, true, false),
        (far_ns.div_ceil(2) - 1, true, false),
        (far_ns.div_ceil(2), true, true),
    ] {
        for (thief, steals) in [(1, near), (2, far)] {
            let mut machine = machine();
            machine.busy(0, &[(takes(each_ns), 1), (takes(each_ns), 1)]);
            let stolen = machine.steal(thief);
            assert_eq!(!stolen.is_empty(), steals, "{each_ns} ns each, by {thief}");
        }
    }
    let mut machine = machine();
    let lone = machine.busy(0, &[(takes(near_ns), 1)]);
    assert_eq!(machine.steal(1), lone);
}

#[test]
fn without_time_left_anything_is_worth_it() {
    let mut machine = Machine::flat(2, without(false, true, false));
    let colors = machine.busy(0, &[(takes(20), 1), (takes(20), 1)]);
    assert_eq!(machine.steal(1), colors[..1]);
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.busy(0, &[(takes(20), 1), (takes(20), 1)]);
    assert!(machine.steal(1).is_empty());
}

#[test]
fn at_most_half_of_the_cores_search() {
    for cores in [2, 3, 8, 128] {
        let mut machine = Machine::flat(cores, Stealing::ALL);
        for core in &mut machine.cores {
            assert!(!core.steal());
        }
        let searching = machine
            .cores
            .iter()
            .filter(|core| core.search.is_counted())
            .count();
        assert_eq!(searching, (cores / 2).max(1));
        machine.cores[0].end_search(false);
        // Of each sixteen.
        let other = &mut machine.cores[cores.min(16) - 1];
        assert!(!other.steal() && other.search.is_counted());
    }
}

#[test]
fn the_nearest_sleeper_is_woken_if_the_work_is_worth_it_and_nobody_searches() {
    for cores in [2, 8, 65, 128] {
        for sleeper in [cores - 1, cores / 2] {
            for (each_ns, searching, wakes) in [
                (4_999, false, false),
                (5_000, false, true),
                (5_000, true, false),
            ] {
                let mut machine = Machine::flat(cores, Stealing::ALL);
                for core in sleeper..cores {
                    let core = &machine.shared.cores[core];
                    assert!(core.pokes.park());
                }
                (sleeper..cores)
                    .for_each(|core| machine.shared.idle.sleepers.set(CoreId::of(core)));
                if searching {
                    assert!(!machine.cores[1].steal() && machine.cores[1].search.is_counted());
                }
                machine.busy(0, &[(takes(each_ns), 1), (takes(each_ns), 1)]);
                let woken: Vec<usize> = (sleeper..cores)
                    .filter(|&core| !machine.shared.cores[core].pokes.unpark())
                    .collect();
                assert_eq!(
                    woken,
                    if wakes { vec![sleeper] } else { vec![] },
                    "{cores} cores"
                );
            }
        }
    }
}

#[test]
fn a_thief_measures_what_its_steals_cost_for_each_color() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.busy(0, &[(takes(20_000), 1), (takes(20_000), 1)]);
    assert_eq!(machine.steal(1).len(), 1);
    let cost_ns = machine.shared.cores[1].steal_costs.ns(Distance::SharedL1);
    assert_eq!(
        cost_ns,
        STEAL_COST_NS - (STEAL_COST_NS - 100_u64).div_ceil(16),
        "time stood still"
    );
    let steals = &machine.cores[1].own.stats.steals[Distance::SharedL1.index()];
    let counted = [
        &steals.tried,
        &steals.won,
        &steals.colors,
        &steals.stolen_ns,
    ]
    .map(|c| c.get());
    assert_eq!(counted, [1, 1, 1, 20_000]);
}
