//! Messages of DNS (RFC 1035), as far as addresses need them; simple-dns reads and writes them.

use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, ResourceRecord, TYPE};
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
    /// No answer to the question: a stranger's guess, or the answer to an earlier query.
    Other,
    /// Too long for a datagram.
    Truncated,
    /// The server does not understand the query; perhaps it does without EDNS.
    Unsupported(String),
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

/// The most addresses of an answer that are taken, so that the cache has a bound in bytes.
const ADDRS_MAX: usize = 32;
/// The most records of an answer that are read. For each name in them, simple-dns follows pointers
/// for as long as they point backward, without a count.
const RECORDS_MAX: u16 = 128;
const HEADER_BYTES: usize = 12;

/// A question, as it is asked and as answers repeat it.
pub(super) struct Query<'a> {
    name: &'a str,
    family: Family,
    plain: Vec<u8>,
    with_edns: Vec<u8>,
}

impl Query<'_> {
    /// # Errors
    /// `InvalidInput` if it is no host name.
    pub(super) fn new(name: &str, family: Family) -> io::Result<Query<'_>> {
        let kind = match family {
            Family::V4 => TYPE::A,
            Family::V6 => TYPE::AAAA,
        };
        let qname = host_name(name)?;
        let mut packet = Packet::new_query(0);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let question = Question::new(qname, kind.into(), CLASS::IN.into(), false);
        packet.questions.push(question);
        let invalid = |_| no_host_name(name);
        let plain = packet.build_bytes_vec().map_err(invalid)?;
        *packet.opt_mut() = Some(OPT {
            opt_codes: Vec::new(),
            udp_packet_size: UDP_BYTES,
            version: 0,
        });
        let with_edns = packet.build_bytes_vec().map_err(invalid)?;
        Ok(Query {
            name,
            family,
            plain,
            with_edns,
        })
    }

    /// The message that asks, with this number.
    pub(super) fn message(&self, id: u16, edns: bool) -> Vec<u8> {
        let mut message = match edns {
            true => self.with_edns.clone(),
            false => self.plain.clone(),
        };
        message[..2].copy_from_slice(&id.to_be_bytes());
        message
    }

    /// Reads a message as an answer to this question with this number. If its first bytes show that
    /// it is none, no others are read.
    pub(super) fn parse(&self, bytes: &[u8], id: u16) -> Parsed {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Parsed::Other;
        };
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let flags = PacketFlag::from_bits_truncate(field(2));
        if field(0) != id || !flags.contains(PacketFlag::RESPONSE) {
            return Parsed::Other;
        }
        let code = RCODE::from(field(2) & 0xf);
        let asked = &self.plain[HEADER_BYTES..];
        match field(4) {
            // The header alone, of a server that has not understood the rest (RFC 6891, section 7).
            0 if code != RCODE::NoError => return failed(code),
            // Lengths of labels, type and class are no letters.
            1 if rest
                .get(..asked.len())
                .is_some_and(|its| its.eq_ignore_ascii_case(asked)) => {}
            _ => return Parsed::Other,
        }
        if flags.contains(PacketFlag::TRUNCATION) {
            return Parsed::Truncated;
        }
        if !matches!(code, RCODE::NoError | RCODE::NameError) {
            return failed(code);
        }
        let mut bytes = bytes.to_vec();
        let mut left = RECORDS_MAX;
        let mut is_cut = false;
        for at in [6, 8, 10] {
            let taken = field(at).min(left);
            left -= taken;
            is_cut |= taken < field(at);
            bytes[at..at + 2].copy_from_slice(&taken.to_be_bytes());
        }
        let Ok(packet) = Packet::parse(&bytes) else {
            return Parsed::Failed("a malformed answer".to_owned());
        };
        let parsed = match packet.rcode() {
            RCODE::NoError => found(&packet, self.name, self.family),
            RCODE::NameError => Parsed::Found(Found::Nothing, negative_ttl(&packet)),
            other => failed(other),
        };
        match parsed {
            // It may be in the rest.
            Parsed::Found(Found::Nothing | Found::Alias(_), _) if is_cut => {
                Parsed::Failed(format!("an answer of more than {RECORDS_MAX} records"))
            }
            parsed => parsed,
        }
    }
}

fn no_host_name(name: &str) -> io::Error {
    let text = format!("`{name}` is no host name");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// # Errors
/// `InvalidInput`, as [`Query::new`].
pub(super) fn host_name(name: &str) -> io::Result<Name<'_>> {
    // simple-dns skips empty labels.
    if name.split('.').any(str::is_empty) {
        return Err(no_host_name(name));
    }
    Name::new(name).map_err(|_| no_host_name(name))
}

fn failed(code: RCODE) -> Parsed {
    let text = format!("{code:?}");
    match code {
        RCODE::FormatError | RCODE::NotImplemented => Parsed::Unsupported(text),
        _ => Parsed::Failed(text),
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
            addrs.truncate(ADDRS_MAX);
            return Parsed::Found(Found::Addrs(addrs), ttl);
        }
        match alias {
            Some(its) => name = its,
            None if name == asked && is_lame(packet) => {
                return Parsed::Failed("a referral, from a server without recursion".to_owned());
            }
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

/// Neither of a server that is responsible for the name, nor of one that has asked such a server:
/// that it has no records says nothing.
fn is_lame(packet: &Packet<'_>) -> bool {
    let either = [
        PacketFlag::AUTHORITATIVE_ANSWER,
        PacketFlag::RECURSION_AVAILABLE,
    ];
    !either.into_iter().any(|flag| packet.has_flags(flag)) && !is_authority(packet)
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

    /// A reply to a query for `some.name.test`, with number 7.
    fn reply(question: &[u8]) -> Packet<'_> {
        let mut reply = Packet::parse(question).unwrap().into_reply();
        reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
        reply
    }

    fn address(name: &'static str) -> ResourceRecord<'static> {
        let to = RData::A(simple_dns::rdata::A { address: 1 });
        ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, 60, to)
    }

    /// Whatever comes: an end, and no panic.
    #[test]
    fn any_bytes_are_read() {
        let mut random = Random::new(1);
        let query = Query::new("some.name.test", Family::V4).unwrap();
        let question = query.message(7, true);
        let mut packet = reply(&question);
        for (name, to) in [("some.name.test", "b.test"), ("b.test", "c.test")] {
            let to = RData::CNAME(simple_dns::rdata::CNAME(Name::new_unchecked(to)));
            let name = Name::new_unchecked(name);
            packet
                .answers
                .push(ResourceRecord::new(name, CLASS::IN, 60, to));
        }
        let whole = packet.build_bytes_vec_compressed().unwrap();
        let parsed = query.parse(&whole, 7);
        assert_eq!(parsed, Parsed::Found(Found::Alias("c.test".to_owned()), 60));
        for _ in 0..50_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(4) {
                let place = random.below(bytes.len());
                bytes[place] = random.next() as u8;
            }
            bytes.truncate(1 + random.below(bytes.len() + 20));
            query.parse(&bytes, 7);
        }
    }

    #[test]
    fn an_answer_shows_in_its_first_bytes() {
        let query = Query::new("some.name.test", Family::V4).unwrap();
        let mut bytes = query.message(7, false);
        assert_eq!(query.parse(&bytes, 7), Parsed::Other);
        bytes[2] |= 0x80;
        // As many answers as can be said, none of which is there.
        bytes[6..8].fill(0xff);
        let malformed = Parsed::Failed("a malformed answer".to_owned());
        assert_eq!(query.parse(&bytes, 7), malformed);
        assert_eq!(query.parse(&bytes, 8), Parsed::Other);
        let upper = bytes.to_ascii_uppercase();
        assert_eq!(query.parse(&upper, 7), malformed);
        // Cut in the middle of a record.
        let mut cut = bytes.clone();
        cut[2] |= 2;
        assert_eq!(query.parse(&cut, 7), Parsed::Truncated);
        // Of another type, another name, and two questions.
        let of_v6 = Query::new("some.name.test", Family::V6).unwrap();
        assert_eq!(of_v6.parse(&bytes, 7), Parsed::Other);
        let other = Query::new("some.game.test", Family::V4).unwrap();
        assert_eq!(other.parse(&bytes, 7), Parsed::Other);
        bytes[5] = 2;
        assert_eq!(query.parse(&bytes, 7), Parsed::Other);
    }

    #[test]
    fn a_header_alone_tells_of_a_failure() {
        let query = Query::new("some.name.test", Family::V4).unwrap();
        let header = |code| [0, 7, 0x80, code, 0, 0, 0, 0, 0, 0, 0, 0];
        let unsupported = Parsed::Unsupported("FormatError".to_owned());
        assert_eq!(query.parse(&header(1), 7), unsupported);
        let refused = Parsed::Failed("Refused".to_owned());
        assert_eq!(query.parse(&header(5), 7), refused);
        // That there is no such name is believed of the question only.
        let gone = Parsed::Failed("NameError".to_owned());
        assert_eq!(query.parse(&header(3), 7), gone);
        assert_eq!(query.parse(&header(0), 7), Parsed::Other);
        assert_eq!(query.parse(&header(1), 8), Parsed::Other);
    }

    #[test]
    fn so_many_records_are_read() {
        let query = Query::new("some.name.test", Family::V4).unwrap();
        let question = query.message(7, false);
        let mut packet = reply(&question);
        packet.answers = (0..2_000).map(|_| address("some.name.test")).collect();
        let bytes = packet.build_bytes_vec_compressed().unwrap();
        let Parsed::Found(Found::Addrs(addrs), 60) = query.parse(&bytes, 7) else {
            panic!("no addresses");
        };
        assert_eq!(addrs.len(), ADDRS_MAX);
        // The last one of many others.
        packet.answers = (0..128).map(|_| address("other.test")).collect();
        let bytes = packet.build_bytes_vec_compressed().unwrap();
        let nothing = Parsed::Found(Found::Nothing, 0);
        assert_eq!(query.parse(&bytes, 7), nothing);
        packet.answers.push(address("some.name.test"));
        let bytes = packet.build_bytes_vec_compressed().unwrap();
        let failed = Parsed::Failed("an answer of more than 128 records".to_owned());
        assert_eq!(query.parse(&bytes, 7), failed);
    }

    #[test]
    fn a_referral_is_no_answer() {
        let query = Query::new("some.name.test", Family::V4).unwrap();
        let question = query.message(7, false);
        let mut packet = reply(&question);
        let nothing = Parsed::Found(Found::Nothing, 0);
        let bytes = packet.build_bytes_vec().unwrap();
        assert_eq!(query.parse(&bytes, 7), nothing);
        packet.remove_flags(PacketFlag::RECURSION_AVAILABLE);
        let bytes = packet.build_bytes_vec().unwrap();
        assert!(matches!(query.parse(&bytes, 7), Parsed::Failed(_)));
        packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
        let bytes = packet.build_bytes_vec().unwrap();
        assert_eq!(query.parse(&bytes, 7), nothing);
    }
}
