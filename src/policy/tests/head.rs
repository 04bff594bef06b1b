//! What goes first at the head of a core-queue.

use crate::policy::head::{Granted, Newest};
use crate::policy::numbers::NEWEST_TURNS;

fn granted(newest: &mut Newest) -> u32 {
    (0..100).map(|_| u32::from(newest.goes_first())).sum()
}

#[test]
fn each_turn_that_was_waited_for_pays_for_as_many() {
    let mut newest = Newest::default();
    assert_eq!(granted(&mut newest), 0);
    newest.take(1, true);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
    // Those pay for nothing, and nothing is saved up.
    newest.take(NEWEST_TURNS, true);
    assert_eq!(granted(&mut newest), 0);
    newest.take(1, true);
    newest.take(1, true);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
    newest.take(NEWEST_TURNS + 64, true);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
    // The last of them, and one that has waited.
    newest.take(NEWEST_TURNS + 1, true);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
}

#[test]
fn who_goes_on_is_paid_for_by_a_quantum_of_others() {
    let mut newest = Newest::default();
    let goes_on = |newest: &mut Newest| (0..100).filter(|_| newest.goes_on()).count();
    newest.take(12, true);
    assert_eq!(goes_on(&mut newest), NEWEST_TURNS as usize);
    // The same again, and others; posts are paid for all the same.
    newest.take(12, true);
    assert_eq!(goes_on(&mut newest), 0);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
    newest.take(NEWEST_TURNS, true);
    newest.take(1, true);
    assert_eq!(goes_on(&mut newest), NEWEST_TURNS as usize);
    assert_eq!(granted(&mut newest), 0);
}

#[test]
fn who_was_put_first_is_not_passed_and_does_not_pay() {
    let mut newest = Newest::default();
    newest.take(1, true);
    assert!(newest.goes_first());
    newest.put_first(2);
    assert_eq!(granted(&mut newest), 0);
    newest.take(1, true);
    assert_eq!(granted(&mut newest), 0);
    newest.take(1, true);
    assert_eq!(granted(&mut newest), NEWEST_TURNS - 1);
    newest.take(NEWEST_TURNS, true);
    assert_eq!(granted(&mut newest), 0);
}

#[test]
fn what_a_thief_has_taken_is_not_waited_for() {
    let mut newest = Newest::default();
    newest.take(1, true);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
    newest.put_first(3);
    newest.take(1, false);
    newest.take(1, false);
    assert_eq!(granted(&mut newest), NEWEST_TURNS);
}

#[test]
fn one_is_granted_in_two_quanta_and_a_burst_after_a_pause() {
    let mut granted = Granted::default();
    let mut grants = |quanta, asked| (0..asked).filter(|_| granted.grant(quanta)).count();
    assert_eq!(grants(0, 1_000), 64);
    let later: usize = (1..=100).map(|quanta| grants(quanta, 3)).sum();
    assert_eq!(later, 50);
    assert_eq!(grants(110, 1_000), 5);
    assert_eq!(grants(1_000, 1_000), 64);
    assert_eq!(grants(1_000, 1), 0);
}
