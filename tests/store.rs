//! The store of `examples/store/`, against clients that write bytes.

mod common;
#[path = "../examples/store/main.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod store;

use common::wire::{Client, any_port};
use common::{Bound, backends, cores};
use mely::Poster;
use mely::net::Backend;
use std::io::Write;
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
            tell.send(store::listen(cx, any_port()).unwrap()).unwrap();
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
            (&["EXPIRE", "a", "9223372036854775807"], ":1\r\n"),
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
        let unknown = "-ERR unknown command, or wrong number of arguments\r\n";
        for args in [
            &["NONSENSE"][..],
            &["GET"],
            &["GET", "a", "b"],
            &["SET", "a"],
            &["MGET"],
            &["DEL"],
            &["MSET", "a"],
            &["MSET", "a", "1", "b"],
            &["CONFIG"],
            &[""],
        ] {
            expect(&mut client, &request(args), unknown);
        }
        let number = "-ERR value is not an integer or out of range\r\n";
        for (value, answer) in [
            ("x", number),
            ("9223372036854775807", number),
            ("-1", ":0\r\n"),
        ] {
            expect(&mut client, &request(&["SET", "a", value]), "+OK\r\n");
            expect(&mut client, &request(&["INCR", "a"]), answer);
        }
        expect(&mut client, &request(&["EXPIRE", "a", "soon"]), number);
        // Nothing at all.
        expect(&mut client, b"*0\r\n*1\r\n$4\r\nPING\r\n", "+PONG\r\n");
    });
}

#[test]
fn what_is_no_protocol_is_told_after_the_answers_and_ends_the_connection() {
    with_store("no protocol", |backend, addr, _| {
        let long = vec![b'x'; 5 << 20];
        let arg = format!("$524288\r\n{}\r\n", "x".repeat(512 << 10));
        let too_big = ["*16384\r\n", &arg.repeat(9)].concat();
        let words = ["MGET", &" a".repeat(1 << 14), "\n"].concat();
        for wrong in [
            words.as_bytes(),
            b"*x\r\n",
            b"*-1\r\n",
            b"*99999999999999999999\r\n",
            b"*1\r\n4\r\nPING\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$4\r\nPINGPONG\r\n",
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
