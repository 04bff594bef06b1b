//! Files on the simulated disk: faults, short calls, a slow disk, cancels, a crash.

use crate::common::Bound;
use mely::fs::{Dir, File, OpenOptions, SimDisk};
use mely::net::{Acceptors, Incoming, SimCall};
use mely::sim::{Simulation, Step};
use mely::task::{JoinError, sleep, with_cx};
use mely::{Color, Cx, Handler, JoinHandle, Runtime};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HERE: Color = Color::new(7);
const READ: OpenOptions = OpenOptions::new().read(true);
const NEW: OpenOptions = READ.write(true).create_new(true);
const BOTH: OpenOptions = READ.write(true);

macro_rules! done {
    (|$cx:ident| $call:expr) => {
        with_cx(|$cx| $call).await.unwrap()
    };
}

/// Runs a task in a directory of a simulated disk, to its end.
fn in_simulation<R, T>(
    seed: u64,
    set: impl Fn(&SimDisk),
    task: impl FnOnce(Dir) -> R + Send + 'static,
) -> (T, Simulation)
where
    R: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
    simulation.disk().create_dir("/data").unwrap();
    set(simulation.disk());
    let run = simulation.run_until(move |cx, finish| {
        cx.spawn(HERE, async move {
            let dir = loop {
                // It may be made to fail.
                if let Ok(dir) = done!(|cx| Dir::open(cx, "/data")) {
                    break dir;
                }
            };
            finish.finish(task(dir).await);
        });
    });
    (run.unwrap(), simulation)
}

fn errno(error: &io::Error) -> Option<i32> {
    error.source()?.downcast_ref::<io::Error>()?.raw_os_error()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn it_is_a_file_system() {
    let _bound = Bound::new("it_is_a_file_system");
    let set = |disk: &SimDisk| disk.symlink("../etc", "/data/out").unwrap();
    let ((), simulation) = in_simulation(1, set, |dir| async move {
        let file = done!(|cx| dir.open_file(cx, "file", NEW)).unwrap();
        done!(|cx| file.write_at(cx, 3, bytes(200_000))).unwrap();
        let read = done!(|cx| file.read_at(cx, 0, usize::MAX)).unwrap();
        assert!(read[..3] == [0; 3] && read[3..] == bytes(200_000));
        done!(|cx| file.truncate(cx, 10)).unwrap();
        let known = done!(|cx| file.metadata(cx)).unwrap();
        assert!(known.is_file() && known.len() == 10 && known.links() == 1);
        done!(|cx| dir.create_dir(cx, "sub")).unwrap();
        let sub = done!(|cx| dir.open_dir(cx, "sub")).unwrap();
        done!(|cx| dir.hard_link(cx, "file", &sub, "link")).unwrap();
        let refused = |result: io::Result<()>, number| {
            let error = result.unwrap_err();
            assert_eq!(errno(&error), Some(number), "{error}");
        };
        refused(
            done!(|cx| dir.rename(cx, "sub", &sub, "itself")),
            libc::EINVAL,
        );
        refused(done!(|cx| dir.remove_dir(cx, "sub")), libc::ENOTEMPTY);
        refused(done!(|cx| dir.remove_file(cx, "sub")), libc::EISDIR);
        refused(
            done!(|cx| dir.open_file(cx, "none", READ)).map(drop),
            libc::ENOENT,
        );
        refused(
            done!(|cx| dir.open_file(cx, "file/x", READ)).map(drop),
            libc::ENOTDIR,
        );
        refused(
            done!(|cx| dir.open_file(cx, "file", NEW)).map(drop),
            libc::EEXIST,
        );
        done!(|cx| sub.rename(cx, "link", &dir, "other")).unwrap();
        done!(|cx| dir.remove_dir(cx, "sub")).unwrap();
        done!(|cx| dir.remove_file(cx, "file")).unwrap();
        assert_eq!(done!(|cx| file.metadata(cx)).unwrap().links(), 1);
        for out in ["../etc", "out/x", "/data/other", "sub/../../etc"] {
            let error = done!(|cx| dir.open_file(cx, out, READ)).unwrap_err();
            let expected = match out {
                // There is no `sub` any more.
                "sub/../../etc" => io::ErrorKind::NotFound,
                _ => io::ErrorKind::PermissionDenied,
            };
            assert_eq!(error.kind(), expected, "{out}: {error}");
        }
        for i in 0..150 {
            done!(|cx| dir.create_dir(cx, format!("{i}"))).unwrap();
        }
        let mut names = BTreeSet::new();
        loop {
            let piece = done!(|cx| dir.list(cx)).unwrap();
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() <= 64);
            names.extend(piece.into_iter().map(|entry| entry.name().to_owned()));
        }
        assert_eq!(names.len(), 152);
    });
    assert_eq!(simulation.disk().open_count(), 0);
    assert_eq!(simulation.disk().read("/data/other").unwrap().len(), 10);
}

#[test]
fn short_calls_are_not_seen() {
    for seed in 0..20 {
        let set = |disk: &SimDisk| disk.set_move_bytes_max(1_000);
        in_simulation(seed, set, |dir| async move {
            let file = done!(|cx| dir.open_file(cx, "file", NEW)).unwrap();
            done!(|cx| file.write_at(cx, 0, bytes(100_000))).unwrap();
            let read = done!(|cx| file.read_at(cx, 0, 200_000)).unwrap();
            assert!(read == bytes(100_000));
        });
    }
}

#[test]
fn a_full_disk_says_how_much_it_took() {
    let set = |disk: &SimDisk| disk.set_capacity_bytes(100_000);
    let ((), simulation) = in_simulation(1, set, |dir| async move {
        let file = done!(|cx| dir.open_file(cx, "file", NEW)).unwrap();
        let error = done!(|cx| file.write_at(cx, 0, bytes(200_000))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let text = error.to_string();
        assert!(text.starts_with("/data/file: "), "{text}");
        assert!(
            text.ends_with(", 65536 of 200000 bytes were written"),
            "{text}"
        );
        let space = done!(|cx| dir.space(cx)).unwrap();
        assert_eq!(
            (space.total_bytes, space.available_bytes),
            (100_000, 34_464)
        );
        done!(|cx| file.truncate(cx, 0)).unwrap();
        done!(|cx| file.write_at(cx, 0, bytes(100_000))).unwrap();
    });
    assert!(simulation.disk().read("/data/file").unwrap() == bytes(100_000));
}

/// Each call fails now and then. A write that has succeeded is on the disk.
#[test]
fn faults_are_errors_and_lose_nothing_that_was_told() {
    let mut failed = 0;
    for seed in 0..50 {
        let set = |disk: &SimDisk| {
            disk.set_fault_odds(4);
            disk.set_move_bytes_max(30_000);
        };
        let ((written, errors), simulation) = in_simulation(seed, set, |dir| async move {
            let (mut written, mut errors) = (Vec::new(), 0);
            for i in 0..10u8 {
                let name = i.to_string();
                let file = match done!(|cx| dir.open_file(cx, &name, NEW)) {
                    Ok(file) => file,
                    Err(error) => {
                        assert_eq!(errno(&error), Some(libc::EIO));
                        errors += 1;
                        continue;
                    }
                };
                match done!(|cx| file.write_at(cx, 0, vec![i; 100_000])) {
                    Ok(()) => written.push(i),
                    Err(error) => {
                        assert!(matches!(errno(&error), Some(libc::EIO | libc::ENOSPC)));
                        errors += 1;
                    }
                }
            }
            (written, errors)
        });
        for i in written {
            let there = simulation.disk().read(format!("/data/{i}")).unwrap();
            assert!(there == vec![i; 100_000], "seed {seed}, file {i}");
        }
        failed += errors;
        assert_eq!(simulation.disk().open_count(), 0, "seed {seed}");
    }
    assert!(failed > 100, "{failed}");
}

/// While the disk takes its time, other events of the core run, also of the same color.
#[test]
fn a_slow_disk_takes_virtual_time_and_no_core() {
    const SECOND: Duration = Duration::from_secs(1);
    let set = |disk: &SimDisk| disk.set_latency(SECOND, SECOND);
    let ((), simulation) = in_simulation(1, set, |dir| async move {
        let slow = with_cx(|cx| dir.create_dir(cx, "sub"));
        let begun = with_cx(|cx| cx.now());
        for color in 0..50u64 {
            let asked = with_cx(|cx| cx.ask(Color::from(color), |cx| cx.color().value()));
            assert_eq!(asked.await, Ok(color));
        }
        assert!(with_cx(|cx| cx.now()) - begun < SECOND / 10);
        assert!(!slow.is_finished());
        slow.await.unwrap().unwrap();
        assert!(with_cx(|cx| cx.now()) - begun >= SECOND);
    });
    assert!(simulation.now() >= 2 * SECOND);
}

/// The number of moments at which an operation is canceled.
const STAGES: u64 = 12;

type Outcome = Result<io::Result<()>, JoinError>;

/// Cancels an operation after a time, and returns its outcome.
async fn cancel_after(time: Duration, operation: JoinHandle<io::Result<()>>) -> Outcome {
    sleep(time).await;
    operation.cancel();
    operation.await
}

/// A write of four pieces and a rename, canceled before, between and after their calls: the disk
/// agrees with the outcome, and nothing is left open.
#[test]
fn an_operation_that_is_canceled_leaves_nothing_behind() {
    let (mut canceled, mut done_at_all) = (0, 0);
    for seed in 0..10 {
        for stage in 0..STAGES {
            let set = |disk: &SimDisk| {
                disk.write("/data/file", vec![0; 4 << 16]).unwrap();
                let time = Duration::from_micros(90);
                disk.set_latency(time, time + Duration::from_micros(20));
            };
            let wait = Duration::from_micros(50 * stage);
            let (outcomes, simulation) = in_simulation(seed, set, move |dir| async move {
                let file: File = done!(|cx| dir.open_file(cx, "file", BOTH)).unwrap();
                let write = with_cx(|cx| file.write_at(cx, 0, vec![1; 4 << 16]));
                let write = cancel_after(wait, write).await;
                drop(file);
                let rename = with_cx(|cx| dir.rename(cx, "file", &dir, "new"));
                let rename = cancel_after(wait / 3, rename).await;
                [write, rename]
            });
            let disk = simulation.disk();
            assert_eq!(disk.open_count(), 0, "seed {seed}, stage {stage}");
            let ended = |outcome: &Outcome| match outcome {
                Ok(result) => {
                    assert!(result.is_ok());
                    true
                }
                Err(error) => {
                    assert_eq!(*error, JoinError::Canceled);
                    false
                }
            };
            let [written, renamed] = [ended(&outcomes[0]), ended(&outcomes[1])];
            let there = disk
                .read(if renamed { "/data/new" } else { "/data/file" })
                .unwrap();
            let pieces = there.iter().take_while(|&&byte| byte == 1).count();
            assert_eq!(pieces % (1 << 16), 0, "seed {seed}, stage {stage}");
            assert_eq!(pieces == 4 << 16, written, "seed {seed}, stage {stage}");
            assert!(
                disk.read(if renamed { "/data/file" } else { "/data/new" })
                    .is_err()
            );
            for over in [written, renamed] {
                *(if over {
                    &mut done_at_all
                } else {
                    &mut canceled
                }) += 1;
            }
        }
    }
    assert!(
        canceled > 20 && done_at_all > 20,
        "{canceled} {done_at_all}"
    );
}

/// The run is cut short with operations under way.
#[test]
fn a_run_that_is_cut_short_leaves_nothing_open() {
    for steps in 0..200 {
        let mut simulation = Runtime::builder().cores(2).simulate(steps).unwrap();
        simulation
            .disk()
            .write("/data/file", bytes(300_000))
            .unwrap();
        let time = Duration::from_micros(1);
        simulation.disk().set_latency(Duration::ZERO, time);
        let start = |cx: &mut Cx| {
            cx.spawn(HERE, async {
                loop {
                    let dir = done!(|cx| Dir::open(cx, "/data")).unwrap();
                    let file = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
                    drop(with_cx(|cx| file.read_at(cx, 0, 200_000)));
                    done!(|cx| file.read_at(cx, 0, 200_000)).unwrap();
                }
            });
        };
        simulation.start(start).unwrap();
        for _ in 0..steps * 3 {
            simulation.step();
        }
        let disk = simulation.disk().clone();
        drop(simulation);
        assert_eq!(disk.open_count(), 0, "after {steps} steps");
    }
}

/// A program that replaces a file as it should finds the old or the new one, wherever it crashes;
/// one that forgets a sync does not.
#[test]
fn a_crash_loses_what_was_not_synced() {
    async fn replace(dir: Dir, syncs: bool) {
        let file = done!(|cx| dir.open_file(cx, "new", NEW)).unwrap();
        done!(|cx| file.write_at(cx, 0, bytes(100_000))).unwrap();
        if syncs {
            done!(|cx| file.sync_data(cx)).unwrap();
        }
        done!(|cx| dir.rename(cx, "new", &dir, "file")).unwrap();
        done!(|cx| dir.sync(cx)).unwrap();
    }
    let found = |syncs: bool| {
        let found = Arc::new(Mutex::new(BTreeSet::new()));
        for steps in 0..400 {
            let mut simulation = Runtime::builder().cores(2).simulate(steps % 7).unwrap();
            let disk = simulation.disk().clone();
            disk.write("/data/file", "old").unwrap();
            simulation
                .start(move |cx| {
                    cx.spawn(HERE, async move {
                        let dir = done!(|cx| Dir::open(cx, "/data")).unwrap();
                        replace(dir, syncs).await;
                    });
                })
                .unwrap();
            for _ in 0..steps {
                if simulation.step() == Step::Stalled {
                    break;
                }
            }
            let _cut = simulation.end();
            disk.crash();
            let there = disk.read("/data/file").unwrap();
            found.lock().unwrap().insert(there.len());
        }
        let found = found.lock().unwrap();
        found.iter().copied().collect::<Vec<_>>()
    };
    assert_eq!(found(true), [3, 100_000]);
    assert_eq!(found(false), [0, 3]);
}

/// Each was synced while the other was in it: after a crash one is in the other, and no loop.
#[test]
fn a_crash_leaves_no_directory_in_itself() {
    let _bound = Bound::new("a_crash_leaves_no_directory");
    let ((), simulation) = in_simulation(
        1,
        |disk| {
            disk.create_dir("/data/a").unwrap();
            disk.create_dir("/data/b").unwrap();
            disk.write("/data/a/file", "a").unwrap();
        },
        |dir| async move {
            let a = done!(|cx| dir.open_dir(cx, "a")).unwrap();
            let b = done!(|cx| dir.open_dir(cx, "b")).unwrap();
            done!(|cx| dir.rename(cx, "b", &a, "b")).unwrap();
            done!(|cx| a.sync(cx)).unwrap();
            done!(|cx| a.rename(cx, "b", &dir, "b")).unwrap();
            done!(|cx| dir.rename(cx, "a", &b, "a")).unwrap();
            done!(|cx| b.sync(cx)).unwrap();
        },
    );
    let disk = simulation.disk();
    disk.crash();
    assert_eq!(disk.read("/data/a/file").unwrap(), b"a");
    // It goes through all nodes.
    disk.set_capacity_bytes(10);
    disk.crash();
    for path in ["/data/a/b/a", "/data/b/a"] {
        let error = disk.read(path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{path}");
    }
}

#[test]
fn no_file_is_larger_than_the_disk_can_hold() {
    let ((), _) = in_simulation(
        1,
        |_| (),
        |dir| async move {
            let file = done!(|cx| dir.open_file(cx, "file", NEW)).unwrap();
            for (result, number) in [
                (done!(|cx| file.truncate(cx, u64::MAX)), libc::EINVAL),
                (done!(|cx| file.truncate(cx, 1 << 45)), libc::EFBIG),
                (done!(|cx| file.write_at(cx, 1 << 45, "x")), libc::EFBIG),
                (
                    done!(|cx| file.write_at(cx, i64::MAX as u64 - 1, "x")),
                    libc::EFBIG,
                ),
            ] {
                assert_eq!(errno(&result.unwrap_err()), Some(number));
            }
            assert_eq!(done!(|cx| file.metadata(cx)).unwrap().len(), 0);
        },
    );
}

#[test]
fn an_open_that_truncates_is_a_change() {
    let ((), _) = in_simulation(
        1,
        |_| (),
        |dir| async move {
            let file = done!(|cx| dir.open_file(cx, "file", NEW)).unwrap();
            done!(|cx| file.write_at(cx, 0, "x")).unwrap();
            let before = done!(|cx| file.metadata(cx)).unwrap();
            let empty = OpenOptions::new().write(true).truncate(true);
            done!(|cx| dir.open_file(cx, "file", empty)).unwrap();
            let after = done!(|cx| file.metadata(cx)).unwrap();
            assert!(after.modified() > before.modified() && after.is_file());
            assert_eq!(after.len(), 0);
        },
    );
}

/// As for the kernel; beneath a directory they lead out.
#[test]
fn a_directory_is_opened_by_any_path() {
    let set = |disk: &SimDisk| {
        disk.symlink("/data/sub", "/link").unwrap();
        disk.symlink("/data/sub", "/data/link").unwrap();
        disk.symlink("../..", "/data/up").unwrap();
        disk.write("/data/sub/file", "x").unwrap();
    };
    let ((), simulation) = in_simulation(1, set, |dir| async move {
        for path in [
            "/link",
            "/link/",
            "/../data/sub",
            "/data/up/../link",
            "data/sub",
        ] {
            let sub = done!(|cx| Dir::open(cx, path)).unwrap();
            done!(|cx| sub.open_file(cx, "file", READ)).unwrap();
        }
        let root = done!(|cx| Dir::open(cx, "/")).unwrap();
        for (dir, path) in [
            (&dir, "link"),
            (&dir, "up"),
            (&root, "data/link"),
            (&root, ".."),
        ] {
            let error = done!(|cx| dir.open_dir(cx, path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}");
        }
    });
    assert_eq!(simulation.disk().read("/link/file").unwrap(), b"x");
}

/// A fault with the number of a rename between file systems.
#[test]
fn a_fault_is_no_path_that_leads_out() {
    let ((), _) = in_simulation(
        1,
        |disk| disk.fail_next(SimCall::FileChange, libc::EXDEV),
        |dir| async move {
            let error = done!(|cx| dir.rename(cx, "a", &dir, "b")).unwrap_err();
            let found = (error.kind(), errno(&error));
            assert_eq!(found, (io::ErrorKind::CrossesDevices, Some(libc::EXDEV)));
        },
    );
}

#[test]
fn a_fault_that_is_set_is_the_next_one() {
    let calls = [
        SimCall::FileOpen,
        SimCall::FileRead,
        SimCall::FileSync,
        SimCall::FileChange,
    ];
    for call in calls {
        let mut simulation = Runtime::builder().cores(2).simulate(1).unwrap();
        let disk_of_task = simulation.disk().clone();
        disk_of_task.write("/data/file", "x").unwrap();
        let run = simulation.run_until(move |cx, finish| {
            cx.spawn(HERE, async move {
                let dir = done!(|cx| Dir::open(cx, "/data")).unwrap();
                let file = done!(|cx| dir.open_file(cx, "file", BOTH)).unwrap();
                disk_of_task.fail_next(call, libc::EACCES);
                let mut failed = Vec::new();
                for _ in 0..2 {
                    let opened = done!(|cx| dir.open_file(cx, "file", READ)).map(drop);
                    failed.push((SimCall::FileOpen, opened));
                    let read = done!(|cx| file.read_at(cx, 0, 1)).map(drop);
                    failed.push((SimCall::FileRead, read));
                    failed.push((SimCall::FileSync, done!(|cx| file.sync(cx))));
                    failed.push((SimCall::FileChange, done!(|cx| file.truncate(cx, 1))));
                }
                failed.retain(|(_, result)| result.is_err());
                let [(which, Err(error))] = &failed[..] else {
                    panic!("{failed:?}");
                };
                assert_eq!((*which, errno(error)), (call, Some(libc::EACCES)));
                finish.finish(());
            });
        });
        run.unwrap();
    }
}

/// A file is sent over the simulated network, by short sends, from a slow disk with short reads.
#[test]
fn a_file_is_sent_through_short_calls() {
    static ACCEPT: Handler = Handler::new("accept");
    let _bound = Bound::new("a_file_is_sent_through");
    for seed in 0..20 {
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        let disk = simulation.disk();
        disk.write("/data/file", bytes(300_000)).unwrap();
        disk.set_move_bytes_max(20_000);
        disk.set_latency(Duration::ZERO, Duration::from_millis(1));
        simulation.network().set_move_bytes_max(10_000);
        let (tell, outcome) = std::sync::mpsc::channel();
        let (tell_addr, addr) = std::sync::mpsc::channel();
        let start = move |cx: &mut Cx| {
            let accepted = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let (stream, tell) = (incoming.unwrap().open_unique(), tell.clone());
                cx.spawn(stream.color(), async move {
                    let dir = done!(|cx| Dir::open(cx, "/data")).unwrap();
                    let file = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
                    let sent = done!(|cx| stream.send_file(cx, &file, 1_000..u64::MAX));
                    tell.send(sent.map_err(|error| error.kind())).unwrap();
                });
            };
            let any = "127.0.0.1:0";
            let accepted = ACCEPT.on_each(HERE, accepted);
            let listener = cx.listen(any, Acceptors::Single, accepted).unwrap();
            tell_addr.send(listener.local_addr()).unwrap();
        };
        simulation.start(start).unwrap();
        while simulation.step() != Step::Stalled {}
        let addr = addr.recv().unwrap();
        for resets_after in [None, Some(100_000)] {
            let mut client = simulation.network().connect(&addr).unwrap();
            let mut got = Vec::new();
            let mut space = [0; 4_096];
            loop {
                let step = simulation.step();
                match client.read(&mut space) {
                    Ok(0) => break,
                    Ok(n) => got.extend_from_slice(&space[..n]),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "seed {seed}");
                        assert_ne!(step, Step::Stalled, "seed {seed}: {} bytes", got.len());
                    }
                }
                if resets_after.is_some_and(|after| got.len() > after) {
                    break;
                }
            }
            let expected = match resets_after {
                None => {
                    assert!(got == bytes(300_000)[1_000..], "seed {seed}");
                    Ok(299_000)
                }
                Some(_) => {
                    client.reset();
                    Err(io::ErrorKind::ConnectionReset)
                }
            };
            while simulation.step() != Step::Stalled {}
            assert_eq!(outcome.recv().unwrap(), expected, "seed {seed}");
        }
        assert_eq!(simulation.disk().open_count(), 0, "seed {seed}");
        simulation.poster().stop();
        while simulation.step() != Step::Ended {}
        simulation.end().unwrap();
    }
}

#[test]
fn a_seed_repeats_its_faults_and_times() {
    let run = |seed: u64| {
        let set = |disk: &SimDisk| {
            disk.set_fault_odds(5);
            disk.set_latency(Duration::ZERO, Duration::from_millis(3));
            disk.set_move_bytes_max(9_000);
        };
        let (failed, simulation) = in_simulation(seed, set, |dir| async move {
            let mut failed = Vec::new();
            for i in 0..20 {
                let made = done!(|cx| dir.create_dir(cx, i.to_string()));
                failed.push(made.is_err());
            }
            failed
        });
        (failed, simulation.fingerprint(), simulation.now())
    };
    let all: BTreeSet<_> = (0..10).map(run).collect();
    assert_eq!(all.len(), 10);
    assert!((0..10).map(run).all(|again| all.contains(&again)));
}
