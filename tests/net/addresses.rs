//! Addresses of every family: Unix sockets, host names, sockets that were made elsewhere.

use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, on};
use crate::common::{Bound, LONG, backends, child_passes, open_descriptors};
use mely::net::{Acceptors, Addr, Backend, Endpoint, Incoming, Listener, RecvBuf, Session, Stream};
use mely::runtime::Finish;
use mely::sim::{Simulation, Step};
use mely::task::with_cx;
use mely::{Callback, Color, Cx, Handler, Runtime, aio, net};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

static SERVE: Handler = Handler::new("serve");

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("mely-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Echo(Stream);

impl Session for Echo {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.0.write(cx, data).unwrap();
    }
}

fn serve(cx: &mut Cx, at: impl Into<Endpoint>) -> io::Result<Listener> {
    cx.serve(at, Acceptors::PerCore, &SERVE, |_, stream, _| Echo(stream))
}

/// Connects to it, and finishes with what comes back, and the addresses of the client's end.
fn ask(cx: &mut Cx, addr: Addr, finish: Finish<io::Result<(Vec<u8>, Addr, Addr)>>) {
    let connected = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(error) => return finish.finish(Err(error)),
        };
        let addrs = (
            incoming.local_addr().unwrap(),
            incoming.peer_addr().unwrap(),
        );
        let mut got = Vec::new();
        let collect = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
            got.extend_from_slice(&data.unwrap().unwrap());
            if got.len() == 100_000 {
                let (local, peer) = addrs.clone();
                finish.finish(Ok((std::mem::take(&mut got), local, peer)));
                stream.close(cx);
            }
        };
        let begin = |cx: &mut Cx, stream: &Stream| stream.write(cx, vec![5; 100_000]).unwrap();
        let _ = cx;
        Calls::new(collect).open(incoming.open_unique(), &SERVE, begin);
    };
    let connected = Callback::anonymous_value(Color::from(2), connected);
    cx.connect(addr, LONG, connected).unwrap();
}

/// On the kernel's event sources and in a simulation.
fn on_all(f: impl Fn(&Backend) -> Runtime, check: impl Fn(&Backend, Runtime)) {
    for backend in crate::common::wire::all_backends() {
        let runtime = f(&backend);
        check(&backend, runtime);
    }
}

#[test]
fn sessions_are_served_on_unix_sockets() {
    let _bound = Bound::new("sessions on Unix sockets");
    let folder = Folder::new("served");
    let names = [
        Addr::from(folder.path("server.sock")),
        Addr::from(format!("@mely-served-{}", std::process::id())),
    ];
    for name in names {
        on_all(
            |backend| on(backend).build().unwrap(),
            |_, runtime| {
                let addr = name.clone();
                let answer = runtime.run_until(move |cx, finish| {
                    let listener = serve(cx, &addr).unwrap();
                    assert_eq!(listener.local_addr(), addr);
                    ask(cx, addr, finish);
                });
                let (bytes, local, peer) = answer.unwrap().unwrap();
                assert!(bytes == [5; 100_000]);
                assert_eq!((local, peer), (Addr::Unnamed, name.clone()));
            },
        );
    }
}

/// What listening at this address comes to.
fn listens(backend: &Backend, at: impl Into<Endpoint> + Send + 'static) -> io::Result<Addr> {
    let runtime = on(backend).build().unwrap();
    let listening = runtime.run_until(move |cx, finish| {
        finish.finish(serve(cx, at).map(|listener| listener.local_addr()));
    });
    listening.unwrap()
}

/// A name that fills all that the kernel has for it, and so has no zero byte at its end.
#[test]
fn a_peer_with_the_longest_of_names_is_named() {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketType, bind, connect, socket,
    };
    let _bound = Bound::new("the longest of names");
    let folder = Folder::new("longest");
    let long = |name: &str| {
        let start = folder.path("").to_str().unwrap().len();
        folder.path(&format!("{name}{}", "x".repeat(108 - start - name.len())))
    };
    for (round, backend) in backends().into_iter().enumerate() {
        let path = folder.path(&format!("server-{round}"));
        let names = [
            long(&format!("stream-{round}")),
            long(&format!("datagram-{round}")),
        ];
        let (at, their) = (path.clone(), names.clone());
        let runtime = on(&backend).build().unwrap();
        let told = runtime.run_until(move |cx, finish| {
            for name in &their {
                let refused = cx.bind(name.as_path()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidFilename);
            }
            let refused = cx.bind("@").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            let client = |kind, name: &PathBuf, to: &Path| {
                let socket = socket(AddressFamily::UNIX, kind, None).unwrap();
                bind(&socket, &SocketAddrUnix::new(name.as_path()).unwrap()).unwrap();
                connect(&socket, &SocketAddrUnix::new(to).unwrap()).unwrap();
                socket
            };
            let (tell, stream) = channel();
            let on_accept = move |_: &mut Cx, incoming: io::Result<Incoming>| {
                tell.send(incoming.unwrap().peer_addr().unwrap()).unwrap();
            };
            let on_accept = Callback::anonymous_each(ACCEPTING, on_accept);
            cx.listen(at.clone(), Acceptors::Single, on_accept).unwrap();
            drop(client(SocketType::STREAM, &their[0], &at));
            let at = at.with_extension("datagrams");
            let server = cx.bind(at.clone()).unwrap();
            let socket = client(SocketType::DGRAM, &their[1], &at);
            rustix::net::send(&socket, b"x", SendFlags::empty()).unwrap();
            cx.spawn(Color::from(3), async move {
                let from = server.recv().await.unwrap().from;
                let peer = loop {
                    match stream.try_recv() {
                        Ok(peer) => break peer,
                        Err(_) => mely::task::sleep(Duration::from_millis(1)).await,
                    }
                };
                finish.finish([peer, from]);
            });
        });
        assert_eq!(told.unwrap(), names.map(Addr::from));
    }
}

#[test]
fn the_process_at_the_other_end_is_known() {
    let _bound = Bound::new("the process at the other end");
    let name = format!("@mely-peer-{}", std::process::id());
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let name = name.clone();
        let known = runtime.run_until(move |cx, finish| {
            let at = finish.clone();
            let open = move |cx: &mut Cx, stream: Stream, _: &_| {
                at.finish(stream.peer_credentials(cx));
                Echo(stream)
            };
            cx.serve(&name[..], Acceptors::PerCore, &SERVE, open)
                .unwrap();
            let connected = Callback::anonymous_value(Color::from(2), |_: &mut Cx, _| ());
            cx.connect(name, LONG, connected).unwrap();
        });
        let known = known.unwrap().unwrap();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        assert_eq!(known.pid, std::process::id() as i32);
        assert_eq!((known.uid, known.gid), (uid.as_raw(), gid.as_raw()));

        let runtime = on(&backend).build().unwrap();
        let unknown = runtime.run_until(|cx, finish| {
            let open = move |cx: &mut Cx, stream: Stream, _: &_| {
                finish.finish(stream.peer_credentials(cx));
                Echo(stream)
            };
            let listener = cx
                .serve("127.0.0.1:0", Acceptors::PerCore, &SERVE, open)
                .unwrap();
            let connected = Callback::anonymous_value(Color::from(2), |_: &mut Cx, _| ());
            cx.connect(listener.local_addr(), LONG, connected).unwrap();
        });
        assert_eq!(unknown.unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_path_is_taken_over_if_nobody_listens_to_it() {
    let _bound = Bound::new("a path is taken over");
    let folder = Folder::new("stale");
    for backend in backends() {
        let path = folder.path("stale");
        let _ = std::fs::remove_file(&path);
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(listens(&backend, path.clone()).unwrap(), Addr::from(&path));
        // It has ended, and its file is there.
        assert_eq!(listens(&backend, path.clone()).unwrap(), Addr::from(&path));

        let path = folder.path("taken");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let refused = listens(&backend, path.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        assert!(
            refused.to_string().starts_with(path.to_str().unwrap()),
            "{refused}"
        );
        // Also if its queue is full, with the connection of that attempt.
        rustix::net::listen(&listener, 0).unwrap();
        let refused = listens(&backend, path.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        drop(listener);

        // And nothing that is no socket.
        let path = folder.path("file");
        std::fs::write(&path, "precious").unwrap();
        let refused = listens(&backend, path.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let link = folder.path("link");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(folder.path("stale"), &link).unwrap();
        assert_eq!(
            listens(&backend, link).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert!(
            folder
                .path("stale")
                .metadata()
                .unwrap()
                .file_type()
                .is_socket()
        );
    }
}

#[test]
fn an_address_that_cannot_be_is_named() {
    child_passes("addresses::child_an_address_that_cannot_be_is_named", &[]);
}

#[test]
#[ignore = "counts descriptors: run in a process of its own"]
fn child_an_address_that_cannot_be_is_named() {
    let _bound = Bound::new("an address that cannot be");
    let folder = Folder::new("refused");
    let long = folder.path(&"x".repeat(200));
    for backend in backends() {
        let before = open_descriptors();
        for (at, kind) in [
            (Addr::from(&long), ErrorKind::InvalidFilename),
            (Addr::from(folder.path("no/such")), ErrorKind::NotFound),
            (Addr::from("example.org:80"), ErrorKind::InvalidInput),
            (Addr::from("nonsense"), ErrorKind::InvalidInput),
            (Addr::from(Path::new("")), ErrorKind::InvalidInput),
        ] {
            let text = at.to_string();
            let refused = listens(&backend, at.clone()).unwrap_err();
            assert_eq!(refused.kind(), kind, "{refused}");
            assert!(refused.to_string().contains(&text), "{refused}");
            let runtime = on(&backend).build().unwrap();
            let refused = runtime.run_until(move |cx, finish| {
                let told = finish.clone();
                let connected = move |_: &mut Cx, incoming: io::Result<Incoming>| {
                    told.finish(incoming.map(|_| ()).unwrap_err());
                };
                let connected = Callback::anonymous_value(Color::from(2), connected);
                if let Err(error) = cx.connect(at, LONG, connected) {
                    finish.finish(error);
                }
            });
            let refused = refused.unwrap().to_string();
            assert!(refused.contains(&text), "{refused}");
        }
        assert_eq!(open_descriptors(), before);
    }
}

#[test]
fn a_mode_is_that_of_the_file() {
    let _bound = Bound::new("a mode");
    let folder = Folder::new("mode");
    for backend in backends() {
        for mode in [0o600, 0o640] {
            let path = folder.path("private");
            let _ = std::fs::remove_file(&path);
            listens(&backend, Endpoint::from(&path).mode(mode)).unwrap();
            let file = std::fs::metadata(&path).unwrap();
            assert_eq!(file.permissions().mode() & 0o777, mode);
        }
    }
}

#[test]
fn sockets_that_were_made_elsewhere_are_served() {
    child_passes(
        "addresses::child_sockets_that_were_made_elsewhere_are_served",
        &[],
    );
}

#[test]
#[ignore = "counts descriptors: run in a process of its own"]
fn child_sockets_that_were_made_elsewhere_are_served() {
    let _bound = Bound::new("made elsewhere");
    let folder = Folder::new("elsewhere");
    for backend in backends() {
        let before = open_descriptors();
        let path = folder.path("made");
        let _ = std::fs::remove_file(&path);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(&path).unwrap();
        let at = tcp.local_addr().unwrap();
        // Connections that came before are not lost.
        let mut early = TcpStream::connect(at).unwrap();
        early.write_all(b"early").unwrap();
        let runtime = on(&backend).build().unwrap();
        let poster = runtime.poster();
        let client = std::thread::spawn(move || {
            let mut answer = [0; 5];
            early.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"early");
            let mut local = UnixStream::connect(path).unwrap();
            local.write_all(b"local").unwrap();
            local.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"local");
            poster.stop();
        });
        let outcome = runtime.run(move |cx| {
            assert_eq!(serve(cx, tcp).unwrap().local_addr(), at);
            serve(cx, unix).unwrap();
            let connected = TcpStream::connect(at).unwrap();
            let refused = serve(cx, OwnedFd::from(connected)).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            let file = std::fs::File::open("/dev/null").unwrap();
            let refused = serve(cx, OwnedFd::from(file)).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        });
        client.join().unwrap();
        outcome.unwrap();
        assert_eq!(open_descriptors(), before);
    }
}

#[test]
fn names_are_looked_up() {
    let _bound = Bound::new("names");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        let answer = runtime.run_until(|cx, finish| {
            let at = serve(cx, "127.0.0.1:0").unwrap().local_addr();
            let port = at.ip().unwrap().port();
            ask(cx, Addr::Name(format!("localhost:{port}")), finish);
        });
        let (bytes, _, peer) = answer.unwrap().unwrap();
        assert!(bytes == [5; 100_000]);
        assert!(peer.ip().unwrap().ip().is_loopback());

        let runtime = on(&backend).build().unwrap();
        let answer = runtime.run_until(|cx, finish| {
            cx.spawn(Color::from(3), async move {
                let unknown = aio::connect("no-such-host.invalid:80", LONG).await;
                let path = with_cx(|cx| net::resolve(cx, "/no/name")).await.unwrap();
                let found = with_cx(|cx| net::resolve(cx, "localhost:7")).await.unwrap();
                finish.finish((unknown.err(), path.err(), found));
            });
        });
        let (unknown, path, found) = answer.unwrap();
        let unknown = unknown.unwrap().to_string();
        assert!(unknown.contains("no-such-host.invalid:80"), "{unknown}");
        assert_eq!(path.unwrap().kind(), ErrorKind::InvalidInput);
        assert!(
            found
                .unwrap()
                .iter()
                .all(|addr| addr.port() == 7 && addr.ip().is_loopback())
        );
    }
}

/// A simulation that listens at these addresses, where an answer is the address.
fn simulated(seed: u64, listens: &[&str]) -> Simulation {
    let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
    let listens: Vec<Addr> = listens.iter().map(|&addr| addr.into()).collect();
    simulation
        .start(move |cx| {
            for addr in listens {
                let ignore = Callback::anonymous_each(ACCEPTING, |_: &mut Cx, _| ());
                cx.listen(addr, Acceptors::Single, ignore).unwrap();
            }
        })
        .unwrap();
    while simulation.step() != Step::Stalled {}
    simulation
}

/// Connects to it; when that was over, and to whom, or why not.
fn dial(simulation: &mut Simulation, name: &str) -> (Duration, Result<Addr, io::Error>) {
    let (tell, told) = channel();
    let name = name.to_owned();
    let begun = simulation.now();
    let poster = simulation.poster();
    mely::Post::try_post(&poster, Color::from(9), move |cx: &mut Cx| {
        let connected = move |_: &mut Cx, incoming: io::Result<Incoming>| {
            let peer = incoming.map(|incoming| incoming.peer_addr().unwrap());
            tell.send(peer).unwrap();
        };
        let connected = Callback::anonymous_value(Color::from(2), connected);
        cx.connect(name, Duration::from_secs(5), connected).unwrap();
    })
    .unwrap();
    loop {
        if let Ok(connected) = told.try_recv() {
            return (simulation.now() - begun, connected);
        }
        assert!(simulation.step() != Step::Stalled);
    }
}

#[test]
fn each_address_of_a_name_is_tried() {
    let _bound = Bound::new("each address of a name");
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    for seed in 0..30 {
        let mut simulation = simulated(seed, &["10.0.0.3:80", "[fd00::2]:80"]);
        let net = simulation.network().clone();
        let open = net.open_count();
        net.add_host("one", &[ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3")]);
        net.add_host("both", &[ip("10.0.0.1"), ip("10.0.0.3"), ip("fd00::2")]);
        net.add_host("none", &[ip("10.0.0.1"), ip("fd00::1")]);
        net.add_host("empty", &[]);

        let (took, peer) = dial(&mut simulation, "one:80");
        assert_eq!(peer.unwrap(), SocketAddr::new(ip("10.0.0.3"), 80));
        assert!(took < Duration::from_millis(250));
        // Families take turns.
        let (_, peer) = dial(&mut simulation, "both:80");
        assert_eq!(peer.unwrap(), SocketAddr::new(ip("fd00::2"), 80));
        let refused = dial(&mut simulation, "none:80").1.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(
            refused.to_string().starts_with("none:80: 10.0.0.1:80: "),
            "{refused}"
        );
        let refused = dial(&mut simulation, "empty:80").1.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        let refused = dial(&mut simulation, "unknown:80").1.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        assert!(refused.to_string().starts_with("unknown:80: "), "{refused}");

        // An address from which nothing comes holds up the next one by 250 ms, and no longer.
        net.silence(ip("10.0.0.1"));
        net.silence(ip("10.0.0.2"));
        let (took, peer) = dial(&mut simulation, "one:80");
        assert_eq!(peer.unwrap(), SocketAddr::new(ip("10.0.0.3"), 80));
        assert!((500..600).contains(&took.as_millis()), "{took:?}");
        let (took, late) = dial(&mut simulation, "10.0.0.1:80");
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!((5_000..5_100).contains(&took.as_millis()), "{took:?}");
        net.silence(ip("fd00::1"));
        let (took, late) = dial(&mut simulation, "none:80");
        let late = late.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(
            late.to_string(),
            "none:80: not connected within the limit of 5s"
        );
        assert!((5_000..5_100).contains(&took.as_millis()), "{took:?}");

        // The attempts that were beside another, and too late, have left nothing.
        while simulation.step() != Step::Stalled {}
        assert_eq!(net.open_count(), open);
        simulation.poster().stop();
        while simulation.step() != Step::Ended {}
        assert_eq!(net.open_count(), 0);
    }
}

#[test]
fn a_stop_ends_what_connects_to_a_name() {
    let _bound = Bound::new("a stop ends a dial");
    for seed in 0..30 {
        for steps in 0..60 {
            let mut simulation = simulated(seed, &["10.0.0.2:80"]);
            let net = simulation.network().clone();
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            net.add_host("two", &[ip("10.0.0.1"), ip("10.0.0.2")]);
            if seed % 2 == 0 {
                net.silence(ip("10.0.0.1"));
            }
            let (tell, told) = channel();
            let poster = simulation.poster();
            mely::Post::try_post(&poster, Color::from(9), move |cx: &mut Cx| {
                let its = tell.clone();
                let connected = move |_: &mut Cx, incoming: io::Result<Incoming>| {
                    its.send(incoming.map(|_| ())).unwrap();
                };
                let connected = Callback::anonymous_value(Color::from(2), connected);
                if let Err(error) = cx.connect("two:80", LONG, connected) {
                    tell.send(Err(error)).unwrap();
                }
            })
            .unwrap();
            for _ in 0..steps {
                simulation.step();
            }
            poster.stop();
            while simulation.step() != Step::Ended {}
            let all: Vec<io::Result<()>> = told.iter().collect();
            assert_eq!(all.len(), 1, "{seed} {steps}");
            if let Err(error) = &all[0] {
                // The listener is gone before the attempts are ended.
                let refused = seed % 2 == 1 && error.kind() == ErrorKind::ConnectionRefused;
                let canceled = error.raw_os_error() == Some(Errno::CANCELED.raw_os_error());
                assert!(refused || canceled, "{error}");
            }
            assert_eq!(net.open_count(), 0, "{seed} {steps}");
        }
    }
}
