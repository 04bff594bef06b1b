//! What subscribers of `tracing` are told. One test a process would be cleanest: the subscriber is
//! the process's. So each test has a color of its own, and looks for that.

use crate::common::{Bound, cores, eventually};
use mely::Post;
use mely::{Color, Colored, Handler, Poster, sim};
use std::collections::BTreeMap;
use std::sync::{Mutex, Once};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// An event, as its fields.
type Told = BTreeMap<String, String>;

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
/// Whom the subscriber posts to, when it is told something of that color.
static POSTS: Mutex<Option<(Poster, Color)>> = Mutex::new(None);

/// Keeps what mely tells.
struct Keeper;

struct Fields<'a>(&'a mut Told);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mely"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::new();
        event.record(&mut Fields(&mut told));
        told.insert("level".to_owned(), event.metadata().level().to_string());
        // The user's code may do what it likes: post, say.
        let posts = POSTS.lock().unwrap().clone();
        if let Some((poster, color)) = posts
            && told.get("color") == Some(&color.to_string())
        {
            poster.try_post(Color::from(1), |_cx| ()).unwrap();
        }
        TOLD.lock().unwrap().push(told);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
}

/// What was told with this message, of this color.
fn told(message: &str, color: Color) -> Vec<Told> {
    let all = TOLD.lock().unwrap();
    let of =
        |told: &&Told| told["message"] == message && told.get("color") == Some(&color.to_string());
    all.iter().filter(of).cloned().collect()
}

static SLOW: Handler = Handler::new("slow").time(Duration::from_nanos(100));
static HOLDS: Handler = Handler::new("holds");
static MUCH: Handler = Handler::new("much").time(Duration::from_micros(50));

/// With handler, color and core, while it runs.
#[test]
fn slow_handlers() {
    listen();
    let _bound = Bound::new("slow_handlers");
    let color = Color::from(5_000_000_001);
    cores(1)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            SLOW.on(color, move |_cx| {
                eventually("a slow handler is told", || {
                    !told("slow handler", color).is_empty()
                });
            })
            .post(cx);
        })
        .unwrap();
    let told = told("slow handler", color);
    assert_eq!(told.len(), 1, "once");
    let (handler, core, level) = (&told[0]["handler"], &told[0]["core"], &told[0]["level"]);
    assert_eq!(
        (handler.as_str(), core.as_str(), level.as_str()),
        ("slow", "0", "WARN")
    );
    assert!(told[0]["running_ns"].parse::<u64>().unwrap() >= 10_000_000);
}

#[test]
fn holds_and_their_ends() {
    listen();
    let color = Color::from(5_000_000_002);
    cores(1)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            HOLDS
                .on(color, |cx| {
                    let hold = cx.hold();
                    cx.post(Color::from(3), move |_cx| hold.resume(|_cx| ()));
                })
                .post(cx);
        })
        .unwrap();
    let (held, over) = (told("hold", color), told("hold over", color));
    assert_eq!((held.len(), over.len()), (1, 1));
    assert_eq!(
        (held[0]["handler"].as_str(), held[0]["core"].as_str()),
        ("holds", "0")
    );
    assert_eq!(held[0]["hold"], over[0]["hold"]);
}

#[test]
fn refusals() {
    listen();
    let color = Color::from(5_000_000_003);
    let runtime = cores(1).events_max(2).build().unwrap();
    let poster = runtime.poster();
    while poster.try_post(color, |_cx| ()).is_ok() {}
    let outside = told("refused", color);
    assert_eq!(
        (outside.len(), outside[0]["limit"].as_str()),
        (1, "events_max")
    );
    drop(runtime);
    let bounded = Color::from(5_000_000_004);
    cores(1)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            let state = Colored::new(cx, bounded, ()).bounded(1);
            let permit = state.try_reserve().unwrap();
            assert!(state.try_reserve().is_none());
            drop(permit);
        })
        .unwrap();
    let inside = told("refused", bounded);
    assert_eq!((inside.len(), inside[0]["limit"].as_str()), (1, "bounded"));
    assert_eq!(inside[0]["core"], "0");
    let full = Color::from(5_000_000_005);
    cores(1)
        .events_max(2)
        .build()
        .unwrap()
        .run(move |cx| {
            while cx.try_post(full, |_cx| ()).is_ok() {}
            cx.stop();
        })
        .unwrap();
    assert_eq!(told("refused", full).len(), 1);
}

/// In a simulation, where there is one thread: every steal and every sleep, with what they are
/// counted as.
#[test]
fn steals_and_sleeps() {
    listen();
    let _bound = Bound::new("steals_and_sleeps");
    let base = 6_000_000_000;
    let mut simulation = cores(4).exit_when_idle(true).simulate(3).unwrap();
    simulation
        .run(move |cx| {
            for color in 0..200 {
                cx.place(Color::from(base + color), 0);
                MUCH.on(Color::from(base + color), |cx| {
                    sim::work(cx, Duration::from_micros(50));
                })
                .post(cx);
            }
        })
        .unwrap();
    let stats = simulation.stats();
    let all = TOLD.lock().unwrap();
    let is_ours = |told: &&Told| {
        let color = told
            .get("color")
            .and_then(|color| color.parse::<u64>().ok());
        told["message"] == "steal" && color.is_some_and(|color| (base..base + 200).contains(&color))
    };
    let steals: Vec<&Told> = all.iter().filter(is_ours).collect();
    assert_eq!(steals.len() as u64, stats.steals());
    assert!(steals.len() > 3);
    let sum = |field: &str| -> u64 {
        let of = steals
            .iter()
            .map(|told| told[field].parse::<u64>().unwrap());
        of.sum()
    };
    let colors = stats
        .cores
        .iter()
        .flat_map(|core| &core.steals)
        .map(|steals| steals.colors);
    assert_eq!(sum("colors"), colors.sum::<u64>());
    assert!(
        steals
            .iter()
            .all(|told| told["handler"] == "much" && told["core"] != told["victim"])
    );
    let slept = all.iter().filter(|told| told["message"] == "park").count();
    let parks: u64 = stats.cores.iter().map(|core| core.parks).sum();
    assert!(slept as u64 >= parks && parks > 0, "{slept} of {parks}");
}

/// The user's code runs outside of the scheduler, so it may post; what it posts is run.
#[test]
fn a_subscriber_may_post() {
    listen();
    let _bound = Bound::new("a_subscriber_may_post");
    let color = Color::from(5_000_000_006);
    // One core, so that nothing is stolen, which would be told too.
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let observer = runtime.poster();
    *POSTS.lock().unwrap() = Some((runtime.poster(), color));
    runtime
        .run(move |cx| {
            cx.post(color, |cx| {
                for _ in 0..5 {
                    drop(cx.hold());
                }
            });
        })
        .unwrap();
    POSTS.lock().unwrap().take();
    // The first event, ours, five ends of holds, and a post for each of ten notices.
    assert_eq!(observer.stats().events(), 2 + 5 + 10);
}

/// Of what happens in one step not more is kept than so much; how much was left out is told.
#[test]
fn too_much_at_once_is_counted() {
    listen();
    let _bound = Bound::new("too_much_at_once");
    let color = Color::from(5_000_000_007);
    cores(1)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            cx.post(color, |cx| {
                for _ in 0..300 {
                    drop(cx.hold());
                }
            });
        })
        .unwrap();
    assert_eq!(told("hold", color).len(), 256);
    let all = TOLD.lock().unwrap();
    let left_out = all
        .iter()
        .filter(|told| told["message"] == "too much to tell at once");
    let left_out: u64 = left_out
        .map(|told| told["left_out"].parse::<u64>().unwrap())
        .sum();
    assert!(left_out >= 300 - 256, "{left_out}");
}
