//! Which events are timed, what is done about those that are long, and how many run in a row.

use super::*;

/// Longer than a wake-up.
const LONG_NS: u64 = 30_000;

impl Machine {
    /// Core 0 has `count` colors with an event each, and nothing else.
    fn with_colors(count: usize) -> (Machine, Vec<u64>) {
        let mut machine = Machine::flat(2, Stealing::ALL);
        machine.cores[0].become_busy();
        let colors: Vec<u64> = (0..count).map(|i| machine.color(0, i)).collect();
        colors.iter().for_each(|&color| machine.post(color, 1));
        (machine, colors)
    }

    /// Whether each color is timed, in this many quanta of `each` colors.
    fn timed(&mut self, quanta: usize, each: usize) -> Vec<bool> {
        let colors: Vec<u64> = (0..each).map(|i| self.color(0, i)).collect();
        let mut timed = Vec::new();
        for _ in 0..quanta {
            colors.iter().for_each(|&color| self.post(color, 1));
            self.cores[0].exchange::<false>();
            while self.step().is_some() {
                timed.push(self.cores[0].own.progress.wants_attention());
            }
            self.cores[0].end_quantum(0);
        }
        timed
    }
}

/// A color that is alone goes on for longer than its batch, but not for longer than a quantum.
#[test]
fn a_batch_is_longer_while_nobody_waits() {
    let events = |takes_ns, others: &[u64]| {
        let mut machine = Machine::flat(2, Stealing::ALL);
        let color = machine.color(0, 0);
        (0..300).for_each(|_| machine.post(color, takes_ns));
        for (i, &takes_ns) in others.iter().enumerate() {
            let other = machine.color(0, 1 + i);
            machine.post(other, takes_ns);
        }
        machine.cores[0].exchange::<false>();
        machine
            .run()
            .into_iter()
            .filter(|&ran| ran == color)
            .count()
    };
    assert_eq!(events(1, &[]), 256);
    assert_eq!(events(20, &[]), 30);
    // One that has its turn in this quantum, and one that waits for the next.
    assert_eq!(events(1, &[1]), 10);
    assert_eq!(events(1, &[5_000]), 10);
}

#[test]
fn one_color_in_251_is_timed() {
    let (mut machine, _) = Machine::with_colors(0);
    let timed = machine.timed(100, 8);
    let expected = (0..800).map(|i| i % 251 == 0);
    assert!(timed.into_iter().eq(expected));
}

/// For four quanta, that one included, each event is timed.
#[test]
fn a_core_that_looks_up_is_wary_for_a_while() {
    let (mut machine, _) = Machine::with_colors(0);
    machine.timed(1, 8);
    machine.cores[0].look_up();
    machine.cores[0].end_quantum(0);
    let timed = machine.timed(4, 4);
    assert_eq!(
        timed,
        [[true; 4], [true; 4], [true; 4], [false; 4]].concat()
    );
}

#[test]
fn all_events_are_timed_until_a_core_is_busy() {
    let (mut machine, _) = Machine::with_colors(0);
    machine.timed(1, 8);
    machine.wait(7);
    machine.cores[0].rise();
    let risen_ns = machine.now_ns.load(Ordering::Relaxed);
    assert_eq!(machine.cores[0].timing.fresh_since_ns, Some(risen_ns));
    // One at a time: nothing waits.
    assert_eq!(machine.timed(20, 1), [true; 20]);
    machine.cores[0].become_busy();
    assert_eq!(machine.timed(20, 1), [false; 20]);
    // Or as soon as anything waits.
    machine.cores[0].rise();
    machine.timed(1, 2);
    assert_eq!(machine.cores[0].timing.fresh_since_ns, None);
    assert!(machine.shared.cores[0].busy.load(Ordering::Relaxed));
}

/// 50 us after it rose.
#[test]
fn a_core_that_has_been_awake_for_long_is_busy() {
    for (ns, busy) in [(50_000, false), (50_001, true)] {
        let (mut machine, _) = Machine::with_colors(1);
        machine.cores[0].rise();
        machine.cores[0].exchange::<false>();
        machine.step_for(ns);
        assert_eq!(
            machine.cores[0].timing.fresh_since_ns.is_none(),
            busy,
            "{ns}"
        );
    }
}

/// A step may take longer than the watchdog's period: under Miri, say.
#[test]
fn a_core_that_is_asked_to_look_up_in_each_step_runs_one_event_in_each() {
    let (mut machine, _) = Machine::with_colors(3);
    let mut events_of_a_step = || {
        machine.cores[0].looks_up();
        machine.cores[0].exchange::<false>();
        machine.shared.cores[0].progress.ask_to_look_up();
        let (core, mut events) = (&mut machine.cores[0], 0);
        while !core.is_turn_over() || core.next_color() {
            if let Some(begun) = core.begin_event() {
                core.skip(begun);
                let _ = core.end_event();
                events += 1;
            }
        }
        events
    };
    // Nothing says when it looked up before the first one.
    let events: Vec<u32> = (0..4).map(|_| events_of_a_step()).collect();
    assert_eq!(events, [0, 1, 1, 1]);
    // But none when it is to leave.
    let (mut machine, _) = Machine::with_colors(3);
    for _ in 0..3 {
        machine.cores[0].looks_up();
        machine.cores[0].exchange::<false>();
        machine.shared.cores[0].progress.ask_to_leave();
        assert!(machine.cores[0].next_color());
        assert!(machine.cores[0].begin_event().is_none());
        assert!(!machine.cores[0].next_color());
    }
}

#[test]
fn who_is_asked_to_look_up_gives_back_what_waits() {
    let (mut machine, colors) = Machine::with_colors(3);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.checked_out(), colors);
    machine.shared.cores[0].progress.ask_to_look_up();
    assert!(machine.cores[0].next_color());
    assert!(machine.cores[0].begin_event().is_none());
    assert!(machine.cores[0].is_turn_over());
    assert!(!machine.cores[0].next_color());
    assert_eq!(machine.queue(), colors[1..]);
    machine.cores[0].timing.ran = true;
    machine.cores[0].looks_up();
    assert!(!machine.cores[0].has_run(), "the event source is looked at");
    machine.cores[0].timing.ran = true;
    machine.cores[0].looks_up();
    assert!(machine.cores[0].has_run(), "nobody asks any more");
    machine.cores[0].looked();
    assert_eq!(machine.cores[0].own.stats.looks.get(), 1);
    assert!(!machine.shared.cores[0].progress.is_asked_to_look_up());
    machine.cores[0].exchange::<false>();
    let mut ran = machine.run();
    ran.sort();
    assert_eq!(ran, colors);
}

#[test]
fn what_runs_can_be_seen() {
    let (mut machine, _) = Machine::with_colors(1);
    let runs = |machine: &Machine| machine.shared.cores[0].progress.profile();
    assert_eq!(runs(&machine), None);
    machine.cores[0].exchange::<false>();
    machine.step();
    assert_eq!(runs(&machine), Some(machine.cores[0].current.profile()));
    assert_eq!(machine.step(), None);
    machine.cores[0].exchange::<false>();
    let turns = machine.shared.cores[0].progress.turns();
    machine.cores[0].note_idle();
    assert_eq!(runs(&machine), None);
    // Who finds nothing again has rested already.
    machine.cores[0].timing.ran = true;
    machine.cores[0].note_idle();
    assert!(!machine.cores[0].has_run());
    assert_eq!(machine.shared.cores[0].progress.turns(), turns + 1);
}

/// What completed meanwhile goes before what is queued then.
#[test]
fn after_a_long_event_a_core_is_not_busy() {
    let (mut machine, colors) = Machine::with_colors(0);
    for (ns, busy) in [
        (10, true),
        (WAKE_COST_NS - 1, true),
        (WAKE_COST_NS, false),
        (10, true),
    ] {
        // Unknown, so it is timed.
        let post = machine.cores[0].post(None, Color::from(2), |_cx| ());
        assert!(post.is_ok() && colors.is_empty());
        machine.cores[0].exchange::<false>();
        machine.cores[0].timing.wary = 9;
        machine.cores[0].timing.until_sample = 1;
        machine.step_for(ns);
        machine.run();
        machine.cores[0].end_quantum(0);
        assert_eq!(machine.cores[0].has_run(), busy, "{ns}");
    }
}

/// Of a handler that is known, and whose runs are all timed.
#[test]
fn the_more_cores_the_fewer_runs_each_records() {
    for (cores, recorded) in [(1, 1_500..1_601), (2, 720..880), (8, 160..240)] {
        let mut machine = Machine::flat(cores, Stealing::ALL);
        let (color, handler) = (machine.color(0, 0), takes(6_000));
        let mut run = |ns, times| {
            for _ in 0..times {
                post(&mut machine.cores[0], handler, color);
                machine.cores[0].exchange::<false>();
                machine.step_for(ns);
                assert!(machine.run().is_empty());
                machine.cores[0].end_quantum(0);
            }
            let profile = machine.cores[0].current.profile();
            machine.shared.profiles.get(profile).learned().unwrap()
        };
        let mut known = run(6_000, 100);
        let moved = (0..1_600).filter(|at| {
            let now = run(5_900 + 400 * (at % 2), 1);
            std::mem::replace(&mut known, now) != now
        });
        let moved = moved.count();
        assert!(recorded.contains(&moved), "{cores} cores: {moved}");
    }
}

/// Before an event that is known to be long: what waits is published, and somebody is woken for it.
#[test]
fn before_a_long_event_what_waits_is_published() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let [short, long] = [0, 1].map(|i| machine.color(0, i));
    machine.post(long, LONG_NS);
    machine.cores[0].exchange::<false>();
    machine.post(short, 20);
    machine.sleep(1);
    assert!(machine.cores[0].next_color());
    let event = machine.cores[0].begin_event().unwrap();
    assert!(machine.shared.cores[0].progress.is_long());
    assert_eq!(machine.queue(), [short]);
    assert_eq!(machine.cores[0].own.stats.wakes.get(), 1);
    // What it posts is published at once.
    let posted = machine.color(0, 2);
    machine.post(posted, 20);
    assert_eq!(machine.queue(), [short, posted]);
    machine.wait(LONG_NS);
    machine.cores[0].skip(event);
    let _ = machine.cores[0].end_event();
    assert!(!machine.shared.cores[0].progress.is_long());
    assert_eq!(machine.cores[0].own.stats.handler_ns_max.get(), LONG_NS);
    assert!(machine.cores[0].is_turn_over(), "the next may be as long");
    // Then no more.
    let posted = machine.color(0, 3);
    machine.post(posted, 20);
    assert!(machine.cores[0].has_outbox());
}

/// What is left of a color after some of its events, by number and time.
#[test]
fn what_is_left_after_a_turn_is_what_did_not_run() {
    let left = |machine: &Machine, color: u64| {
        let fifo = machine.cores[0].checkout.fifo(slot(color));
        (fifo.len(), fifo.raw_ns(), fifo.times().penalized_ns())
    };
    let begin = |events| {
        let (mut machine, _) = Machine::with_colors(0);
        let color = machine.color(0, 0);
        (0..events).for_each(|_| post(&mut machine.cores[0], penalized(100, 10), color));
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.step(), Some(color));
        (machine, color)
    };
    // One that did not run after all.
    let (mut machine, color) = begin(3);
    machine.shared.cores[0].progress.ask_to_look_up();
    assert!(machine.cores[0].begin_event().is_none());
    assert!(!machine.cores[0].next_color());
    assert_eq!(left(&machine, color), (2, 200, 20));
    assert_eq!(machine.cores[0].ledger.executed, 1);
    // In two parts, with one of its own between.
    let (mut machine, color) = begin(4);
    machine.cores[0].flush();
    assert_eq!(machine.step(), Some(color));
    post(&mut machine.cores[0], penalized(100, 10), color);
    machine.cores[0].cut();
    assert_eq!(machine.step(), None);
    assert_eq!(left(&machine, color), (3, 300, 30));
    // The last one did not run, and others follow it.
    let (mut machine, color) = begin(2);
    machine.shared.cores[0].progress.ask_to_look_up();
    assert!(machine.cores[0].begin_event().is_none());
    machine.cores[0].looks_up();
    post(&mut machine.cores[0], penalized(100, 10), color);
    assert!(!machine.cores[0].next_color());
    assert_eq!(left(&machine, color), (2, 200, 20));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [color; 2]);
    // A sum that has reached its end stays there until there is nothing left.
    let (mut machine, _) = Machine::with_colors(0);
    (0..2).for_each(|_| machine.post(color, 3_000_000_000));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [color]);
    assert_eq!(left(&machine, color).1, u32::MAX);
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.step(), Some(color));
    let other = machine.color(0, 1);
    machine.post(other, 20);
    machine.cores[0].flush();
    machine.post(color, 20);
    assert_eq!(machine.step(), None);
    assert_eq!(left(&machine, color), (1, 20, 20));
    machine.cores[0].exchange::<false>();
    assert_eq!(machine.run(), [other, color]);
}

impl Machine {
    /// Core 0 of two, with quanta of nearly two wake-ups.
    fn patient() -> Machine {
        let (mut machine, _) = Machine::with_colors(0);
        machine.cost(Distance::SharedL1, 19_000);
        machine.renew();
        machine
    }

    /// Begins the event of a color that takes so long; it has none yet.
    fn begin(&mut self, color: u64, takes_ns: u64) {
        self.post(color, takes_ns);
        self.cores[0].exchange::<false>();
        assert!(self.cores[0].next_color());
        let event = self.cores[0].begin_event().unwrap();
        self.cores[0].skip(event);
    }
}

/// Longer than a wake-up, and shorter than a quantum: nothing is published, but what waits, waits
/// no longer.
#[test]
fn before_a_long_event_somebody_is_woken_for_what_waits() {
    for (queued, mailed, takes_ns, wakes) in [
        (false, false, WAKE_COST_NS, 0),
        (true, false, WAKE_COST_NS, 1),
        (false, true, WAKE_COST_NS, 1),
        (true, false, WAKE_COST_NS - 1, 0),
    ] {
        let mut machine = Machine::patient();
        let [first, other, late] = [0, 1, 2].map(|i| machine.color(0, i));
        machine.post(first, takes_ns);
        if queued {
            machine.post(other, 18_000);
        }
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.queue().len(), usize::from(queued));
        if mailed {
            post(&mut machine.cores[1], takes(20), late);
            machine.cores[1].flush();
        } else {
            assert!(!machine.shared.cores[0].pokes.any());
        }
        machine.sleep(1);
        assert!(machine.cores[0].next_color());
        assert!(machine.cores[0].begin_event().is_some());
        assert_eq!(
            machine.cores[0].own.stats.wakes.get(),
            wakes,
            "{queued} {mailed}"
        );
        assert_eq!(
            machine.shared.cores[0].progress.is_long(),
            takes_ns >= WAKE_COST_NS
        );
    }
    // Nobody could come.
    let mut machine = Machine::flat(1, Stealing::ALL);
    let color = machine.color(0, 0);
    machine.begin(color, WAKE_COST_NS);
    assert_eq!(machine.cores[0].own.stats.wakes.get(), 0);
}

/// From a wake-up on, if it is watched at all.
#[test]
fn what_a_long_event_posts_is_published_at_once() {
    let published = |mut machine: Machine, takes_ns| {
        let [color, posted] = [0, 1].map(|i| machine.color(0, i));
        machine.begin(color, takes_ns);
        machine.post(posted, 20);
        !machine.cores[0].has_outbox()
    };
    let machine = || Machine::with_colors(0).0;
    assert!(!published(machine(), WAKE_COST_NS - 1));
    assert!(published(machine(), WAKE_COST_NS));
    // A sample.
    let (mut machine, _) = Machine::with_colors(0);
    machine.cores[0].timing.until_sample = 1;
    assert!(!published(machine, 1_000));
}

#[test]
fn after_a_long_event_the_others_are_given_back() {
    for (ns, long) in [(WAKE_COST_NS - 1, false), (WAKE_COST_NS, true)] {
        let (mut machine, _) = Machine::with_colors(0);
        let [a, b] = [0, 1].map(|i| machine.color(0, i));
        (0..2).for_each(|_| machine.post(a, 20));
        machine.post(b, 20);
        machine.cores[0].exchange::<false>();
        let turns = machine.shared.cores[0].progress.turns();
        machine.step_for(ns);
        assert_eq!(machine.queue(), if long { vec![b] } else { vec![] });
        assert_eq!(machine.cores[0].is_turn_over(), long);
        // That it began, and no more: it was not known to be long.
        assert_eq!(machine.shared.cores[0].progress.turns(), turns + 1);
    }
}

/// Longer than four quanta, with others in the same quantum.
#[test]
fn others_that_wait_for_a_long_event_are_counted() {
    for (colors, ns, hostages) in [(2, 2_400, 0), (2, 2_401, 1), (1, 2_401, 0)] {
        let (mut machine, _) = Machine::with_colors(colors);
        machine.cores[0].timing.clock_cost_ns = 100;
        machine.cores[0].exchange::<false>();
        // Reading the clock is not the event's.
        machine.step_for(ns + 100);
        let stats = &machine.cores[0].own.stats;
        assert_eq!(stats.hostage.get(), hostages, "{colors} {ns}");
        assert_eq!(stats.handler_ns_max.get(), ns);
    }
}

/// Of a new handler the first is published, and 64 more, each by itself.
#[test]
fn a_long_event_publishes_posts_in_a_row_together() {
    for (post_ns, together, owed) in [(100, true, 0), (200, false, 64 + 2 * 99)] {
        let (mut machine, _) = Machine::with_colors(0);
        let color = machine.color(0, 0);
        post(&mut machine.cores[0], takes(LONG_NS), color);
        machine.cores[0].exchange::<false>();
        assert!(machine.cores[0].next_color());
        let event = machine.cores[0].begin_event().unwrap();
        for i in 1..=100 {
            machine.wait(post_ns);
            let to = machine.color(1, i);
            machine.post(to, 20);
            assert_eq!(
                machine.cores[0].has_outbox(),
                together && i > 65,
                "post {i}"
            );
        }
        machine.cores[0].skip(event);
        let _ = machine.cores[0].end_event();
        let profile = machine.cores[0].current.profile();
        let profile = machine.shared.profiles.get(profile);
        assert_eq!(profile.lone_posts(), owed);
    }
}
