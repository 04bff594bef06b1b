//! What a recorded program would do on a machine: that it is the recorded program, that more cores
//! help it as far as they can, and what is refused.

#[path = "../../recording/tests/support/mod.rs"]
mod support;

use mely::runtime::{OnPanic, Stealing};
use mely::sim;
use mely::{Callback, Color, Cx, Handler, Runtime};
use mely_hardware::{Key, Machine, Outside, Place, SimulateOn, charge};
use mely_machine::replay::{Answer, Load, Outcome, Question, answer};
use mely_recording::format::{Cause, LogId, Record};
use mely_recording::{By, Recording};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;
use support::{Made, OVER, arrival, begin, define, post};

static STEP: Handler = Handler::new("step");
static REQUEST: Handler = Handler::new("request");
static SORT: Handler = Handler::new("sort").working_set_bytes(16 << 10);

fn epyc() -> Machine {
    Machine::shipped("epyc-2x64").unwrap()
}

fn on(cores: usize) -> Question {
    Question {
        cores: Some(cores),
        seed: 7,
        ..Question::default()
    }
}

/// A file of this test's own.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mely-replay-{}-{name}", std::process::id()))
}

/// Records a run on the described machine, which is the same each time.
fn recorded(
    name: &str,
    cores: usize,
    start: impl FnOnce(&mut Cx, Outside) + Send + 'static,
) -> Recording {
    let path = file(name);
    let builder = Runtime::builder().cores(cores);
    let builder = builder.exit_when_idle(true).record(&path, 8 << 20);
    // SAFETY: no handler of these tests lends anything by a thread-local variable.
    let run = unsafe { builder.simulate_on(&epyc(), 1) }.unwrap();
    let outside = run.outside();
    run.run(move |cx| start(cx, outside)).unwrap();
    let recording = Recording::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    recording
}

fn work(cx: &mut Cx, us: u64) {
    sim::work(cx, Duration::from_micros(us));
}

type Step = Callback<Box<dyn FnOnce(&mut Cx) + Send>>;

/// Works, and posts the next event of its color.
fn step(handler: &'static Handler, color: u64, left: u32) -> Step {
    let run = move |cx: &mut Cx| {
        work(cx, 10);
        if left > 1 {
            step(handler, color, left - 1).post(cx);
        }
    };
    handler.on(Color::from(color), Box::new(run))
}

/// Eight colors that have nothing to do with each other, on one core, which is theirs on two, four
/// or sixteen cores, too: others have to steal them.
fn chains(name: &str, handler: &'static Handler) -> Recording {
    recorded(name, 1, move |cx, _outside| {
        (1..=8).for_each(|color| step(handler, 16 * color, 50).post(cx));
    })
}

/// A client that asks in its color, and asks again some time after the answer.
fn ask(outside: Outside, client: u64, at_ns: u64, left: u32) {
    let its = outside.clone();
    outside.post_at(0, at_ns, move |_now_ns| {
        REQUEST.on(Color::from(client), move |cx: &mut Cx| {
            work(cx, 50);
            let answer = STEP.on(Color::from(client), move |cx: &mut Cx| {
                work(cx, 50);
                if left > 1 {
                    let now_ns = charge::now_ns().unwrap();
                    ask(its, client, now_ns + 20_000, left - 1);
                }
            });
            answer.post(cx);
        })
    });
}

/// Clients that keep one core busy.
fn clients(name: &str) -> Recording {
    recorded(name, 1, |_cx, outside| {
        (1..=8).for_each(|client| ask(outside.clone(), client, 1_000 * client, 30));
    })
}

fn mode<'a>(answer: &'a Answer, name: &str) -> &'a Outcome {
    let (_, outcome) = answer
        .modes
        .iter()
        .find(|(mode, _)| mode.name == name)
        .unwrap();
    outcome
}

/// Each event has run once, its color's one at a time, after its post, as one post after the other
/// where they are of one event and to one color.
#[track_caller]
fn assert_is_the_program(recording: &Recording, outcome: &Outcome) {
    assert_eq!(outcome.times.len(), recording.events.len());
    let mut by_color: Vec<Vec<usize>> = vec![Vec::new(); recording.colors.len()];
    for (place, event) in recording.events.iter().enumerate() {
        let times = &outcome.times[place];
        assert!(times.posted_ns.unwrap() <= times.began_ns && times.began_ns <= times.ended_ns);
        by_color[event.color.index()].push(place);
        if let Some(By::Event(poster)) = event.cause.map(|cause| recording[cause].by) {
            let poster = &outcome.times[poster.index()];
            let while_it_ran = poster.began_ns..=poster.ended_ns;
            assert!(while_it_ran.contains(&times.posted_ns.unwrap()));
        }
        let mut last_ns = vec![0; recording.colors.len()];
        for post in recording.posts_of(event) {
            let began_ns = outcome.times[post.event.unwrap().index()].began_ns;
            let last_ns = &mut last_ns[post.color.index()];
            assert!(*last_ns <= began_ns, "posts of one event in their order");
            *last_ns = began_ns;
        }
    }
    for mut events in by_color {
        events.sort_by_key(|&place| outcome.times[place].began_ns);
        for pair in events.windows(2) {
            let (one, next) = (&outcome.times[pair[0]], &outcome.times[pair[1]]);
            assert!(
                one.ended_ns <= next.began_ns,
                "a color's events at one time"
            );
        }
    }
}

#[test]
fn every_event_runs_once_and_colors_keep_their_order() {
    for recording in [chains("once", &STEP), clients("once-clients")] {
        for load in [Load::Closed, Load::Open] {
            let question = Question { load, ..on(5) };
            let answer = answer(&recording, &epyc(), &question).unwrap();
            assert_eq!(answer.modes.len(), 9);
            for (_, outcome) in &answer.modes {
                assert_is_the_program(&recording, outcome);
            }
            assert_is_the_program(&recording, answer.again.as_ref().unwrap());
        }
    }
}

#[test]
fn the_same_run_takes_as_long_and_twice_the_cores_half_of_it() {
    let recording = chains("twice", &STEP);
    let answer = answer(&recording, &epyc(), &on(2)).unwrap();
    let recorded_ns = answer.recorded.span_ns as f64;
    let parts = |outcome: &Outcome| outcome.figures.span_ns as f64 / recorded_ns;
    let again = parts(answer.again.as_ref().unwrap());
    assert!((0.97..1.03).contains(&again), "{again}");
    let mely = parts(mode(&answer, "mely"));
    assert!((0.48..0.56).contains(&mely), "{mely}");
    assert!(mode(&answer, "mely").steals > 0);
    let alone = mode(&answer, "no stealing");
    assert!(alone.steals == 0 && parts(alone) > 0.97);
    // All of it is in events.
    let busy: f64 = mode(&answer, "mely")
        .figures
        .cores
        .iter()
        .map(|core| core.busy)
        .sum();
    assert!((1.7..=2.0).contains(&busy), "{busy}");
}

#[test]
fn with_closed_load_a_faster_machine_gets_more_to_do() {
    let recording = clients("load");
    let rate = |load| {
        let question = Question { load, ..on(8) };
        let answer = answer(&recording, &epyc(), &question).unwrap();
        mode(&answer, "mely").figures.rate / answer.recorded.rate
    };
    let (closed, open) = (rate(Load::Closed), rate(Load::Open));
    // Eight clients, each of which waits for 20 us after 100 us of work, which one core has for all.
    assert!((3.0..8.0).contains(&closed), "{closed}");
    assert!((0.95..1.05).contains(&open), "{open}");
}

/// Then the penalty heuristic does more than another mode without it.
#[test]
fn penalties_are_recorded_and_replayed() {
    static DEAR: Handler = Handler::new("dear").penalty(1_000);
    let start = |handler: &'static Handler| {
        move |cx: &mut Cx, _outside: Outside| {
            for color in 1..=12 {
                let handler = if color % 2 == 0 { handler } else { &STEP };
                step(handler, 16 * color, 20).post(cx);
            }
        }
    };
    let differs = |name: &str, handler| {
        let recording = recorded(name, 1, start(handler));
        let answer = answer(&recording, &epyc(), &on(4)).unwrap();
        let times = |name: &str| mode(&answer, name).times.clone();
        times("time-left") != times("time-left+penalty")
    };
    assert!(differs("penalty", &DEAR));
    assert!(!differs("no-penalty", &STEP));
}

#[test]
fn a_recording_from_threads_can_be_replayed() {
    let path = file("threads");
    let builder = Runtime::builder()
        .on_panic(OnPanic::Stop)
        .cores(2)
        .pin(false);
    let builder = builder.exit_when_idle(true).stealing(Stealing::BASE);
    let runtime = builder.record(&path, 8 << 20).build().unwrap();
    runtime
        .run(|cx| {
            (1..=20).for_each(|color| step(&STEP, color, 10).post(cx));
            let color = cx.unique_color();
            cx.post(color.color(), |cx| {
                cx.timer(Duration::from_millis(1), step(&SORT, 3, 1));
            });
        })
        .unwrap();
    let recording = Recording::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let answer = answer(&recording, &epyc(), &on(3)).unwrap();
    assert_eq!(answer.recorded_mode.name, "base");
    for (_, outcome) in &answer.modes {
        assert_is_the_program(&recording, outcome);
    }
}

#[test]
fn the_same_seed_is_the_same_answer() {
    let recording = clients("seed");
    let text = |seed| {
        let question = Question { seed, ..on(6) };
        answer(&recording, &epyc(), &question).unwrap().to_string()
    };
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
    assert!(text(3).lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn data_costs_what_its_lines_cost() {
    let (free, sorts) = (chains("free", &STEP), chains("sorts", &SORT));
    let ask = |recording| answer(recording, &epyc(), &on(1)).unwrap();
    let (free, sorts) = (ask(&free), ask(&sorts));
    let busy_ns = |answer: &Answer| -> u64 {
        let times = mode(answer, "mely").times.iter();
        times.map(|times| times.ended_ns - times.began_ns).sum()
    };
    // Eight colors of 16 KiB are more than the first cache has room for, and the second one has: so
    // the first event of each turn reads 256 lines in a row from there.
    let more = (busy_ns(&sorts) - busy_ns(&free)) as f64 / (8.0 * 50.0);
    let row = epyc().ns(Key::Row(Place::Cache(2)));
    assert!((0.1 * 256.0 * row..256.0 * row).contains(&more), "{more}");
    let says =
        |answer: &Answer, text: &str| answer.warnings.iter().any(|warning| warning.contains(text));
    assert!(says(&free, "data is free, wherever its color runs"));
    assert!(says(
        &sorts,
        "These handlers do not say which bytes they touch"
    ));
}

#[test]
fn more_cores_than_the_recording_can_use_are_said() {
    let recording = chains("cores", &STEP);
    let says = |cores, text: &str| {
        let answer = answer(&recording, &epyc(), &on(cores)).unwrap();
        answer.to_string().contains(text)
    };
    // The first event is in a color of its own.
    assert!(says(
        16,
        "16 cores, and the recording has events of 9 colors"
    ));
    assert!(!says(4, "cores can work at a time"));
    let recording = recorded("one-color", 1, |cx, _outside| {
        step(&STEP, 1, 90).post(cx);
        (2..5).for_each(|color| step(&STEP, color, 5).post(cx));
    });
    let answer = answer(&recording, &epyc(), &on(4)).unwrap();
    let text = "no more than 1.2 of 4 cores can be of use";
    assert!(
        answer.warnings.iter().any(|warning| warning.contains(text)),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn a_machine_with_fewer_cores_than_the_recording_says_so() {
    let recording = recorded("many", 12, |cx, _outside| {
        (1..=12).for_each(|color| step(&STEP, color, 5).post(cx));
    });
    let xeon = Machine::shipped("xeon-e5410").unwrap();
    let answer = answer(&recording, &xeon, &on(8)).unwrap();
    assert!(answer.again.is_none());
    assert!(answer.warnings[0].contains("The recording is of 12 cores, and the machine has 8"));
}

#[test]
fn a_recording_without_events_is_zeros() {
    let recording = Recording::read(&Made::new(1).end()).unwrap();
    let answer = answer(&recording, &epyc(), &on(2)).unwrap();
    assert_eq!((answer.recorded.events, answer.recorded.rate), (0, 0.0));
    let text = answer.to_string();
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let refusal = |recording: &Recording, question: &Question| {
        answer(recording, &epyc(), question).expect_err("it is refused")
    };
    let fine = chains("fine", &STEP);
    assert_eq!(
        refusal(&fine, &on(0)),
        "a run on 0 cores: at least 1 is needed (`--cores`)"
    );
    assert_eq!(
        refusal(&fine, &on(129)),
        "129 cores (`--cores`): Two EPYC 7763 has 128"
    );
    let hold = Record::Hold {
        id: 1,
        shared: false,
        gap_ns: 0,
    };
    let cause = Cause::new(LogId::core(0), 0);
    let records = [
        define(1, "a"),
        arrival(1, 5),
        begin(1, 5, cause),
        hold,
        OVER,
    ];
    let held = Made::new(1).page(LogId::core(0), 0, &records).end();
    assert_eq!(
        refusal(&Recording::read(&held).unwrap(), &on(1)),
        "a recording with 1 holds, for which 0 events waited: holds cannot be replayed"
    );
    let mut other = fine.clone();
    other.header.stealing = "by lot".into();
    assert_eq!(
        refusal(&other, &on(1)),
        "the recording's cores stole by \"by lot\": unknown"
    );
    let mut long = fine.clone();
    long.events[3].took_ns = Some(u64::MAX);
    assert!(refusal(&long, &on(1)).contains("cannot be replayed"));
    let mut large = fine;
    for handler in &mut large.handlers {
        handler.working_set_bytes = Some(1 << 40);
    }
    assert!(refusal(&large, &on(1)).contains("cannot be simulated"));
}

#[test]
fn a_run_that_does_not_end_in_time_is_given_up_with_its_cores_and_seed() {
    let recording = chains("late", &STEP);
    let question = Question {
        give_up_ns: Some(1_000_000),
        ..on(3)
    };
    let error = answer(&recording, &epyc(), &question).unwrap_err();
    assert!(
        error.contains("given up after ") && error.contains("(seed 7); core 0 "),
        "{error}"
    );
    assert!(
        error.ends_with(" events had not run (`--give-up-after`)"),
        "{error}"
    );
}

/// What an event posts that it was posted by, and times that contradict each other.
#[test]
fn an_arrival_never_waits_for_what_comes_of_it() {
    // The second arrival seems to come after its own event had begun.
    let log = LogId::core(0);
    let records = [
        define(1, "a"),
        arrival(1, 5),
        begin(1, 5, Cause::new(log, 0)),
        post(1, 6),
        OVER,
        begin(1, 6, Cause::new(log, 1)),
        OVER,
    ];
    let late = [define(1, "a"), arrival(1, 5)];
    let early = [
        define(1, "a"),
        begin(1, 5, Cause::new(LogId::core(1), 0)),
        OVER,
    ];
    let bytes = Made::new(3)
        .page(log, 0, &records)
        .page(LogId::core(1), 60_000, &late)
        .page(LogId::core(2), 50_000, &early)
        .end();
    let recording = Recording::read(&bytes).unwrap();
    for load in [Load::Closed, Load::Open] {
        let question = Question { load, ..on(2) };
        let answer = answer(&recording, &epyc(), &question).unwrap();
        assert_is_the_program(&recording, mode(&answer, "mely"));
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % end
    }
}

/// Whatever can be read is answered or refused.
#[test]
fn bytes_of_no_meaning_end_in_an_answer_or_a_sentence() {
    let mut random = Random(5);
    let log = LogId::core(0);
    let mut records = vec![define(1, "a"), define(2, "b")];
    for number in 0..12u64 {
        records.push(arrival(1 + (number % 2) as u32, number % 4));
        records.push(begin(
            1 + (number % 2) as u32,
            number % 4,
            Cause::new(log, number),
        ));
        records.push(OVER);
    }
    let whole = Made::new(2).page(log, 0, &records).end();
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            let at = 8 + random.below(bytes.len() - 8);
            bytes[at] = random.below(256) as u8;
        }
        let Ok(recording) = Recording::read(&bytes) else {
            continue;
        };
        let question = Question {
            give_up_ns: Some(10_000_000),
            ..on(2)
        };
        match answer(&recording, &epyc(), &question) {
            Ok(answer) => {
                answered += 1;
                assert!(!answer.to_string().contains("NaN"));
            }
            Err(error) => {
                refused += 1;
                assert!(!error.is_empty() && !error.contains('\n'), "{error}");
            }
        }
    }
    assert!(answered > 20 && refused > 2, "{answered} {refused}");
}

fn program(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_mely-machine");
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn the_program_answers_and_refuses_in_one_sentence() {
    let path = file("program");
    let name = path.to_str().unwrap();
    let log = LogId::core(0);
    let records = [
        define(1, "a"),
        arrival(1, 5),
        begin(1, 5, Cause::new(log, 0)),
        OVER,
    ];
    let whole = Made::new(1).page(log, 0, &records).end();
    let run = |bytes: &[u8], rest: &[&str]| {
        std::fs::write(&path, bytes).unwrap();
        let mut arguments = vec!["run", name, "epyc-2x64"];
        arguments.extend(rest);
        program(&arguments)
    };
    let told = run(&whole, &["--cores", "2", "--load", "open", "--seed", "9"]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success());
    assert!(
        text.starts_with("Two EPYC 7763, 2 cores; load open, seed 9: 1 events\n"),
        "{text}"
    );
    for named in [
        "recorded (locality)",
        "no stealing",
        "time-left+penalty",
        "assumed (",
    ] {
        assert!(text.contains(named), "{named} is not in {text}");
    }

    let mut version = whole.clone();
    version[8] = 2;
    let undefined = [arrival(1, 5)];
    let undefined = Made::new(1).page(log, 0, &undefined).end();
    // Each is posted by the other.
    let circle = [
        define(1, "a"),
        begin(1, 1, Cause::new(log, 1)),
        post(1, 2),
        OVER,
        begin(1, 2, Cause::new(log, 0)),
        post(1, 1),
        OVER,
    ];
    let circle = Made::new(1).page(log, 0, &circle).end();
    let refused: [(&[u8], &[&str], &str); 9] = [
        (&whole[..whole.len() - 4], &[], "cut short after"),
        (&version, &[], "a recording of version 2"),
        (&undefined, &[], "names handler 1, which it has not defined"),
        (&circle, &[], "is posted by what it posts"),
        (b"hello, world", &[], "not a recording"),
        (&whole, &["--cores", "0"], "a run on 0 cores"),
        (&whole, &["--cores", "999"], "Two EPYC 7763 has 128"),
        (&whole, &["--load", "heavy"], "`closed` or `open` is wanted"),
        (&whole, &["--give-up-after", "0"], "given up after"),
    ];
    for (bytes, rest, said) in refused {
        let told = run(bytes, rest);
        let error = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(2), "{error}");
        assert!(told.stdout.is_empty(), "nothing was simulated");
        assert!(
            error.contains(said) && error.lines().count() == 1,
            "{error}"
        );
    }
    std::fs::remove_file(&path).unwrap();
    let missing = program(&["run", name, "epyc-2x64"]);
    assert_eq!(missing.status.code(), Some(2));
    let no_machine = program(&["run", name, "vax"]);
    assert_eq!(no_machine.status.code(), Some(2));
}
