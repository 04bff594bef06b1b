//! Asking servers, over UDP and TCP.

use super::message::{Family, Found, Parsed, Query};
use super::{Config, Failure, Outcome};
use crate::aio::{self, AsyncStream};
use crate::bounded::{Bounded, Permit};
use crate::net::{DatagramSocket, random_number};
use crate::task::{sleep, timeout, with_cx};
use futures_io::{AsyncRead, AsyncWrite};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// No server sends longer datagrams, by far: they are asked for 1,232 bytes.
const DATAGRAM_BYTES_MAX: usize = 4_096;
/// The most datagrams that are received for one query: so many are guesses of its number. The next
/// query has another port.
const DATAGRAMS_MAX: usize = 1_000;
/// The most queries that are sent within [`BURST`] and not answered. By default a server's socket
/// on Linux has room for some 250 queries; a lost one costs its lookup [`Config::timeout`].
pub(super) const BURST_QUERIES_MAX: usize = 128;
/// How long a query without an answer counts among these: a server that is slow or gone does not
/// stop the others.
const BURST: Duration = Duration::from_millis(100);
/// How long the slower family has, once the other one has addresses (RFC 8305, section 3).
const GRACE: Duration = Duration::from_millis(50);

/// Asks the servers in turn for one family of addresses, until one has an answer; and for how many
/// seconds that holds.
pub(super) async fn ask(
    config: &Config,
    burst: &Bounded<()>,
    name: &str,
    family: Family,
) -> Result<(Found, u32), Failure> {
    let query =
        Query::new(name, family).map_err(|error| Failure::Told(error.kind(), error.to_string()))?;
    let mut last = (ErrorKind::NotConnected, "Config::servers: none".to_owned());
    for _ in 0..config.attempts.max(1) {
        for server in &config.servers {
            let room = burst.reserve().await;
            let asked = timeout(config.timeout, one(config, *server, &query, room)).await;
            last = match asked {
                Ok(Ok(Parsed::Found(found, seconds))) => return Ok((found, seconds)),
                Ok(Ok(Parsed::Failed(text) | Parsed::Unsupported(text))) => {
                    (ErrorKind::Other, format!("{server}: {text}"))
                }
                Ok(Ok(Parsed::Other | Parsed::Truncated)) => (
                    ErrorKind::InvalidData,
                    format!("{server}: no answer to the question"),
                ),
                // The end is the end: no other server is asked.
                Ok(Err(error)) if crate::net::is_canceled(&error) => return Err(Failure::Canceled),
                Ok(Err(error)) => (error.kind(), format!("{server}: {error}")),
                Err(_) => {
                    let text = format!("{server}: no answer within {:?}", config.timeout);
                    (ErrorKind::TimedOut, text)
                }
            };
        }
    }
    Err(Failure::Told(last.0, last.1))
}

/// Asks one server, again without EDNS if it does not understand the query (RFC 6891, section 7).
async fn one(
    config: &Config,
    server: SocketAddr,
    query: &Query<'_>,
    room: Permit<()>,
) -> io::Result<Parsed> {
    match exchange(config, server, query, Some(room)).await? {
        Parsed::Unsupported(_) => exchange(config, server, query, None).await,
        parsed => Ok(parsed),
    }
}

/// Asks over UDP, and over TCP if the answer does not fit. The first query has a place in the
/// burst, and EDNS.
async fn exchange(
    config: &Config,
    server: SocketAddr,
    query: &Query<'_>,
    room: Option<Permit<()>>,
) -> io::Result<Parsed> {
    let server = loopback_for_any(server);
    let id = with_cx(random_number)? as u16;
    let question = query.message(id, room.is_some());
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = with_cx(|cx| cx.bind((any, 0)))?;
    socket.connect(server)?;
    socket.send(&question)?;
    let parsed = {
        let mut answer = pin!(receive(&socket, server, query, id));
        let soon = timeout(BURST, answer.as_mut()).await;
        drop(room);
        match soon {
            Ok(parsed) => parsed?,
            Err(_) => answer.await?,
        }
    };
    drop(socket);
    if parsed != Parsed::Truncated {
        return Ok(parsed);
    }
    let mut stream = aio::connect(server, config.timeout).await?;
    let mut message = (question.len() as u16).to_be_bytes().to_vec();
    message.extend(question);
    write_all(&mut stream, &message).await?;
    let mut len = [0; 2];
    read_exact(&mut stream, &mut len).await?;
    let mut answer = vec![0; u16::from_be_bytes(len).into()];
    read_exact(&mut stream, &mut answer).await?;
    Ok(query.parse(&answer, id))
}

/// Receives until there is an answer to the query of this number.
async fn receive(
    socket: &DatagramSocket,
    server: SocketAddr,
    query: &Query<'_>,
    id: u16,
) -> io::Result<Parsed> {
    for _ in 0..DATAGRAMS_MAX {
        let datagram = socket.recv().await?;
        // Others are there from before the socket was connected.
        let is_its = datagram.from.ip().is_some_and(|from| is_of(server, from));
        if !is_its || datagram.data.len() > DATAGRAM_BYTES_MAX {
            continue;
        }
        let parsed = query.parse(&datagram.data, id);
        if parsed != Parsed::Other {
            return Ok(parsed);
        }
    }
    Ok(Parsed::Other)
}

/// Replaces 0.0.0.0, which reaches this machine: answers come from its loopback address.
fn loopback_for_any(mut server: SocketAddr) -> SocketAddr {
    match server.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => server.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => server.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    server
}

/// Whether a datagram from there is of this server.
fn is_of(server: SocketAddr, from: SocketAddr) -> bool {
    let is_its_link = match (server, from) {
        // Only addresses of a link come with their link.
        (SocketAddr::V6(server), SocketAddr::V6(from)) => {
            from.scope_id() == 0 || from.scope_id() == server.scope_id()
        }
        _ => true,
    };
    let same_ip = server.ip().to_canonical() == from.ip().to_canonical();
    is_its_link && same_ip && server.port() == from.port()
}

async fn write_all(stream: &mut AsyncStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

async fn read_exact(stream: &mut AsyncStream, mut space: &mut [u8]) -> io::Result<()> {
    while !space.is_empty() {
        let read = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, space)).await?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        space = &mut space[read..];
    }
    Ok(())
}

/// Both families, one beside the other. Once one has addresses, the other one has only a short time
/// left, and is dropped after it.
pub(super) async fn join<A, B>(a: A, b: B) -> (Outcome, Outcome)
where
    A: Future<Output = Outcome>,
    B: Future<Output = Outcome>,
{
    // The sleep begins when it is polled first.
    let (mut a, mut b, mut grace) = (pin!(a), pin!(b), pin!(sleep(GRACE)));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(outcome) = a.as_mut().poll(cx)
        {
            of_a = Some(outcome);
        }
        if of_b.is_none()
            && let Poll::Ready(outcome) = b.as_mut().poll(cx)
        {
            of_b = Some(outcome);
        }
        match (&of_a, &of_b) {
            (Some(_), Some(_)) => Poll::Ready(()),
            (Some(Ok(addrs)), None) | (None, Some(Ok(addrs))) if !addrs.is_empty() => {
                grace.as_mut().poll(cx)
            }
            _ => Poll::Pending,
        }
    })
    .await;
    let late = || {
        let text = format!("no answer within {GRACE:?} of the other family's");
        Err(Failure::Told(ErrorKind::TimedOut, text))
    };
    (of_a.unwrap_or_else(late), of_b.unwrap_or_else(late))
}

/// Addresses of version 6 first, unless this machine has no route to them.
pub(super) fn reachable_first(v6: Vec<IpAddr>, v4: Vec<IpAddr>) -> Vec<IpAddr> {
    let (first, second) = match (v6.first(), v4.first()) {
        (Some(&ip), Some(_)) if !has_route(ip) => (v4, v6),
        _ => (v6, v4),
    };
    first.into_iter().chain(second).collect()
}

/// As the kernel says when a datagram socket is connected, which sends nothing.
fn has_route(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = with_cx(|cx| cx.bind((any, 0)));
    socket.is_ok_and(|socket| socket.connect((ip, 53)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_strangers_are_told_from_the_servers() {
        let is_of = |server: &str, from: &str| {
            let server = loopback_for_any(server.parse().unwrap());
            is_of(server, from.parse().unwrap())
        };
        assert!(is_of("10.0.0.1:53", "10.0.0.1:53"));
        assert!(!is_of("10.0.0.1:53", "10.0.0.2:53"));
        assert!(!is_of("10.0.0.1:53", "10.0.0.1:54"));
        assert!(is_of("0.0.0.0:53", "127.0.0.1:53"));
        assert!(is_of("[::]:53", "[::1]:53"));
        assert!(is_of("[::ffff:10.0.0.1]:53", "10.0.0.1:53"));
        assert!(is_of("[fe80::1%3]:53", "[fe80::1%3]:53"));
        assert!(!is_of("[fe80::1%3]:53", "[fe80::1%4]:53"));
        assert!(is_of("[2001:db8::1%3]:53", "[2001:db8::1]:53"));
    }
}
