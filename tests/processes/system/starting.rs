//! How a run begins if the system refuses something, and which event source it takes.

use super::{echo, exchange, name, serve};
use crate::common::{backends, child_passes, cores, open_descriptors};
use mely::Post;
use mely::net::Backend;
use mely::topology::Topology;
use mely::{Builder, Color, RunError, Runtime};
use rustix::thread::sched_getaffinity;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::io::{self};
use std::sync::mpsc::channel;

/// Refuses system calls to the whole process, from now on.
pub(crate) fn refuse(calls: &[i64]) {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let eperm = SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error() as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}

/// Serves and is served, and tells on which event source.
fn works(runtime: Runtime) -> Vec<String> {
    let (poster, observer) = (runtime.poster(), runtime.poster());
    let (tell, told) = channel();
    let client = std::thread::spawn(move || {
        drop(exchange(told.recv().unwrap(), 20));
        poster.stop();
    });
    runtime
        .run(move |cx| {
            assert_eq!(cx.poster().backends().len(), cx.cores());
            let listener = serve(cx, echo);
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        })
        .unwrap();
    client.join().unwrap();
    let backends = observer.backends();
    assert_eq!(backends.len(), 2);
    backends.iter().map(ToString::to_string).collect()
}

#[test]
fn a_refused_ring_falls_back_and_says_why() {
    child_passes(
        "system::starting::child_a_refused_ring",
        &[("MELY_BACKEND", "")],
    );
    child_passes(
        "system::starting::child_a_refused_ring",
        &[("MELY_BACKEND", "auto")],
    );
}

#[test]
#[ignore = "run in a process of its own"]
fn child_a_refused_ring() {
    refuse(&[libc::SYS_io_uring_setup]);
    let runtime = cores(2).build().unwrap();
    for text in works(runtime) {
        assert!(
            text.starts_with("epoll (edge-triggered), because io_uring"),
            "{text}"
        );
        assert!(text.contains("os error 1"), "{text}");
    }
    // Who insists gets an error instead.
    let forced = cores(2)
        .backend(Backend::IoUring)
        .build()
        .unwrap()
        .run(|_cx| unreachable!());
    let Err(RunError::Start(error)) = forced else {
        panic!("{forced:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

/// Valgrind gives the programs that it runs a library of its own.
#[test]
fn under_valgrind_it_is_epoll() {
    let preloaded = "/usr/libexec/valgrind/vgpreload_core-test-linux.so";
    child_passes(
        "system::starting::child_under_valgrind",
        &[("LD_PRELOAD", preloaded)],
    );
}

#[test]
#[ignore = "run in a process of its own"]
fn child_under_valgrind() {
    for text in works(cores(2).build().unwrap()) {
        assert!(
            text.starts_with("epoll") && text.contains("valgrind"),
            "{text}"
        );
    }
    let forced = cores(2).backend(Backend::IoUring).build().unwrap();
    let Err(RunError::Start(error)) = forced.run(|_cx| unreachable!()) else {
        panic!("it has begun");
    };
    assert!(error.to_string().contains("valgrind"), "{error}");
}

#[test]
fn cores_that_cannot_be_pinned_run_and_say_why() {
    child_passes("system::starting::child_cannot_be_pinned", &[]);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_cannot_be_pinned() {
    let on = |cpus: &[u32]| {
        let highest = *cpus.last().unwrap() as usize;
        let machine = Topology::flat(highest + 1).unwrap().restrict(cpus);
        cores(cpus.len()).topology(machine.unwrap())
    };
    let refused = |builder: Builder| {
        let runtime = builder.build().unwrap();
        let observer = runtime.poster();
        runtime.run(|cx| cx.stop()).unwrap();
        let cores = observer.stats().cores;
        assert!(cores.iter().all(|core| core.cpu.is_none()));
        let why = cores.into_iter().map(|core| core.pin_refused);
        why.collect::<Vec<_>>()
    };
    let why = |cpu: u32, why: &str| Some(format!("sched_setaffinity to processor {cpu}: {why}"));
    // As if they had gone offline; and beyond those that a mask has.
    let expected = [
        why(1_000, "Invalid argument (os error 22)"),
        why(2_000, "a mask has room for 1024"),
    ];
    assert_eq!(refused(on(&[1_000, 2_000])), expected);
    assert_eq!(refused(on(&[1_000, 2_000]).pin(false)), [None, None]);
    assert_eq!(refused(on(&[0, 1]).cores(1)), [None]);
    refuse(&[libc::SYS_sched_setaffinity]);
    let denied = |cpu| why(cpu, "Operation not permitted (os error 1)");
    assert_eq!(refused(on(&[0, 1])), [denied(0), denied(1)]);
    // Who insists gets an error instead.
    let forced = on(&[0])
        .pin(true)
        .build()
        .unwrap()
        .run(|_cx| unreachable!());
    let text = forced.unwrap_err().to_string();
    let expected = "a core could not begin: its thread cannot be pinned (`pin`): sched_setaffinity \
                    to processor 0: Operation not permitted (os error 1)";
    assert_eq!(text, expected);
}

/// Which others may use as well, and do if they are pinned.
#[test]
fn a_runtime_with_fewer_cores_than_processors_may_use_all_of_them() {
    let mine = sched_getaffinity(None).unwrap();
    let machine = Topology::flat(mine.count() as usize + 1).unwrap();
    let builder = cores(1).topology(machine);
    let its = builder.build().unwrap().run_until(|_cx, finish| {
        finish.finish(sched_getaffinity(None).unwrap());
    });
    assert!(its.unwrap() == mine);
}

#[test]
fn with_no_event_source_nothing_begins() {
    child_passes("system::starting::child_with_no_event_source", &[]);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_with_no_event_source() {
    refuse(&[libc::SYS_io_uring_setup, libc::SYS_epoll_create1]);
    let before = open_descriptors();
    let runtime = cores(4).build().unwrap();
    let poster = runtime.poster();
    let alive = crate::common::Alive::default();
    let payload = alive.payload();
    let outcome = runtime.run(move |_cx| {
        drop(payload);
        unreachable!()
    });
    let Err(RunError::Start(_)) = &outcome else {
        panic!("{outcome:?}");
    };
    let text = outcome.unwrap_err().to_string();
    assert!(
        text.starts_with("a core could not begin: no event source can be set up: io_uring")
            && text.contains("epoll: "),
        "{text}"
    );
    assert!(poster.try_post(Color::from(1), |_cx| ()).is_err());
    assert_eq!(alive.count(), 0, "the first event is freed");
    assert_eq!(open_descriptors(), before);
}

#[test]
fn the_variable_chooses() {
    for backend in backends() {
        child_passes(
            "system::starting::child_the_variable_chooses",
            &[("MELY_BACKEND", name(&backend))],
        );
    }
    child_passes(
        "system::starting::child_a_wrong_variable",
        &[("MELY_BACKEND", "kqueue")],
    );
}

#[test]
#[ignore = "run in a process of its own"]
fn child_the_variable_chooses() {
    let asked = std::env::var("MELY_BACKEND").unwrap();
    for text in works(cores(2).build().unwrap()) {
        assert!(
            text.starts_with(&asked) && !text.contains("because"),
            "{text}"
        );
    }
    // The builder's word counts for more.
    for text in works(cores(2).backend(Backend::Epoll).build().unwrap()) {
        assert_eq!(text, "epoll (edge-triggered)");
    }
}

#[test]
#[ignore = "run in a process of its own"]
fn child_a_wrong_variable() {
    let outcome = cores(2).build().unwrap().run(|_cx| unreachable!());
    let text = outcome.unwrap_err().to_string();
    let said = "MELY_BACKEND=kqueue: must be io_uring, epoll or auto";
    assert!(text.contains(said), "{text}");
    // Not looked at where the program has decided.
    works(cores(2).backend(Backend::Epoll).build().unwrap());
}
