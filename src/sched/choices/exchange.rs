//! What a core does between two quanta, and at a flush.

use super::kept::Pair;
use super::*;
use crate::color::CoreId;
use crate::event::maker::Maker;
use crate::event::node::Sort;
use crate::sched::outbox::OUTBOX_MAX;
use crate::shared::queue::core_queue::QueueEnd;
use crate::shared::remote::{mail, poke};

/// The other core sends core 0 an event.
fn send(machine: &mut Machine, color: u64) {
    post(&mut machine.cores[1], takes(20), color);
    machine.cores[1].flush();
}

/// Whoever sent a poke, or finds it, sends it on to where its color is.
#[test]
fn a_poke_follows_its_color() {
    let machine = Machine::flat(2, Stealing::ALL);
    let shared = &machine.shared;
    let [moves, stays] = [2, 4].map(SlotId::of);
    let taken =
        |core: usize| -> Vec<SlotId> { shared.cores[core].pokes.take(&shared.slots).collect() };
    shared.slots.set_owner(moves, CoreId::of(1));
    poke::send_all(shared, CoreId::of(0), &[moves, stays], &mut Vec::new());
    assert_eq!([taken(0), taken(1)], [[stays], [moves]]);
    // It leaves when its poke was sent.
    shared.slots.set_owner(moves, CoreId::of(0));
    poke::send_all(shared, CoreId::of(0), &[moves], &mut Vec::new());
    shared.slots.set_owner(moves, CoreId::of(1));
    let mut bells = Vec::new();
    assert!(shared.cores[1].pokes.park());
    take_mail(&mut Section::enter(shared, CoreId::of(0)), &mut bells);
    assert_eq!((bells, taken(1)), (vec![CoreId::of(1)], vec![moves]));
}

#[test]
fn kept_colors_leave_when_others_wait() {
    let Pair { mut machine, a, b } = Pair::on(2);
    let long = machine.color(0, 9);
    machine.post(long, 5_000);
    assert_eq!(machine.run(), []);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), [long]);
    let kept = |color: u64| machine.cores[0].checkout.find(slot(color));
    assert_eq!([a, b].map(kept), [None, None]);
}

/// A poke comes, so what is kept leaves; what has a turn stays, and is found where it is now.
#[test]
fn kept_colors_leave_when_mail_comes() {
    let Pair { mut machine, a, b } = Pair::on(2);
    let [c, mailed] = [8, 9].map(|i| machine.color(0, i));
    machine.post(c, 20);
    machine.step();
    machine.cores[0].exchange::<false>();
    machine.run();
    machine.post(b, 20);
    machine.post(c, 20);
    send(&mut machine, mailed);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), [b, c, mailed]);
    assert!(machine.cores[0].checkout.find(slot(a)).is_none());
    assert_eq!(machine.step(), Some(b));
    machine.post(c, 20);
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.run(), [c, c, mailed]);
}

/// One of two has events left after its batch, and is given back; the other one is kept, and found
/// where it is now.
#[test]
fn of_two_that_ran_only_the_one_without_events_is_kept() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = [0, 1, 2].map(|i| machine.color(0, i));
    machine.settle(&[a, b, c]);
    (0..15).for_each(|_| machine.post(a, 5));
    machine.post(b, 5);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run()[..11], [a, a, a, a, a, a, a, a, a, a, b]);
    machine.post(c, 5);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), [a, c]);
    assert_eq!(machine.step(), Some(a));
    machine.post(b, 5);
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.run(), [a, a, a, a, c, b]);
}

/// By how long it has lasted before, thieves would take it for something that goes on.
#[test]
fn a_color_that_is_kept_has_lasted_no_longer() {
    let Pair { mut machine, a, .. } = Pair::on(2);
    let endurance = |machine: &Machine| {
        let mut section = Section::enter(&machine.shared, CoreId::of(0));
        section.guarded.colors.at(slot(a)).endurance
    };
    assert_eq!(endurance(&machine), Endurance::NONE);
    let lasted = Endurance::NONE.and(5_000, Endurance::most(0));
    (Section::enter(&machine.shared, CoreId::of(0))
        .guarded
        .colors)
        .at(slot(a))
        .endurance = lasted;
    machine.post(a, 20);
    machine.run();
    machine.post(a, 20);
    machine.cores[0].exchange::<false>();
    assert_eq!(endurance(&machine), Endurance::NONE);
}

#[test]
fn a_color_posts_to_itself_into_its_own_turn() {
    let Pair { mut machine, b, .. } = Pair::on(2);
    (0..5).for_each(|_| machine.post(b, 20));
    assert_eq!(machine.cores[0].checkout.turns(), 1);
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.run(), [b; 5]);
}

/// One chunk in the outbox, as many as it takes chunks of others: so the first of them does not
/// wait for an event that posts on and on.
#[test]
fn posts_in_a_row_to_one_color_are_published_together() {
    let (Pair { mut machine, .. }, handler) = (Pair::on(2), takes(20));
    let color = machine.color(0, 9);
    for number in 1..=3 * OUTBOX_MAX {
        post(&mut machine.cores[0], handler, color);
        let waits = !number.is_multiple_of(OUTBOX_MAX);
        assert_eq!(machine.cores[0].has_outbox(), waits, "post {number}");
        assert_eq!(machine.queue().is_empty(), number < OUTBOX_MAX);
    }
    post(&mut machine.cores[0], handler, color);
    machine.cores[0].flush();
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.queue(), [color]);
}

#[test]
fn posts_are_counted_when_they_are_published() {
    let Pair { mut machine, .. } = Pair::on(2);
    let posts = |machine: &Machine| machine.cores[0].own.stats.posts.get();
    let before = posts(&machine);
    let color = machine.color(0, 9);
    machine.post(color, 20);
    machine.cores[0].flush();
    assert_eq!(posts(&machine), before + 1);
    assert_eq!(machine.cores[0].own.stats.posts_remote.get(), 0);
    send(&mut machine, color);
    assert_eq!(machine.cores[1].own.stats.posts_remote.get(), 1);
    machine.post(color, 20);
    machine.run();
    machine.cores[0].exchange::<false>();
    assert_eq!(posts(&machine), before + 2);
}

/// Mail of a color that is checked out, which a thief has found, is taken as soon as it is not any
/// more.
#[test]
fn a_flush_takes_the_mail_that_thieves_left_and_no_other() {
    let Pair { mut machine, a, .. } = Pair::on(2);
    send(&mut machine, a);
    take_mail(
        &mut Section::enter(&machine.shared, CoreId::of(0)),
        &mut Vec::new(),
    );
    assert_eq!(machine.queue(), []);
    machine.cores[0].flush();
    assert_eq!(machine.queue(), [a]);
    // What comes to a core is for the exchange.
    let [mailed, posted] = [8, 9].map(|i| machine.color(0, i));
    send(&mut machine, mailed);
    machine.post(posted, 20);
    machine.cores[0].flush();
    assert_eq!(machine.queue(), [a, posted]);
}

#[test]
fn what_a_long_handler_publishes_wakes_somebody() {
    for (long, color, wakes) in [
        (true, Color::from(2), true),
        (false, Color::from(2), false),
        // No thief may take it.
        (true, Color::control(0), false),
    ] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        machine.busy(0, &[]);
        machine.sleep(1);
        machine.shared.cores[0].progress.set_long(long);
        let of = &mut machine.cores[0];
        assert!(of.post(Some(takes(20)), color, |_cx| ()).is_ok());
        assert_eq!(of.flush(), wakes);
        assert_eq!(of.own.stats.wakes.get(), u64::from(wakes));
        assert!(of.bells.is_empty());
    }
    // Nobody could come.
    let mut machine = Machine::flat(1, Stealing::ALL);
    machine.busy(0, &[]);
    machine.shared.cores[0].progress.set_long(true);
    let color = machine.color(0, 9);
    machine.post(color, 20);
    assert!(!machine.cores[0].flush());
}

#[test]
fn with_nothing_to_do_there_is_no_quantum() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.cores[0].own.stats.quanta.get(), 0);
}

/// Every 16 quanta.
#[test]
fn limits_are_worked_out_anew_now_and_then() {
    let Pair { mut machine, a, .. } = Pair::on(2);
    machine.cost(Distance::SharedL1, 5_000);
    let cost_ns = machine.shared.cores[0].steal_costs.ns(Distance::SharedL1) as u32;
    let mut exchanges = 0;
    while machine.cores[0].checkout.quantum_ns != cost_ns {
        machine.run();
        machine.post(a, 20);
        machine.cores[0].exchange::<false>();
        exchanges += 1;
        assert!(exchanges <= 16);
    }
    assert_eq!(machine.cores[0].own.stats.quanta.get(), 16);
    let limits = Section::enter(&machine.shared, CoreId::of(0)).limits;
    assert_eq!(
        (limits.quantum.least_ns, limits.cost_ns),
        (cost_ns, cost_ns.into())
    );
    // What fits a quantum by now.
    let color = machine.color(0, 9);
    machine.run();
    (0..100).for_each(|_| machine.post(color, 60));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run().len(), cost_ns.div_ceil(60) as usize);
}

/// After the quantum in which it found one that has more of those that go on.
#[test]
fn a_core_takes_a_share_of_what_lasts_elsewhere() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.lasting(0, &[(takes(20), 1); 10]);
    machine.cores[1].search.levelling = Some(0);
    machine.cores[1].end_quantum(0);
    assert_eq!((machine.queued(0), machine.queued(1)), (5, 5));
    assert_eq!(machine.cores[1].search.levelling, None);
}

/// In one quantum of 16 nothing is kept, so that what is placed elsewhere by then leaves.
#[test]
fn nothing_is_kept_when_limits_are_worked_out() {
    let Pair { mut machine, a, b } = Pair::on(2);
    for quanta in 6..=16 {
        machine.post(a, 20);
        assert_eq!(machine.run(), [a], "it went straight in");
        machine.post(b, 20);
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.step(), Some(b));
        let kept = machine.cores[0].checkout.others(true);
        assert_eq!(kept, usize::from(quanta != 16), "in quantum {quanta}");
    }
    assert_eq!(machine.cores[0].own.stats.quanta.get(), 16);
}

/// Who has pushed mail is still to send the poke: what is posted here waits for no poke.
#[test]
fn mail_without_its_poke_is_run_with_what_is_posted_here() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let color = machine.color(0, 0);
    let mut maker = Maker::new(&machine.shared.depot);
    let of = Color::from(color);
    let (event, _) = maker.make_own(
        &machine.shared.profiles,
        None,
        of,
        |_cx: &mut crate::Cx| (),
        Sort::ORDINARY,
    );
    assert!(mail::push(&machine.shared.slots, slot(color), event.into()));
    machine.post(color, 20);
    machine.cores[0].flush();
    assert_eq!(machine.queue(), [color]);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [color]);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [color]);
    poke::send(&machine.shared, slot(color), &mut Vec::new());
    machine.cores[0].exchange::<false>();
    assert!(machine.cores[0].has_empty_checkout());
}

/// The mail is older, for all that the core knows.
#[test]
fn mail_goes_before_what_is_posted_here() {
    let by_mail = takes(21);
    let order = |machine: &mut Machine| {
        let mut handlers = Vec::new();
        while machine.step().is_some() {
            let profile = machine.cores[0].current.profile();
            let handler = machine.shared.profiles.get(profile).handler;
            handlers.push(std::ptr::eq(handler.unwrap(), by_mail));
        }
        handlers
    };
    let send_by_mail = |machine: &mut Machine, color| {
        post(&mut machine.cores[1], by_mail, color);
        machine.cores[1].flush();
    };
    // Of a color that is kept.
    let Pair { mut machine, a, .. } = Pair::on(2);
    send_by_mail(&mut machine, a);
    machine.post(a, 20);
    assert!(machine.cores[0].has_outbox());
    machine.run();
    machine.cores[0].exchange::<false>();
    assert_eq!(order(&mut machine), [true, false]);
    // Of one that runs.
    let Pair { mut machine, a, .. } = Pair::on(2);
    machine.post(a, 20);
    machine.post(a, 590);
    assert_eq!(machine.step(), Some(a));
    send_by_mail(&mut machine, a);
    machine.cores[0].flush();
    assert_eq!(order(&mut machine), [true, false]);
    // Of one that is not, at an exchange and at a flush; and of one that is queued.
    for (flush, queued) in [(false, false), (true, false), (true, true)] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        let color = machine.color(0, 0);
        machine.settle(&[color]);
        if queued {
            machine.post(color, 20);
            machine.cores[0].flush();
        }
        send_by_mail(&mut machine, color);
        machine.post(color, 20);
        if flush {
            machine.cores[0].flush();
        }
        machine.cores[0].exchange::<false>();
        let mut expected = vec![true, false];
        if queued {
            expected.insert(0, false);
        }
        assert_eq!(order(&mut machine), expected);
    }
}

/// The first color that was not asked for, some way behind the head of a long queue, leaves: its
/// neighbor takes its place.
#[test]
fn the_scout_stays_in_the_queue() {
    the_scout_stays(1_100, 4);
    the_scout_stays(400, 11);
}

fn the_scout_stays(colors: usize, each: usize) {
    let machine = deep(colors, each);
    let mut section = Section::enter(&machine.shared, CoreId::of(0));
    let (queued, at) = scouted(&mut section);
    for (leaves, then_at) in [(at + 3, at), (at, at + 1)] {
        let slot = SlotId::of(queued[leaves]);
        section.unlink(slot);
        section.guarded.colors.at(slot).state = State::Idle;
        let (left, now_at) = scouted(&mut section);
        assert_eq!(left[now_at], queued[then_at]);
        section.assert_valid();
    }
    for leaves in [at + 3, at] {
        section.link(SlotId::of(queued[leaves]));
    }
}

#[test]
fn a_short_queue_has_no_scout() {
    let machine = deep(4_000, 1);
    let section = Section::enter(&machine.shared, CoreId::of(0));
    assert_eq!(section.guarded.queues.core_queue.scouted(), None);
}

/// Thieves take what the scout has asked for, and perhaps its color with it; others are put before
/// it: after the next quantum it is as far before the head as it was.
#[test]
fn the_scout_keeps_its_lead() {
    for stolen in [1, 7, 8, 20] {
        the_scout_keeps_its_lead_after(|section, queued| {
            for &slot in &queued[..stolen] {
                section.unlink(SlotId::of(slot));
                section.guarded.colors.at(SlotId::of(slot)).state = State::Idle;
            }
            assert_eq!(scouted(section).1, 8usize.saturating_sub(stolen));
            queued[..stolen].to_vec()
        });
    }
    the_scout_keeps_its_lead_after(|section, queued| {
        for &slot in queued.iter().rev().take(5) {
            section.unlink(SlotId::of(slot));
            section.guarded.colors.at(SlotId::of(slot)).state = State::Idle;
            section.link_at(SlotId::of(slot), QueueEnd::Head);
        }
        assert_eq!(scouted(section).1, 13);
        Vec::new()
    });
}

/// `change` gets the core-queue, and returns what it has unlinked.
fn the_scout_keeps_its_lead_after(change: impl FnOnce(&mut Section<'_>, &[u32]) -> Vec<u32>) {
    let mut machine = deep(2_000, 3);
    let mut section = Section::enter(&machine.shared, CoreId::of(0));
    let (queued, at) = scouted(&mut section);
    assert_eq!(at, 8);
    let unlinked = change(&mut section, &queued);
    drop(section);
    machine.cores[0].exchange::<false>();
    let mut section = Section::enter(&machine.shared, CoreId::of(0));
    assert_eq!(scouted(&mut section).1, 8);
    for slot in unlinked {
        section.link(SlotId::of(slot));
    }
}

/// A machine whose first core has taken its first quantum of a long queue.
fn deep(colors: usize, each: usize) -> Machine {
    let mut machine = Machine::flat(2, Stealing::ALL);
    for i in (0..colors).flat_map(|i| vec![i; each]) {
        let color = machine.color(0, i);
        machine.post(color, 20);
    }
    machine.cores[0].flush();
    machine.cores[0].exchange::<false>();
    machine
}

/// The core-queue, and where in it the scout is.
fn scouted(section: &mut Section<'_>) -> (Vec<u32>, usize) {
    let queued = section.queued_slots();
    let scout = section.guarded.queues.core_queue.scouted();
    let scout = scout.expect("it was sent").number();
    let at = queued.iter().position(|&slot| slot == scout);
    (queued, at.expect("it is in the queue"))
}

/// Core 0 with this many colors in its queue that last, each with an event that takes this long.
fn lasting(colors: usize, takes_ns: u64) -> Machine {
    let mut machine = Machine::flat(2, Stealing::ALL);
    for i in 0..colors {
        let color = machine.color(0, i);
        machine.post(color, takes_ns);
        machine.cores[0].flush();
        let mut section = Section::enter(&machine.shared, CoreId::of(0));
        set_endurance(
            &mut section,
            slot(color),
            Endurance::NONE.and(5_000, Endurance::most(0)),
        );
    }
    machine
}

#[test]
fn a_color_that_lasts_is_worth_a_steal() {
    let machine = lasting(1, 20);
    let section = Section::enter(&machine.shared, CoreId::of(0));
    assert_eq!(
        section.guarded.queues.stealing_queue.worth_ns,
        20 + u64::from(Endurance::most(0).ns())
    );
}

/// Else no thief would ever see those that all fit into a quantum.
#[test]
fn half_of_the_colors_that_last_are_left_for_whoever_wants_some() {
    let taken = |colors, prepare: &dyn Fn(&Machine)| {
        let mut machine = lasting(colors, 20);
        prepare(&machine);
        machine.cores[0].exchange::<false>();
        let taken = machine.checked_out().len();
        let section = Section::enter(&machine.shared, CoreId::of(0));
        assert_eq!(section.guarded.queues.lasting_out as usize, taken);
        taken
    };
    let searching = |machine: &Machine| {
        assert!(machine.shared.idle.searchers.begin(CoreId::of(1), 2));
    };
    let asked = |machine: &Machine| machine.shared.cores[0].hint.ask(true);
    let asleep = |machine: &Machine| machine.shared.idle.sleepers.set(CoreId::of(1));
    assert_eq!([1, 5, 6].map(|colors| taken(colors, &|_| ())), [1, 5, 6]);
    let prepare: [&dyn Fn(&Machine); 3] = [&searching, &asked, &asleep];
    for prepare in prepare {
        assert_eq!([1, 5, 6].map(|colors| taken(colors, prepare)), [1, 3, 3]);
    }
}

#[test]
fn a_color_that_lasts_and_does_not_fit_is_not_counted_as_out() {
    let mut machine = lasting(3, 400);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out().len(), 1);
    let section = Section::enter(&machine.shared, CoreId::of(0));
    assert_eq!(
        (
            section.guarded.queues.core_queue.lasting,
            section.guarded.queues.lasting_out
        ),
        (2, 1)
    );
}

/// What it hides nobody looks for; who begins to look while it lasts waits for its end.
#[test]
fn a_quantum_is_longer_while_nobody_is_idle() {
    let machine = Machine::flat(2, Stealing::ALL);
    let shared = &machine.shared;
    let now = || {
        let policy = Policy {
            quantum_busy_ns: QUANTUM_BUSY_NS,
            ..shared.policy
        };
        Limits::new(700, WAKE_COST_NS, &policy, shared.slots.map).quantum_ns(shared)
    };
    assert_eq!(now(), 2_400);
    assert!(shared.idle.searchers.begin(CoreId::of(1), 2));
    assert_eq!(now(), 700);
    shared.idle.searchers.end(CoreId::of(1));
    shared.idle.sleepers.set(CoreId::of(1));
    assert_eq!(now(), 700);
    shared.idle.sleepers.clear(CoreId::of(1));
    assert_eq!(now(), 2_400);
}

/// Until what it takes sums to a quantum.
#[test]
fn a_core_checks_out_a_quantum() {
    let taken = |quantum_ns: u64, each: &[u64]| {
        let mut machine = Machine::flat(2, Stealing::ALL);
        if quantum_ns > STEAL_COST_NS {
            machine.cost(Distance::SharedL1, quantum_ns);
            machine.renew();
        }
        for (i, &takes_ns) in each.iter().enumerate() {
            let color = machine.color(0, i);
            machine.post(color, takes_ns);
        }
        machine.cores[0].flush();
        machine.cores[0].exchange::<false>();
        machine.checked_out().len()
    };
    assert_eq!(taken(600, &[300, 300, 1]), 2);
    assert_eq!(taken(600, &[300, 301]), 1);
    assert_eq!(taken(600, &[601]), 1);
}

/// Of two handlers that are known, the second is not taken for the cause.
#[test]
fn who_has_used_up_the_quantum_does_not_go_on() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [color, other] = [0, 1].map(|i| machine.color(0, i));
    for (ns, events) in [(250, 2), (120, 4)] {
        (0..events).for_each(|_| machine.post(color, ns));
    }
    machine.post(other, 20);
    machine.cores[0].exchange::<false>();
    // 250, 250 and 120 are more than 600.
    assert_eq!(machine.run(), [color; 3]);
}

/// By the turn that it had, if that counts at all.
#[test]
fn a_color_with_events_left_has_lasted() {
    for (heuristics, control, lasted_ns) in [
        (Stealing::ALL, false, 256),
        (Stealing::ALL, true, 0),
        (without(false, true, false), false, 0),
    ] {
        let mut machine = Machine::flat(2, heuristics);
        let other = machine.color(0, 1);
        let color = if control {
            Color::control(0)
        } else {
            Color::from(machine.color(0, 0))
        };
        let slot = machine.shared.slots.map.slot(color);
        for _ in 0..15 {
            let posted = machine.cores[0].post(Some(takes(20)), color, |_cx| ());
            assert!(posted.is_ok());
        }
        machine.post(other, 20);
        machine.cores[0].exchange::<false>();
        machine.run();
        machine.cores[0].exchange::<false>();
        let mut section = Section::enter(&machine.shared, CoreId::of(0));
        assert_eq!(
            section.guarded.colors.at(slot).endurance.ns(),
            lasted_ns,
            "{heuristics:?}"
        );
    }
}

/// What one color does for all connections would wait for a turn of each of them.
#[test]
fn control_colors_have_the_next_turn() {
    let mut machine = Machine::flat(1, Stealing::ALL);
    let colors = machine.busy(0, &[(takes(5_000), 1); 5]);
    let of = &mut machine.cores[0];
    assert!(
        of.post(Some(takes(20)), Color::control(0), |_cx| ())
            .is_ok()
    );
    of.flush();
    let control = machine.shared.slots.map.slot(Color::control(0));
    let queue = [&[color_of(control)], &colors[..]].concat();
    assert_eq!(machine.queue(), queue);
}

/// What is published alone leaves the checkout where it is.
#[test]
fn a_publication_leaves_the_checkout_as_it_is() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = [0, 1, 2].map(|i| machine.color(0, i));
    machine.settle(&[a, b, c]);
    for color in [a, b] {
        machine.post(color, 20);
    }
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.step(), Some(a));
    machine.post(c, 20);
    assert!(machine.cores[0].has_outbox());
    machine.cores[0].publish();
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.queue(), [c]);
    assert_eq!(machine.shared.cores[0].hint.queued(), 1);
    // What is at hand is, and takes events.
    machine.post(b, 20);
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.run(), [b, b]);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [c]);
}

/// What is for a color of the checkout, and could not be put in there, takes a flush: behind what
/// the color has already.
#[test]
fn a_publication_for_a_color_of_the_checkout_is_a_flush() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [a, b, c] = [0, 1, 2].map(|i| machine.color(0, i));
    machine.settle(&[a, b, c]);
    for color in [a, b] {
        machine.post(color, 20);
    }
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.step(), Some(a));
    machine.post(c, 20);
    machine.post(b, 5_000);
    machine.cores[0].publish();
    assert!(!machine.cores[0].has_outbox());
    assert_eq!(machine.queue(), [b, c]);
    assert_eq!(machine.run(), [0; 0]);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [b, b]);
}

/// Colors that got mail while the core ran something else come in the order in which they did, also
/// those to which one core posts at once.
#[test]
fn mail_comes_in_the_order_of_its_posts() {
    let mut machine = Machine::apart(2);
    let colors = [5, 1, 4, 2, 3].map(|i| machine.color(0, i));
    send(&mut machine, colors[0]);
    for &color in &colors[1..4] {
        post(&mut machine.cores[1], takes(20), color);
    }
    machine.cores[1].flush();
    send(&mut machine, colors[4]);
    take_mail(
        &mut Section::enter(&machine.shared, CoreId::of(0)),
        &mut Vec::new(),
    );
    assert_eq!(machine.queue(), colors);
}
