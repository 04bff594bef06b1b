//! The driver in simulated runtimes of one core.

use super::{BURST_MAX, COMPLETIONS_MAX, Driver, SIMULATED_BUFFERS, release};
use crate::Post;
use crate::net::Addr;
use crate::net::tests::{Drops, Witness, settle};
use crate::net::{Acceptors, Backend, Incoming, RecvBuf, SimCall, SimClient, SimNet, Stream};
use crate::sched::core::Core;
use crate::sim::Simulation;
use crate::{Callback, Color, Cx, Handler, Runtime};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static ACCEPT: Handler = Handler::new("accept");
static READ: Handler = Handler::new("read");
static DRAINED: Handler = Handler::new("drained");
const ACCEPTING: Color = Color::new(1);

/// A simulated runtime of one core that listens, and where.
fn listening<F>(seed: u64, events_max: usize, accept: F) -> (Simulation, Addr)
where
    F: FnMut(&mut Cx, io::Result<Incoming>) + Send + 'static,
{
    let builder = Runtime::builder().events_max(events_max);
    crate::net::tests::listening(builder, seed, ACCEPT.on_each(ACCEPTING, accept))
}

/// Steps until something was sent.
fn until<T>(simulation: &mut Simulation, told: &std::sync::mpsc::Receiver<T>) -> T {
    loop {
        assert!(simulation.steps() < 100_000, "it does not come");
        simulation.step();
        if let Ok(told) = told.try_recv() {
            return told;
        }
    }
}

/// Runs `f` in an event with the core's driver, and returns what it returns.
fn in_an_event<T, F>(simulation: &mut Simulation, f: F) -> T
where
    T: Send + 'static,
    F: FnOnce(&mut Cx) -> T + Send + 'static,
{
    let (tell, told) = channel();
    let event = move |cx: &mut Cx| tell.send(f(cx)).unwrap();
    simulation.poster().try_post(Color::from(2), event).unwrap();
    until(simulation, &told)
}

/// Calls `f` with the core's driver.
fn driver<R>(cx: &mut Cx, f: impl FnOnce(&mut Driver, &mut Core) -> R) -> R {
    Driver::with(cx.worker(), f).unwrap()
}

/// Gives a connection that was accepted a callback that tells where it is dropped.
fn open(cx: &mut Cx, incoming: io::Result<Incoming>, witness: Witness) -> Stream {
    let stream = incoming.unwrap().open(cx.color());
    let drained = move |_: &mut Cx, _: &Stream, _| {
        let _ = &witness;
    };
    stream.on_drained(cx, &DRAINED, drained).unwrap();
    stream
}

/// Reserved events are counted until they have run, and say nothing of whether there is room.
#[test]
fn what_cannot_be_refused_is_counted_beyond_the_limit() {
    let mut simulation = Runtime::builder().events_max(10).simulate(1).unwrap();
    let color = Color::from(1);
    simulation
        .run(move |cx| {
            let core = &mut cx.worker().core;
            assert!(core.has_room() && core.reserved() == 0);
            while core.post(None, color, |_: &mut Cx| ()).is_ok() {}
            assert!(!core.has_room() && core.reserved() == 0);
            for reserved in 1..=3 {
                core.post_own(None, color, |_: &mut Cx| ());
                assert!(!core.has_room() && core.reserved() == reserved);
            }
            core.post_own(None, color, |cx: &mut Cx| {
                let core = &mut cx.worker().core;
                assert!(core.has_room() && core.reserved() == 0);
                cx.stop();
            });
        })
        .unwrap();
}

/// By this the watchdog tells a core that goes on from one that is stuck in a handler.
#[test]
fn looks_at_the_event_source_are_counted() {
    let (mut simulation, _) = listening(1, 100, |_, _| ());
    let looks = |cx: &mut Cx| cx.worker_ref().core.shared.cores[0].stats.looks.get();
    let look = move |cx: &mut Cx| {
        let before = looks(cx);
        driver(cx, |driver, core| driver.look_at_all(core));
        looks(cx) - before
    };
    assert_eq!(in_an_event(&mut simulation, look), 1);
}

#[test]
fn a_core_sleeps_until_its_next_timer() {
    let (mut simulation, _) = listening(1, 100, |_, _| ());
    let timeouts = |cx: &mut Cx| {
        let now_ns = cx.now().as_nanos() as u64;
        let never = Callback::anonymous(ACCEPTING, |_: &mut Cx| ());
        let timer = cx.timer(Duration::from_secs(5), never);
        let mut in_s = |s: u64| driver(cx, |driver, _| driver.timeout(now_ns + s * 1_000_000_000));
        let timeouts = [0, 1, 5, 6].map(&mut in_s);
        timer.cancel(cx);
        (timeouts, driver(cx, |driver, _| driver.timeout(now_ns)))
    };
    let (timeouts, without) = in_an_event(&mut simulation, timeouts);
    assert_eq!(timeouts, [5, 4, 0, 0].map(|s| Some(Duration::from_secs(s))));
    assert_eq!(without, None);
}

/// Neither a nanosecond too early nor one too late.
#[test]
fn a_listener_rests_until_its_moment() {
    let (tell, told) = channel();
    let fails = move |_: &mut Cx, incoming: io::Result<Incoming>| {
        tell.send(incoming.is_err()).unwrap();
    };
    let (mut simulation, addr) = listening(1, 100, fails);
    let net = simulation.network().clone();
    net.fail_next(SimCall::Accept, rustix::io::Errno::MFILE.raw_os_error());
    let _client = net.connect(addr).unwrap();
    assert!(until(&mut simulation, &told), "it has failed");
    let rests = |cx: &mut Cx| {
        driver(cx, |driver, core| {
            let at_ns = driver.resting[0].0;
            [at_ns - 1, at_ns].map(|now_ns| {
                driver.accept_again(now_ns, core);
                (driver.resting.len(), driver.operations.len())
            })
        })
    };
    assert_eq!(in_an_event(&mut simulation, rests), [(1, 0), (0, 1)]);
    settle(&mut simulation);
    assert!(!told.recv().unwrap());
}

/// Connections that came together are few events, none of them too long.
#[test]
fn connections_are_handed_over_in_bursts() {
    let count = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&count);
    let (mut simulation, addr) = listening(1, 1_000, move |_, incoming| {
        drop(incoming.unwrap());
        its.fetch_add(1, Ordering::Relaxed);
    });
    let net = simulation.network().clone();
    let events = |simulation: &mut Simulation, clients: usize| {
        let all: Vec<_> = (0..clients).map(|_| net.connect(&addr).unwrap()).collect();
        settle(simulation);
        assert_eq!(count.swap(0, Ordering::Relaxed), all.len());
        let profile = simulation.profile();
        let accept = profile.handlers.iter().find(|its| its.name == "accept");
        accept.map_or(0, |accept| accept.events())
    };
    assert_eq!(events(&mut simulation, 2 * BURST_MAX), 2);
    assert_eq!(events(&mut simulation, 2 * BURST_MAX + 1), 2 + 3);
}

/// A connection may be in no hands but the driver's when it lets it go.
#[test]
fn the_last_reference_is_dropped_in_an_event() {
    for ends in [false, true] {
        let drops = Drops::default();
        let (given, (give, streams)) = (drops.clone(), channel());
        let (mut simulation, addr) = listening(1, 100, move |cx, incoming| {
            let witness = given.witness(cx.poster());
            let stream = open(cx, incoming, witness);
            stream.on_data(cx, &READ, |_, _, _| ()).unwrap();
            give.send(stream).unwrap();
        });
        let client = simulation.network().connect(addr).unwrap();
        let mut stream = until(&mut simulation, &streams);
        // So it receives no more, and has been told so.
        client.shutdown_write();
        settle(&mut simulation);
        in_an_event(&mut simulation, move |cx| {
            let conn = Arc::clone(&stream.conn);
            stream.owner = false;
            drop(stream);
            driver(cx, |driver, core| {
                if ends {
                    conn.end_at_home(driver, core);
                    release(conn, core);
                } else {
                    release(conn, core);
                }
            });
        });
        settle(&mut simulation);
        assert_eq!(drops.seen(), [Some(ACCEPTING)], "ends: {ends}");
    }
}

/// The canceled receive may be all that is left of a connection whose handle was dropped by a
/// thread, after a stop and before the core has heard of that.
#[test]
fn callbacks_are_dropped_in_their_color_whenever_the_end_comes() {
    for (seed, steps) in (0..4).flat_map(|seed| (0..6).map(move |steps| (seed, steps))) {
        let drops = Drops::default();
        let (given, (give, streams)) = (drops.clone(), channel());
        let (mut simulation, addr) = listening(seed, 100, move |cx, incoming| {
            let witness = given.witness(cx.poster());
            let stream = open(cx, incoming, witness);
            stream.on_data(cx, &READ, |_, _, _| ()).unwrap();
            give.send(stream).unwrap();
        });
        let _client = simulation.network().connect(addr).unwrap();
        let stream = until(&mut simulation, &streams);
        settle(&mut simulation);
        let (give, paused) = channel();
        let pause = move |cx: &mut Cx| {
            stream.pause(cx).unwrap();
            give.send(stream).unwrap();
        };
        simulation.poster().try_post(ACCEPTING, pause).unwrap();
        let stream = until(&mut simulation, &paused);
        for _ in 0..steps {
            simulation.step();
        }
        simulation.poster().stop();
        drop(stream);
        // It may also have been this thread that had the last of it.
        let was_ours = !drops.seen().is_empty();
        settle(&mut simulation);
        simulation.end().unwrap();
        let color = (!was_ours).then_some(ACCEPTING);
        assert_eq!(drops.seen(), [color], "seed {seed}, {steps} steps");
    }
}

/// Fills the queues for ever: posts itself again, as often as there is room. And looks at the
/// driver.
fn fill<F>(cx: &mut Cx, look: &Arc<F>)
where
    F: Fn(&Driver) + Send + Sync + 'static,
{
    driver(cx, |driver, _| look(driver));
    loop {
        let its = Arc::clone(look);
        let again = move |cx: &mut Cx| fill(cx, &its);
        if cx.try_post(Color::from(9), again).is_err() {
            return;
        }
    }
}

/// What has arrived of a connection and waits for room counts as unread, and what has of others
/// does not.
#[test]
fn what_waits_for_room_is_unread() {
    const BYTES: [usize; 3] = [3, 5, 9];
    let conns = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&conns);
    let (mut simulation, addr) = listening(1, 20, move |cx, incoming| {
        let stream = incoming.unwrap().open(cx.color());
        stream.on_data(cx, &READ, |_, _, _| ()).unwrap();
        its.lock().unwrap().push(Arc::clone(&stream.conn));
        stream.disown();
    });
    let net = simulation.network().clone();
    let mut clients = BYTES.map(|_| net.connect(&addr).unwrap());
    settle(&mut simulation);
    let (tell, told) = channel();
    let (tell_full, full) = channel();
    let look = move |driver: &Driver| {
        let conns = conns.lock().unwrap();
        let unread = |conn| driver.unread_bytes(conn);
        let unread: Vec<usize> = conns.iter().map(unread).collect();
        tell_full.send(()).unwrap();
        // One of the three has found room, and nothing is left in the network.
        if driver.completions.len() == 2 {
            tell.send(unread).unwrap();
        }
    };
    let look = Arc::new(look);
    let begin = move |cx: &mut Cx| fill(cx, &look);
    simulation.poster().try_post(Color::from(9), begin).unwrap();
    for _ in 0..20 {
        until(&mut simulation, &full);
    }
    for (client, bytes) in clients.iter_mut().zip(BYTES) {
        io::Write::write_all(client, &vec![0; bytes]).unwrap();
    }
    let unread = until(&mut simulation, &told);
    let left_out = |bytes: usize| BYTES.map(|its| if its == bytes { 0 } else { its }).to_vec();
    assert!(BYTES.map(left_out).contains(&unread), "{unread:?}");
    assert!(simulation.end().is_err(), "there was no end to the events");
}

/// A server with this many clients, whose handler "read" is run for all data. `keeps`: it never
/// gives a buffer back.
fn reading(events_max: usize, clients: usize, keeps: bool) -> (Simulation, Vec<SimClient>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let mut next = 100;
    let (mut simulation, addr) = listening(1, events_max, move |cx, incoming| {
        next += 1;
        let stream = incoming.unwrap().open(Color::from(next));
        let kept = Arc::clone(&kept);
        cx.post(stream.color(), move |cx| {
            let on_data = move |_: &mut Cx, _: &Stream, data: io::Result<RecvBuf>| {
                if keeps {
                    kept.lock().unwrap().push(data);
                }
            };
            stream.on_data(cx, &READ, on_data).unwrap();
            stream.disown();
        });
    });
    let net = simulation.network().clone();
    let connect = |_| net.connect(&addr).unwrap();
    let clients = (0..clients).map(connect).collect();
    settle(&mut simulation);
    (simulation, clients)
}

/// Keeps the core inside of a handler until a timer is due, and has all clients send meanwhile.
/// When the timer's event runs: how many have been read, how many completions wait for room, and
/// whether the event source has more.
fn late(simulation: &mut Simulation, clients: Vec<SimClient>) -> (u64, usize, bool) {
    let (tell, told) = channel();
    let busy = move |cx: &mut Cx| {
        let due = Callback::anonymous(Color::from(3), move |cx: &mut Cx| {
            let left = driver(cx, |driver, _| {
                (driver.completions.len(), driver.backend.has_more())
            });
            tell.send(left).unwrap();
        });
        cx.timer(Duration::from_micros(1), due);
        for mut client in clients {
            io::Write::write_all(&mut client, b"in time").unwrap();
        }
        crate::sim::work(cx, Duration::from_millis(1));
    };
    simulation.poster().try_post(Color::from(2), busy).unwrap();
    let (waiting, has_more) = until(simulation, &told);
    let profile = simulation.profile();
    let read = profile.handlers.iter().find(|its| its.name == "read");
    (read.map_or(0, |read| read.events()), waiting, has_more)
}

/// There are fewer buffers to receive into, and fewer completions are taken at once.
#[test]
fn a_timer_waits_for_all_that_came_before_it_was_due() {
    for clients in [2 * usize::from(SIMULATED_BUFFERS), 2 * COMPLETIONS_MAX] {
        let (mut simulation, clients) = reading(10_000, clients, false);
        let (_, waiting, has_more) = late(&mut simulation, clients);
        assert_eq!((waiting, has_more), (0, false));
    }
}

/// The application keeps all buffers, so the rest is never received.
#[test]
fn a_timer_does_not_wait_for_buffers_for_ever() {
    let clients = 2 * usize::from(SIMULATED_BUFFERS);
    let (mut simulation, clients) = reading(10_000, clients, true);
    let (read, waiting, has_more) = late(&mut simulation, clients);
    assert_eq!((read, waiting), (SIMULATED_BUFFERS.into(), 0));
    assert!(has_more);
}

/// There a look brings one completion, and it would wait for many.
#[test]
fn at_the_limit_of_events_a_timer_waits_for_one_look() {
    let (mut simulation, clients) = reading(300, 200, false);
    let (tell, fired) = channel();
    let most = AtomicUsize::new(0);
    let look = move |driver: &Driver| {
        let waiting = driver.completions.len();
        if waiting > 0 && driver.timers.is_empty() {
            tell.send(most.load(Ordering::Relaxed) - waiting).unwrap();
        }
        most.fetch_max(waiting, Ordering::Relaxed);
    };
    let begin = move |cx: &mut Cx| fill(cx, &Arc::new(look));
    simulation.poster().try_post(Color::from(9), begin).unwrap();
    let _ = late(&mut simulation, clients);
    assert_eq!(fired.recv(), Ok(1), "since it was due");
    assert!(simulation.end().is_err(), "there was no end to the events");
}

/// The queues are full, so the driver has taken connections that it cannot post yet, and a run
/// that is cut short never will. It takes no more before it could post those.
#[test]
fn connections_that_wait_for_room_are_closed_when_a_run_is_cut_short() {
    const CLIENTS: usize = 400;
    let net = SimNet::new(1);
    let mut simulation = Runtime::builder()
        .cores(1)
        .events_max(20)
        .backend(Backend::Sim(net.clone()))
        .simulate(1)
        .unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let (tell, addr) = channel();
    let counted = Arc::clone(&accepted);
    let waiting_max = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&waiting_max);
    let begin = move |cx: &mut Cx| {
        let count = move |_: &mut Cx, _: io::Result<Incoming>| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let any = "127.0.0.1:0";
        let on_accept = Callback::anonymous_each(ACCEPTING, count);
        let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
        tell.send(listener.local_addr()).unwrap();
        let look = Arc::new(move |driver: &Driver| {
            its.fetch_max(driver.completions.len(), Ordering::Relaxed);
        });
        // Behind the event that begins to accept.
        cx.post(Color::from(9), move |cx| fill(cx, &look));
    };
    simulation.start(begin).unwrap();
    let addr = until(&mut simulation, &addr);
    let connect = |_| net.connect(&addr).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    while accepted.load(Ordering::Relaxed) < 10 {
        simulation.step();
    }
    // Of those that were taken at once, a look at the event source posts one.
    assert!(accepted.load(Ordering::Relaxed) < CLIENTS / 2);
    let waiting_max = waiting_max.load(Ordering::Relaxed);
    assert!(
        (200..=COMPLETIONS_MAX).contains(&waiting_max),
        "{waiting_max}"
    );
    assert!(simulation.end().is_err(), "there was no end to the events");
    drop((simulation, clients));
    assert_eq!(net.open_count(), 0);
}
