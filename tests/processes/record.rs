//! Recordings of runs, real and simulated: what they say is what was done.

use crate::common::{Bound, child_passes, cores};
use mely::Post;
use mely::metrics::{RecordingState, Stats};
use mely::runtime::OnPanic;
use mely::{Builder, Callback, Color, Cx, Handler, Poster, Runtime, sim};
use mely_recording::{By, Color as Recorded, ColorKind, Event, Recording, Relation};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("mely-record-{}-{name}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn read(&self) -> Recording {
        Recording::open(&self.0).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // There may be none.
        let _ = std::fs::remove_file(&self.0);
    }
}

static HANDLERS: [Handler; 3] = [
    Handler::new("one"),
    Handler::new("two").time(Duration::from_micros(3)),
    Handler::new("three").working_set_bytes(640).penalty(7),
];

/// An event, by its color and its place among the events of that color.
type Name = (u64, usize);

/// What an event knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    handler: usize,
    core: usize,
    /// Who posted it; none: somebody outside.
    by: Option<Name>,
}

/// What the program did, by color.
#[derive(Default)]
struct Journal(Mutex<HashMap<u64, Vec<Line>>>);

impl Journal {
    /// The event that runs is the next one of its color.
    fn note(&self, cx: &Cx, handler: usize, by: Option<Name>) -> Name {
        let mut lines = self.0.lock().unwrap();
        let lines = lines.entry(cx.color().value()).or_default();
        let core = cx.core();
        lines.push(Line { handler, core, by });
        (cx.color().value(), lines.len() - 1)
    }

    /// The recording says the same of the events of our handlers: which, where, in which order, and
    /// who posted them.
    fn assert_recorded(&self, recording: &Recording) {
        let lines = self.0.lock().unwrap();
        let mut names: HashMap<usize, Name> = HashMap::new();
        let mut told: HashMap<u64, Vec<&Event>> = HashMap::new();
        for (id, event) in recording.events.iter().enumerate() {
            if handler_of(recording, event).is_none() || event.waits {
                continue;
            }
            let Recorded { kind, value } = recording[event.color];
            assert_eq!(kind, ColorKind::Given);
            let events = told.entry(value).or_default();
            names.insert(id, (value, events.len()));
            events.push(event);
        }
        assert_eq!(told.len(), lines.len());
        for (color, lines) in lines.iter() {
            let events = &told[color];
            assert_eq!(events.len(), lines.len(), "color {color}");
            for (event, line) in events.iter().zip(lines) {
                let by = match recording.poster(event).expect("its post is recorded") {
                    By::Event(id) => names.get(&id.index()).copied(),
                    By::Core(_) | By::Outside(_) => None,
                };
                let told = Line {
                    handler: handler_of(recording, event).unwrap(),
                    core: event.core,
                    by,
                };
                assert_eq!(told, *line, "color {color}");
            }
        }
    }
}

/// The handler of an event, if it is one of the storm's.
fn handler_of(recording: &Recording, event: &Event) -> Option<usize> {
    let name = &recording[event.handler].name;
    HANDLERS.iter().position(|of| of.name() == name)
}

/// Events that post to each other, from a number, with holds now and then.
#[derive(Default)]
struct Storm {
    journal: Journal,
    /// Colors are from 0 to this.
    colors: u64,
    holds: bool,
}

/// The next number after another that looks as if it had nothing to do with it.
fn next(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ mixed >> 27
}

impl Storm {
    fn new(colors: u64, holds: bool) -> Arc<Storm> {
        Arc::new(Storm {
            colors,
            holds,
            ..Storm::default()
        })
    }

    /// What an event is posted with that has this number.
    fn event(&self, number: u64) -> (usize, Color) {
        let handler = number % HANDLERS.len() as u64;
        (handler as usize, Color::from(next(number) % self.colors))
    }
}

type Shared = Arc<Storm>;

fn go(cx: &mut Cx, storm: &Shared, handler: usize, by: Option<Name>, number: u64, left: u32) {
    let me = Some(storm.journal.note(cx, handler, by));
    sim::work(cx, Duration::from_nanos(number % 3_000));
    if left == 0 {
        return;
    }
    if storm.holds && number.is_multiple_of(5) {
        hold(cx, storm, me, next(number), left - 1);
    }
    // One event for one, with some that post two and some that post none.
    for part in 0..(number >> 8) % 3 {
        let number = next(number ^ part << 32);
        let (handler, color) = storm.event(number);
        let storm = Arc::clone(storm);
        let go = move |cx: &mut Cx| go(cx, &storm, handler, me, number, left - 1);
        HANDLERS[handler].on(color, go).post(cx);
    }
    if number.is_multiple_of(7) {
        cx.flush();
    }
}

/// Holds the color, and goes on in it once an event of another one says so.
fn hold(cx: &mut Cx, storm: &Shared, by: Option<Name>, number: u64, left: u32) {
    let (hold, held) = (cx.hold(), cx.color());
    let (handler, _) = storm.event(number);
    let storm = Arc::clone(storm);
    let resume = move |cx: &mut Cx| {
        let me = Some(storm.journal.note(cx, handler, by));
        let (handler, _) = storm.event(next(number));
        let go = move |cx: &mut Cx| go(cx, &storm, handler, me, number, left);
        hold.resume_callback(HANDLERS[handler].on(held, go));
    };
    let elsewhere = Color::from(1_000_000 + number % 3);
    HANDLERS[handler].on(elsewhere, resume).post(cx);
}

/// Begins a storm from outside.
fn begin(poster: &Poster, storm: &Shared, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (handler, color) = storm.event(number);
        let storm = Arc::clone(storm);
        let go = move |cx: &mut Cx| go(cx, &storm, handler, None, next(number), 24);
        HANDLERS[handler].on(color, go).try_post(poster).unwrap();
    }
}

/// The recording counts what the runtime has counted.
fn assert_counts(recording: &Recording, stats: &Stats) {
    let ran = recording.events.iter().filter(|event| !event.waits);
    assert_eq!(ran.count() as u64, stats.events());
    assert!(recording.events.iter().all(|event| event.took_ns.is_some()));
    for (core, its) in stats.cores.iter().enumerate() {
        let ran = recording
            .events
            .iter()
            .filter(|event| event.core == core && !event.waits);
        assert_eq!(ran.count() as u64, its.events, "core {core}");
        let sleeps = recording.sleeps.iter().filter(|sleep| sleep.core == core);
        assert_eq!(sleeps.count() as u64, its.parks, "core {core}");
        let steals: Vec<_> = recording
            .steals
            .iter()
            .filter(|of| of.thief == core)
            .collect();
        let won: u64 = its.steals.iter().map(|steals| steals.won).sum();
        assert_eq!(steals.len() as u64, won, "core {core}");
        let colors: usize = steals.iter().map(|steal| steal.colors.len()).sum();
        let won: u64 = its.steals.iter().map(|steals| steals.colors).sum();
        assert_eq!(colors as u64, won, "core {core}");
        let cost_ns: u64 = steals.iter().map(|steal| steal.cost_ns).sum();
        let cost: Duration = its.steals.iter().map(|steals| steals.cost).sum();
        assert_eq!(u128::from(cost_ns), cost.as_nanos(), "core {core}");
        let panics = recording
            .events
            .iter()
            .filter(|of| of.core == core && of.panicked);
        assert_eq!(panics.count() as u64, its.panics, "core {core}");
    }
    let holds: u64 = stats.cores.iter().map(|core| core.holds).sum();
    assert_eq!(recording.holds.len() as u64, holds);
    assert!(recording.holds.iter().all(|hold| hold.to_ns.is_some()));
    let foreign = recording
        .posts
        .iter()
        .filter(|post| matches!(post.by, By::Outside(_)));
    // And the first event.
    assert_eq!(
        foreign.filter(|post| !post.refused).count() as u64,
        stats.posts_foreign
    );
}

#[test]
fn a_storm_on_threads_is_told_event_by_event() {
    let _bound = Bound::new("a_storm_on_threads");
    for holds in [false, true] {
        for count in [1, 2, 4] {
            let file = Scratch::new(&format!("storm-{count}-{holds}"));
            let runtime = cores(count)
                .exit_when_idle(true)
                .record(&file.0, 64 * MIB)
                .build()
                .unwrap();
            let (observer, storm) = (runtime.poster(), Storm::new(24, holds));
            let begins = |thread: u64| {
                let poster = runtime.poster();
                let (alive, its) = (poster.strong().unwrap(), Arc::clone(&storm));
                thread::spawn(move || {
                    begin(&poster, &its, thread * 1_000..thread * 1_000 + 60);
                    drop(alive);
                })
            };
            let threads: Vec<_> = (0..3).map(begins).collect();
            runtime.run(|_cx| ()).unwrap();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            let recording = file.read();
            assert!(recording.is_whole());
            storm.journal.assert_recorded(&recording);
            assert_counts(&recording, &observer.stats());
            assert!(recording.events.len() > 1_000, "{}", recording.events.len());
        }
    }
}

#[test]
fn a_storm_in_a_simulation_is_told_event_by_event() {
    for seed in 0..10 {
        let file = Scratch::new(&format!("simulated-{seed}"));
        let builder = Runtime::builder().cores(4).exit_when_idle(true);
        let mut simulation = builder.record(&file.0, 64 * MIB).simulate(seed).unwrap();
        let storm = Storm::new(24, seed % 2 == 1);
        begin(&simulation.poster(), &storm, 0..40);
        simulation.run(|_cx| ()).unwrap();
        let recording = file.read();
        assert!(recording.header.simulated && recording.header.cores == 4);
        storm.journal.assert_recorded(&recording);
        assert_counts(&recording, &simulation.stats());
    }
}

#[test]
fn a_seed_makes_the_same_file_twice() {
    let bytes = |name| {
        let file = Scratch::new(name);
        let builder = Runtime::builder()
            .exit_when_idle(true)
            .record(&file.0, 64 * MIB);
        let mut simulation = builder.simulate(4_711).unwrap();
        begin(&simulation.poster(), &Storm::new(24, true), 0..40);
        simulation.run(|_cx| ()).unwrap();
        std::fs::read(&file.0).unwrap()
    };
    assert!(bytes("once") == bytes("twice"));
}

/// Threads are numbered as they come, those of other runtimes too, and that decides which of a few
/// makers a thread posts with.
#[test]
fn a_seed_makes_the_same_file_whatever_other_threads_there_are() {
    let elsewhere = Runtime::builder().build().unwrap();
    let bytes = |name, others| {
        let file = Scratch::new(name);
        let builder = Runtime::builder().cores(4);
        let builder = builder.events_max(4 << 14).exit_when_idle(true);
        let builder = builder.record(&file.0, 64 * MIB);
        let mut simulation = builder.simulate(1).unwrap();
        let poster = elsewhere.poster();
        let start = move |cx: &mut Cx| {
            for color in 1..5u64 {
                let (poster, here) = (poster.clone(), cx.strong_poster());
                let work = move || {
                    for _ in 0..others {
                        let poster = poster.clone();
                        let posts = move || poster.try_post(Color::from(color), |_cx| ());
                        thread::spawn(posts).join().unwrap().unwrap();
                    }
                    here.try_post(Color::from(color), |_cx| ()).unwrap();
                };
                let done = Callback::anonymous_value(Color::from(color), |_cx: &mut Cx, _| ());
                cx.try_blocking(work).unwrap().then(cx, done);
            }
        };
        simulation.run(start).unwrap();
        std::fs::read(&file.0).unwrap()
    };
    assert!(bytes("alone", 0) == bytes("among-others", 3));
}

static WORKS: Handler = Handler::new("works")
    .working_set_bytes(4_096)
    .time(Duration::from_micros(9));

/// Virtual time passes in `work` alone, so that is what an event took; or a little more, for which
/// its core was left.
#[test]
fn times_and_annotations_are_told() {
    let file = Scratch::new("times");
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.record(&file.0, MIB).simulate(1).unwrap();
    simulation
        .run(|cx| {
            for us in [5, 500, 50_000] {
                let works = move |cx: &mut Cx| {
                    sim::work(cx, Duration::from_micros(us));
                    cx.post(Color::from(us), |_cx| ());
                    sim::work(cx, Duration::from_micros(us));
                };
                WORKS.on(Color::from(us), works).post(cx);
            }
        })
        .unwrap();
    let recording = file.read();
    let handler = recording
        .handlers
        .iter()
        .position(|handler| handler.is_handler)
        .unwrap();
    let works = &recording.handlers[handler];
    assert_eq!(works.name, "works");
    assert_eq!(
        (works.annotated_ns, works.working_set_bytes, works.penalty),
        (Some(9_000), Some(4_096), 1)
    );
    let mut us = Vec::new();
    for event in recording
        .events
        .iter()
        .filter(|event| event.handler.index() == handler)
    {
        let color_us = recording[event.color].value;
        let took_ns = event.took_ns.unwrap();
        assert!(
            (2_000 * color_us..2_000 * color_us + 20_000).contains(&took_ns),
            "{took_ns}"
        );
        let [post] = recording.posts_of(event) else {
            panic!("each posts once");
        };
        // Annotated to be long, so that posts are told with their times.
        assert_eq!(post.earliest_ns, post.latest_ns);
        let after_ns = post.at_ns - event.begin_ns;
        assert!(
            (1_000 * color_us..1_000 * color_us + 10_000).contains(&after_ns),
            "{after_ns}"
        );
        assert_eq!(post.relation, Relation::Own);
        let next = &recording[post.event.unwrap()];
        assert_eq!(recording.waited_ns(next), Some(next.begin_ns - post.at_ns));
        us.push(color_us);
    }
    us.sort_unstable();
    assert_eq!(us, [5, 500, 50_000]);
}

#[test]
fn whose_colors_are_posted_to_is_told() {
    let file = Scratch::new("relations");
    let runtime = cores(1)
        .exit_when_idle(true)
        .record(&file.0, MIB)
        .build()
        .unwrap();
    runtime
        .run(|cx| {
            HANDLERS[0]
                .on(Color::from(1), |cx| {
                    for color in [1, 2, 2, 1] {
                        HANDLERS[1].on(Color::from(color), |_cx| ()).post(cx);
                    }
                })
                .post(cx);
            cx.timer(
                Duration::from_micros(1),
                HANDLERS[2].on(Color::from(3), |_cx| ()),
            );
        })
        .unwrap();
    let recording = file.read();
    let posts = |handler: usize| {
        let name = HANDLERS[handler].name();
        let its = recording.posts.iter();
        let its = its.filter(|post| recording[post.handler].name == name);
        its.map(|post| (post.by, post.relation)).collect::<Vec<_>>()
    };
    use Relation::{Fresh, Other, Own};
    assert_eq!(
        posts(0).iter().map(|post| post.1).collect::<Vec<_>>(),
        [Fresh]
    );
    let relations: Vec<_> = posts(1).iter().map(|post| post.1).collect();
    assert_eq!(relations, [Own, Fresh, Other, Own]);
    assert_eq!(posts(2), [(By::Core(0), Fresh)], "a timer");
}

/// The file never exceeds the limit; what is in it is whole, and says that it has ended there; and
/// the run goes on.
#[test]
fn at_the_limit_the_recording_ends_and_the_run_goes_on() {
    let _bound = Bound::new("at_the_limit");
    for count in [1, 3] {
        let file = Scratch::new(&format!("limit-{count}"));
        let runtime = cores(count)
            .exit_when_idle(true)
            .record(&file.0, MIB)
            .build()
            .unwrap();
        let (observer, storm) = (runtime.poster(), Storm::new(24, false));
        begin(&observer, &storm, 0..60);
        runtime
            .run(|cx| {
                for color in 0..8u64 {
                    cx.post(Color::from(color), |cx| chain(cx, 30_000));
                }
            })
            .unwrap();
        let stats = observer.stats();
        let told = stats.recording.as_ref().unwrap();
        assert_eq!(told.state, RecordingState::AtTheLimit);
        assert!(stats.events() > 8 * 30_000);
        let bytes = std::fs::metadata(&file.0).unwrap().len();
        assert_eq!(bytes, told.bytes);
        assert!((MIB - 4 * 33 * 1_024..=MIB).contains(&bytes), "{bytes}");
        let recording = file.read();
        assert!(!recording.is_whole());
        assert!((10_000..stats.events()).contains(&(recording.events.len() as u64)));
        // Until then nothing is missing.
        let first = recording.events.iter().take(recording.events.len() / 2);
        assert!(first.into_iter().all(|event| event.cause.is_some()));
    }
}

fn chain(cx: &mut Cx, left: u32) {
    if left > 0 {
        cx.post(cx.color(), move |cx| chain(cx, left - 1));
    }
}

#[test]
fn a_panic_is_told() {
    let file = Scratch::new("panic");
    let builder = cores(2).on_panic(OnPanic::DropEvent).exit_when_idle(true);
    let runtime = builder.record(&file.0, MIB).build().unwrap();
    let observer = runtime.poster();
    runtime
        .run(|cx| {
            for color in 0..40u64 {
                HANDLERS[0]
                    .on(Color::from(color), move |cx| {
                        HANDLERS[1].on(cx.color(), |_cx| ()).post(cx);
                        assert!(color % 4 != 1, "meant");
                    })
                    .post(cx);
            }
        })
        .unwrap();
    let recording = file.read();
    assert_counts(&recording, &observer.stats());
    let panicked = recording.events.iter().filter(|event| event.panicked);
    let colors: Vec<u64> = panicked
        .map(|event| recording[event.color].value % 4)
        .collect();
    assert_eq!(colors, [1; 10]);
}

#[test]
fn refused_posts_are_told() {
    let file = Scratch::new("refused");
    let runtime = cores(1).events_max(4).record(&file.0, MIB).build().unwrap();
    let observer = runtime.poster();
    let refused = runtime
        .run_until(|cx, finish| {
            let post = |_| cx.try_post(Color::from(9), |_cx| ()).is_err();
            finish.finish((0..100).map(post).filter(|refused| *refused).count());
        })
        .unwrap();
    let recording = file.read();
    assert!(refused > 50);
    assert_eq!(
        recording.posts.iter().filter(|post| post.refused).count(),
        refused
    );
    assert_counts(&recording, &observer.stats());
    let posts = recording.posts.iter();
    assert!(
        posts
            .into_iter()
            .all(|post| post.refused == post.event.is_none())
    );
}

#[test]
fn what_cannot_be_recorded_is_an_error_that_says_why() {
    let error = |builder: Builder| builder.build().unwrap_err().to_string();
    let nowhere = Path::new("/nowhere/at/all");
    assert_eq!(
        error(cores(1).record(nowhere, MIB)),
        "cannot record (`record`): cannot write `/nowhere/at/all`: No such file or directory (os error 2)"
    );
    for (path, what) in [("/dev/null", "a device"), ("/proc", "a directory")] {
        assert_eq!(
            error(cores(1).record(path, MIB)),
            format!(
                "cannot record (`record`): `{path}` is {what}: a recording is written to a regular \
                 file"
            )
        );
    }
    // Regular files by name, which keep no byte that is written.
    for path in ["/proc/self/comm", "/proc/self/clear_refs"] {
        let refused = error(cores(1).record(path, MIB));
        assert!(
            refused.starts_with("cannot record (`record`): "),
            "{refused}"
        );
        assert!(refused.contains(path), "{refused}");
    }
    assert_eq!(
        error(cores(1).record(nowhere, MIB - 1)),
        "cannot record (`record`): a file of at most 1048575 bytes: at least 1048576 are needed"
    );
}

/// Nor is it waited for: whether or not it has a reader, which may read or not.
#[test]
fn a_pipe_is_refused_as_a_recording() {
    let _bound = Bound::new("a_pipe_is_refused");
    let pipe = Scratch::new("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe.0, mode).unwrap();
    let refused = || {
        let error = cores(1)
            .record(&pipe.0, MIB)
            .build()
            .unwrap_err()
            .to_string();
        let path = pipe.0.display();
        assert_eq!(
            error,
            format!(
                "cannot record (`record`): `{path}` is a pipe: a recording is written to a regular \
                 file"
            )
        );
    };
    refused();
    // That of both ends needs no other to be opened.
    let both = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe.0);
    let _reader = both.unwrap();
    refused();
}

#[test]
fn a_file_that_cannot_be_written_any_more_ends_the_recording_only() {
    child_passes("record::child_cannot_write_any_more", &[]);
}

#[test]
fn a_recording_keeps_the_processs_own_limit() {
    child_passes("record::child_has_a_limit", &[]);
}

/// The signal that a write beyond it would be kills a process.
#[test]
#[ignore = "run in a process of its own"]
fn child_has_a_limit() {
    let limit = rustix::process::Rlimit {
        current: Some(MIB),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let file = Scratch::new("limit");
    let builder = cores(1).exit_when_idle(true);
    let runtime = builder.record(&file.0, 64 * MIB).build().unwrap();
    let observer = runtime.poster();
    runtime.run(|cx| chain(cx, 200_000)).unwrap();
    assert_eq!(observer.stats().events(), 200_001);
    let told = observer.stats().recording.unwrap();
    assert_eq!(told.state, RecordingState::AtTheLimit);
}

/// Here by a limit of the process: the run goes on, and says that its recording is cut short.
#[test]
#[ignore = "run in a process of its own"]
fn child_cannot_write_any_more() {
    let file = Scratch::new("no-more");
    let runtime = cores(1)
        .exit_when_idle(true)
        .record(&file.0, MIB)
        .build()
        .unwrap();
    // SAFETY: it only is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = rustix::process::Rlimit {
        current: Some(MIB / 4),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let observer = runtime.poster();
    runtime.run(|cx| chain(cx, 50_000)).unwrap();
    let stats = observer.stats();
    assert_eq!(stats.events(), 50_001);
    let told = stats.recording.unwrap();
    let RecordingState::Failed(reason) = told.state else {
        panic!("{told:?}");
    };
    assert_eq!(reason, "File too large (os error 27)");
}

#[test]
fn a_runtime_that_never_runs_leaves_a_recording_of_nothing() {
    let file = Scratch::new("never");
    let runtime = cores(2).record(&file.0, MIB).build().unwrap();
    let observer = runtime.poster();
    assert_eq!(
        observer.stats().recording.unwrap().state,
        RecordingState::Running
    );
    drop(runtime);
    assert_eq!(
        observer.stats().recording.unwrap().state,
        RecordingState::Complete
    );
    let recording = file.read();
    assert!(recording.is_whole() && recording.events.is_empty() && recording.posts.is_empty());
    assert_eq!(cores(1).build().unwrap().poster().stats().recording, None);
}

/// A core that is left behind in its handler keeps what it had recorded last: the file says so, and
/// what is there can be read.
#[test]
fn a_core_that_is_left_behind_is_told() {
    let _bound = Bound::new("a_core_that_is_left_behind");
    let file = Scratch::new("left");
    let builder = cores(2).drain_deadline(Duration::ZERO);
    let runtime = builder.record(&file.0, MIB).build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&over);
    let ran = runtime.run(move |cx| {
        cx.post(Color::from(1), move |cx| {
            cx.stop();
            while !its.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
        });
    });
    over.store(true, Ordering::Release);
    ran.unwrap_err();
    let error = Recording::open(&file.0).unwrap_err().to_string();
    assert_eq!(
        error,
        "cores left behind in their handlers, with what they had recorded last: 1"
    );
    let bytes = std::fs::read(&file.0).unwrap();
    let recording = Recording::read_what_is_there(&bytes).unwrap();
    assert!(!recording.is_whole());
}
