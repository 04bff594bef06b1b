//! What is read from files made by hand, and what is said of those that are none.

mod support;

use mely_recording::format::{Cause, End, Ended, LogId, MAGIC, Page, Record};
use mely_recording::{By, Recording, Relation};
use proptest::prelude::*;
use support::{CORE_0, CORE_1, Made, OVER, arrival, begin, color, define, post};

fn error(bytes: &[u8]) -> String {
    match Recording::read(bytes) {
        Ok(recording) => panic!("read: {recording:#?}"),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n'), "one sentence: {text}");
            text
        }
    }
}

/// Something arrives on core 0; its event posts two events, one to its own color, which core 1
/// steals and runs.
fn small() -> Made {
    Made::new(2)
        .page(
            CORE_0,
            1_000,
            &[
                define(4, "first"),
                define(5, "second"),
                arrival(4, 7),
                begin(4, 7, Cause::new(CORE_0, 0)),
                Record::Post {
                    profile: 5,
                    color: None,
                    after_ns: Some(200),
                },
                post(5, u64::MAX),
                OVER,
                begin(5, u64::MAX, Cause::new(CORE_0, 2)),
                OVER,
            ],
        )
        .page(
            CORE_1,
            0,
            &[
                Record::Park { gap_ns: 500 },
                Record::Rise { gap_ns: 2_000 },
                define(5, "second"),
                Record::Steal {
                    victim: 0,
                    distance: mely::topology::Distance::SharedL3,
                    stuck: true,
                    cost_ns: 300,
                    colors: 1,
                    gap_ns: 50,
                },
                Record::Stolen {
                    color: color(7),
                    profile: 5,
                    events: 1,
                    left_ns: 900,
                },
                begin(5, 7, Cause::new(CORE_0, 1)),
                Record::Hold {
                    id: 512,
                    shared: false,
                    gap_ns: 30,
                },
                OVER,
                Record::HoldOver {
                    id: 512,
                    gap_ns: 400,
                },
            ],
        )
}

#[test]
fn what_was_written_is_read() {
    let recording = Recording::read(&small().end()).unwrap();
    assert!(recording.is_whole());
    let events: Vec<_> = recording
        .events
        .iter()
        .map(|event| {
            let (name, color) = (&recording[event.handler].name, recording[event.color]);
            let post = event.cause.map(|post| &recording[post]);
            let by = post.map(|post| (post.by, post.at_ns, post.relation));
            let times = (event.begin_ns, event.took_ns.unwrap());
            (event.core, name.as_str(), color.value, times, by.unwrap())
        })
        .collect();
    let By::Event(first) = events[1].4.0 else {
        panic!("{events:?}");
    };
    assert_eq!(first.index(), 0);
    let (of_first, arrives) = (By::Event(first), By::Core(0));
    use Relation::{Fresh, Own};
    assert_eq!(
        events,
        [
            (0, "first", 7, (1_110, 1_000), (arrives, 1_010, Fresh)),
            // Told of its post is the event's time, of which the one before took 200 ns.
            (
                0,
                "second",
                u64::MAX,
                (2_210, 1_000),
                (of_first, 1_710, Fresh)
            ),
            (1, "second", 7, (2_950, 1_000), (of_first, 1_310, Own)),
        ]
    );
    let steal = &recording.steals[0];
    assert_eq!((steal.thief, steal.victim, steal.stuck), (1, 0, true));
    assert_eq!(
        (
            steal.begin_ns,
            steal.cost_ns,
            steal.events(),
            steal.left_ns()
        ),
        (2_550, 300, 1, 900)
    );
    let sleep = &recording.sleeps[0];
    assert_eq!(
        (sleep.core, sleep.from_ns, sleep.to_ns),
        (1, 500, Some(2_500))
    );
    let hold = &recording.holds[0];
    assert_eq!(
        (hold.by.index(), hold.from_ns, hold.to_ns),
        (2, 2_980, Some(4_350))
    );
    assert_eq!(recording.last_ns, 4_350);
}

/// A recording of nothing is nothing, and none of its figures is NaN.
#[test]
fn no_events_come_to_nothing() {
    let recording = Recording::read(&Made::new(3).end()).unwrap();
    assert!(recording.events.is_empty() && recording.is_whole());
    let text = recording.summary().to_string();
    assert!(text.starts_with("3 cores, stealing: locality; 0 ns, complete: 0 events in 0 colors"));
    assert!(!text.contains("NaN"), "{text}");
    let mut json = Vec::new();
    recording
        .timeline(mely_recording::Timeline::default(), &mut json)
        .unwrap();
    serde_json::from_slice::<serde_json::Value>(&json).unwrap();
}

/// Wherever a file is cut, that is what is said, and what is there can be read.
#[test]
fn a_file_that_is_cut_short_says_so() {
    let whole = small().end();
    assert_eq!(
        error(b""),
        "cut short after 0 bytes: the last page is missing, which says how it ended"
    );
    for len in 0..whole.len() {
        let said = error(&whole[..len]);
        let expected = format!(
            "cut short after {len} bytes: the last page is missing, which says how it ended"
        );
        assert_eq!(said, expected);
        match Recording::read_what_is_there(&whole[..len]) {
            Ok(recording) => assert!(!recording.is_whole() && recording.end.is_none()),
            // Not even its beginning.
            Err(error) => assert!(len < 40 && error.to_string() == expected, "{error}"),
        }
    }
    let first_page = &small().cut();
    let recording = Recording::read_what_is_there(first_page).unwrap();
    assert_eq!(recording.events.len(), 3);
}

/// Events whose posts were lost with the end of the file are there, without their causes.
#[test]
fn causes_that_are_missing_are_only_missed_if_the_rest_is_there() {
    let made = || {
        Made::new(2).page(
            CORE_1,
            0,
            &[
                define(5, "second"),
                begin(5, 7, Cause::new(CORE_0, 0)),
                OVER,
            ],
        )
    };
    assert_eq!(
        error(&made().end()),
        "an event of handler `second` in color 7 began at 100 ns, and nobody had posted it"
    );
    let recording = Recording::read_what_is_there(&made().cut()).unwrap();
    assert_eq!(recording.events.len(), 1);
    assert_eq!(recording.events[0].cause, None);
}

#[test]
fn what_is_no_recording_says_so() {
    assert_eq!(
        error(b"#!/bin/sh\n"),
        "not a recording: it does not begin with `mely-rec`"
    );
    assert_eq!(
        error(b"mely"),
        "cut short after 4 bytes: the last page is missing, which says how it ended"
    );
    assert_eq!(
        error(b"mels"),
        "not a recording: it does not begin with `mely-rec`"
    );
    let mut other = small().end();
    other[MAGIC.len()] = 2;
    assert_eq!(
        error(&other),
        "a recording of version 2: only version 1 is read"
    );
    let mut longer = small().end();
    longer.push(0);
    assert!(error(&longer).ends_with("something comes after the last page"));
}

/// Each of these is a file in which one thing is not as it should be.
#[test]
fn what_cannot_be_is_told() {
    let none = Cause::NONE;
    let hold = |id| Record::Hold {
        id,
        shared: false,
        gap_ns: 0,
    };
    let steal = |victim, colors| Record::Steal {
        victim,
        distance: mely::topology::Distance::SharedL1,
        stuck: false,
        cost_ns: 1,
        colors,
        gap_ns: 0,
    };
    let stolen = || Record::Stolen {
        color: color(1),
        profile: 4,
        events: 1,
        left_ns: 1,
    };
    let named = || define(4, "a");
    let rows: Vec<(LogId, Vec<Record>, &str)> = vec![
        (
            CORE_0,
            vec![begin(4, 1, none)],
            "core 0 names handler 4, which it has not defined",
        ),
        (
            LogId::outside(1),
            vec![arrival(9, 1)],
            "outside 1 names handler 9, which it has not defined",
        ),
        (
            CORE_0,
            vec![named(), define(4, "b")],
            "a handler is defined twice, and differently",
        ),
        (
            CORE_0,
            vec![named(), begin(4, 1, none), begin(4, 1, none)],
            "an event begins inside another",
        ),
        (
            CORE_0,
            vec![OVER],
            "an event does something, and none had begun",
        ),
        (
            CORE_0,
            vec![named(), post(4, 1)],
            "an event does something, and none had begun",
        ),
        (
            CORE_0,
            vec![hold(1)],
            "an event does something, and none had begun",
        ),
        (
            CORE_0,
            vec![named(), begin(4, 1, none), arrival(4, 1)],
            "something arrives inside an event",
        ),
        (
            CORE_0,
            vec![Record::Refused],
            "a post is refused, and there was none",
        ),
        (
            CORE_0,
            vec![Record::Rise { gap_ns: 0 }],
            "a core wakes up that does not sleep",
        ),
        (
            CORE_0,
            vec![Record::Park { gap_ns: 0 }, Record::Park { gap_ns: 0 }],
            "a core goes to sleep that sleeps",
        ),
        (
            CORE_0,
            vec![Record::Wake { core: 2, gap_ns: 0 }],
            "a core is named that the run does not have",
        ),
        (
            CORE_0,
            vec![steal(2, 0)],
            "a core is named that the run does not have",
        ),
        (CORE_0, vec![steal(1, 1)], "a page ends inside a steal"),
        (
            CORE_0,
            vec![steal(1, 1), Record::Refused],
            "a steal has brought fewer colors than it says",
        ),
        (
            CORE_0,
            vec![named(), stolen()],
            "a steal has brought more colors than it says",
        ),
        (
            LogId::outside(0),
            vec![Record::Park { gap_ns: 0 }],
            "a log of threads outside tells what only cores do",
        ),
        (
            LogId::core(2),
            vec![],
            "a page is of a core that the run does not have",
        ),
        (
            CORE_0,
            vec![named(), begin(4, 1, none), hold(1), hold(1), OVER],
            "two holds have one number",
        ),
        (
            CORE_0,
            vec![
                named(),
                begin(4, 1, none),
                hold(1),
                OVER,
                Record::HoldOver { id: 1, gap_ns: 0 },
                Record::HoldOver { id: 1, gap_ns: 0 },
            ],
            "a hold is over twice",
        ),
    ];
    for (log, records, expected) in rows {
        let said = error(&Made::new(2).page(log, 0, &records).end());
        assert!(said.ends_with(expected), "{said}, not {expected}");
    }
}

/// The first posts the second, and the second the first; and one posts itself.
#[test]
fn causes_that_go_round_are_told() {
    let (first, second) = (Cause::new(CORE_0, 0), Cause::new(CORE_0, 1));
    let round = Made::new(1).page(
        CORE_0,
        0,
        &[
            define(4, "chicken"),
            define(5, "egg"),
            begin(4, 1, second),
            post(5, 2),
            OVER,
            begin(5, 2, first),
            post(4, 1),
            OVER,
        ],
    );
    assert_eq!(
        error(&round.end()),
        "an event of handler `chicken` in color 1 is posted by what it posts"
    );
    let alone = Made::new(1).page(
        CORE_0,
        0,
        &[define(4, "god"), begin(4, 1, first), post(4, 1), OVER],
    );
    assert_eq!(
        error(&alone.end()),
        "an event of handler `god` in color 1 is posted by what it posts"
    );
}

#[test]
fn effects_before_their_causes_are_told() {
    let made = |late_ns| {
        let early = [
            define(4, "effect"),
            begin(4, 1, Cause::new(CORE_1, 0)),
            OVER,
        ];
        let late = [
            define(3, "cause"),
            define(4, "effect"),
            begin(3, 2, Cause::NONE),
            post(4, 1),
            OVER,
        ];
        Made::new(2)
            .page(CORE_0, 0, &early)
            .page(CORE_1, late_ns, &late)
            .end()
    };
    assert!(
        Recording::read(&made(100_000)).is_ok(),
        "clocks are not exactly alike"
    );
    assert_eq!(
        error(&made(100_001)),
        "an event of handler `effect` in color 1 began 100001 ns before the event that posted it: \
         the cores' clocks differ, or the file is damaged"
    );
}

#[test]
fn pages_are_in_the_order_of_their_times() {
    let made = Made::new(1).page(CORE_0, 5_000, &[Record::Park { gap_ns: 1 }]);
    let said = error(
        &made
            .page(CORE_0, 5_000, &[Record::Rise { gap_ns: 1 }])
            .end(),
    );
    assert!(
        said.ends_with("a page begins before the page before it in its log is over"),
        "{said}"
    );
}

#[test]
fn how_it_ended_is_told() {
    let end = |why, pages, cores_left| End {
        why,
        at_ns: 5_000,
        pages,
        cores_left,
    };
    let at_limit = small().ended(end(Ended::AtTheLimit, 2, 0));
    let recording = Recording::read(&at_limit).unwrap();
    assert!(!recording.is_whole());
    assert!(
        recording
            .summary()
            .to_string()
            .contains("ended at its limit: 3 events")
    );
    let said = error(&small().ended(end(Ended::WithTheRun, 3, 0)));
    assert!(
        said.ends_with("the last page tells another number of pages before it"),
        "{said}"
    );
    let left = small().ended(end(Ended::WithTheRun, 2, 1));
    assert_eq!(
        error(&left),
        "cores left behind in their handlers, with what they had recorded last: 1"
    );
    assert!(!Recording::read_what_is_there(&left).unwrap().is_whole());
}

/// Of posts that are alike the first is the first event's, and so on; refused ones are nobody's.
#[test]
fn posts_that_are_alike_are_bound_in_their_order() {
    // 70 posts to one color: twice the numbers that a cause has, and more.
    let mut records = vec![
        define(4, "post"),
        define(5, "run"),
        begin(4, 1, Cause::NONE),
    ];
    let refused = |number: u64| number % 7 == 3;
    for number in 0..70 {
        records.push(post(5, 2));
        if refused(number) {
            records.push(Record::Refused);
        }
    }
    records.push(OVER);
    for number in (0..70).filter(|&number| !refused(number)) {
        records.extend([begin(5, 2, Cause::new(CORE_0, number)), OVER]);
    }
    let recording = Recording::read(&Made::new(1).page(CORE_0, 0, &records).end()).unwrap();
    let numbers: Vec<usize> = recording.events[1..]
        .iter()
        .map(|event| event.cause.unwrap().index())
        .collect();
    let expected: Vec<usize> = (0..70).filter(|&number| !refused(number as u64)).collect();
    assert_eq!(numbers, expected);
    assert_eq!(
        recording
            .posts
            .iter()
            .filter(|post| post.event.is_none())
            .count(),
        10
    );
}

/// Found by the fuzzer: an error was of two lines.
#[test]
fn names_from_anywhere_stay_on_their_line() {
    let name = "a\nb\u{1b}[2J";
    let made = Made::new(1).page(
        CORE_0,
        0,
        &[define(4, name), begin(4, 1, Cause::new(CORE_0, 0)), OVER],
    );
    let recording = Recording::read_what_is_there(&made.cut()).unwrap();
    assert_eq!(recording.handlers[0].name, name);
    let text = recording.summary().to_string();
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains("a\nb"),
        "{text}"
    );
    let made = Made::new(1).page(
        CORE_0,
        0,
        &[define(4, name), begin(4, 1, Cause::new(CORE_0, 0)), OVER],
    );
    let said = error(&made.end());
    assert!(
        said.starts_with("an event of handler `a\u{fffd}b\u{fffd}[2J` in color 1"),
        "{said}"
    );
}

/// A page has room for what it says that it has, and names are cut.
#[test]
fn long_names_are_cut_between_characters() {
    let name = "ä".repeat(800);
    let made = Made::new(1).page(CORE_0, 0, &[define(4, &name), arrival(4, 1)]);
    let recording = Recording::read(&made.end()).unwrap();
    assert_eq!(recording.handlers[0].name, "ä".repeat(500));
    let mut page = Page::new();
    while page.has_room(mely_recording::format::RECORD_BYTES_MAX) {
        page.put(&Record::Stolen {
            color: color(u64::MAX),
            profile: u32::MAX,
            events: u64::MAX,
            left_ns: u64::MAX,
        });
    }
}

proptest! {
    /// Whatever the bytes, they are read or there is an error: no panic, and no run without end.
    /// The fuzzer (`checks/fuzz`) goes on from here.
    #[test]
    fn damaged_files_are_read_or_refused(
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        pages in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = small().end();
        let place = at.index(bytes.len());
        bytes[place] = to;
        support::assert_sound(&bytes);
        support::assert_sound(&bytes[..cut.index(bytes.len())]);
        support::assert_sound(&support::of_pages(&pages));
        support::assert_sound(&pages);
    }

    /// Records of any numbers come back as they were.
    #[test]
    fn any_numbers_are_read_as_they_were_written(
        value in any::<u64>(), small_value in 0u64..200, gap_ns in 0u64..1 << 62, profile in any::<u32>(),
        kind in 0u32..3, took_ns in 0u64..1 << 61,
    ) {
        for value in [value, small_value, 1 << 49, (1 << 49) - 1] {
            let kind = mely_recording::ColorKind::new(kind).unwrap();
            let color = mely_recording::Color { kind, value };
            let records = [
                define(profile, "any"),
                Record::Begin { profile, color, cause: Cause::NONE, gap_ns },
                Record::Post { profile, color: Some(color), after_ns: Some(took_ns) },
                Record::End { took_ns, panicked: true, waits: true },
            ];
            let recording = Recording::read(&Made::new(1).page(CORE_0, 0, &records).end()).unwrap();
            let event = &recording.events[0];
            prop_assert_eq!(recording[event.color], color);
            prop_assert_eq!((event.begin_ns, event.took_ns), (gap_ns, Some(took_ns)));
            prop_assert!(event.panicked && event.waits);
            prop_assert_eq!(recording.posts[0].at_ns, gap_ns + took_ns);
        }
    }
}
