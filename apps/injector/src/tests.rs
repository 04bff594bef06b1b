//! Whole runs, against a server of blocking threads; and what any response has to be taken for.

mod properties;
mod reference;

use crate::file_set::{FileSet, Kind};
use crate::measure::{Measure, Outcome};
use crate::work::{Check, Until, Work};
use crate::{master, run};
use mely::Runtime;
use mely::runtime::{OnPanic, Stealing};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Serves the files of a set; of another seed than is asked for, they are the wrong ones.
fn serve(set: FileSet) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream, set));
        }
    });
    addr
}

/// Until the client is gone.
fn answer(mut stream: TcpStream, set: FileSet) -> Option<()> {
    let files = set.files();
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let line = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let name = line.strip_prefix("GET /")?.strip_suffix(" HTTP/1.1")?;
        let body = files.body((0..files.len()).find(|&index| files.name(index) == name)?);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
    }
}

fn runtime() -> Runtime {
    let builder = Runtime::builder().cores(1);
    let builder = builder.on_panic(OnPanic::Stop);
    builder.stealing(Stealing::OFF).build().unwrap()
}

fn work(target: SocketAddr, until: Until) -> Work {
    Work {
        targets: vec![target],
        clients: 5,
        requests_per_connection: 7,
        until,
        silence_max: Duration::from_secs(60),
        set: SMALL,
        check: Check::Bytes,
    }
}

const SMALL: FileSet = FileSet {
    kind: Kind::One { bytes: 3_000 },
    seed: 1,
};

fn inject(work: Work) -> Outcome {
    let outcome = runtime().run_until(move |cx, finish| {
        let server = vec![std::process::id()];
        run::start(cx, work, 0, server, move |_cx, outcome| {
            finish.finish(outcome);
        });
    });
    outcome.unwrap().unwrap()
}

#[test]
fn a_total_is_met_exactly() {
    let outcome = inject(work(serve(SMALL), Until::Total(200)));
    let measure = outcome.measure;
    assert_eq!((measure.responses(), measure.bytes), (200, 600_000));
    assert_eq!((measure.errors.sum(), measure.starved), (0, 0));
    // Seven requests a connection, so the 29th at the latest is needed for the last.
    assert!(measure.first_ns.len() >= 200 / 7, "{measure:?}");
    // How much is not told: the server's threads here end before they can be asked.
    assert!(outcome.server_cpu.is_some());
}

#[test]
fn a_time_is_kept_and_the_large_set_is_read_in_pieces() {
    let set = FileSet {
        kind: Kind::SpecWeb99,
        seed: 2,
    };
    let until = Until::Time {
        warm_up: Duration::from_millis(50),
        measured: Duration::from_millis(300),
    };
    let work = Work {
        set,
        ..work(serve(set), until)
    };
    let outcome = inject(work);
    assert!(outcome.time >= Duration::from_millis(300), "{outcome:?}");
    assert_eq!(outcome.measure.errors.sum(), 0, "{:?}", outcome.measure);
    assert!(outcome.measure.responses() > 0);
}

#[test]
fn wrong_files_and_missing_servers_are_errors() {
    let until = Until::Time {
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(300),
    };
    let other = FileSet { seed: 9, ..SMALL };
    let measure = inject(work(serve(other), until)).measure;
    assert!(measure.errors.body > 0, "{measure:?}");
    assert_eq!((measure.responses(), measure.starved), (0, 5));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = nobody.local_addr().unwrap();
    drop(nobody);
    let measure = inject(work(addr, until)).measure;
    assert!(measure.errors.connect > 0, "{measure:?}");
    assert_eq!(measure.starved, 5);
}

#[test]
fn a_total_ends_also_if_all_of_it_is_wrong() {
    let other = FileSet { seed: 9, ..SMALL };
    let measure = inject(work(serve(other), Until::Total(50))).measure;
    assert_eq!((measure.responses(), measure.errors.body), (0, 50));
}

/// Connections are made, by the kernel, and nothing else comes. Or no more than some answers.
#[test]
fn a_silent_server_ends_the_run() {
    let until_silent = |target| Work {
        silence_max: Duration::from_millis(300),
        ..work(target, Until::Total(1_000_000))
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let measure = inject(until_silent(silent.local_addr().unwrap())).measure;
    assert_eq!((measure.responses(), measure.errors.silent), (0, 5));
    assert_eq!((measure.starved, measure.errors.sum()), (5, 5));
    let falls_silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = falls_silent.local_addr().unwrap();
    thread::spawn(move || {
        let mut streams = Vec::new();
        for _ in 0..5 {
            streams.push(falls_silent.accept().unwrap().0);
        }
        for stream in &mut streams {
            let body = SMALL.files().body(0).to_vec();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream
                .write_all(&[head.as_bytes(), &body].concat())
                .unwrap();
        }
        // Until the end of the test.
        std::mem::forget(streams);
    });
    let measure = inject(until_silent(target)).measure;
    assert_eq!((measure.responses(), measure.errors.silent), (5, 5));
    assert_eq!(measure.starved, 0);
}

#[test]
fn more_clients_than_descriptors_are_refused() {
    let work = work("127.0.0.1:9".parse().unwrap(), Until::Total(1));
    let needed = work.clients as u64 + 64;
    assert_eq!(work.fits(needed), Ok(()));
    let all = Work {
        clients: usize::MAX,
        ..work.clone()
    };
    assert!(all.fits(u64::MAX - 1).is_err());
    let error = work.fits(needed - 1).unwrap_err();
    for part in ["is 68", "--clients 5", "need 69", "ulimit -n"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_master_gathers_what_its_injectors_measured() {
    let target = serve(SMALL);
    let (listens, addr) = channel::<SocketAddr>();
    let (tells, told) = channel::<SocketAddr>();
    let join = |addr: Receiver<SocketAddr>| {
        thread::spawn(move || {
            let addr = addr.recv().unwrap();
            master::join(runtime(), addr, u64::MAX).unwrap();
        })
    };
    let injectors = [join(addr), join(told)];
    let work = work(target, Until::Total(100));
    let listens = move |addr| {
        listens.send(addr).unwrap();
        tells.send(addr).unwrap();
    };
    let any = ([127, 0, 0, 1], 0).into();
    let outcome = master::lead(runtime(), any, 2, work, Vec::new(), listens).unwrap();
    assert_eq!(
        (outcome.measure.responses(), outcome.measure.clients),
        (200, 10)
    );
    assert_eq!(outcome.measure.errors.sum(), 0);
    for injector in injectors {
        injector.join().unwrap();
    }
}

#[test]
fn who_is_done_may_leave_before_the_others() {
    let (listens, addr) = channel::<SocketAddr>();
    let target = "127.0.0.1:1".parse().unwrap();
    let lead = thread::spawn(move || {
        let (work, any) = (work(target, Until::Total(1)), ([127, 0, 0, 1], 0).into());
        let listens = move |addr| listens.send(addr).unwrap();
        master::lead(runtime(), any, 2, work, Vec::new(), listens).map(|_| ())
    });
    let addr = addr.recv().unwrap();
    let mut injectors = [(); 2].map(|()| BufReader::new(TcpStream::connect(addr).unwrap()));
    let mut line = String::new();
    for injector in &mut injectors {
        injector.read_line(&mut line).unwrap();
        injector.get_mut().write_all(b"ready\n").unwrap();
    }
    for injector in &mut injectors {
        line.clear();
        injector.read_line(&mut line).unwrap();
        assert_eq!(line, "start\n");
    }
    let measure = format!("{}\n", Measure::default().to_json());
    let [mut first, mut second] = injectors;
    first.get_mut().write_all(measure.as_bytes()).unwrap();
    drop(first);
    // Until the master has seen that the first has left: it would give up, and leave too.
    second
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let error = second.read_line(&mut line).unwrap_err();
    assert!(matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    second.get_mut().write_all(measure.as_bytes()).unwrap();
    lead.join().unwrap().unwrap();
}

/// One leaves at once, one talks something else, one is ready and leaves, one stays and says
/// nothing.
#[test]
fn who_leaves_before_the_start_is_waited_for_anew() {
    let target = serve(SMALL);
    let (listens, addr) = channel::<SocketAddr>();
    let lead = thread::spawn(move || {
        let work = work(target, Until::Total(100));
        let listens = move |addr| listens.send(addr).unwrap();
        let any = ([127, 0, 0, 1], 0).into();
        master::lead(runtime(), any, 2, work, Vec::new(), listens)
    });
    let addr = addr.recv().unwrap();
    drop(TcpStream::connect(addr).unwrap());
    let mut line = String::new();
    for said in ["GET / HTTP/1.1\r\n", "ready\n", ""] {
        let mut stray = BufReader::new(TcpStream::connect(addr).unwrap());
        line.clear();
        stray.read_line(&mut line).unwrap();
        assert!(line.starts_with("work "), "{line}");
        stray.get_mut().write_all(said.as_bytes()).unwrap();
        if said.is_empty() {
            // Until the end of the test.
            std::mem::forget(stray);
        }
    }
    let join = || thread::spawn(move || master::join(runtime(), addr, u64::MAX).unwrap());
    for injector in [join(), join()] {
        injector.join().unwrap();
    }
    let measure = lead.join().unwrap().unwrap().measure;
    assert_eq!((measure.responses(), measure.clients), (200, 10));
}
