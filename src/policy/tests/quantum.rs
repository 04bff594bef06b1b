//! How long a quantum is, and what fits into it.

use super::ALL;
use crate::policy::quantum::{Quantum, Taking, lasting_max, turn_events};

#[test]
fn a_quantum_is_a_steal_and_longer_while_no_core_is_idle() {
    for (cost_ns, idle_ns, busy_ns) in [
        (0, 600, 2_400),
        (600, 600, 2_400),
        (601, 601, 2_400),
        (2_400, 2_400, 2_400),
        (9_000, 9_000, 9_000),
    ] {
        let quantum = Quantum::new(cost_ns, &ALL);
        assert_eq!((quantum.ns(true), quantum.ns(false)), (idle_ns, busy_ns));
    }
}

/// How many of these colors, `(turn_ns, alone)`, fit into 600 ns and this room, and what is left.
fn taken(room: usize, colors: &[(u64, bool)]) -> (u32, i64) {
    let mut taking = Taking {
        quantum_ns: 600,
        room,
        ..Taking::default()
    };
    let fit = colors
        .iter()
        .take_while(|&&(ns, alone)| taking.fits(ns, alone));
    let fit = fit.count();
    assert_eq!(taking.colors as usize, fit);
    (taking.colors, taking.left_ns(fit < colors.len()))
}

#[test]
fn colors_fit_until_their_turns_are_a_quantum() {
    const NOT: bool = false;
    assert_eq!(taken(8, &[(200, NOT), (300, NOT)]), (2, 100));
    assert_eq!(taken(8, &[(200, NOT), (400, NOT)]), (2, 0));
    assert_eq!(taken(8, &[(200, NOT), (401, NOT)]), (1, -1));
    // The first one in any case, and as many as there is room for.
    assert_eq!(taken(8, &[(700, NOT)]), (1, -100));
    assert_eq!(taken(2, &[(1, NOT), (1, NOT), (1, NOT)]), (2, -1));
    // One that drags memory along has a quantum for itself.
    assert_eq!(taken(8, &[(1, true)]), (1, -1));
    assert_eq!(taken(8, &[(1, true), (0, NOT)]), (1, -1));
    assert_eq!(taken(8, &[(1, NOT), (1, true)]), (1, -1));
}

#[test]
fn half_of_what_lasts_is_left_for_a_core_that_wants_some() {
    for (lasting, wanted, most) in [
        (4, true, 2),
        (5, true, 3),
        (1, true, 1),
        (5, false, u32::MAX),
    ] {
        assert_eq!(lasting_max(lasting, wanted), most);
    }
}

#[test]
fn an_only_color_has_more_events_in_a_row_unless_others_wait() {
    for (batch, waits, drags, events) in [
        (10, false, false, 256),
        (10, true, false, 10),
        (10, true, true, 256),
        (10, false, true, 256),
        (1_000, false, false, 1_000),
    ] {
        assert_eq!(turn_events(batch, waits, drags), events);
    }
}
