//! Which colors go to the head of the core-queue because they are the newest.

use super::wishes::hurry;
use super::*;

/// Three colors wait on core 0, whose next turn is the first one's.
fn three_wait(machine: &mut Machine) -> [u64; 3] {
    let queued = machine.busy(0, &[(takes(2_000), 1); 3]);
    machine.end_quantum();
    queued.try_into().unwrap()
}

#[test]
fn the_newest_goes_first_and_thieves_take_the_oldest() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = three_wait(&mut machine);
    assert_eq!(machine.step(), Some(a));
    let [x, y] = [10, 11].map(|i| machine.color(0, i));
    machine.post(x, 2_000);
    machine.post(y, 2_000);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), [y]);
    assert_eq!(machine.queue(), [x, b, c]);
    assert_eq!(machine.steal(1)[..1], [b]);
}

/// What is not worth a steal keeps its place, and so does what has events, or comes from elsewhere
/// than an event.
#[test]
fn others_go_to_the_tail() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = three_wait(&mut machine);
    assert_eq!(machine.step(), Some(a));
    let [short, completion] = [10, 11].map(|i| machine.color(0, i));
    machine.post(short, 500);
    machine.post(c, 2_000);
    machine.end_turns();
    machine.post(completion, 2_000);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), [b]);
    assert_eq!(machine.queue(), [c, short, completion]);
}

/// Nor with a flush by what is no event.
#[test]
fn what_a_reap_flushes_goes_to_the_tail() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [_, b, c] = three_wait(&mut machine);
    machine.end_turns();
    machine.cores[0].current.slot = crate::color::MaybeSlot::NONE;
    let completion = machine.color(0, 10);
    machine.post(completion, 2_000);
    machine.cores[0].flush();
    assert_eq!(machine.queue(), [b, c, completion]);
}

/// Of a chain of colors that each post to the next one, four follow on one that has waited.
#[test]
fn a_chain_lets_others_in() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = three_wait(&mut machine);
    let chain: Vec<u64> = (10..21).map(|i| machine.color(0, i)).collect();
    let (mut ran, mut posts) = (Vec::new(), chain.iter());
    while let Some(color) = machine.step() {
        if color == a || chain.contains(&color) {
            posts
                .next()
                .into_iter()
                .for_each(|&next| machine.post(next, 2_000));
        }
        ran.push(color);
        machine.end_quantum();
    }
    let expected = [&[a][..], &chain[..4], &[b, c], &chain[4..9], &chain[9..]];
    assert_eq!(ran, expected.concat());
}

/// Whose turns these are, one after the other, in quanta of one color.
fn turns(machine: &mut Machine) -> Vec<u64> {
    let turn = || {
        let color = machine.step();
        machine.end_quantum();
        color
    };
    std::iter::from_fn(turn).collect()
}

/// What drags memory along goes on for four turns more.
#[test]
fn what_drags_memory_along_goes_on() {
    let queued = |handler| [(handler, 40), (takes(2_000), 1), (takes(2_000), 1)];
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors = machine.busy(0, &queued(penalized(200, 10)));
    let &[a, b, c] = &colors[..] else {
        unreachable!("three were queued");
    };
    machine.end_quantum();
    assert_eq!(turns(&mut machine)[..8], [a, a, a, a, a, b, c, a]);

    let all_but = [penalized(200, 9), penalized(200, 10), penalized(200, 10)];
    let heuristics = [
        Stealing::ALL,
        without(false, true, false),
        without(false, false, true),
    ];
    for (handler, heuristics) in all_but.into_iter().zip(heuristics) {
        let mut machine = Machine::flat(2, heuristics);
        machine.busy(0, &queued(handler));
        machine.end_quantum();
        assert_eq!(turns(&mut machine)[..4], [a, b, c, a], "{heuristics:?}");
    }
}

/// And once its turn has ended with events left, each further one takes a quantum, however many
/// events that is.
#[test]
fn what_drags_memory_along_has_whole_quanta() {
    for (handler, heuristics, again) in [
        (penalized(20, 10), Stealing::ALL, [120, 30]),
        (penalized(10, 10), Stealing::ALL, [240, 60]),
        (penalized(59, 9), Stealing::ALL, [0; 2]),
        (penalized(20, 10), without(false, false, true), [0; 2]),
    ] {
        // A quantum is longer where nobody could steal.
        for (cores, again) in [1, 2].into_iter().zip(again) {
            let mut machine = Machine::flat(cores, heuristics);
            let mut queued = vec![(takes(20), 400); 30];
            queued[0] = (handler, 4_000);
            let colors = machine.busy(0, &queued);
            let in_a_row = |machine: &mut Machine| {
                machine.end_quantum();
                let ran = machine.run();
                let first = ran.iter().take_while(|&&color| color == colors[0]);
                first.count()
            };
            assert_eq!(
                in_a_row(&mut machine),
                10,
                "{cores}, {handler:?} {heuristics:?}"
            );
            let seen = in_a_row(&mut machine);
            assert_eq!(seen, again, "{cores}, {handler:?} {heuristics:?}");
        }
    }
}

/// Those of one event each have none left.
#[test]
fn what_drags_memory_along_shares_a_quantum_at_first() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let colors = machine.busy(0, &[(penalized(120, 10), 1); 3]);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), colors);
}

/// Also where many turns fit into a quantum: no color has more than five turns for one of another.
#[test]
fn who_goes_on_leaves_others_their_turns() {
    for (ns, all, number) in [
        (9, true, 60),
        (20, true, 20),
        (30, true, 20),
        (20, false, 20),
    ] {
        let mut machine = Machine::flat(1, Stealing::ALL);
        let (drags, other) = (penalized(ns, 16), takes(ns));
        let handler = |first| if first || all { drags } else { other };
        let queued: Vec<_> = (0..number).map(|i| (handler(i == 0), 4_000)).collect();
        let colors = machine.busy(0, &queued);
        let mut turns = vec![0u32; colors.len()];
        for _ in 0..15 * number {
            machine.end_quantum();
            for color in machine.checked_out() {
                let at = colors.iter().position(|its| *its == color);
                turns[at.expect("no other color")] += 1;
            }
        }
        let (least, most) = (turns.iter().min(), turns.iter().max());
        let (least, most) = (*least.unwrap(), *most.unwrap());
        assert!(least > 5 && most <= 5 * least + 5, "{ns} ns: {turns:?}");
    }
}

/// It goes first when the quantum ends, and not by a flush.
#[test]
fn what_a_flush_returns_after_its_turn_goes_to_the_tail() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let queued = [(penalized(9, 10), 12), (takes(20), 2), (takes(2_000), 1)];
    let colors = machine.busy(0, &queued);
    let &[a, b, c] = &colors[..] else {
        unreachable!("three were queued");
    };
    machine.end_quantum();
    for _ in 0..10 {
        assert_eq!(machine.step(), Some(a));
    }
    assert_eq!(machine.step(), Some(b));
    machine.cores[0].flush();
    assert_eq!(machine.queue(), [c, a]);
}

/// What was asked for is no turn that was waited for.
#[test]
fn who_hurries_pays_for_nothing() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = three_wait(&mut machine);
    hurry(&machine, c);
    let chain: Vec<u64> = (10..16).map(|i| machine.color(0, i)).collect();
    assert_eq!(machine.step(), Some(a));
    for &color in &chain[..4] {
        machine.post(color, 2_000);
    }
    machine.end_quantum();
    assert_eq!(machine.step(), Some(c));
    machine.post(chain[4], 2_000);
    machine.end_quantum();
    let newest_first: Vec<u64> = chain[..3].iter().rev().copied().collect();
    assert_eq!(machine.checked_out(), [chain[3]]);
    assert_eq!(
        machine.queue(),
        [&newest_first[..], &[b, chain[4]]].concat()
    );
}

/// The first of two that hurry posts: the second has the next turn all the same.
#[test]
fn who_hurries_is_not_passed() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = three_wait(&mut machine);
    for color in [b, c] {
        hurry(&machine, color);
    }
    assert_eq!(machine.step(), Some(a));
    machine.end_quantum();
    assert_eq!(machine.step(), Some(b));
    let x = machine.color(0, 10);
    machine.post(x, 2_000);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), [c]);
    assert_eq!(machine.queue(), [x]);
}

#[test]
fn what_the_runtime_does_is_not_passed() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = three_wait(&mut machine);
    assert_eq!(machine.step(), Some(a));
    let control = Color::control(0);
    let posted = machine.cores[0].post(Some(takes(2_000)), control, |_cx| ());
    assert!(posted.is_ok());
    let x = machine.color(0, 10);
    machine.post(x, 2_000);
    machine.end_quantum();
    let control = machine.shared.slots.map.slot(control);
    assert_eq!(machine.checked_out(), [color_of(control)]);
    assert_eq!(machine.queue(), [b, c, x]);
}

/// Two colors that post to each other, and flush each time, share each quantum with a third, which
/// the flush returns: it has the next turn.
#[test]
fn what_a_flush_returns_is_not_passed() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let queued = machine.busy(0, &[(takes(20), 1); 2]);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), queued);
    assert_eq!(machine.step(), Some(queued[0]));
    let x = machine.color(0, 10);
    machine.post(x, 2_000);
    machine.cores[0].flush();
    assert_eq!(machine.queue(), [queued[1], x]);
}

/// As many as are paid for, however many have had their turn.
#[test]
fn a_quantum_of_many_turns_pays_for_four() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let short = machine.busy(0, &[(takes(20), 1); 20]);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), short);
    while let Some(color) = machine.step() {
        machine.post(color + 100, 2_000);
    }
    machine.end_quantum();
    let mut order: Vec<u64> = short[..4].iter().rev().map(|color| color + 100).collect();
    order.extend(short[4..].iter().map(|color| color + 100));
    assert_eq!(machine.checked_out(), order[..1]);
    assert_eq!(machine.queue(), order[1..]);
}

/// Where the base algorithm steals, and where nobody does, colors have their turns in order.
#[test]
fn without_time_left_the_order_stays() {
    for heuristics in [Stealing::BASE, without(false, true, false)] {
        let mut machine = Machine::flat(2, heuristics);
        let [a, b, c] = three_wait(&mut machine);
        assert_eq!(machine.step(), Some(a));
        let x = machine.color(0, 10);
        machine.post(x, 2_000);
        machine.cores[0].flush();
        assert_eq!(machine.queue(), [b, c, x]);
    }
}
