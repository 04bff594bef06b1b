//! Slow disks, cancels, stops and limits.

use super::{HERE, NEW, READ, Scratch, create, done, in_task};
use crate::common::{Alive, Bound, LONG, Payload, backends, child_passes, cores, open_descriptors};
use mely::fs::{Dir, File, OpenOptions};
use mely::task::{JoinError, with_cx};
use mely::{Color, Cx, Handler};
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

static TOLD: Handler = Handler::new("told");

#[test]
fn a_handler_is_called_back_in_its_color() {
    let _bound = Bound::new("a_handler_is_called_back");
    for backend in backends() {
        let scratch = Scratch::all().pop().unwrap();
        std::fs::write(scratch.0.join("file"), "hello").unwrap();
        let path = scratch.0.clone();
        let run = cores(2)
            .backend(backend)
            .build()
            .unwrap()
            .run_until(move |cx, finish| {
                type Told<T> = Result<io::Result<T>, JoinError>;
                let read =
                    TOLD.on_value(Color::from(9), move |cx: &mut Cx, bytes: Told<Vec<u8>>| {
                        assert_eq!(cx.color(), Color::from(9));
                        finish.finish(bytes.unwrap().unwrap());
                    });
                let opened = TOLD.on_value(HERE, move |cx: &mut Cx, file: Told<File>| {
                    let file = file.unwrap().unwrap();
                    file.read_at(cx, 0, 100).then(cx, read);
                });
                let found = TOLD.on_value(HERE, move |cx: &mut Cx, dir: Told<Dir>| {
                    let dir = dir.unwrap().unwrap();
                    dir.open_file(cx, "file", READ).then(cx, opened);
                });
                Dir::open(cx, path).then(cx, found);
            });
        assert_eq!(run.unwrap(), b"hello");
    }
}

/// The open of a pipe without a writer takes a thread of the pool, and no core.
#[test]
fn a_slow_disk_delays_no_color() {
    in_task("a_slow_disk_delays", |dir, path| async move {
        // Without an end that is open, the open waits.
        drop(pipe(&path));
        let pipe = path.join("pipe");
        let mut slow = with_cx(|cx| dir.open_file(cx, "pipe", READ));
        // Colors of its core, its own color, and files go on.
        for color in 0..50u64 {
            let asked = with_cx(|cx| cx.ask(Color::from(color), |cx| cx.color().value()));
            assert_eq!(asked.await, Ok(color));
        }
        let file = create(&dir, "file").await;
        done!(|cx| file.write_at(cx, 0, "quick")).unwrap();
        assert_eq!(done!(|cx| file.read_at(cx, 0, 9)).unwrap(), b"quick");
        assert!(slow.try_recv().is_none());
        let writer = std::thread::spawn(move || std::fs::OpenOptions::new().write(true).open(pipe));
        slow.await.unwrap().unwrap();
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn a_dropped_handle_lets_the_operation_go_on() {
    let _bound = Bound::new("a_dropped_handle");
    for backend in backends() {
        let scratch = Scratch::all().pop().unwrap();
        let path = scratch.0.clone();
        let runtime = cores(2)
            .backend(backend)
            .exit_when_idle(true)
            .build()
            .unwrap();
        let run = runtime.run(move |cx| {
            cx.spawn(HERE, async move {
                let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                let file = create(&dir, "file").await;
                with_cx(|cx| drop(file.write_at(cx, 0, vec![1; super::LARGE])));
                with_cx(|cx| drop(dir.open_file(cx, "file", READ)));
                // The handles of the file are gone before its operation is over.
            });
        });
        run.unwrap();
        let written = std::fs::read(scratch.0.join("file")).unwrap();
        assert!(written == vec![1; super::LARGE]);
    }
}

/// Operations under way at a stop end, and their events start more.
#[test]
fn a_stop_waits_for_operations() {
    let _bound = Bound::new("a_stop_waits_for_operations");
    for backend in backends() {
        let scratch = Scratch::all().pop().unwrap();
        let path = scratch.0.clone();
        let (tell, told) = channel();
        let runtime = cores(2).backend(backend).build().unwrap();
        let run = runtime.run(move |cx| {
            cx.spawn(HERE, async move {
                let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                let file = create(&dir, "file").await;
                with_cx(|cx| cx.stop());
                for i in 0..3 {
                    let bytes = vec![i; super::LARGE];
                    done!(|cx| file.write_at(cx, 0, bytes)).unwrap();
                }
                let told =
                    TOLD.on_value(HERE, move |_: &mut Cx, read: Result<io::Result<_>, _>| {
                        let read: Vec<u8> = read.unwrap().unwrap();
                        tell.send(read).unwrap();
                    });
                with_cx(|cx| file.read_at(cx, 0, 1 << 30).then(cx, told));
            });
        });
        run.unwrap();
        assert!(told.recv().unwrap() == vec![2; super::LARGE]);
    }
}

#[test]
fn an_operation_that_has_not_begun_is_canceled() {
    let _bound = Bound::new("an_operation_that_has_not_begun");
    for backend in backends() {
        let scratch = Scratch::all().pop().unwrap();
        let path = scratch.0.clone();
        let builder = cores(2).backend(backend).blocking_threads_max(1);
        let run = builder.build().unwrap().run_until(move |cx, finish| {
            cx.spawn(HERE, async move {
                let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                let (release, held) = channel::<()>();
                let busy = with_cx(|cx| cx.try_blocking(move || held.recv())).unwrap();
                let made = with_cx(|cx| dir.create_dir(cx, "never"));
                made.cancel();
                assert_eq!(made.await.err(), Some(JoinError::Canceled));
                let goes_on = with_cx(|cx| dir.create_dir(cx, "made"));
                release.send(()).unwrap();
                busy.await.unwrap().unwrap();
                goes_on.await.unwrap().unwrap();
                // Too late.
                let made = with_cx(|cx| dir.create_dir(cx, "late"));
                while !made.is_finished() {
                    mely::task::sleep(Duration::from_millis(1)).await;
                }
                made.cancel();
                made.await.unwrap().unwrap();
                finish.finish(());
            });
        });
        run.unwrap();
        let there = |name: &str| scratch.0.join(name).exists();
        assert_eq!(
            [there("never"), there("made"), there("late")],
            [false, true, true]
        );
    }
}

/// A pipe in a directory, which reads wait for, and its other end.
fn pipe(path: &std::path::Path) -> std::fs::File {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let pipe = path.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    // Both ends, or it would wait for one that reads.
    let both = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(pipe);
    both.unwrap()
}

/// On a ring. On a thread a read that waits cannot be canceled.
fn has_ring() -> bool {
    let ring = |backend| matches!(backend, mely::net::Backend::IoUring);
    backends().into_iter().any(ring)
}

#[test]
fn a_read_that_waits_in_a_ring_delays_nothing_and_is_canceled() {
    let _bound = Bound::new("a_read_that_waits_in_a_ring");
    if !has_ring() {
        return;
    }
    let scratch = Scratch::all().pop().unwrap();
    let path = scratch.0.clone();
    let mut end = pipe(&path);
    let builder = cores(1).backend(mely::net::Backend::IoUring);
    let run = builder.build().unwrap().run_until(move |cx, finish| {
        cx.spawn(HERE, async move {
            let dir = done!(|cx| Dir::open(cx, &path)).unwrap();
            let file = done!(|cx| dir.open_file(cx, "pipe", READ)).unwrap();
            let mut waits = with_cx(|cx| file.read_at(cx, 0, 5));
            for color in 0..50u64 {
                let asked = with_cx(|cx| cx.ask(Color::from(color), |cx| cx.color().value()));
                assert_eq!(asked.await, Ok(color));
            }
            assert!(waits.try_recv().is_none());
            waits.cancel();
            assert_eq!(waits.await.err(), Some(JoinError::Canceled));
            // The next read gets these bytes, and goes on after a short call.
            let read = with_cx(|cx| file.read_at(cx, 0, 5));
            std::io::Write::write_all(&mut end, b"12").unwrap();
            mely::task::sleep(Duration::from_millis(5)).await;
            std::io::Write::write_all(&mut end, b"345").unwrap();
            while !read.is_finished() {
                mely::task::sleep(Duration::from_millis(1)).await;
            }
            // It has won.
            read.cancel();
            assert_eq!(read.await.unwrap().unwrap(), b"12345");
            // Dropped at once, or at a time.
            drop(with_cx(|cx| file.read_at(cx, 0, 5)).cancel_on_drop());
            let waits = with_cx(|cx| file.read_at(cx, 0, 5)).cancel_on_drop();
            let late = mely::task::timeout(Duration::from_millis(2), waits).await;
            assert!(late.is_err());
            finish.finish(end);
        });
    });
    drop(run.unwrap());
}

/// A stop waits for the operation in the stage drain, and no longer, and names it.
#[test]
fn an_operation_of_a_ring_ends_with_the_stage_drain() {
    let _bound = Bound::new("an_operation_of_a_ring");
    if !has_ring() {
        return;
    }
    let scratch = Scratch::all().pop().unwrap();
    let path = scratch.0.clone();
    let end = pipe(&path);
    let (tell, told) = channel();
    let (hook, names) = channel();
    let limit = Duration::from_millis(100);
    let builder = cores(2)
        .backend(mely::net::Backend::IoUring)
        .stage_limit(mely::runtime::Stage::Drain, limit)
        .on_drain(move |unfinished| drop(hook.send(unfinished.to_string())));
    let begun = std::time::Instant::now();
    let run = builder.build().unwrap().run(move |cx| {
        let found = TOLD.on_value(HERE, move |cx: &mut Cx, dir: Result<io::Result<Dir>, _>| {
            let dir = dir.unwrap().unwrap();
            let opened = TOLD.on_value(
                HERE,
                move |cx: &mut Cx, file: Result<io::Result<File>, _>| {
                    type Read = Result<io::Result<Vec<u8>>, JoinError>;
                    let file = file.unwrap().unwrap();
                    let again = file.clone();
                    let read = move |cx: &mut Cx, read: Read| {
                        let error = read.unwrap().unwrap_err();
                        tell.send(super::errno(&error)).unwrap();
                        // In the stage close: it is not to last for ever either.
                        let read = move |_: &mut Cx, read: Read| {
                            let error = read.unwrap().unwrap_err();
                            tell.send(super::errno(&error)).unwrap();
                        };
                        let read = TOLD.on_value(HERE, read);
                        again.read_at(cx, 0, 5).then(cx, read);
                    };
                    let read = TOLD.on_value(HERE, read);
                    file.read_at(cx, 0, 5).then(cx, read);
                    cx.stop();
                },
            );
            dir.open_file(cx, "pipe", READ).then(cx, opened);
        });
        Dir::open(cx, path).then(cx, found);
    });
    run.unwrap();
    assert!(begun.elapsed() < LONG / 2);
    assert_eq!(told.recv().unwrap(), Some(libc::ECANCELED));
    assert_eq!(told.recv().unwrap(), Some(libc::ECANCELED));
    let said: String = names.iter().collect();
    assert!(said.contains("1 operation on a file"), "{said}");
    assert!(said.contains("/pipe is read, written or synced"), "{said}");
    drop(end);
}

/// The run is cut short with a read under way, and nothing is left.
#[test]
fn a_run_that_is_cut_short_closes_the_file() {
    if has_ring() {
        child_passes(
            "files::limits::cut_short_with_a_read",
            &[("MELY_BACKEND", "io_uring")],
        );
    }
}

#[test]
#[ignore = "run in a process of its own"]
fn cut_short_with_a_read() {
    let _bound = Bound::new("cut_short_with_a_read");
    let scratch = Scratch::all().pop().unwrap();
    let path = scratch.0.clone();
    let end = pipe(&path);
    let before = open_descriptors();
    let builder = cores(2).drain_deadline(Duration::from_millis(30));
    let run = builder.build().unwrap().run(move |cx| {
        cx.spawn(HERE, async move {
            let dir = done!(|cx| Dir::open(cx, path)).unwrap();
            let file = done!(|cx| dir.open_file(cx, "pipe", READ)).unwrap();
            let read = with_cx(|cx| file.read_at(cx, 0, 5));
            with_cx(|cx| cx.stop());
            // It never ends by itself.
            let _never = read.await;
            std::future::pending::<()>().await;
        });
    });
    assert!(
        matches!(run, Err(mely::RunError::Deadline { .. })),
        "{run:?}"
    );
    drop(run);
    assert_eq!(open_descriptors(), before);
    drop(end);
}

/// The limit of the pool is an error that names the path and the setting.
#[test]
fn too_many_operations_are_refused() {
    let _bound = Bound::new("too_many_operations");
    for backend in backends() {
        let builder = cores(1)
            .backend(backend)
            .blocking_threads_max(1)
            .blocking_queue_max(1);
        let run = builder.build().unwrap().run_until(|cx, finish| {
            cx.spawn(HERE, async move {
                let dir = done!(|cx| Dir::open(cx, "/")).unwrap();
                let (release, held) = channel::<()>();
                let (tell, begun) = channel();
                let busy = move || {
                    tell.send(()).unwrap();
                    held.recv()
                };
                let busy = with_cx(|cx| cx.try_blocking(busy)).unwrap();
                // A thread counts as busy with its last job until it begins the next.
                begun.recv().unwrap();
                let waits = with_cx(|cx| dir.metadata(cx, "tmp"));
                let refused = done!(|cx| dir.metadata(cx, "no")).unwrap_err();
                let text = refused.to_string();
                assert!(text.starts_with("/no: "), "{text}");
                assert!(text.contains("Builder::blocking_threads_max"), "{text}");
                release.send(()).unwrap();
                busy.await.unwrap().unwrap();
                waits.await.unwrap().unwrap();
                finish.finish(());
            });
        });
        run.unwrap();
    }
}

/// While the core that has started an operation computes, another core finds its result.
#[test]
fn what_comes_while_a_core_computes_is_told() {
    static LONG_ONE: Handler = Handler::new("long").time(Duration::from_millis(3));
    let _bound = Bound::new("what_comes_while_a_core");
    for backend in backends() {
        let scratch = Scratch::all().pop().unwrap();
        std::fs::write(scratch.0.join("file"), vec![7; super::LARGE]).unwrap();
        let path = scratch.0.clone();
        let run = cores(2)
            .backend(backend)
            .build()
            .unwrap()
            .run_until(move |cx, finish| {
                cx.spawn(HERE, async move {
                    let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                    let file = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
                    let (tell, told) = channel();
                    let busy = move |cx: &mut Cx| {
                        let read = move |_: &mut Cx, read: Result<io::Result<Vec<u8>>, _>| {
                            tell.send(read.unwrap().unwrap().len()).unwrap();
                        };
                        let read = TOLD.on_value(Color::from(55), read);
                        file.read_at(cx, 0, super::LARGE).then(cx, read);
                        // To the runtime, it computes.
                        let len = told
                            .recv_timeout(LONG)
                            .expect("another core has seen to it");
                        finish.finish(len);
                    };
                    with_cx(|cx| LONG_ONE.on(Color::from(99), busy).post(cx));
                });
            });
        assert_eq!(run.unwrap(), super::LARGE);
    }
}

#[test]
fn failures_leave_no_descriptors() {
    for backend in backends() {
        let name = match backend {
            mely::net::Backend::IoUring => "io_uring",
            _ => "epoll",
        };
        let variables = [("MELY_BACKEND", name)];
        child_passes("files::limits::failures_leave_nothing_open", &variables);
    }
}

#[test]
#[ignore = "run in a process of its own"]
fn failures_leave_nothing_open() {
    let _bound = Bound::new("failures_leave_nothing_open");
    let scratch = Scratch::all().pop().unwrap();
    let path = scratch.0.clone();
    std::fs::write(path.join("file"), "bytes").unwrap();
    let before = open_descriptors();
    let run = cores(2).build().unwrap().run_until(move |cx, finish| {
        cx.spawn(HERE, async move {
            let dir = done!(|cx| Dir::open(cx, &path)).unwrap();
            let opened = open_descriptors();
            for _ in 0..200 {
                for name in ["none/file", "../file", "file/x"] {
                    assert!(done!(|cx| dir.open_file(cx, name, READ)).is_err());
                    assert!(done!(|cx| dir.rename(cx, name, &dir, "new")).is_err());
                    assert!(done!(|cx| dir.metadata(cx, name)).is_err());
                }
                assert!(done!(|cx| dir.open_file(cx, "file", NEW)).is_err());
                assert!(done!(|cx| dir.open_dir(cx, "file")).is_err());
                // A listing that is left in the middle goes with its directory.
                drop(done!(|cx| dir.clone().list(cx)));
                // A dropped handle, a canceled open, and a file that is dropped during a read.
                drop(with_cx(|cx| dir.open_file(cx, "file", READ)));
                with_cx(|cx| dir.open_file(cx, "file", READ)).cancel();
                let file = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
                drop(with_cx(|cx| file.read_at(cx, 0, 100)));
                with_cx(|cx| file.read_at(cx, 0, 100)).cancel();
                assert!(done!(|cx| file.write_at(cx, 0, "x")).is_err());
            }
            let begun = std::time::Instant::now();
            while open_descriptors() != opened {
                assert!(begun.elapsed() < LONG, "{} of {opened}", open_descriptors());
                mely::task::sleep(Duration::from_millis(1)).await;
            }
            // Without descriptors it fails, and then goes on.
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            let none = rustix::process::Rlimit {
                current: Some(3),
                ..limit
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
            let refused = done!(|cx| dir.open_file(cx, "file", READ));
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            let error = refused.unwrap_err();
            assert_eq!(super::errno(&error), Some(libc::EMFILE), "{error}");
            done!(|cx| dir.open_file(cx, "file", OpenOptions::new().append(true))).unwrap();
            finish.finish(());
        });
    });
    run.unwrap();
    assert_eq!(open_descriptors(), before);
}

/// Bytes that say whether they are alive.
struct Counted(Vec<u8>, #[expect(dead_code, reason = "it counts")] Payload);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// However a write ends, its bytes are gone when its result has come; at the latest with the run.
#[test]
fn the_bytes_of_a_write_are_dropped() {
    let _bound = Bound::new("the_bytes_of_a_write");
    for backend in backends() {
        let is_ring = matches!(backend, mely::net::Backend::IoUring);
        let scratch = Scratch::all().pop().unwrap();
        let path = scratch.0.clone();
        let mut end = pipe(&path);
        // Full: a write waits.
        rustix::io::ioctl_fionbio(&end, true).unwrap();
        while std::io::Write::write(&mut end, &[0; 4_096]).is_ok() {}
        let alive = Alive::default();
        let left = alive.clone();
        let limit = Duration::from_millis(30);
        let builder = cores(2).backend(backend).drain_deadline(limit);
        let run = builder.build().unwrap().run(move |cx| {
            cx.spawn(HERE, async move {
                let bytes =
                    || bytes::Bytes::from_owner(Counted(vec![1; super::LARGE], left.payload()));
                let write = OpenOptions::new().write(true);
                let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                let devices = done!(|cx| Dir::open(cx, "/dev")).unwrap();
                let file = create(&dir, "file").await;
                let full = done!(|cx| devices.open_file(cx, "full", write)).unwrap();
                let only_read = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
                done!(|cx| file.write_at(cx, 0, bytes())).unwrap();
                assert_eq!(left.count(), 0);
                done!(|cx| full.write_at(cx, 0, bytes())).unwrap_err();
                assert_eq!(left.count(), 0);
                done!(|cx| only_read.write_at(cx, 0, bytes())).unwrap_err();
                assert_eq!(left.count(), 0);
                // A thread could not be had back.
                if is_ring {
                    let both = write.read(true);
                    let waits = done!(|cx| dir.open_file(cx, "pipe", both)).unwrap();
                    let canceled = with_cx(|cx| waits.write_at(cx, 0, bytes()));
                    canceled.cancel();
                    assert_eq!(canceled.await.err(), Some(JoinError::Canceled));
                    assert_eq!(left.count(), 0);
                    drop(with_cx(|cx| waits.write_at(cx, 0, bytes())));
                }
                with_cx(|cx| cx.stop());
                // To be cut short.
                std::future::pending::<()>().await;
            });
        });
        assert!(
            matches!(run, Err(mely::RunError::Deadline { .. })),
            "{run:?}"
        );
        assert_eq!(alive.count(), 0);
        drop(end);
    }
}
