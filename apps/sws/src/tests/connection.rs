//! What a connection does over time: deadlines, backpressure, its bounds, its end.

use super::driver::{Driver, End, site, wire};
use crate::conn::{Conn, INPUT_BYTES_MAX, INPUT_PAUSE_BYTES, LINGER_BYTES_MAX, OUTPUT_BYTES_MAX};
use crate::request::HEAD_BYTES_MAX;
use crate::step::{Deadline, Next};

const GET: &[u8] = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn each_step_handles_one_request_and_names_the_next() {
    let site = site();
    let mut conn = Conn::default();
    let page = |_| unreachable!("nobody asked for figures");
    assert_eq!(conn.read_request(&GET.repeat(2)), Next::ParseRequest);
    assert_eq!(
        conn.read_request(&GET[..5]),
        Next::Wait,
        "a parse is due already"
    );
    assert_eq!(
        conn.check_in_cache(&site, page),
        Next::Wait,
        "nothing parsed yet"
    );
    assert_eq!(conn.parse_request(), Next::CheckInCache);
    assert_eq!(conn.parse_request(), Next::Wait, "one request at a time");
    assert_eq!(conn.read_request(&GET[5..]), Next::Wait);
    assert!(
        matches!(conn.write_response(), (None, Next::Wait)),
        "no answer yet"
    );
    assert_eq!(conn.check_in_cache(&site, page), Next::WriteResponse);
    assert_eq!(conn.timer().deadline, Deadline::None);
    for expected in [Next::ParseRequest, Next::ParseRequest, Next::Wait] {
        let (reply, next) = conn.write_response();
        assert!(wire(&reply.unwrap()).ends_with(b"\r\n\r\nhello\n"));
        assert_eq!(next, expected);
        if next == Next::ParseRequest {
            assert_eq!(conn.parse_request(), Next::CheckInCache);
            assert_eq!(conn.check_in_cache(&site, page), Next::WriteResponse);
        }
    }
    assert_eq!(conn.answers(), 3);
}

#[test]
fn what_arrives_between_two_steps_counts() {
    let site = site();
    let page = |_| unreachable!("nobody asked for figures");
    // The end of input: the answer under way is the last.
    let mut conn = Conn::default();
    assert_eq!(conn.read_request(GET), Next::ParseRequest);
    assert_eq!(conn.on_eof(), Next::Wait);
    assert_eq!(conn.parse_request(), Next::CheckInCache);
    assert_eq!(conn.check_in_cache(&site, page), Next::WriteResponse);
    assert!(matches!(conn.write_response(), (Some(_), Next::Close)));
    // Bytes after a last request: nobody will read them, so a plain close would reset.
    let mut conn = Conn::default();
    assert_eq!(
        conn.read_request(b"GET / HTTP/1.0\r\n\r\n"),
        Next::ParseRequest
    );
    assert_eq!(conn.parse_request(), Next::CheckInCache);
    assert_eq!(conn.check_in_cache(&site, page), Next::WriteResponse);
    assert_eq!(conn.read_request(GET), Next::Wait);
    assert!(matches!(conn.write_response(), (Some(_), Next::Linger)));
    assert_eq!(conn.read_request(GET), Next::Wait);
    assert_eq!(conn.on_eof(), Next::Close);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let site = site();
    let mut driver = Driver::new(&site);
    driver.drains = false;
    let answer_bytes = {
        driver.bytes(GET);
        driver.sent.len()
    };
    let mut asked = 1;
    while driver.conn.wants_input() {
        driver.bytes(&GET.repeat(10));
        asked += 10;
    }
    assert!(driver.sent.len() >= OUTPUT_BYTES_MAX);
    assert!(driver.sent.len() < OUTPUT_BYTES_MAX + answer_bytes);
    assert_eq!(driver.conn.timer().deadline, Deadline::Write);
    // Reading again resumes, and nothing was lost.
    driver.drains = true;
    driver.drained();
    assert!(driver.conn.wants_input());
    assert_eq!(driver.sent.len(), asked * answer_bytes);
    assert_eq!(driver.conn.timer().deadline, Deadline::Idle);
}

#[test]
fn an_end_while_output_is_stuck_still_answers_everything() {
    let site = site();
    let mut driver = Driver::new(&site);
    driver.drains = false;
    let mut asked = 0;
    while driver.conn.wants_input() {
        driver.bytes(&GET.repeat(10));
        asked += 10;
    }
    driver.bytes(&GET[..9]);
    driver.eof();
    assert_eq!(driver.end, End::Open);
    driver.drains = true;
    driver.drained();
    assert_eq!(driver.end, End::Closed);
    assert_eq!(driver.conn.answers(), asked);
}

#[test]
fn input_that_nobody_stops_ends_in_an_abort() {
    let site = site();
    let mut driver = Driver::new(&site);
    driver.drains = false;
    let chunk = GET.repeat(100);
    for _ in 0..2 * INPUT_BYTES_MAX / chunk.len() {
        driver.bytes(&chunk);
    }
    assert_eq!(driver.end, End::Aborted);
    assert!(driver.sent.len() < OUTPUT_BYTES_MAX + 1024);
}

#[test]
fn a_huge_head_or_body_is_refused_early_and_never_kept() {
    let site = site();
    let head = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'y'; HEAD_BYTES_MAX]].concat();
    let line = vec![b'x'; HEAD_BYTES_MAX];
    let body = b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1073741824\r\n\r\n".to_vec();
    for (start, status) in [(head, "431"), (line, "414"), (body, "413")] {
        let mut driver = Driver::new(&site);
        driver.bytes(&start);
        let answered = driver.sent.len();
        assert!(
            driver
                .sent
                .starts_with(format!("HTTP/1.1 {status} ").as_bytes())
        );
        assert!(
            driver.lingers,
            "a plain close would reset the connection under the answer"
        );
        assert_eq!(driver.conn.timer().deadline, Deadline::Linger);
        let mut flooded = 0;
        while driver.end == End::Open {
            driver.bytes(&[b'z'; 65_536]);
            flooded += 65_536;
            assert!(flooded <= LINGER_BYTES_MAX + 65_536);
        }
        assert_eq!((driver.end, driver.sent.len()), (End::Aborted, answered));
    }
}

#[test]
fn a_last_answer_is_sent_before_anything_more_is_read() {
    let site = site();
    let mut driver = Driver::new(&site);
    driver.drains = false;
    driver.bytes(&[b"GET /a.txt HTTP/1.0\r\n\r\n", GET].concat());
    assert!(driver.lingers && !driver.conn.wants_input());
    driver.drains = true;
    driver.drained();
    assert!(driver.conn.wants_input());
    driver.bytes(&vec![b'z'; LINGER_BYTES_MAX]);
    assert_eq!(driver.end, End::Open);
    driver.bytes(b"z");
    assert_eq!(driver.end, End::Aborted);
}

#[test]
fn a_slow_head_is_given_up_however_steadily_it_comes() {
    let site = site();
    let mut driver = Driver::new(&site);
    assert_eq!(driver.conn.timer().deadline, Deadline::Idle);
    driver.bytes(b"\r\n\r");
    assert_eq!(
        driver.conn.timer().deadline,
        Deadline::Idle,
        "empty lines are no request"
    );
    driver.bytes(b"\nG");
    let begun = driver.conn.timer();
    assert_eq!(begun.deadline, Deadline::Header);
    for byte in b"ET / HTTP/1.1\r\nHost: h\r\n" {
        let _ = driver.conn.read_request(&[*byte]);
        assert_eq!(
            driver.conn.timer(),
            begun,
            "a parse that is due is no progress"
        );
        let _ = driver.conn.parse_request();
        assert_eq!(driver.conn.timer(), begun);
    }
    driver.deadline(Deadline::Idle);
    assert_eq!(driver.end, End::Open, "not the deadline that applies");
    driver.deadline(Deadline::Header);
    assert!(driver.sent.starts_with(b"HTTP/1.1 408 Request Timeout\r\n"));
    assert!(driver.lingers);
    driver.bytes(b"\r\n");
    driver.eof();
    assert_eq!((driver.end, driver.conn.answers()), (End::Closed, 1));

    let mut head = Driver::new(&site);
    head.bytes(b"HEAD / HTTP/1.1\r\n");
    head.deadline(Deadline::Header);
    assert!(head.sent.starts_with(b"HTTP/1.1 408 ") && head.sent.ends_with(b"\r\n\r\n"));
}

#[test]
fn a_request_restarts_its_deadline() {
    let site = site();
    let mut driver = Driver::new(&site);
    driver.bytes(&[GET, &GET[..9]].concat());
    let first = driver.conn.timer();
    driver.bytes(&[&GET[9..], &GET[..9]].concat());
    let second = driver.conn.timer();
    assert_eq!(
        (first.deadline, second.deadline),
        (Deadline::Header, Deadline::Header)
    );
    assert_ne!(first, second);
}

#[test]
fn a_body_that_never_comes_is_no_second_request() {
    let site = site();
    let mut driver = Driver::new(&site);
    driver.bytes(b"GET /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
    assert_eq!(driver.conn.timer().deadline, Deadline::Header);
    let answered = driver.sent.len();
    driver.deadline(Deadline::Header);
    assert_eq!((driver.end, driver.sent.len()), (End::Closed, answered));
}

#[test]
fn idle_and_stuck_clients_are_let_go() {
    let site = site();
    let mut idle = Driver::new(&site);
    idle.deadline(Deadline::Idle);
    assert_eq!((idle.end, idle.sent.len()), (End::Closed, 0));

    let mut stuck = Driver::new(&site);
    stuck.drains = false;
    stuck.bytes(GET);
    let queued = stuck.conn.timer();
    let _ = stuck.conn.on_sent(1);
    let sent = stuck.conn.timer();
    assert_ne!(sent, queued, "a byte taken by the kernel is progress");
    stuck.conn.on_taken();
    assert_ne!(stuck.conn.timer(), sent, "so is one taken by the client");
    stuck.deadline(Deadline::Write);
    assert_eq!(stuck.end, End::Aborted);
    assert!(matches!(stuck.conn.write_response(), (None, Next::Wait)));
    assert_eq!(stuck.conn.timer().deadline, Deadline::None);
}

#[test]
fn the_last_answer_lingers_only_if_there_is_something_to_read() {
    let site = site();
    let close: &[u8] = b"GET /a.txt HTTP/1.0\r\n\r\n";
    for (input, lingers) in [
        (close.to_vec(), false),
        ([close, GET].concat(), true),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), true),
        (
            b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc".to_vec(),
            false,
        ),
        (
            b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\na".to_vec(),
            true,
        ),
    ] {
        let mut driver = Driver::new(&site);
        driver.bytes(&input);
        let expected = if lingers {
            (true, End::Open)
        } else {
            (false, End::Closed)
        };
        assert_eq!((driver.lingers, driver.end), expected, "{input:?}");
        assert_eq!(driver.conn.wants_input(), lingers);
    }
}

#[test]
fn an_ending_server_answers_what_is_under_way_and_no_more() {
    let site = site();
    let mut idle = Driver::new(&site);
    idle.bytes(GET);
    let answer = idle.sent.len();
    idle.wind_down();
    assert_eq!((idle.end, idle.lingers), (End::Closed, false));

    // Requests that had arrived, and of which the connection did not know.
    for (arrived, answers) in [(GET.to_vec(), 1), (GET.repeat(2), 1), (b"\r\n".to_vec(), 0)] {
        let mut asked = Driver::new(&site);
        asked.looks = false;
        asked.wind_down();
        assert_eq!(asked.end, End::Open);
        asked.bytes(&arrived);
        asked.last_look();
        assert_eq!(asked.conn.answers(), answers);
        assert!(asked.is_over());
        let text = String::from_utf8(asked.sent).unwrap();
        assert_eq!(
            text.matches("\r\nConnection: close\r\n").count(),
            answers as usize
        );
    }

    // Half a request: its answer says that it is the last, and what follows is not read.
    let mut half = Driver::new(&site);
    half.bytes(&GET[..9]);
    half.wind_down();
    assert_eq!((half.end, half.lingers), (End::Open, false));
    half.bytes(&GET[9..]);
    half.bytes(GET);
    let text = String::from_utf8(half.sent).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 1);
    assert!(text.contains("\r\nConnection: close\r\n") && half.lingers);

    // An answer that has not left yet: it is waited for, and the requests behind it are not taken
    // up.
    let mut stuck = Driver::new(&site);
    stuck.drains = false;
    stuck.bytes(GET);
    stuck.wind_down();
    assert!(stuck.lingers);
    stuck.bytes(GET);
    assert_eq!(stuck.sent.len(), answer);
    assert_eq!(stuck.conn.timer().deadline, Deadline::Write);

    // An answer that was decided on before.
    let mut conn = Conn::default();
    let page = |_| unreachable!("nobody asked for figures");
    assert_eq!(conn.read_request(&GET.repeat(2)), Next::ParseRequest);
    assert_eq!(conn.parse_request(), Next::CheckInCache);
    assert_eq!(conn.check_in_cache(&site, page), Next::WriteResponse);
    assert_eq!(conn.wind_down(), Next::Wait);
    assert!(matches!(conn.write_response(), (Some(_), Next::Linger)));

    // Nothing but the rest of a body that was to be skipped.
    let mut body = Driver::new(&site);
    body.bytes(b"GET /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
    body.wind_down();
    assert!(body.lingers);
}

#[test]
fn pausing_leaves_room_for_what_is_on_its_way() {
    // A head fits below the mark where receiving stops, and what a stopped receive may still
    // deliver fits between that mark and the one where the connection is dropped.
    const { assert!(HEAD_BYTES_MAX < INPUT_PAUSE_BYTES) };
    const { assert!(INPUT_PAUSE_BYTES + mely::net::AHEAD_BYTES_MAX <= INPUT_BYTES_MAX) };
}
