//! Children: programs that are started, their streams, their ends.

use crate::common::{Alive, Bound, LONG, backends, cores};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mely::aio::AsyncStream;
use mely::net::{Incoming, Stream};
use mely::process::{self, Child, Signal};
use mely::runtime::Stage;
use mely::task::{sleep, timeout, with_cx};
use mely::{Builder, Color, Cx, Handler, RunError};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

static TOLD: Handler = Handler::new("told");
const HERE: Color = Color::new(7);

/// Runs a task on each backend, to its end.
fn in_task<R, T>(name: &'static str, task: impl Fn() -> R + Clone + Send + 'static) -> Vec<T>
where
    R: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let _bound = Bound::new(name);
    let run = |builder: Builder| {
        let task = task.clone();
        builder.build().unwrap().run_until(move |cx, finish| {
            let task = task();
            cx.spawn(HERE, async move { finish.finish(task.await) });
        })
    };
    let all = backends().into_iter();
    all.map(|backend| run(cores(2).backend(backend)).unwrap())
        .collect()
}

async fn start(command: Command) -> io::Result<Child> {
    with_cx(|cx| process::spawn(cx, command)).await.unwrap()
}

/// What is left would keep the streams of this process for long.
fn kill(id: i32) {
    let pid = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn shell(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    command
}

fn stdio() -> (AsyncStream, Stdio) {
    with_cx(|cx| {
        let (ours, theirs) = process::stdio(cx).unwrap();
        let stream = ours.open(cx.color());
        (AsyncStream::new(cx, stream).unwrap(), theirs)
    })
}

async fn all_of(mut stream: AsyncStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[test]
fn a_child_reads_and_writes_streams() {
    let sizes = in_task("a_child_reads_and_writes", || async {
        let (mut input, stdin) = stdio();
        let (output, stdout) = stdio();
        let mut command = Command::new("cat");
        command.stdin(stdin).stdout(stdout);
        let mut child = start(command).await.unwrap();
        let text: String = (0..40_000)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        let sent = text.clone();
        let writes = with_cx(|cx| {
            cx.spawn(HERE, async move {
                input.write_all(sent.as_bytes()).await.unwrap();
                input.close().await.unwrap();
            })
        });
        assert!(all_of(output).await == text);
        writes.await.unwrap();
        assert!(child.wait().await.unwrap().success());
        // Told once more.
        assert!(child.wait().await.unwrap().success());
        text.len()
    });
    assert!(sizes.iter().all(|&size| size == 40_000));
}

#[test]
fn the_status_is_the_childs_own() {
    in_task("the_status_is_the_childs_own", || async {
        // One that is somebody else's, and that nobody takes from it.
        let mut other = shell("exit 5").spawn().unwrap();
        let mut child = start(shell("echo said >&2; exit 3")).await.unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(3));
        let gone = child.kill(Signal::TERM).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
        assert_eq!(other.wait().unwrap().code(), Some(5));
        let error = start(Command::new("/no/such/program")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().starts_with("/no/such/program: "),
            "{error}"
        );
    });
}

#[test]
fn a_child_is_killed_after_a_time() {
    in_task("a_child_is_killed", || async {
        let mut child = start(shell("exec sleep 100")).await.unwrap();
        assert_ne!(child.id(), 0);
        let waits = timeout(Duration::from_millis(20), child.wait()).await;
        assert!(waits.is_err());
        child.kill(Signal::TERM).unwrap();
        assert_eq!(child.wait().await.unwrap().signal(), Some(libc::SIGTERM));
    });
}

/// What a grandchild has inherited does not keep the child's end from being told, nor the run from
/// ending.
/// The grandchild has the stream too: its end is the group's.
#[test]
fn a_child_is_killed_with_all_that_it_has_started() {
    in_task("a_child_is_killed_with_all", || async {
        let (mut output, stdout) = stdio();
        let mut command = shell("sleep 100 & echo started; wait");
        command.stdout(stdout).process_group(0);
        let mut child = start(command).await.unwrap();
        let mut line = Vec::new();
        assert!(output.read_line(&mut line, 100).await.unwrap());
        child.kill_group(Signal::KILL).unwrap();
        assert_eq!(all_of(output).await, "");
        assert_eq!(child.wait().await.unwrap().signal(), Some(libc::SIGKILL));
        let gone = child.kill_group(Signal::KILL).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
        // One that leads none.
        let mut alone = start(shell("read nothing")).await.unwrap();
        let refused = alone.kill_group(Signal::KILL).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
        let _ = alone.kill(Signal::KILL);
        alone.wait().await.unwrap();
    });
}

#[test]
fn a_grandchild_that_has_the_stream_holds_nothing() {
    let _bound = Bound::new("a_grandchild_that_has");
    for backend in backends() {
        let builder = cores(2)
            .backend(backend)
            .stage_limit(Stage::Drain, Duration::from_millis(50));
        let begun = Instant::now();
        let run = builder.build().unwrap().run_until(move |cx, finish| {
            cx.spawn(HERE, async move {
                let (mut output, stdout) = stdio();
                let mut command = shell("sleep 100 & echo $!");
                command.stdout(stdout).process_group(0);
                let mut child = start(command).await.unwrap();
                assert!(child.wait().await.unwrap().success());
                let mut bytes = [0; 20];
                let n = output.read(&mut bytes).await.unwrap();
                let id: i32 = std::str::from_utf8(&bytes[..n])
                    .unwrap()
                    .trim()
                    .parse()
                    .unwrap();
                finish.finish(id);
                // Of the connection below, the end is told at the stop.
                let _ended = output.read(&mut bytes).await;
            });
        });
        let id = run.unwrap();
        assert!(begun.elapsed() < LONG);
        kill(id);
    }
}

#[test]
fn the_end_is_called_back_once() {
    let _bound = Bound::new("the_end_is_called_back");
    for backend in backends() {
        let alive = Alive::default();
        let payload = alive.payload();
        let (tell, told) = channel();
        let runtime = cores(2)
            .backend(backend)
            .exit_when_idle(true)
            .build()
            .unwrap();
        let run = runtime.run(move |cx| {
            cx.spawn(HERE, async move {
                let child = start(shell("exit 4")).await.unwrap();
                let ended = move |cx: &mut Cx, status: io::Result<ExitStatus>| {
                    let _has = payload;
                    assert_eq!(cx.color(), HERE);
                    tell.send(status.unwrap().code()).unwrap();
                };
                // Detached: the handle, and the child.
                with_cx(|cx| child.on_exit(cx, TOLD.on_value(HERE, ended))).unwrap();
            });
        });
        run.unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [Some(4)]);
        assert_eq!(alive.count(), 0);
    }
}

/// Its end is under way, as a task's is.
#[test]
fn a_stop_waits_for_a_child_and_not_for_ever() {
    let _bound = Bound::new("a_stop_waits_for_a_child");
    for backend in backends() {
        for (time, limit, expected) in [
            ("0.05", LONG, true),
            ("100", Duration::from_millis(40), false),
        ] {
            let (tell, told) = channel();
            let (hook, names) = channel();
            let (id, started) = channel();
            let builder = cores(2).backend(backend.clone()).drain_deadline(2 * LONG);
            let builder = builder.stage_limit(Stage::Drain, limit);
            let builder = builder.on_drain(move |unfinished| {
                let _ = hook.send(unfinished.to_string());
            });
            let run = builder.build().unwrap().run(move |cx| {
                cx.spawn(HERE, async move {
                    let child = start(shell(&format!("exec sleep {time}"))).await.unwrap();
                    let ended = move |_: &mut Cx, status: io::Result<ExitStatus>| {
                        tell.send(status.unwrap().success()).unwrap();
                    };
                    id.send(child.id()).unwrap();
                    with_cx(|cx| {
                        child.on_exit(cx, TOLD.on_value(HERE, ended)).unwrap();
                        cx.stop();
                    });
                    child
                });
            });
            run.unwrap();
            assert_eq!(told.recv().ok(), expected.then_some(true));
            if !expected {
                kill(started.recv().unwrap() as i32);
            }
            let said: String = names.iter().collect();
            let named = said.contains("1 child")
                && said.contains("has not ended (handler `told` of color 7)");
            assert_eq!(named, !expected, "{said}");
        }
    }
}

/// Nobody asks for the status of a child whose handle is dropped; and no zombie is left.
#[test]
fn a_child_that_is_dropped_is_reaped() {
    in_task("a_child_that_is_dropped", || async {
        let child = start(shell("exec sleep 0.03")).await.unwrap();
        let id = child.id();
        drop(child);
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            stat.rsplit(')').next()?.trim().chars().next()
        };
        let begun = Instant::now();
        while let Some(state) = state() {
            assert!(begun.elapsed() < LONG, "in state {state}");
            sleep(Duration::from_millis(5)).await;
        }
    });
}

/// A core that is pinned starts it, and it may use what the program may.
#[test]
fn a_child_may_use_all_processors() {
    let allowed = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"));
        line.map(str::to_owned).unwrap()
    };
    let ours = allowed(&std::fs::read_to_string("/proc/self/status").unwrap());
    let all = in_task("a_child_may_use", || async {
        let (output, stdout) = stdio();
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").stdout(stdout);
        let mut child = start(command).await.unwrap();
        let text = all_of(output).await;
        assert!(child.wait().await.unwrap().success());
        text
    });
    for text in all {
        assert_eq!(allowed(&text), ours);
        let blocked = text
            .lines()
            .find(|line| line.starts_with("SigBlk"))
            .unwrap();
        assert!(blocked.ends_with("0000000000000000"), "{blocked}");
    }
}

#[test]
fn streams_that_were_made_elsewhere_are_connections() {
    let _bound = Bound::new("streams_that_were_made_elsewhere");
    for backend in backends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        let (unix, theirs) = UnixStream::pair().unwrap();
        let clients = std::thread::spawn(move || {
            let mut tcp = accepted;
            let mut unix = theirs;
            for client in [&mut tcp as &mut dyn ReadWrite, &mut unix] {
                client.write_all(b"ping").unwrap();
                let mut answer = [0; 4];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"PING");
            }
        });
        trait ReadWrite: Read + Write {}
        impl<T: Read + Write> ReadWrite for T {}
        async fn answer(stream: Stream) {
            let mut stream = with_cx(|cx| AsyncStream::new(cx, stream)).unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            stream.write_all(&bytes.to_ascii_uppercase()).await.unwrap();
            assert_eq!(stream.read(&mut bytes).await.unwrap(), 0);
        }
        let runtime = cores(2)
            .backend(backend)
            .exit_when_idle(true)
            .build()
            .unwrap();
        let run = runtime.run(move |cx| {
            let refused = |cx: &mut Cx, fd: std::os::fd::OwnedFd| {
                let error = Incoming::adopt(cx, fd).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            };
            refused(cx, listener.into());
            refused(cx, std::fs::File::open("/dev/null").unwrap().into());
            refused(cx, std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into());
            for incoming in [Incoming::adopt(cx, tcp), Incoming::adopt(cx, unix)] {
                let stream = incoming.unwrap().open_unique();
                let color = stream.color();
                cx.spawn(color, answer(stream));
            }
        });
        run.unwrap();
        clients.join().unwrap();
    }
}

#[test]
fn a_simulation_starts_nothing() {
    let _bound = Bound::new("a_simulation_starts_nothing");
    let mut simulation = cores(2).simulate(1).unwrap();
    let run = simulation.run(|cx| {
        let kind = |error: io::Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        kind(process::stdio(cx).unwrap_err());
        kind(Incoming::adopt(cx, UnixStream::pair().unwrap().0).unwrap_err());
        cx.spawn(HERE, async move {
            let error = start(Command::new("true")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            with_cx(|cx| cx.stop());
        });
    });
    assert!(!matches!(
        run,
        Err(mely::sim::SimError::Run(RunError::Panicked { .. }))
    ));
    run.unwrap();
}

/// Whoever waits for it, and gives up, leaves no zombie.
#[test]
fn a_child_that_nobody_waits_for_any_more_is_reaped() {
    in_task("a_child_that_nobody_waits_for", || async {
        let mut ids = Vec::new();
        // Killed after a wait that was given up.
        let mut child = start(shell("exec sleep 100")).await.unwrap();
        ids.push(child.id());
        assert!(
            timeout(Duration::from_millis(5), child.wait())
                .await
                .is_err()
        );
        child.kill(Signal::KILL).unwrap();
        drop(child);
        // Dropped before the watch is canceled.
        let child = start(shell("exec sleep 0.02")).await.unwrap();
        ids.push(child.id());
        let never = TOLD.on_value(HERE, |_: &mut Cx, _: io::Result<ExitStatus>| unreachable!());
        let watch = with_cx(|cx| child.on_exit(cx, never)).unwrap();
        drop(child);
        watch.cancel();
        let begun = Instant::now();
        for id in ids {
            while std::fs::exists(format!("/proc/{id}")).unwrap() {
                assert!(begun.elapsed() < LONG, "{id} is there");
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
}

/// It goes on, and the run ends.
#[test]
fn an_idle_run_does_not_wait_for_a_child_that_was_dropped() {
    let _bound = Bound::new("an_idle_run_does_not_wait");
    for backend in backends() {
        let runtime = cores(2)
            .backend(backend)
            .exit_when_idle(true)
            .build()
            .unwrap();
        let (tell, told) = channel();
        let begun = Instant::now();
        let run = runtime.run(move |cx| {
            cx.spawn(HERE, async move {
                let child = start(shell("exec sleep 100")).await.unwrap();
                tell.send(child.id()).unwrap();
            });
        });
        run.unwrap();
        assert!(begun.elapsed() < LONG);
        kill(told.recv().unwrap() as i32);
    }
}

/// A task that is told of the stop kills what it has started, and waits for that; also for a color
/// that is held.
#[test]
fn a_child_is_waited_for_after_a_stop_and_through_a_hold() {
    let _bound = Bound::new("a_child_is_waited_for_after_a_stop");
    for backend in backends() {
        let (tell, told) = channel();
        let run = cores(2).backend(backend).build().unwrap().run(move |cx| {
            let hold = cx.hold();
            hold.until(async move {
                let mut child = start(shell("exec sleep 100")).await.unwrap();
                with_cx(|cx| cx.stop());
                mely::task::stopping().await;
                child.kill(Signal::TERM).unwrap();
                tell.send(child.wait().await.unwrap().signal()).unwrap();
            });
        });
        run.unwrap();
        assert_eq!(told.recv(), Ok(Some(libc::SIGTERM)));
    }
}

/// By a thread that is none of the runtime's, in the middle of the stop that waits for the child.
#[test]
fn a_wait_that_is_canceled_after_a_stop_is_over() {
    let _bound = Bound::new("a_wait_that_is_canceled");
    for backend in backends() {
        let builder = cores(2).backend(backend).drain_deadline(4 * LONG);
        let (keep, kept) = channel::<(mely::net::Watch, Child)>();
        let cancels = std::thread::spawn(move || {
            let (watch, child) = kept.recv().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            watch.cancel();
            child.kill(Signal::KILL).unwrap();
        });
        let begun = Instant::now();
        let run = builder.build().unwrap().run(move |cx| {
            cx.spawn(HERE, async move {
                let child = start(shell("exec sleep 100")).await.unwrap();
                let never =
                    TOLD.on_value(HERE, |_: &mut Cx, _: io::Result<ExitStatus>| unreachable!());
                with_cx(|cx| {
                    let watch = child.on_exit(cx, never).unwrap();
                    keep.send((watch, child)).unwrap();
                    cx.stop();
                });
            });
        });
        run.unwrap();
        cancels.join().unwrap();
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn what_no_child_of_mely_has_is_refused() {
    in_task("what_no_child_of_mely_has", || async {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped());
        let error = start(command).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("process::stdio"), "{error}");
        let child = start(shell("exec sleep 100")).await.unwrap();
        let error = child.kill(Signal::from(1_000)).unwrap_err();
        assert_eq!(error.to_string(), "signal 1000 cannot be sent to a child");
        child.kill(Signal::KILL).unwrap();
        // What is adopted is not inherited.
        let (ours, theirs) = UnixStream::pair().unwrap();
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&ours);
        let incoming = with_cx(|cx| Incoming::adopt(cx, ours)).unwrap();
        let mut other = start(shell(&format!("test ! -e /proc/self/fd/{number}")))
            .await
            .unwrap();
        assert!(other.wait().await.unwrap().success());
        drop((incoming, theirs));
    });
}
