//! Messages of DNS (RFC 1035), as far as addresses need them; simple-dns reads and writes them.

use simple_dns::rdata::{OPT, RData};
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, SimpleDnsError, TYPE,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

/// What a name comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Addrs(Vec<IpAddr>),
    /// There is no such name, or it has no address of the family.
    Nothing,
    /// It is another name, of which the answer says nothing.
    Alias(String),
}

/// What a message comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// No answer to the question. Somebody guesses, or it is late.
    Other,
    /// Too long for a datagram.
    Truncated,
    /// The server cannot tell.
    Failed(String),
    /// And for how many seconds it holds.
    Found(Found, u32),
}

/// Longer than any configuration needs; and no answer goes around in it.
const ALIASES_MAX: usize = 16;
/// Answers are believed for a day at most (RFC 8767, section 4), and negative ones for three hours
/// (RFC 2308, section 5).
const TTL_MAX_S: u32 = 86_400;
const NEGATIVE_TTL_MAX_S: u32 = 10_800;
/// The size of a datagram that no path has to fragment (DNS flag day 2020).
const UDP_BYTES: u16 = 1_232;

/// A question, with this number.
pub(super) fn query(id: u16, name: &str, family: Family) -> io::Result<Vec<u8>> {
    let invalid = |_| {
        let text = format!("`{name}` is no host name");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    if name.split('.').any(str::is_empty) {
        return Err(invalid(SimpleDnsError::InvalidServiceName));
    }
    let kind = match family {
        Family::V4 => TYPE::A,
        Family::V6 => TYPE::AAAA,
    };
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(invalid)?;
    let question = Question::new(name, kind.into(), CLASS::IN.into(), false);
    packet.questions.push(question);
    *packet.opt_mut() = Some(OPT {
        opt_codes: Vec::new(),
        udp_packet_size: UDP_BYTES,
        version: 0,
    });
    packet.build_bytes_vec().map_err(invalid)
}

/// What a message says to this question.
pub(super) fn parse(bytes: &[u8], id: u16, name: &str, family: Family) -> Parsed {
    let Ok(packet) = Packet::parse(bytes) else {
        return Parsed::Other;
    };
    let asked = packet.questions.first().is_some_and(|question| {
        let kind = match family {
            Family::V4 => QTYPE::TYPE(TYPE::A),
            Family::V6 => QTYPE::TYPE(TYPE::AAAA),
        };
        is_same(&question.qname, name) && question.qtype == kind
    });
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) || !asked {
        return Parsed::Other;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Parsed::Truncated;
    }
    match packet.rcode() {
        RCODE::NoError => found(&packet, name, family),
        RCODE::NameError => Parsed::Found(Found::Nothing, negative_ttl(&packet)),
        other => Parsed::Failed(format!("{other:?}")),
    }
}

/// Follows the aliases to addresses.
fn found(packet: &Packet<'_>, name: &str, family: Family) -> Parsed {
    let asked = name;
    let mut name = name.to_owned();
    let mut ttl = TTL_MAX_S;
    for _ in 0..ALIASES_MAX {
        let mut addrs = Vec::new();
        let mut alias = None;
        for record in packet
            .answers
            .iter()
            .filter(|its| is_same(&its.name, &name))
        {
            match (&record.rdata, family) {
                (RData::A(a), Family::V4) => addrs.push(Ipv4Addr::from(a.address).into()),
                (RData::AAAA(a), Family::V6) => addrs.push(Ipv6Addr::from(a.address).into()),
                (RData::CNAME(its), _) => alias = Some(its.0.to_string()),
                _ => continue,
            }
            ttl = ttl.min(seconds(record));
        }
        if !addrs.is_empty() {
            return Parsed::Found(Found::Addrs(addrs), ttl);
        }
        match alias {
            Some(its) => name = its,
            None if name == asked || is_authority(packet) => {
                return Parsed::Found(Found::Nothing, ttl.min(negative_ttl(packet)));
            }
            None => return Parsed::Found(Found::Alias(name), ttl),
        }
    }
    Parsed::Failed("an alias that goes around".to_owned())
}

/// Host names are the same whatever their case (RFC 4343).
fn is_same(name: &Name<'_>, other: &str) -> bool {
    let other = other.strip_suffix('.').unwrap_or(other);
    name.to_string().eq_ignore_ascii_case(other)
}

/// A number with its highest bit set is none (RFC 2181, section 8).
fn seconds(record: &ResourceRecord<'_>) -> u32 {
    match record.ttl {
        ttl if ttl > i32::MAX as u32 => 0,
        ttl => ttl,
    }
}

fn is_authority(packet: &Packet<'_>) -> bool {
    let mut records = packet.name_servers.iter();
    records.any(|record| matches!(record.rdata, RData::SOA(_)))
}

/// How long it holds that there is nothing: not at all, if the answer does not tell (RFC 2308).
fn negative_ttl(packet: &Packet<'_>) -> u32 {
    let soa = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::SOA(soa) => Some(seconds(record).min(soa.minimum)),
        _ => None,
    };
    let ttl = packet.name_servers.iter().find_map(soa);
    ttl.unwrap_or(0).min(NEGATIVE_TTL_MAX_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Whatever comes: an end, and no panic.
    #[test]
    fn any_bytes_are_read() {
        let mut random = Random::new(1);
        let question = query(7, "some.name.test", Family::V4).unwrap();
        let mut packet = Packet::parse(&question).unwrap().into_reply();
        for (name, to) in [("some.name.test", "b.test"), ("b.test", "c.test")] {
            let to = RData::CNAME(simple_dns::rdata::CNAME(Name::new_unchecked(to)));
            let name = Name::new_unchecked(name);
            packet
                .answers
                .push(ResourceRecord::new(name, CLASS::IN, 60, to));
        }
        let whole = packet.build_bytes_vec_compressed().unwrap();
        let parsed = parse(&whole, 7, "some.name.test", Family::V4);
        assert_eq!(parsed, Parsed::Found(Found::Alias("c.test".to_owned()), 60));
        for _ in 0..50_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(4) {
                let place = random.below(bytes.len());
                bytes[place] = random.next() as u8;
            }
            bytes.truncate(1 + random.below(bytes.len() + 20));
            parse(&bytes, 7, "some.name.test", Family::V4);
        }
    }
}
