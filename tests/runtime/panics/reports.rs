//! Reports of panics: to a hook, and on standard error.

use super::{FAULTY, FIRST, reports};
use crate::common::{Bound, child, cores};
use mely::runtime::OnPanic;
use mely::task::{JoinError, with_cx, yield_now};
use mely::{Builder, Color, Cx};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::panic::{catch_unwind, resume_unwind, set_hook, take_hook};
use std::process::{Command, Stdio};

/// Wherever the panic comes from, the report has its place.
#[test]
fn a_report_has_the_place_of_the_panic() {
    let _bound = Bound::new("a_report_has_the_place");
    let (reports, hook) = reports();
    let builder = cores(1).on_panic(OnPanic::DropEvent).panic_hook(hook);
    let line = line!();
    builder
        .build()
        .unwrap()
        .run(|cx| {
            cx.post(FIRST, |_cx| panic!("of an event"));
            cx.try_blocking::<(), _>(|| panic!("of work")).unwrap();
            cx.spawn(FIRST, async {
                // Whatever panics before, and is caught by the program, is not meant.
                let _ = catch_unwind(|| panic!("of a task"));
                yield_now().await;
                panic!("of a task");
            });
            cx.spawn(FIRST, async {
                let work = || panic!("of work of a task");
                let given = with_cx(|cx| cx.try_blocking::<(), _>(work).unwrap());
                assert_eq!(given.await, Err(JoinError::Panicked));
            });
            // Of no place: no hook has heard of it.
            cx.post(FIRST, |_cx| resume_unwind(Box::new("resumed")));
            cx.stop();
        })
        .unwrap();
    let mut reports = reports.lock().unwrap().clone();
    reports.sort_by(|a, b| a.message.cmp(&b.message));
    let told = reports.iter().map(|report| {
        let at = report.location.as_ref().map(|location| {
            let (file, at) = location.split_once(':').unwrap();
            assert_eq!(file, file!());
            at.split_once(':').unwrap().0.parse::<u32>().unwrap() - line
        });
        (&*report.message, at)
    });
    let expected = [
        ("of a task", Some(11)),
        ("of an event", Some(5)),
        ("of work", Some(6)),
        ("of work of a task", Some(14)),
        ("resumed", None),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

/// What the children below say on standard error.
fn said(test: &str) -> String {
    let output = child(test, &[("RUST_BACKTRACE", "0")]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{test}: {text}");
    text
}

/// Two events of a runtime that says what std's hook does not.
fn panics_twice(builder: Builder) {
    let builder = builder.on_panic(OnPanic::DropEvent);
    let outcome = builder.build().unwrap().run(|cx| {
        FAULTY
            .on(Color::from(42), |_cx| panic!("no {}", "more"))
            .post(cx);
        cx.post(Color::from(42), |_cx| panic!("nor this"));
        cx.post(Color::from(42), |cx| cx.stop());
    });
    outcome.unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn a_panic_is_reported_on_standard_error_once() {
    let text = said("panics::reports::child_that_panics");
    assert_eq!(text.matches("no more").count(), 1, "{text}");
    let place = text.split_once("panicked at ").unwrap().1;
    let place = place.split_once(":\nno more").unwrap().0;
    let line = "mely: event dropped: handler `faulty` of color 42 panicked on core 0 at ";
    assert!(text.contains(&format!("{line}{place}\n")), "{text}");
    assert_eq!(text.matches("mely: ").count(), 2, "{text}");
    // A hook of the program's that says nothing.
    let text = said("panics::reports::child_that_panics_with_a_hook_of_its_own");
    assert!(
        text.contains(&format!("{line}{place}: no more\n")),
        "{text}"
    );
    assert!(!text.contains("thread '"), "{text}");
    // The builder's has it all.
    let text = said("panics::reports::child_whose_builder_has_a_hook");
    assert!(
        text.contains("thread '") && !text.contains("mely: "),
        "{text}"
    );
}

#[test]
#[ignore = "a part of a_panic_is_reported_on_standard_error_once"]
fn child_that_panics() {
    // The test harness's own.
    drop(take_hook());
    panics_twice(cores(1));
}

#[test]
#[ignore = "a part of a_panic_is_reported_on_standard_error_once"]
fn child_that_panics_with_a_hook_of_its_own() {
    set_hook(Box::new(|_| ()));
    panics_twice(cores(1));
}

#[test]
#[ignore = "a part of a_panic_is_reported_on_standard_error_once"]
fn child_whose_builder_has_a_hook() {
    drop(take_hook());
    panics_twice(cores(1).panic_hook(|_| ()));
}

/// A peer that makes handlers panic must not block a core on a log whose reader is slow.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_flood_of_panics_waits_for_no_reader() {
    let _bound = Bound::new("a_flood_of_panics");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "panics::reports::child_that_floods",
            "--ignored",
            "--nocapture",
        ])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let flooded = |line: io::Result<String>| line.unwrap().ends_with("flooded");
    assert!(out.any(flooded), "the flood does not end");
    // From now on it is read.
    let mut err = child.stderr.take().unwrap();
    let mut first = vec![0; 16 << 10];
    err.read_exact(&mut first).unwrap();
    child.stdin.take().unwrap().write_all(b"read\n").unwrap();
    let rest = io::read_to_string(err).unwrap();
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8(first).unwrap() + &rest;
    let (_, last) = text.split_once("the last of all").unwrap();
    let unwritten = last
        .split_once(" (")
        .and_then(|(_, rest)| rest.split_once(" panics before"));
    let unwritten: usize = unwritten.expect(last).0.parse().unwrap();
    let written = text.matches("mely: ").count() - 1;
    assert_eq!(unwritten + written, FLOOD);
    assert!(unwritten > 0 && written > 0, "{unwritten} and {written}");
}

const FLOOD: usize = 2_000;

#[test]
#[ignore = "a part of a_flood_of_panics_waits_for_no_reader"]
fn child_that_floods() {
    drop(take_hook());
    let flood = |cx: &mut Cx| {
        for _ in 0..FLOOD {
            cx.post(FIRST, |_cx| panic!("one of a flood"));
        }
        cx.post(FIRST, |cx| {
            println!("flooded");
            let mut line = String::new();
            io::stdin().read_line(&mut line).unwrap();
            assert_eq!(line, "read\n");
            cx.post(FIRST, |_cx| panic!("the last of all"));
            cx.stop();
        });
    };
    let builder = cores(1).on_panic(OnPanic::DropEvent);
    builder.build().unwrap().run(flood).unwrap();
}
