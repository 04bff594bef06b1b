//! Timelines of real and of simulated runs, by the rules of Chrome's Trace Event Format as
//! Perfetto's importer has them.

use mely::runtime::OnPanic;
use mely::{Color, Cx, Handler, Runtime, sim};
use mely_recording::{Recording, Timeline};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static WORK: Handler = Handler::new("work \"hard\" \\ \u{1}");
static HELD: Handler = Handler::new("held");

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("mely-timeline-{}-{name}-{made}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not be there.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Many colors on one core, which others steal; some of them held.
fn start(cx: &mut Cx) {
    for color in 0..300u64 {
        cx.place(Color::from(color), 0);
        WORK.on(Color::from(color), move |cx| work(cx, 5)).post(cx);
    }
}

fn work(cx: &mut Cx, left: u32) {
    sim::work(cx, Duration::from_micros(7));
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_micros(7) {}
    if left == 0 {
        return;
    }
    if cx.color().value() % 50 == 3 {
        let hold = cx.hold();
        HELD.on(Color::from(7_000), move |_cx| drop(hold)).post(cx);
    }
    WORK.on(cx.color(), move |cx| work(cx, left - 1)).post(cx);
}

fn real() -> Recording {
    let file = Scratch::new("real");
    let builder = Runtime::builder()
        .on_panic(OnPanic::Stop)
        .cores(3)
        .pin(false);
    let runtime = builder
        .exit_when_idle(true)
        .record(&file.0, 64 << 20)
        .build()
        .unwrap();
    runtime.run(start).unwrap();
    Recording::open(&file.0).unwrap()
}

fn simulated() -> Recording {
    let file = Scratch::new("simulated");
    let builder = Runtime::builder().cores(8).exit_when_idle(true);
    let mut simulation = builder.record(&file.0, 64 << 20).simulate(1).unwrap();
    simulation.run(start).unwrap();
    Recording::open(&file.0).unwrap()
}

/// An entry, with its times in ns.
struct Entry {
    phase: String,
    track: u64,
    name: String,
    begin_ns: u64,
    took_ns: u64,
    all: Value,
}

impl Entry {
    fn end_ns(&self) -> u64 {
        self.begin_ns + self.took_ns
    }
}

fn ns(value: &Value) -> u64 {
    value.as_f64().map_or(0, |us| (us * 1e3).round() as u64)
}

fn entries(recording: &Recording, options: Timeline) -> Vec<Entry> {
    let mut json = Vec::new();
    recording.timeline(options, &mut json).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["displayTimeUnit"], "ns");
    let entry = |all: &Value| Entry {
        phase: all["ph"].as_str().unwrap().to_owned(),
        track: all["tid"].as_u64().unwrap(),
        name: all["name"].as_str().unwrap().to_owned(),
        begin_ns: ns(&all["ts"]),
        took_ns: ns(&all["dur"]),
        all: all.clone(),
    };
    json["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect()
}

/// The names of the tracks, by their numbers.
fn tracks(entries: &[Entry]) -> HashMap<u64, String> {
    let names = entries
        .iter()
        .filter(|entry| entry.phase == "M" && entry.name == "thread_name");
    let name = |entry: &Entry| entry.all["args"]["name"].as_str().unwrap().to_owned();
    names.map(|entry| (entry.track, name(entry))).collect()
}

fn assert_well_formed(entries: &[Entry]) {
    let tracks = tracks(entries);
    // Slices lie side by side.
    let mut slices: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.phase == "X") {
        assert!(tracks.contains_key(&entry.track), "a track without a name");
        assert!(entry.took_ns > 0 && entry.all["pid"] == 1 && entry.all["args"].is_object());
        slices.entry(entry.track).or_default().push(entry);
    }
    for slices in slices.values_mut() {
        slices.sort_by_key(|slice| slice.begin_ns);
        for pair in slices.windows(2) {
            let [one, next] = pair else { unreachable!() };
            assert!(
                one.end_ns() <= next.begin_ns,
                "{} overlaps {}",
                one.name,
                next.name
            );
        }
    }
    // Arrows begin and end in slices, begin first, and are written in that order.
    let mut begun: HashMap<u64, &Entry> = HashMap::new();
    let mut ended = 0;
    for entry in entries
        .iter()
        .filter(|entry| ["s", "f"].contains(&entry.phase.as_str()))
    {
        let id = entry.all["id"].as_u64().unwrap();
        let inside = slices[&entry.track]
            .iter()
            .any(|slice| (slice.begin_ns..slice.end_ns()).contains(&entry.begin_ns));
        assert!(inside, "an arrow hangs in the air");
        if entry.phase == "s" {
            assert!(
                begun.insert(id, entry).is_none(),
                "two arrows have one number"
            );
        } else {
            let from = begun[&id];
            assert!(
                from.begin_ns <= entry.begin_ns,
                "an arrow goes back in time: {} {}",
                from.all,
                entry.all
            );
            assert_eq!(from.name, entry.name);
            ended += 1;
        }
    }
    assert_eq!(begun.len(), ended);
    // What is on no core's track ends where it began, once.
    let wide = |phase: &str| {
        let of = entries.iter().filter(|entry| entry.phase == phase);
        let of = of.map(|entry| {
            (
                entry.all["id2"]["local"].as_str().unwrap().to_owned(),
                entry.begin_ns,
            )
        });
        of.collect::<BTreeMap<_, _>>()
    };
    let (begin, end) = (wide("b"), wide("e"));
    assert_eq!(begin.len(), end.len());
    assert!(begin.iter().all(|(id, begin_ns)| end[id] >= *begin_ns));
}

/// Everything in a recording is drawn, once.
fn assert_complete(recording: &Recording, entries: &[Entry]) {
    let tracks = tracks(entries);
    let count = |of: &dyn Fn(&Entry) -> bool| entries.iter().filter(|entry| of(entry)).count();
    let category =
        |entry: &Entry, category: &str| entry.phase == "X" && entry.all["cat"] == category;
    for core in 0..recording.header.cores {
        let name = format!("core {core}");
        let events = count(&|of| category(of, "event") && tracks[&of.track] == name);
        let expected = recording
            .events
            .iter()
            .filter(|event| event.core == core)
            .count();
        assert_eq!(events, expected, "{name}");
    }
    assert_eq!(
        count(&|of| category(of, "steal")),
        2 * recording.steals.len()
    );
    assert_eq!(count(&|of| category(of, "sleep")), recording.sleeps.len());
    assert_eq!(count(&|of| of.phase == "b"), recording.holds.len());
    assert_eq!(count(&|of| of.phase == "i"), recording.wakes.len());
    assert_eq!(
        count(&|of| of.phase == "s" && of.name == "steal"),
        recording.steals.len()
    );
    let work = entries
        .iter()
        .find(|entry| entry.name == WORK.name())
        .unwrap();
    for field in ["color", "waited", "posted by", "posts"] {
        assert!(!work.all["args"][field].is_null(), "{field}");
    }
    let steal = entries
        .iter()
        .find(|entry| entry.name.starts_with("steals from core"))
        .unwrap();
    for field in [
        "cost",
        "colors",
        "events",
        "expected to take",
        "brought",
        "distance",
    ] {
        assert!(!steal.all["args"][field].is_null(), "{field}");
    }
}

#[test]
fn a_run_is_drawn_event_by_event() {
    for recording in [real(), simulated()] {
        assert!(recording.steals.len() > 3, "{}", recording.steals.len());
        assert!(!recording.holds.is_empty() && recording.events.len() > 1_000);
        for posts in [false, true] {
            let mut options = Timeline::default();
            options.posts = posts;
            let entries = entries(&recording, options);
            assert_well_formed(&entries);
            assert_complete(&recording, &entries);
            let arrows = entries
                .iter()
                .filter(|of| of.phase == "s" && of.name == "post")
                .count();
            let by_events = recording.events.iter().filter_map(|event| event.cause);
            let by_events = by_events
                .filter(|&cause| matches!(recording[cause].by, mely_recording::By::Event(_)))
                .count();
            // On threads, where clocks differ by some ns, one may be left out.
            let expected = if posts { by_events } else { 0 };
            assert!(arrows <= expected && arrows >= expected - expected / 100);
            assert!(!recording.header.simulated || arrows == expected);
        }
    }
}

#[test]
fn a_part_of_a_run_is_drawn() {
    let recording = simulated();
    let (third, all) = (recording.last_ns / 3, recording.events.len());
    let mut options = Timeline::default();
    (options.from_ns, options.to_ns) = (third, 2 * third);
    let entries = entries(&recording, options);
    let events: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.all["cat"] == "event")
        .collect();
    assert!(
        (10..all - 10).contains(&events.len()),
        "{} of {all}",
        events.len()
    );
    let is_in = |of: &&Entry| of.begin_ns <= 2 * third && of.end_ns() >= third;
    assert!(events.iter().all(is_in));
    let counters = entries.iter().filter(|entry| entry.phase == "C");
    assert!(counters.clone().count() > 10);
    assert!(
        counters
            .map(|entry| entry.begin_ns)
            .all(|ns| (third..=2 * third).contains(&ns))
    );
    // Wherever it begins and ends, no arrow has one end only.
    options.posts = true;
    for part in 0..50 {
        options.from_ns = recording.last_ns * part / 50;
        options.to_ns = recording.last_ns * (part + 1) / 50;
        assert_well_formed(&self::entries(&recording, options));
    }
}
