//! Socket activation, as of systemd: the process is started with sockets as descriptors from 3 on.
//! `LISTEN_FDS` has their number, and `LISTEN_PID` the process that they are for.

use crate::common::{Bound, LONG, backends, cores, undisturbed};
use crate::system::name;
use listenfd::ListenFd;
use mely::net::{Acceptors, Backend, Datagram, Endpoint, RecvBuf, Session, Stream};
use mely::{Color, Cx, Handler};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

static ANSWER: Handler = Handler::new("answer");
static STOP: Handler = Handler::new("stop");

/// The descriptor that the first socket is passed as.
const FIRST: RawFd = 3;

/// What is sent back for these bytes: it tells which process has answered.
fn answer(bytes: &[u8]) -> Vec<u8> {
    let mut answer = format!("{} ", std::process::id()).into_bytes();
    answer.extend_from_slice(bytes);
    answer
}

struct Answers(Stream);

impl Session for Answers {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.0.write(cx, answer(&data)).unwrap();
    }
}

fn serve(cx: &mut Cx, at: impl Into<Endpoint>) {
    let open = |_: &mut Cx, stream: Stream, _: &_| Answers(stream);
    cx.serve(at, Acceptors::PerCore, &ANSWER, open).unwrap();
}

/// The server, in a process of its own: this test program, with this test.
#[test]
#[ignore = "run in a process of its own, to which sockets are passed"]
fn child_serves_sockets_that_are_passed() {
    let mut passed = ListenFd::from_env();
    assert_eq!(passed.len(), 3);
    let tcp = passed.take_tcp_listener(0).unwrap().unwrap();
    let unix = passed.take_unix_listener(1).unwrap().unwrap();
    let udp = passed.take_udp_socket(2).unwrap().unwrap();
    let run = cores(2).build().unwrap().run(move |cx| {
        serve(cx, tcp);
        serve(cx, unix);
        let socket = cx.bind(udp).unwrap();
        let its = socket.clone();
        let answers = move |_: &mut Cx, received: io::Result<Datagram>| {
            let received = received.unwrap();
            its.send_to(&answer(&received.data), &received.from)
                .unwrap();
        };
        let answers = ANSWER.on_each(Color::from(1), answers);
        socket.on_datagram(cx, answers).unwrap();
        let stop = STOP.on_each(Color::DEFAULT, |cx: &mut Cx, ()| cx.stop());
        cx.on_stop_signal(stop).unwrap();
    });
    run.unwrap();
}

/// What a service manager has: the sockets, also while no server runs.
struct Sockets {
    tcp: TcpListener,
    unix: UnixListener,
    udp: UdpSocket,
    path: PathBuf,
}

impl Sockets {
    fn new() -> Sockets {
        let path = std::env::temp_dir().join(format!("mely-passed-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Sockets {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            unix: UnixListener::bind(&path).unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            path,
        }
    }

    /// Starts a server and passes it the sockets.
    fn start(&self, backend: &Backend) -> Server {
        // Beyond the numbers that they get, so that none takes the place of another.
        let passed = [self.tcp.as_fd(), self.unix.as_fd(), self.udp.as_fd()]
            .map(|socket| rustix::io::fcntl_dupfd_cloexec(socket, 10).unwrap());
        let count = passed.len().to_string();
        let mut command = Command::new("sh");
        command
            // The process stays the one that the shell was.
            .args(["-c", r#"LISTEN_PID=$$ exec "$0" "$@""#])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "activation::child_serves_sockets_that_are_passed",
            ])
            .args(["--ignored", "--nocapture"])
            .env("LISTEN_FDS", count)
            .env("MELY_BACKEND", name(backend))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: system calls that are allowed between fork and exec. The sockets are open then:
        // the closure owns them.
        unsafe {
            command.pre_exec(move || {
                for (number, socket) in (FIRST..).zip(&passed) {
                    if libc::dup2(socket.as_raw_fd(), number) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        Server(undisturbed(&mut command).spawn().unwrap())
    }

    /// Asks by each of them. Returns the clients that wait for the answers.
    fn ask(&self) -> Clients {
        let tcp = TcpStream::connect(self.tcp.local_addr().unwrap()).unwrap();
        tcp.set_read_timeout(Some(LONG)).unwrap();
        (&tcp).write_all(b"tcp").unwrap();
        tcp.shutdown(Shutdown::Write).unwrap();
        let unix = UnixStream::connect(&self.path).unwrap();
        unix.set_read_timeout(Some(LONG)).unwrap();
        (&unix).write_all(b"unix").unwrap();
        unix.shutdown(Shutdown::Write).unwrap();
        let udp = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        udp.set_read_timeout(Some(LONG)).unwrap();
        let at = self.udp.local_addr().unwrap();
        udp.send_to(b"udp", at).unwrap();
        Clients { tcp, unix, udp }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Clients {
    tcp: TcpStream,
    unix: UnixStream,
    udp: UdpSocket,
}

impl Clients {
    fn answers(mut self) -> [String; 3] {
        let mut answers = [const { String::new() }; 3];
        self.tcp.read_to_string(&mut answers[0]).unwrap();
        self.unix.read_to_string(&mut answers[1]).unwrap();
        let mut space = [0; 100];
        let len = self.udp.recv(&mut space).unwrap();
        answers[2] = String::from_utf8(space[..len].to_vec()).unwrap();
        answers
    }
}

struct Server(Child);

impl Server {
    fn expected(&self) -> [String; 3] {
        ["tcp", "unix", "udp"].map(|text| format!("{} {text}", self.0.id()))
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Each server after the first one is on another event source, and gets the sockets as the one
/// before has left them.
#[test]
fn sockets_that_are_passed_are_served_and_outlive_each_server() {
    let _bound = Bound::new("sockets_that_are_passed");
    let sockets = Sockets::new();
    let backends = backends();
    for backend in backends.iter().cycle().take(backends.len() + 1) {
        // Nobody serves them yet.
        let early = sockets.ask();
        let server = sockets.start(backend);
        assert_eq!(early.answers(), server.expected());
        assert_eq!(sockets.ask().answers(), server.expected());
        server.stop();
    }
}
