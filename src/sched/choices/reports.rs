//! What is counted, and where events are found.

use super::*;
use crate::color::CoreId;
use crate::event::maker::Maker;
use crate::event::node::Sort;
use crate::event::tag::ProfileId;
use crate::sched::depth::deepest;
use crate::shared::idle::bells::Rings;
use crate::shared::remote::mail;
use crate::shared::remote::wishes;

#[test]
fn the_deepest_colors_are_found_wherever_their_events_are() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    // The later the deeper, two by two; more of them than are kept at a time.
    let colors: Vec<u64> = (0..100).map(|i| machine.color(0, i)).collect();
    for (i, &color) in colors.iter().enumerate() {
        (0..=i / 2).for_each(|_| machine.post(color, 20));
    }
    machine.cores[0].flush();
    let found = |machine: &Machine, most| {
        let all = deepest(&machine.shared, most).into_iter();
        all.map(|of| (of.color, of.events, of.core.index(), of.running))
            .collect::<Vec<_>>()
    };
    let queued = |i: usize| (Some(Color::from(colors[i])), 1 + i as u64 / 2, 0, false);
    // Of two that are as deep, the first.
    assert_eq!(found(&machine, 3), [98, 99, 96].map(queued));
    assert_eq!(found(&machine, 200).len(), 100);
    // Queued and mailed, and mailed only.
    for color in [colors[99], machine.color(0, 200)] {
        (0..60).for_each(|_| post(&mut machine.cores[1], takes(20), color));
    }
    machine.cores[1].flush();
    let mailed = Some(Color::from(machine.color(0, 200)));
    let both = Some(Color::from(colors[99]));
    let expected = [(both, 110, 0, false), (mailed, 60, 0, false), queued(98)];
    assert_eq!(found(&machine, 3), expected);
    // Taken to be run: nobody sees which color it is.
    let mut machine = Machine::flat(2, Stealing::ALL);
    (0..3).for_each(|_| machine.post(colors[0], 20));
    machine.cores[0].exchange::<false>();
    assert_eq!(found(&machine, 3), [(None, 3, 0, true)]);
}

#[test]
fn each_handler_has_its_events_counted() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let counts = |machine: &Machine| {
        let all = machine.shared.profiles.iter().skip(ProfileId::FIRST);
        let of = |profile| machine.shared.cores[0].counts.of(profile).events.get();
        all.map(|(profile, _)| of(profile)).collect::<Vec<_>>()
    };
    let [a, b] = [0, 1].map(|i| machine.color(0, i));
    let handlers = [takes(20), takes(20)];
    for (color, handler, events) in [(a, 0, 3), (b, 1, 2)] {
        (0..events).for_each(|_| post(&mut machine.cores[0], handlers[handler], color));
    }
    machine.cores[0].exchange::<false>();
    for _ in 0..3 {
        assert_eq!(machine.step(), Some(a));
    }
    assert_eq!(counts(&machine), [0, 0]);
    // When another's begins.
    machine.step();
    assert_eq!(counts(&machine), [3, 0]);
    machine.run();
    machine.cores[0].exchange::<false>();
    machine.cores[0].note_idle();
    assert_eq!(counts(&machine), [3, 2]);
    // Of one that never lets another begin, now and then.
    while counts(&machine)[0] == 3 {
        post(&mut machine.cores[0], handlers[0], a);
        machine.cores[0].exchange::<false>();
        machine.run();
    }
    let counted = counts(&machine)[0];
    assert!((12..=16).contains(&counted), "{counted}");
    // The rest at the end.
    post(&mut machine.cores[0], handlers[0], a);
    machine.cores[0].exchange::<false>();
    machine.run();
    machine.post(b, 20);
    let posted = machine.cores[0].ledger.posted;
    machine.cores.clear();
    assert_eq!(counts(&machine)[0], counted + 2);
    assert_eq!(machine.shared.cores[0].stats.posts.get(), posted);
}

#[test]
fn a_core_is_called_by_mail_and_by_what_is_queued() {
    for queued in [false, true] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        assert!(!machine.cores[0].is_called());
        let color = machine.color(0, 0);
        if queued {
            machine.post(color, 20);
            machine.cores[0].flush();
        } else {
            post(&mut machine.cores[1], takes(20), color);
            machine.cores[1].flush();
        }
        assert!(machine.cores[0].is_called());
    }
}

impl Machine {
    /// Gives a core, or the watchdog, a bell.
    fn hang(&self, core: CoreId) -> Arc<AtomicU64> {
        let rings = Rings::default();
        let count = Arc::clone(&rings.0);
        self.shared.idle.bells.hang(core, Box::new(rings));
        count
    }
}

#[test]
fn a_foreign_post_calls_its_core_or_somebody_for_it() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let rings = [0, 1].map(|core| machine.hang(CoreId::of(core)));
    let rung = || rings.each_ref().map(|rings| rings.load(Ordering::Relaxed));
    let mut maker = Maker::new(&machine.shared.depot);
    let color = Color::from(machine.color(0, 0));
    let mut publish = |machine: &Machine| {
        let made = maker.make(
            &machine.shared.profiles,
            None,
            color,
            |_: &mut crate::Cx| (),
            Sort::ORDINARY,
            |f| f,
        );
        let Ok((node, _)) = made else { panic!() };
        mail::publish(&machine.shared, color, node);
    };
    assert!(machine.shared.cores[0].pokes.park());
    publish(&machine);
    assert_eq!(rung(), [1, 0]);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.step(), Some(color.value()));
    // It is inside a long handler, and the other one sleeps.
    machine.shared.cores[0].progress.set_long(true);
    machine.sleep(1);
    publish(&machine);
    assert_eq!(rung(), [1, 1]);
}

#[test]
fn a_color_that_is_to_be_placed_has_its_core_called() {
    let machine = Machine::flat(2, Stealing::ALL);
    let rings = machine.hang(CoreId::of(0));
    assert!(machine.shared.cores[0].pokes.park());
    let color = Color::from(machine.color(0, 0));
    let wanted = |color| {
        machine
            .shared
            .slots
            .at(machine.shared.slots.map.slot(color))
            .wish
            .any()
    };
    // Those of the runtime's own stay where they are.
    wishes::place(&machine.shared, Color::control(0), 1);
    assert!(!wanted(Color::control(0)));
    // It is there.
    wishes::place(&machine.shared, color, 0);
    assert!(!wanted(color));
    assert_eq!(rings.load(Ordering::Relaxed), 0);
    wishes::place(&machine.shared, color, 1);
    assert!(wanted(color));
    assert_eq!(rings.load(Ordering::Relaxed), 1);
    // And is to stay after all.
    wishes::place(&machine.shared, color, 0);
    assert!(!wanted(color));
}

#[test]
fn the_watchdog_is_called_if_it_sleeps() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let rings = machine.hang(machine.shared.idle.bells.watchdog());
    let rung = || rings.load(Ordering::Relaxed);
    machine.cores[0].become_busy();
    assert_eq!(rung(), 0, "it is awake");
    let cores = &machine.shared.cores;
    assert!(
        !machine.shared.idle.vigil.falls_asleep(cores),
        "a core is busy"
    );
    machine.cores[1].become_busy();
    assert_eq!(rung(), 0, "it did not sleep");
    for core in &machine.shared.cores {
        machine.shared.idle.vigil.end_busy(core);
    }
    let cores = &machine.shared.cores;
    assert!(machine.shared.idle.vigil.falls_asleep(cores));
    machine.cores[1].become_busy();
    assert_eq!(rung(), 1);
    machine.cores[0].become_busy();
    assert_eq!(rung(), 1, "once");
    // It woke by itself.
    let vigil = &machine.shared.idle.vigil;
    for core in &machine.shared.cores {
        vigil.end_busy(core);
    }
    assert!(vigil.falls_asleep(&machine.shared.cores));
    vigil.wakes();
    machine.cores[0].become_busy();
    assert_eq!(rung(), 1);
}
