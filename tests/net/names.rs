//! Host names, looked up by mely's own resolver: against a server of the test's, on the kernel's
//! event sources and in simulations.

use crate::common::wire::{all_backends, on};
use crate::common::{Bound, LONG, backends, child_passes, open_descriptors};
use mely::dns::{Config, Resolver};
use mely::net::{Acceptors, Addr, Backend, DatagramSocket, RecvBuf, Session, Stream};
use mely::runtime::Finish;
use mely::task::{sleep, timeout, with_cx};
use mely::{Color, Cx, Handler, Runtime, aio, net};
use simple_dns::rdata::{A, AAAA, CNAME, RData, SOA};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static SERVE: Handler = Handler::new("names");
const HERE: Color = Color::new(3);

/// How often each name was asked for.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<BTreeMap<String, usize>>>);

impl Asked {
    fn of(&self, name: &str) -> usize {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn record(name: &str, ttl: u32, data: RData<'static>) -> ResourceRecord<'static> {
    let name = Name::new_unchecked(name).into_owned();
    ResourceRecord::new(name, CLASS::IN, ttl, data)
}

fn address(name: &str, ttl: u32, ip: IpAddr) -> ResourceRecord<'static> {
    let data = match ip {
        IpAddr::V4(ip) => RData::A(A { address: ip.into() }),
        IpAddr::V6(ip) => RData::AAAA(AAAA { address: ip.into() }),
    };
    record(name, ttl, data)
}

fn alias(name: &str, to: &'static str) -> ResourceRecord<'static> {
    record(name, 60, RData::CNAME(CNAME(Name::new_unchecked(to))))
}

fn soa() -> ResourceRecord<'static> {
    let soa = SOA {
        mname: Name::new_unchecked("ns.test"),
        rname: Name::new_unchecked("admin.test"),
        serial: 1,
        refresh: 1,
        retry: 1,
        expire: 1,
        minimum: 30,
    };
    record("test", 600, RData::SOA(soa))
}

/// The messages that answer a question; none for some.
fn answers(question: &[u8], over_tcp: bool, asked: &Asked) -> Vec<Vec<u8>> {
    let packet = Packet::parse(question).unwrap();
    let name = packet.questions[0].qname.to_string();
    let v4 = packet.questions[0].qtype == QTYPE::TYPE(TYPE::A);
    *asked.0.lock().unwrap().entry(name.clone()).or_default() += 1;
    let number = asked.of(&name);
    let mut reply = Packet::new_reply(packet.id());
    reply.questions = packet.questions.clone();
    let mut messages = Vec::new();
    match &name[..] {
        "one.test" if v4 => reply.answers.push(address(&name, 60, ip("10.0.0.1"))),
        "both.test" if v4 => reply.answers.push(address("BOTH.test", 2, ip("10.0.0.2"))),
        "both.test" => reply.answers.push(address("both.test", 2, ip("fd00::2"))),
        "alias.test" if v4 => {
            reply.answers.push(alias(&name, "both.test"));
            reply.answers.push(address("both.test", 60, ip("10.0.0.2")));
        }
        "far.test" => reply.answers.push(alias(&name, "one.test")),
        "loop.test" => {
            reply.answers.push(alias(&name, "pool.test"));
            reply.answers.push(alias("pool.test", "loop.test"));
        }
        "chain.test" => reply.answers.push(alias(&name, "chain2.test")),
        "chain2.test" => reply.answers.push(alias(&name, "chain.test")),
        "big.test" if v4 && !over_tcp => reply.set_flags(PacketFlag::TRUNCATION),
        "big.test" if v4 => {
            let addrs = (0..200).map(|i| address(&name, 60, [10, 1, 0, i].into()));
            reply.answers.extend(addrs);
        }
        "local.test" => {
            let loopback: IpAddr = match v4 {
                true => Ipv4Addr::LOCALHOST.into(),
                false => Ipv6Addr::LOCALHOST.into(),
            };
            reply.answers.push(address(&name, 60, loopback));
        }
        "broken.test" => *reply.rcode_mut() = RCODE::ServerFailure,
        "half.test" if !v4 => *reply.rcode_mut() = RCODE::ServerFailure,
        "half.test" => reply.answers.push(address(&name, 60, ip("10.0.0.5"))),
        "silent.test" => return Vec::new(),
        "lopsided.test" if !v4 => return Vec::new(),
        "lopsided.test" => reply.answers.push(address(&name, 60, ip("10.0.0.8"))),
        // Without EDNS only: not understood, or not so much as the question.
        "old.test" if packet.opt().is_some() => {
            *reply.rcode_mut() = RCODE::NotImplemented;
        }
        "older.test" if packet.opt().is_some() => {
            *reply.rcode_mut() = RCODE::FormatError;
            reply.questions.clear();
        }
        "old.test" | "older.test" if v4 => {
            reply.answers.push(address(&name, 60, ip("10.0.0.9")));
        }
        "refused.test" => {
            *reply.rcode_mut() = RCODE::Refused;
            reply.questions.clear();
        }
        // A referral, when each family is asked for the first time.
        "lame.test" if number <= 2 => {}
        "lame.test" if v4 => reply.answers.push(address(&name, 60, ip("10.0.0.6"))),
        // Guesses, and no answer.
        "flood.test" => {
            let wrong = Packet::new_reply(packet.id() ^ 1);
            return vec![wrong.build_bytes_vec().unwrap(); 1_000];
        }
        "huge.test" if v4 => {
            let mut huge = Packet::new_reply(packet.id());
            huge.questions.clone_from(&packet.questions);
            huge.answers = (0..200)
                .map(|_| address(&name, 60, ip("6.6.6.6")))
                .collect();
            messages.push(huge.build_bytes_vec().unwrap());
            assert!(messages[0].len() > 4_096);
            reply.answers.push(address(&name, 60, ip("10.0.0.3")));
        }
        _ if name.ends_with(".broken.test") => *reply.rcode_mut() = RCODE::ServerFailure,
        "spoofed.test" if v4 => {
            let mut wrong = Packet::new_reply(packet.id() ^ 1);
            wrong.questions = packet.questions.clone();
            wrong.answers.push(address(&name, 60, ip("6.6.6.6")));
            messages.push(wrong.build_bytes_vec().unwrap());
            let mut wrong = Packet::new_reply(packet.id());
            wrong.questions.clone_from(&packet.questions);
            wrong.questions[0].qname = Name::new_unchecked("other.test");
            wrong.answers.push(address(&name, 60, ip("6.6.6.6")));
            messages.push(wrong.build_bytes_vec().unwrap());
            messages.push(b"nonsense".to_vec());
            messages.push(question.to_vec());
            // Of somebody else.
            reply.answers.push(address("evil.test", 60, ip("6.6.6.6")));
            reply.answers.push(address(&name, 60, ip("10.0.0.7")));
        }
        "one.test" | "alias.test" | "big.test" | "spoofed.test" | "four.search.test"
        | "old.test" | "older.test" | "lame.test" | "huge.test"
            if !v4 =>
        {
            reply.name_servers.push(soa());
        }
        "four.search.test" => reply.answers.push(address(&name, 60, ip("10.0.0.4"))),
        _ => {
            *reply.rcode_mut() = RCODE::NameError;
            reply.name_servers.push(soa());
        }
    }
    messages.push(reply.build_bytes_vec().unwrap());
    messages
}

/// Answers over TCP.
struct OverTcp {
    stream: Stream,
    got: Vec<u8>,
    asked: Asked,
}

impl Session for OverTcp {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.got.extend_from_slice(&data);
        let Some((len, rest)) = self.got.split_first_chunk::<2>() else {
            return;
        };
        if rest.len() >= usize::from(u16::from_be_bytes(*len)) {
            let answer = answers(rest, true, &self.asked).pop().unwrap();
            let len = (answer.len() as u16).to_be_bytes();
            self.stream.write(cx, len.to_vec()).unwrap();
            self.stream.write(cx, answer).unwrap();
        }
    }
}

/// A server at this address, or at a free port of it.
fn server(cx: &mut Cx, at: &str, asked: &Asked) -> SocketAddr {
    // A port that is free for both.
    let (socket, addr): (DatagramSocket, Addr) = loop {
        let socket = cx.bind(at).unwrap();
        let (addr, asked) = (socket.local_addr(), asked.clone());
        let open = move |_: &mut Cx, stream, _: &_| OverTcp {
            stream,
            got: Vec::new(),
            asked: asked.clone(),
        };
        if cx.serve(&addr, Acceptors::Single, &SERVE, open).is_ok() {
            break (socket, addr);
        }
    };
    let (its, asked) = (socket.clone(), asked.clone());
    let answer = SERVE.on_each(
        Color::from(2),
        move |_: &mut Cx, received: io::Result<_>| {
            // Refused by a client that is gone.
            let Ok(net::Datagram { data, from, .. }) = received else {
                return;
            };
            for answer in answers(&data, false, &asked) {
                its.send_to(&answer, &from).unwrap();
            }
        },
    );
    socket.on_datagram(cx, answer).unwrap();
    addr.ip().unwrap()
}

fn config(servers: Vec<SocketAddr>) -> Config {
    let mut config = Config::default();
    config.servers = servers;
    config.timeout = Duration::from_millis(500);
    config
}

type Found = io::Result<Vec<IpAddr>>;

async fn find(resolver: &Resolver, name: &str) -> Found {
    with_cx(|cx| resolver.resolve(cx, name)).await.unwrap()
}

/// What a task comes to that has a resolver, and a server.
fn with_names<T, F>(
    builder: Runtime,
    change: fn(&mut Config),
    task: impl FnOnce(Resolver, Asked) -> F + Send + 'static,
) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let run = move |cx: &mut Cx, finish: Finish<T>| {
        let asked = Asked::default();
        let mut config = config(vec![server(cx, "127.0.0.1:0", &asked)]);
        change(&mut config);
        let resolver = Resolver::new(cx, config);
        let task = task(resolver, asked);
        cx.spawn(HERE, async move { finish.finish(task.await) });
    };
    builder.run_until(run).unwrap()
}

#[test]
fn names_have_their_addresses() {
    let _bound = Bound::new("names have their addresses");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        with_names(
            runtime,
            |_| (),
            |resolver, _| async move {
                let sorted = |found: Found| {
                    let mut found = found.unwrap();
                    found.sort_unstable();
                    found
                };
                let one = find(&resolver, "one.test").await;
                assert_eq!(one.unwrap(), [ip("10.0.0.1")]);
                let both = sorted(find(&resolver, "Both.Test").await);
                assert_eq!(both, [ip("10.0.0.2"), ip("fd00::2")]);
                let alias = find(&resolver, "alias.test.").await;
                assert_eq!(alias.unwrap(), [ip("10.0.0.2")]);
                let far = find(&resolver, "far.test").await;
                assert_eq!(far.unwrap(), [ip("10.0.0.1")]);
                // Over TCP, and not all of 200.
                assert_eq!(find(&resolver, "big.test").await.unwrap().len(), 32);
                // Of whatever else comes, nothing is believed.
                let spoofed = find(&resolver, "spoofed.test").await;
                assert_eq!(spoofed.unwrap(), [ip("10.0.0.7")]);
                // One family fails.
                let half = find(&resolver, "half.test").await;
                assert_eq!(half.unwrap(), [ip("10.0.0.5")]);
                for (name, found) in [
                    ("old.test", "10.0.0.9"),
                    ("older.test", "10.0.0.9"),
                    ("lame.test", "10.0.0.6"),
                    ("huge.test", "10.0.0.3"),
                ] {
                    assert_eq!(find(&resolver, name).await.unwrap(), [ip(found)], "{name}");
                }
                let own = find(&resolver, "10.9.8.7").await;
                assert_eq!(own.unwrap(), [ip("10.9.8.7")]);
            },
        );
    }
}

#[test]
fn what_is_not_there_is_told_from_what_fails() {
    let _bound = Bound::new("not there");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        with_names(
            runtime,
            |_| (),
            |resolver, _| async move {
                for (name, kind) in [
                    ("gone.test", ErrorKind::NotFound),
                    ("broken.test", ErrorKind::Other),
                    ("refused.test", ErrorKind::Other),
                    ("silent.test", ErrorKind::TimedOut),
                    ("loop.test", ErrorKind::Other),
                    ("chain.test", ErrorKind::InvalidData),
                    (&"x".repeat(64), ErrorKind::InvalidInput),
                    (&"x.".repeat(140), ErrorKind::InvalidInput),
                    ("a..b", ErrorKind::InvalidInput),
                    ("", ErrorKind::InvalidInput),
                ] {
                    let error = find(&resolver, name).await.unwrap_err();
                    assert_eq!(error.kind(), kind, "{name}: {error}");
                    assert!(
                        error.to_string().starts_with(&format!("{name}: ")),
                        "{error}"
                    );
                }
            },
        );
    }
}

#[test]
fn answers_are_kept_as_long_as_they_hold() {
    let runtime = || Runtime::builder().cores(2);
    for seed in 0..20 {
        let mut simulation = runtime().simulate(seed).unwrap();
        let run = |cx: &mut Cx, finish: Finish<()>| {
            let asked = Asked::default();
            let config = config(vec![server(cx, "127.0.0.1:0", &asked)]);
            let resolver = Resolver::new(cx, config);
            cx.spawn(HERE, async move {
                // Many at once are one lookup: of two families.
                let mut many = Vec::new();
                for _ in 0..50 {
                    many.push(with_cx(|cx| resolver.resolve(cx, "both.test")));
                }
                let first = many.remove(0);
                first.cancel();
                for handle in many {
                    assert_eq!(handle.await.unwrap().unwrap().len(), 2);
                }
                assert!(asked.of("both.test") <= 4, "{}", asked.of("both.test"));
                drop(first.await);
                let before = asked.of("both.test");
                sleep(Duration::from_millis(1_500)).await;
                find(&resolver, "both.test").await.unwrap();
                assert_eq!(asked.of("both.test"), before);
                sleep(Duration::from_millis(600)).await;
                find(&resolver, "both.test").await.unwrap();
                assert_eq!(asked.of("both.test"), before + 2);
                // So is what is not there, for 30 s; what fails is not.
                for _ in 0..3 {
                    find(&resolver, "gone.test").await.unwrap_err();
                    find(&resolver, "broken.test").await.unwrap_err();
                }
                assert_eq!(asked.of("gone.test"), 2);
                assert_eq!(asked.of("broken.test"), 2 * 2 * 3);
                sleep(Duration::from_secs(31)).await;
                find(&resolver, "gone.test").await.unwrap_err();
                assert_eq!(asked.of("gone.test"), 4);
                finish.finish(());
            });
        };
        simulation.run_until(run).unwrap();
    }
}

#[test]
fn another_server_is_asked() {
    let _bound = Bound::new("another server");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        let run = |cx: &mut Cx, finish: Finish<Found>| {
            let asked = Asked::default();
            // Refuses, or says nothing; says nothing; answers.
            let silent = cx.bind("127.0.0.1:0").unwrap();
            let nobody = ([127, 0, 0, 1], 9).into();
            let good = server(cx, "127.0.0.1:0", &asked);
            // Of no link, which the kernel refuses as an invalid argument.
            let linkless = "[fe80::1]:53".parse().unwrap();
            let silent_at = silent.local_addr().ip().unwrap();
            let all = vec![linkless, nobody, silent_at, good];
            let resolver = Resolver::new(cx, config(all));
            cx.spawn(HERE, async move {
                let _silent = silent;
                finish.finish(find(&resolver, "one.test").await);
            });
        };
        let found = runtime.run_until(run).unwrap();
        assert_eq!(found.unwrap(), [ip("10.0.0.1")]);
    }
}

#[test]
fn a_silent_family_has_a_short_time() {
    let mut simulation = Runtime::builder().cores(2).simulate(1).unwrap();
    let run = |cx: &mut Cx, finish: Finish<Duration>| {
        let config = config(vec![server(cx, "127.0.0.1:0", &Asked::default())]);
        let resolver = Resolver::new(cx, config);
        cx.spawn(HERE, async move {
            let begun = with_cx(|cx| cx.now());
            let found = find(&resolver, "lopsided.test").await;
            assert_eq!(found.unwrap(), [ip("10.0.0.8")]);
            finish.finish(with_cx(|cx| cx.now()) - begun);
        });
    };
    let took = simulation.run_until(run).unwrap();
    // Not until the time of a server is up, once for each attempt.
    let bounds = Duration::from_millis(50)..Duration::from_millis(100);
    assert!(bounds.contains(&took), "{took:?}");
}

#[test]
fn a_port_that_is_flooded_is_given_up() {
    let mut simulation = Runtime::builder().cores(2).simulate(1).unwrap();
    let run = |cx: &mut Cx, finish: Finish<Found>| {
        let mut config = config(vec![server(cx, "127.0.0.1:0", &Asked::default())]);
        config.timeout = LONG;
        let resolver = Resolver::new(cx, config);
        cx.spawn(HERE, async move {
            finish.finish(find(&resolver, "flood.test").await);
        });
    };
    let error = simulation.run_until(run).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn without_aaaa_only_v4_is_asked_for() {
    let _bound = Bound::new("without AAAA");
    let runtime = on(&Backend::Epoll).build().unwrap();
    let change = |config: &mut Config| config.no_aaaa = true;
    with_names(runtime, change, |resolver, asked| async move {
        let both = find(&resolver, "both.test").await;
        assert_eq!(both.unwrap(), [ip("10.0.0.2")]);
        assert_eq!(asked.of("both.test"), 1);
    });
}

#[test]
fn a_stop_is_told_as_itself() {
    let _bound = Bound::new("a stop is told");
    for backend in all_backends() {
        let runtime = on(&backend).build().unwrap();
        let (tell, told) = channel();
        let run = move |cx: &mut Cx| {
            let silent = cx.bind("127.0.0.1:0").unwrap();
            let mut config = config(vec![silent.local_addr().ip().unwrap()]);
            config.timeout = LONG;
            let resolver = Resolver::new(cx, config);
            cx.spawn(HERE, async move {
                let _silent = silent;
                with_cx(|cx| resolver.use_for_connect(cx));
                let found = with_cx(|cx| resolver.resolve(cx, "one.test"));
                // It waits for the same lookup.
                let too = with_cx(|cx| net::resolve(cx, "one.test:80"));
                sleep(Duration::from_millis(5)).await;
                with_cx(|cx| cx.stop());
                tell.send(found.await.unwrap().unwrap_err()).unwrap();
                tell.send(too.await.unwrap().unwrap_err()).unwrap();
            });
        };
        runtime.run(run).unwrap();
        let codes: Vec<_> = told.iter().map(|error| error.raw_os_error()).collect();
        let canceled = rustix::io::Errno::CANCELED.raw_os_error();
        assert_eq!(codes, [Some(canceled); 2], "{backend:?}");
    }
}

#[test]
fn lost_datagrams_are_sent_again() {
    let mut failed = 0;
    for seed in 0..60 {
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        simulation.network().lose_one_datagram_in(5);
        let run = |cx: &mut Cx, finish: Finish<Found>| {
            let mut config = config(vec![server(cx, "127.0.0.1:0", &Asked::default())]);
            config.attempts = 5;
            let resolver = Resolver::new(cx, config);
            cx.spawn(HERE, async move {
                finish.finish(find(&resolver, "big.test").await)
            });
        };
        match simulation.run_until(run).unwrap() {
            Ok(found) => assert_eq!(found.len(), 32),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                failed += 1;
            }
        }
    }
    // Of a query and its answer one in three is lost; five times in a row, one in two hundred.
    assert!(failed < 6, "{failed}");
}

/// A server's socket has room for some queries only, and drops the others.
#[test]
fn queries_of_many_lookups_come_in_bursts() {
    for silent in [false, true] {
        let mut simulation = Runtime::builder().cores(2).simulate(3).unwrap();
        let run = move |cx: &mut Cx, finish: Finish<_>| {
            let socket = cx.bind("127.0.0.1:0").unwrap();
            let mut config = config(vec![socket.local_addr().ip().unwrap()]);
            config.no_aaaa = true;
            let resolver = Resolver::new(cx, config);
            let lookups: Vec<_> = (0..300)
                .map(|i| resolver.resolve(cx, format!("many{i}.test")))
                .collect();
            // Answers once nothing has come for a while, or not at all.
            cx.spawn(HERE, async move {
                let mut bursts = Vec::new();
                let still = Duration::from_millis(20);
                while let Ok(Ok(first)) = timeout(LONG, socket.recv()).await {
                    let mut burst = vec![first];
                    while let Ok(Ok(datagram)) = timeout(still, socket.recv()).await {
                        burst.push(datagram);
                    }
                    bursts.push(burst.len());
                    for net::Datagram { data, from, .. } in burst.into_iter().filter(|_| !silent) {
                        let answer = &answers(&data, false, &Asked::default())[0];
                        socket.send_to(answer, &from).unwrap();
                    }
                    let sum: usize = bursts.iter().sum();
                    if sum == if silent { 600 } else { 300 } {
                        break;
                    }
                }
                let mut kinds = Vec::new();
                for lookup in lookups {
                    kinds.push(lookup.await.unwrap().unwrap_err().kind());
                }
                finish.finish((bursts, kinds));
            });
        };
        let begun = simulation.now();
        let (bursts, kinds) = simulation.run_until(run).unwrap();
        // A server that is gone does not keep the queries of others for its whole time.
        let took = simulation.now() - begun;
        assert!(took < Duration::from_millis(1_600), "{took:?}");
        assert!(bursts.iter().all(|&queries| queries <= 128), "{bursts:?}");
        let kind = match silent {
            true => ErrorKind::TimedOut,
            false => ErrorKind::NotFound,
        };
        assert_eq!(kinds, [kind; 300]);
    }
}

#[test]
fn search_and_hosts_are_applied() {
    let _bound = Bound::new("search and hosts");
    let runtime = on(&Backend::Epoll).build().unwrap();
    let change = |config: &mut Config| {
        config.search = vec![
            "nowhere.test".into(),
            "a..b".into(),
            "y.".repeat(126),
            "broken.test".into(),
            "search.test".into(),
        ];
        config.hosts = vec![
            ("mine".into(), ip("10.7.7.7")),
            ("one.test".into(), ip("10.8.8.8")),
        ];
    };
    with_names(runtime, change, |resolver, asked| async move {
        let four = find(&resolver, "four").await;
        assert_eq!(four.unwrap(), [ip("10.0.0.4")]);
        assert_eq!(asked.of("four.nowhere.test"), 2);
        assert_eq!(asked.of("four"), 0);
        assert_eq!(find(&resolver, "Mine").await.unwrap(), [ip("10.7.7.7")]);
        assert_eq!(find(&resolver, "one.test").await.unwrap(), [ip("10.8.8.8")]);
        // With a dot, first as it is.
        let error = find(&resolver, "five.six").await.unwrap_err();
        // Of the one that has failed: whether it has the name is not known.
        assert_eq!(error.kind(), ErrorKind::Other, "{error}");
        assert_eq!(asked.of("five.six"), 2);
        assert_eq!(asked.of("five.six.search.test"), 2);
        let local = find(&resolver, "a.localhost").await.unwrap();
        assert!(local.iter().all(IpAddr::is_loopback));
    });
}

#[test]
fn lookups_are_limited() {
    let _bound = Bound::new("lookups are limited");
    let runtime = on(&Backend::Epoll).build().unwrap();
    let change = |config: &mut Config| config.lookups_max = 1;
    with_names(runtime, change, |resolver, _| async move {
        let slow = with_cx(|cx| resolver.resolve(cx, "silent.test"));
        let refused = loop {
            match find(&resolver, "one.test").await {
                Ok(_) => mely::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("lookups_max"), "{refused}");
        assert_eq!(slow.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        find(&resolver, "both.test").await.unwrap();
    });
}

#[test]
fn connections_are_made_to_names() {
    let _bound = Bound::new("connections to names");
    for backend in backends() {
        let runtime = on(&backend).build().unwrap();
        with_names(
            runtime,
            |_| (),
            |resolver, asked| async move {
                with_cx(|cx| resolver.use_for_connect(cx));
                let open = |_: &mut Cx, stream, _: &_| OverTcp {
                    stream,
                    got: Vec::new(),
                    asked: Asked::default(),
                };
                let serve = |cx: &mut Cx| cx.serve("127.0.0.1:0", Acceptors::Single, &SERVE, open);
                let port = with_cx(serve).unwrap().local_addr().ip().unwrap().port();
                let stream = aio::connect(format!("local.test:{port}"), LONG)
                    .await
                    .unwrap();
                let peer = with_cx(|cx| stream.get_ref().peer_addr(cx)).unwrap();
                assert_eq!(peer, SocketAddr::from(([127, 0, 0, 1], port)));
                assert_eq!(asked.of("local.test"), 2);
                let gone = aio::connect("gone.test:80", LONG).await.unwrap_err();
                assert_eq!(gone.kind(), ErrorKind::NotFound);
                assert!(gone.to_string().starts_with("gone.test:80: "), "{gone}");
                let found = with_cx(|cx| net::resolve(cx, "one.test:7")).await.unwrap();
                assert_eq!(found.unwrap(), [SocketAddr::from(([10, 0, 0, 1], 7))]);
            },
        );
    }
}

#[test]
fn nothing_is_left_of_lookups() {
    child_passes("names::child_nothing_is_left_of_lookups", &[]);
}

#[test]
#[ignore = "counts descriptors: run in a process of its own"]
fn child_nothing_is_left_of_lookups() {
    for backend in backends() {
        let before = open_descriptors();
        let runtime = on(&backend).build().unwrap();
        with_names(
            runtime,
            |_| (),
            |resolver, _| async move {
                let during = open_descriptors();
                with_cx(|cx| resolver.use_for_connect(cx));
                for after in [0, 1, 5, 20] {
                    let slow = with_cx(|cx| resolver.resolve(cx, "silent.test"));
                    sleep(Duration::from_millis(after)).await;
                    slow.cancel();
                    slow.await.unwrap_err();
                }
                find(&resolver, "big.test").await.unwrap();
                while open_descriptors() > during {
                    sleep(Duration::from_millis(1)).await;
                }
                // And one that the stop meets.
                let _detached = with_cx(|cx| resolver.resolve(cx, "silent.test"));
                sleep(Duration::from_millis(5)).await;
            },
        );
        assert_eq!(open_descriptors(), before);
    }
}

#[test]
fn the_system_has_a_configuration() {
    let config = Config::system().unwrap();
    assert!(!config.servers.is_empty());
    assert!(config.attempts > 0 && !config.timeout.is_zero());
}
