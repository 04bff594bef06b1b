//! The store of `examples/store/`, against clients that write bytes.

#[path = "../../examples/store/main.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod example;

use crate::common::wire::{Client, any_port, hold_up};
use crate::common::{Bound, backends, cores};
use mely::Poster;
use mely::net::Backend;
use mely::sim::Step;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Stops the runtime when the client is done, also by a panic.
struct Stop(Poster);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `client` against a store on each of the kernel's backends.
fn with_store(what: &'static str, client: fn(&Backend, SocketAddr, &Poster)) {
    for backend in backends() {
        let _bound = Bound::new(what);
        let runtime = cores(2).backend(backend.clone()).build().unwrap();
        let stop = Stop(runtime.poster());
        let (tell, addr) = channel();
        let client = thread::spawn(move || client(&backend, addr.recv().unwrap(), &stop.0));
        let outcome = runtime.run(move |cx| {
            let addr = example::listen(cx, any_port().into()).unwrap();
            tell.send(addr.ip().unwrap()).unwrap();
        });
        client.join().unwrap();
        outcome.unwrap();
    }
}

fn request(args: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
    }
    bytes
}

/// Sends these bytes and insists on the answer.
fn expect(client: &mut Client, bytes: &[u8], answer: &str) {
    client.write_all(bytes).unwrap();
    let got = client.exactly(answer.len());
    let sent = String::from_utf8_lossy(bytes);
    assert_eq!(String::from_utf8_lossy(&got), answer, "{sent}");
}

#[test]
fn each_command_is_answered() {
    with_store("each command", |backend, addr, _| {
        let mut client = Client::connect(backend, addr);
        for (args, answer) in [
            (&["PING"][..], "+PONG\r\n"),
            (&["ping", "hi"], "$2\r\nhi\r\n"),
            (&["COMMAND", "DOCS"], "*0\r\n"),
            (&["CONFIG", "GET", "save"], "*0\r\n"),
            (&["GET", "a"], "$-1\r\n"),
            (&["SET", "a", "1\r\n2"], "+OK\r\n"),
            (&["get", "a"], "$4\r\n1\r\n2\r\n"),
            (&["SET", "empty", ""], "+OK\r\n"),
            (&["GET", "empty"], "$0\r\n\r\n"),
            (&["INCR", "n"], ":1\r\n"),
            (&["INCR", "n"], ":2\r\n"),
            (&["MSET", "b", "x", "c", "y", "d", "z"], "+OK\r\n"),
            (
                &["MGET", "d", "none", "b", "b"],
                "*4\r\n$1\r\nz\r\n$-1\r\n$1\r\nx\r\n$1\r\nx\r\n",
            ),
            (&["DEL", "b", "none", "c", "c"], ":2\r\n"),
            (&["EXPIRE", "none", "1"], ":0\r\n"),
            (&["EXPIRE", "n", "100"], ":1\r\n"),
            (&["INCR", "n"], ":3\r\n"),
            (&["EXPIRE", "n", "1"], ":1\r\n"),
            (&["EXPIRE", "d", "0"], ":1\r\n"),
            (&["GET", "d"], "$-1\r\n"),
            (&["EXPIRE", "a", "1000000000000"], ":1\r\n"),
            (&["GET", "a"], "$4\r\n1\r\n2\r\n"),
        ] {
            expect(&mut client, &request(args), answer);
        }
        expect(
            &mut client,
            b"\r\nSET  in line\r\nget in\n",
            "+OK\r\n$4\r\nline\r\n",
        );
        thread::sleep(Duration::from_millis(1_100));
        expect(&mut client, &request(&["INCR", "n"]), ":1\r\n");
    });
}

#[test]
fn what_is_wrong_is_an_error_and_the_connection_goes_on() {
    with_store("wrong requests", |backend, addr, _| {
        let mut client = Client::connect(backend, addr);
        let unknown = "-ERR unknown command 'nonsense', with args beginning with: 'a' 'b' \r\n";
        expect(&mut client, &request(&["nonsense", "a", "b"]), unknown);
        for args in [
            &["GET"][..],
            &["GET", "a", "b"],
            &["SET", "a"],
            &["MGET"],
            &["DEL"],
            &["MSET", "a"],
            &["MSET", "a", "1", "b"],
            &["CONFIG"],
        ] {
            let name = args[0].to_lowercase();
            let wrong = format!("-ERR wrong number of arguments for '{name}' command\r\n");
            expect(&mut client, &request(args), &wrong);
        }
        let number = "-ERR value is not an integer or out of range\r\n";
        let overflow = "-ERR increment or decrement would overflow\r\n";
        for (value, answer) in [
            ("x", number),
            ("", number),
            ("+1", number),
            ("01", number),
            (" 1", number),
            ("-0", number),
            ("9223372036854775808", number),
            ("9223372036854775807", overflow),
            ("-9223372036854775808", ":-9223372036854775807\r\n"),
            ("-1", ":0\r\n"),
        ] {
            expect(&mut client, &request(&["SET", "a", value]), "+OK\r\n");
            expect(&mut client, &request(&["INCR", "a"]), answer);
        }
        expect(&mut client, &request(&["EXPIRE", "a", "soon"]), number);
        expect(&mut client, &request(&["EXPIRE", "a", "+1"]), number);
        // Nothing at all.
        let nothing = b"*0\r\n*-1\r\n\r\n  \n*1\r\n$4\r\nPING\r\n";
        expect(&mut client, nothing, "+PONG\r\n");
    });
}

#[test]
fn what_is_no_protocol_is_told_after_the_answers_and_ends_the_connection() {
    with_store("no protocol", |backend, addr, _| {
        let long = vec![b'x'; 5 << 20];
        let arg = format!("$524288\r\n{}\r\n", "x".repeat(512 << 10));
        let too_big = ["*16384\r\n", &arg.repeat(9)].concat();
        for wrong in [
            &b"*x\r\n"[..],
            b"*+1\r\n",
            b"GET \"a\n",
            b"*99999999999999999999\r\n",
            b"*1\r\n4\r\nPING\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$4194305\r\n",
            b"*1\r\n\r\n",
            &long,
            b"*16385\r\n",
            too_big.as_bytes(),
        ] {
            let mut client = Client::connect(backend, addr);
            client.write_all(b"PING\r\n").unwrap();
            client.write_all(wrong).unwrap();
            let answer = String::from_utf8(client.rest()).unwrap();
            let begin = "+PONG\r\n-ERR Protocol error: ";
            assert!(answer.starts_with(begin), "{answer}");
        }
    });
}

/// A web page can have a browser send to any port.
#[test]
fn a_browser_is_cut_off_without_a_word() {
    with_store("browser", |backend, addr, _| {
        let page = "POST / HTTP/1.1\r\nHost: h\r\n\r\nSET a 1\r\n";
        let get = "GET / HTTP/1.1\r\nhost: h\r\n\r\nSET a 1\r\n";
        let arity = "-ERR wrong number of arguments for 'get' command\r\n";
        for (page, before) in [(page, ""), (get, arity)] {
            let mut client = Client::connect(backend, addr);
            client.write_all(page.as_bytes()).unwrap();
            // Cut off, that is with a reset, since it has sent more.
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer);
            assert_eq!(String::from_utf8_lossy(&answer), before);
        }
        let mut client = Client::connect(backend, addr);
        expect(&mut client, b"GET a\r\n", "$-1\r\n");
    });
}

#[test]
fn a_thousand_requests_in_one_write_are_answered_in_order() {
    with_store("pipelined", |backend, addr, _| {
        let mut client = Client::connect(backend, addr);
        for round in 0..20 {
            let (mut bytes, mut answers) = (Vec::new(), String::new());
            for n in 0..1_000 {
                let (key, value) = (format!("k{}", n % 97), format!("{round}-{n}"));
                match n % 10 {
                    0..4 => {
                        bytes.extend(request(&["SET", &key, &value]));
                        bytes.extend(request(&["GET", &key]));
                        answers += &format!("+OK\r\n${}\r\n{value}\r\n", value.len());
                    }
                    // Some rounds have requests for several shards in each batch, and some none.
                    4 if round % 2 == 0 => {
                        bytes.extend(request(&["MSET", &key, &value, "other", &value]));
                        bytes.extend(request(&["MGET", "other", &key]));
                        let value = format!("${}\r\n{value}\r\n", value.len());
                        answers += &format!("+OK\r\n*2\r\n{value}{value}");
                    }
                    _ => {
                        bytes.extend(request(&["PING", &value]));
                        answers += &format!("${}\r\n{value}\r\n", value.len());
                    }
                }
            }
            expect(&mut client, &bytes, &answers);
        }
    });
}

#[test]
fn requests_may_come_byte_by_byte() {
    with_store("byte by byte", |backend, addr, _| {
        let mut client = Client::connect(backend, addr);
        let mut bytes = request(&["MSET", "a", "1", "b", "\r\n"]);
        bytes.extend(b"get a\r\n");
        bytes.extend(request(&["GET", "b"]));
        for byte in bytes {
            client.write_all(&[byte]).unwrap();
            thread::sleep(Duration::from_micros(200));
        }
        expect(&mut client, b"", "+OK\r\n$1\r\n1\r\n$2\r\n\r\n\r\n");
    });
}

#[test]
fn a_long_value_goes_in_and_out_and_an_answer_has_a_limit() {
    with_store("long", |backend, addr, _| {
        let mut client = Client::connect(backend, addr);
        let value = "v".repeat(3 << 20);
        expect(&mut client, &request(&["SET", "long", &value]), "+OK\r\n");
        let answer = format!("${}\r\n{value}\r\n", value.len());
        expect(&mut client, &request(&["GET", "long"]), &answer);
        let all = request(&["MGET", "long", "long", "long", "long", "long", "long"]);
        expect(&mut client, &all, "-ERR too long an answer\r\n");
        expect(&mut client, b"PING\r\n", "+PONG\r\n");
    });
}

/// One writes all keys the same, by turns alone and in a batch; the other sees them the same.
#[test]
fn a_snapshot_is_never_torn() {
    with_store("torn", |backend, addr, _| {
        const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
        const ROUNDS: usize = 3_000;
        let set = |n: usize| {
            let value = format!("{n:08}");
            let pairs: Vec<&str> = KEYS.iter().flat_map(|key| [key, &value[..]]).collect();
            request(&[&["MSET"][..], &pairs].concat())
        };
        let get = request(&[&["MGET"][..], &KEYS].concat());
        let mut writer = Client::connect(backend, addr);
        expect(&mut writer, &set(0), "+OK\r\n");
        let mut reader = Client::connect(backend, addr);
        thread::scope(|scope| {
            scope.spawn(move || {
                for n in (1..=ROUNDS).step_by(3) {
                    expect(&mut writer, &set(n), "+OK\r\n");
                    let two = [set(n + 1), b"PING\r\n".to_vec(), set(n + 2)].concat();
                    expect(&mut writer, &two, "+OK\r\n+PONG\r\n+OK\r\n");
                }
            });
            let (mut before, mut different) = (String::new(), 0);
            for _ in 0..ROUNDS {
                reader.write_all(&get).unwrap();
                let answer = String::from_utf8(reader.exactly(4 + 5 * 14)).unwrap();
                let value = &answer[8..16];
                assert_eq!(
                    answer,
                    format!("*5\r\n{}", format!("$8\r\n{value}\r\n").repeat(5))
                );
                assert!(*value >= *before, "{value} after {before}");
                different += usize::from(value != before);
                before = value.into();
            }
            assert!(different > 1, "nothing was written meanwhile");
        });
    });
}

/// Both cores are held up while clients connect and ask. Then the stop comes first.
#[test]
fn clients_that_wait_to_be_accepted_are_answered_at_a_stop() {
    for backend in backends() {
        let _bound = Bound::new("wait to be accepted");
        let runtime = cores(2).backend(backend.clone()).build().unwrap();
        let poster = runtime.poster();
        let (tell, addr) = channel();
        let clients = thread::spawn(move || {
            let addr = addr.recv().unwrap();
            let connect = |_| Client::connect(&backend, addr);
            let mut clients: Vec<_> = (0..50).map(connect).collect();
            for client in &mut clients[..25] {
                expect(client, b"PING\r\n", "+PONG\r\n");
            }
            let go_on = hold_up(&poster, 2);
            clients.extend((0..50).map(connect));
            // One of each has sent more than a stream receives ahead of its task.
            let times = |number: usize| if number.is_multiple_of(50) { 30_000 } else { 3 };
            for (number, client) in clients.iter_mut().enumerate() {
                client
                    .write_all(&b"PING\r\n".repeat(times(number)))
                    .unwrap();
            }
            poster.stop();
            go_on();
            for (number, client) in clients.iter_mut().enumerate() {
                let answers = b"+PONG\r\n".repeat(times(number));
                assert!(client.rest() == answers, "of client {number}");
            }
        });
        let outcome = runtime.run(move |cx| {
            let addr = example::listen(cx, any_port().into()).unwrap();
            tell.send(addr.ip().unwrap()).unwrap();
        });
        clients.join().unwrap();
        outcome.unwrap();
    }
}

/// The run ends, and ends well.
#[test]
fn a_client_that_does_not_read_does_not_keep_it() {
    let _bound = Bound::new("does not read");
    let builder = mely::Runtime::builder().cores(2);
    let mut simulation = builder.simulate(1).unwrap();
    let (tell, addr) = channel();
    let listen = move |cx: &mut mely::Cx| {
        let addr = example::listen(cx, any_port().into()).unwrap();
        tell.send(addr.ip().unwrap()).unwrap();
    };
    simulation.start(listen).unwrap();
    let addr = loop {
        simulation.step();
        if let Ok(addr) = addr.try_recv() {
            break addr;
        }
    };
    let net = simulation.network().clone();
    let mut client = net.connect(addr).unwrap();
    // As much as can be sent, until no more is read.
    let ping = request(&["PING", &"a".repeat(10_000)]);
    while client.write(&ping).is_ok() {
        while simulation.step() != Step::Stalled {}
    }
    let asked = simulation.now();
    simulation.poster().stop();
    while simulation.step() != Step::Ended {}
    simulation.end().unwrap();
    let took = simulation.now() - asked;
    assert!(
        took < example::FINISH_MAX + Duration::from_secs(1),
        "{took:?}"
    );
    drop(client);
}

#[test]
fn what_has_come_before_a_stop_is_answered() {
    with_store("stop", |backend, addr, poster| {
        let mut client = Client::connect(backend, addr);
        expect(&mut client, b"SET n 0\r\n", "+OK\r\n");
        client.write_all(&b"INCR n\r\n".repeat(1_000)).unwrap();
        thread::sleep(Duration::from_secs(1));
        poster.stop();
        let answers: String = (1..=1_000).map(|n| format!(":{n}\r\n")).collect();
        assert_eq!(String::from_utf8(client.rest()).unwrap(), answers);
    });
}

/// Bytes that both the store and Redis are sent.
mod cases {
    use super::request;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    const NAMES: &[&str] = &[
        "GET", "get", "SET", "Set", "INCR", "DEL", "MGET", "MSET", "EXPIRE", "PING", "NONSENSE",
        "", "GE", "GETX",
    ];
    const ARGS: &[&str] = &[
        "a",
        "a",
        "b",
        "c",
        "",
        "0",
        "100",
        "-1",
        "-0",
        "+1",
        "01",
        " 1",
        "1 ",
        "0x1",
        "1.0",
        "99",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "9223372036854775",
        "line\r\nline",
        "'",
        "\"quoted\" \\n",
        "long long long long long long long long long long long long long long long long long long",
    ];
    /// Of Redis's protocol, and nearly.
    const PIECES: &[&str] = &[
        "*0\r\n",
        "*-1\r\n",
        "*-9223372036854775808\r\n",
        "\r\n",
        "\n",
        " \t \r\n",
        "PING\n",
        "  ping  \"a b\" \r\n",
        "SET a \"\\x41\\n\\q\\\"\" \r\nGET a\r\n",
        "SET b 'it\\'s\\n'\r\nGET b\r\n",
        "SET c\ta\"b\"\r\nGET c\r\n",
        "SET a \"\"\r\nGET a\r\n",
        "PING a\rb\n",
        "PING a\u{b}b\n",
        "PING \u{b}b\n",
        "PING \"a\n",
        "PING 'a\r\n",
        "PING \"a\"b\r\n",
        "PING 'a'\"b\"\r\n",
        "*x\r\n",
        "*\r\n",
        "*+1\r\n$4\r\nPING\r\n",
        "*01\r\n$4\r\nPING\r\n",
        "* 1\r\n$4\r\nPING\r\n",
        "*1\n$4\r\nPING\r\n",
        "*1\r.$4\r.PING..",
        "*1\r\n$04\r\nPING\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$-4\r\nPING\r\n",
        "*1\r\n$x\r\n",
        "*1\r\n4\r\nPING\r\n",
        "*1\r\n\r\nPING\r\n",
        "*1\r\n$4\r\nPINGPONG\r\n",
        "*1\r\n$4\r\nPING*1\r\n$4\r\nPING\r\n",
        "*2\r\n$4\r\nPING\r\n",
        "*2147483648\r\n",
        "*99999999999999999999\r\n",
    ];
    const PAGES: &[&str] = &[
        "POST / HTTP/1.1\r\nHost: h\r\n\r\nPING\r\n",
        "post /\n",
        "Host: h\r\n",
        "*1\r\n$5\r\nHOST:\r\n",
        "*2\r\n$4\r\npost\r\n$1\r\n/\r\n",
    ];

    /// Requests in a row, some of them wrong. After each of them the values are asked for.
    pub(super) fn case() -> impl Strategy<Value = Vec<u8>> {
        let args = || (select(NAMES), vec(select(ARGS), 0..5));
        let as_array = args().prop_map(|(name, args)| request(&[&[name], &args[..]].concat()));
        let as_line = args().prop_map(|(name, args)| {
            let words = args.iter().map(|arg| format!("{arg:?}"));
            let words: Vec<String> = [name.to_owned()].into_iter().chain(words).collect();
            (words.join(" ") + "\r\n").into_bytes()
        });
        // Mostly right.
        let right = (
            select(&["100", "-7", "x", "+5"][..]),
            select(&["a", "b"][..]),
        );
        let right = right.prop_map(|(value, key)| {
            let set = request(&["SET", key, value]);
            [
                set,
                request(&["INCR", key]),
                request(&["EXPIRE", key, value]),
            ]
            .concat()
        });
        let piece = select(PIECES).prop_map(|piece| piece.as_bytes().to_vec());
        let some = prop_oneof![4 => as_array, 2 => as_line, 2 => right, 2 => piece];
        let ask = || request(&["MGET", "a", "b", "c", ""]);
        let row = vec(some, 1..8).prop_map(move |row| row.join(&ask()[..]));
        let cut = (row, 0..40_usize).prop_map(|(mut row, cut)| {
            // Now and then the last request does not come to its end.
            row.truncate(row.len().saturating_sub(cut.saturating_sub(30)));
            row
        });
        let page = select(PAGES).prop_map(|page| page.as_bytes().to_vec());
        prop_oneof![20 => cut, 1 => page]
    }
}

/// The store and the real server give the same answers, byte for byte. `.ci/store` runs it, with Debian's
/// redis-server. COMMAND and CONFIG are not asked for: of these the store has no more than lets
/// redis-cli and redis-benchmark go on.
#[test]
#[ignore = "needs redis-server"]
fn answers_as_redis_does() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;
    const CASES: usize = 200;
    with_store("as Redis", |backend, addr, _| {
        let redis = Redis::start();
        let mut runner = TestRunner::deterministic();
        let mut wrong = 0;
        for _ in 0..CASES {
            let case = cases::case().new_tree(&mut runner).unwrap().current();
            let ask = |bytes: &[u8]| {
                let mut ours = Client::connect(backend, addr);
                ours.write_all(bytes).unwrap();
                ours.shutdown_write();
                (rest(ours), redis.ask(bytes))
            };
            let forget = ask(&request(&["DEL", "a", "b", "c", ""]));
            assert!(
                forget.0.starts_with(':') && forget.1.starts_with(':'),
                "{forget:?}"
            );
            let (ours, its) = ask(&case);
            wrong += usize::from(its.contains("-ERR"));
            assert_eq!(ours, its, "{}", case.escape_ascii());
        }
        // Some cases have nothing wrong with them, and some have.
        assert!((CASES / 4..CASES).contains(&wrong), "{wrong}");
    });
}

/// All that comes, as text in which each byte can be seen.
fn rest(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // Also from one that is cut off.
    let _ = from.read_to_end(&mut bytes);
    bytes.escape_ascii().to_string()
}

/// The real server, in a folder of its own.
struct Redis(std::process::Child, std::path::PathBuf);

impl Redis {
    fn start() -> Redis {
        use std::os::unix::process::CommandExt;
        let name = format!("mely-store-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = std::process::Command::new("redis-server");
        command
            .args(["--port", "0", "--unixsocket", "socket", "--save", ""])
            .current_dir(&folder)
            .stdout(std::process::Stdio::null());
        // SAFETY: an async-signal-safe system call, between fork and exec. It outlives exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().expect("redis-server is installed");
        let redis = Redis(child, folder);
        crate::common::eventually("redis-server", || redis.connect().is_ok());
        redis
    }

    fn connect(&self) -> std::io::Result<std::os::unix::net::UnixStream> {
        std::os::unix::net::UnixStream::connect(self.1.join("socket"))
    }

    fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().unwrap();
        stream.set_read_timeout(Some(crate::common::LONG)).unwrap();
        // It may have cut us off before the last byte.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        rest(stream)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}
