//! Asking servers, over UDP and TCP.

use super::Config;
use super::message::{Family, Found, Parsed, parse, query};
use crate::aio::{self, AsyncStream};
use crate::net::random_number;
use crate::task::{timeout, with_cx};
use futures_io::{AsyncRead, AsyncWrite};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Asks the servers in turn for one family of addresses, until one has an answer; and for how many
/// seconds that holds.
pub(super) async fn ask(
    config: &Config,
    name: &str,
    family: Family,
) -> Result<(Found, u32), (ErrorKind, String)> {
    let mut last = (ErrorKind::NotConnected, "Config::servers: none".to_owned());
    for _ in 0..config.attempts.max(1) {
        for server in &config.servers {
            let asked = timeout(config.timeout, one(config, *server, name, family)).await;
            last = match asked {
                Ok(Ok(Parsed::Found(found, seconds))) => return Ok((found, seconds)),
                Ok(Ok(Parsed::Failed(text))) => (ErrorKind::Other, format!("{server}: {text}")),
                Ok(Ok(Parsed::Other | Parsed::Truncated)) => (
                    ErrorKind::InvalidData,
                    format!("{server}: no answer to the question"),
                ),
                // No other server would like the name better, and the end is the end.
                Ok(Err(error)) if is_final(&error) => {
                    return Err((error.kind(), error.to_string()));
                }
                Ok(Err(error)) => (error.kind(), format!("{server}: {error}")),
                Err(_) => {
                    let text = format!("{server}: no answer within {:?}", config.timeout);
                    (ErrorKind::TimedOut, text)
                }
            };
        }
    }
    Err(last)
}

fn is_final(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidInput || crate::net::is_canceled(error)
}

/// Asks one server: over UDP, and over TCP if the answer does not fit.
async fn one(
    config: &Config,
    server: SocketAddr,
    name: &str,
    family: Family,
) -> io::Result<Parsed> {
    let id = with_cx(random_number)? as u16;
    let question = query(id, name, family)?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = with_cx(|cx| cx.bind((any, 0)))?;
    socket.connect(server)?;
    socket.send(&question)?;
    let parsed = loop {
        match parse(&socket.recv().await?.data, id, name, family) {
            Parsed::Other => {}
            parsed => break parsed,
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
    Ok(parse(&answer, id, name, family))
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

/// Both, one beside the other.
pub(super) async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            of_b = Some(output);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
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
