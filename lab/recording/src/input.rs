//! The file of a recording, read.

use mely::recording::first::{
    ARRIVAL, BEGIN, COLOR_KIND_SHIFT, DEFINE, FINISH, HOLD, HOLD_OVER, KIND_BITS, OWN, PANICKED,
    PARK, POST, RARE, REFUSED, RISE, STEAL, STOLEN, TIMED, WAITS, WAKE, WIDE, WROTE,
};
use mely::recording::{
    CORES_MAX, Cause, Color, ColorKind, Definition, END, End, Ended, Header, LogId, MAGIC,
    NAME_BYTES_MAX, PAGE_BYTES, Record, VERSION,
};
use mely::topology::Distance;

/// What a page is.
#[derive(Debug)]
pub(crate) enum Paged<'a> {
    /// Of a log: its records, and since when the first gap is.
    Log(LogId, u64, Input<'a>),
    End(End),
}

/// Why a file is not what it should be, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It ends in the middle.
    Short,
    Not(&'static str),
}

/// Bytes that are read one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
    /// Bytes of the file before these.
    pub(crate) at: usize,
}

type Read<T> = Result<T, Fault>;

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Fault::Short)?;
        self.rest = rest;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as asked for"))
    }

    fn byte(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Read<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 1 << 7 {
                return Ok(number);
            }
        }
        Err(Fault::Not("a number has more than 64 bits"))
    }

    fn small(&mut self) -> Read<u32> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| Fault::Not("a profile's number has more than 32 bits"))
    }

    fn yes_or_no(&mut self) -> Read<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Not("what is yes or no is neither 0 nor 1")),
        }
    }

    fn text(&mut self) -> Read<String> {
        let len = self.number()?;
        if len > NAME_BYTES_MAX as u64 {
            return Err(Fault::Not("a name is longer than 1000 bytes"));
        }
        let bytes = self.take(len as usize)?;
        let text = std::str::from_utf8(bytes);
        Ok(text.map_err(|_| Fault::Not("a name is not UTF-8"))?.into())
    }

    fn cause(&mut self) -> Read<Cause> {
        Ok(Cause::from_bits(u16::from_le_bytes(self.array()?).into()))
    }

    fn color(&mut self, first: u8) -> Read<Color> {
        let kind = ColorKind::new(u32::from(first >> COLOR_KIND_SHIFT) & 3);
        let kind = kind.ok_or(Fault::Not("a color is of an undefined kind"))?;
        let value = if first & WIDE != 0 {
            u64::from_le_bytes(self.array()?)
        } else {
            self.number()?
        };
        Ok(Color { kind, value })
    }

    /// What a file begins with. `Ok(Err(version))`: it is another version's.
    pub(crate) fn header(&mut self) -> Read<Result<Header, u32>> {
        if self.array::<8>()? != MAGIC {
            return Err(Fault::Not("it does not begin with `mely-rec`"));
        }
        let version = u32::from_le_bytes(self.array()?);
        if version != VERSION {
            return Ok(Err(version));
        }
        let len = u32::from_le_bytes(self.array()?) as usize;
        let at = self.at;
        let mut fields = Input {
            rest: self.take(len)?,
            at,
        };
        let header = fields.header_fields().map_err(|fault| match fault {
            Fault::Short => Fault::Not("its header is shorter than its fields"),
            fault => fault,
        })?;
        if !fields.is_empty() {
            return Err(Fault::Not("its header is longer than its fields"));
        }
        Ok(Ok(header))
    }

    fn header_fields(&mut self) -> Read<Header> {
        let cores = self.number()?;
        if cores == 0 || cores > CORES_MAX as u64 {
            return Err(Fault::Not("its cores are not from 1 to 512"));
        }
        Ok(Header {
            cores: cores as usize,
            simulated: match self.number()? {
                0 => false,
                1 => true,
                _ => return Err(Fault::Not("what is yes or no is neither 0 nor 1")),
            },
            began_unix_s: self.number()?,
            bytes_max: self.number()?,
            wake_cost_ns: self.number()?,
            batch: self.small()?,
            stealing: self.text()?,
        })
    }

    pub(crate) fn page(&mut self) -> Read<Paged<'a>> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let log = u16::from_le_bytes(self.array()?);
        if self.array::<2>()? != [0; 2] {
            return Err(Fault::Not("a page's header has other than zeros between"));
        }
        let from_ns = u64::from_le_bytes(self.array()?);
        if len > PAGE_BYTES {
            return Err(Fault::Not("a page is longer than 32 KiB"));
        }
        let at = self.at;
        let mut records = Input {
            rest: self.take(len)?,
            at,
        };
        if log == END {
            let end = records.end(from_ns).map_err(|fault| match fault {
                Fault::Short => Fault::Not("the last page is shorter than its fields"),
                fault => fault,
            })?;
            return Ok(Paged::End(end));
        }
        let log = LogId::from_number(log).ok_or(Fault::Not("a page is of no log"))?;
        Ok(Paged::Log(log, from_ns, records))
    }

    fn end(&mut self, at_ns: u64) -> Read<End> {
        let why = match self.byte()? {
            0 => Ended::WithTheRun,
            1 => Ended::AtTheLimit,
            _ => return Err(Fault::Not("it has ended for an undefined reason")),
        };
        Ok(End {
            why,
            at_ns,
            pages: self.number()?,
            cores_left: self.number()?,
        })
    }

    /// The next record of a page. (A record lies in one page.)
    pub(crate) fn record(&mut self) -> Read<Record> {
        self.any_record().map_err(|fault| match fault {
            Fault::Short => Fault::Not("a page ends inside a record"),
            fault => fault,
        })
    }

    fn any_record(&mut self) -> Read<Record> {
        let first = self.byte()?;
        match first & ((1 << KIND_BITS) - 1) {
            RARE => self.rare(first >> KIND_BITS),
            BEGIN => Ok(Record::Begin {
                profile: self.small()?,
                cause: self.cause()?,
                color: self.color(first)?,
                gap_ns: self.number()?,
            }),
            FINISH => Ok(Record::End {
                took_ns: self.number()?,
                panicked: first & PANICKED != 0,
                waits: first & WAITS != 0,
            }),
            POST => Ok(Record::Post {
                profile: self.small()?,
                color: if first & OWN != 0 {
                    None
                } else {
                    Some(self.color(first)?)
                },
                after_ns: if first & TIMED != 0 {
                    Some(self.number()?)
                } else {
                    None
                },
            }),
            ARRIVAL => Ok(Record::Arrival {
                profile: self.small()?,
                color: self.color(first)?,
                gap_ns: self.number()?,
            }),
            _ => Err(Fault::Not("a record is of an undefined kind")),
        }
    }

    fn rare(&mut self, which: u8) -> Read<Record> {
        Ok(match which {
            DEFINE => Record::Define {
                profile: self.small()?,
                definition: Definition {
                    is_handler: self.yes_or_no()?,
                    time_ns: self.number()?,
                    penalty: self.number()?,
                    working_set_bytes: self.number()?.checked_sub(1),
                    name: self.text()?,
                },
            },
            REFUSED => Record::Refused,
            PARK => Record::Park {
                gap_ns: self.number()?,
            },
            RISE => Record::Rise {
                gap_ns: self.number()?,
            },
            WAKE => Record::Wake {
                core: self.number()?,
                gap_ns: self.number()?,
            },
            STEAL => Record::Steal {
                victim: self.number()?,
                distance: *Distance::ALL
                    .get(usize::from(self.byte()?))
                    .ok_or(Fault::Not("a steal is over an undefined distance"))?,
                stuck: self.yes_or_no()?,
                cost_ns: self.number()?,
                colors: self.number()?,
                gap_ns: self.number()?,
            },
            STOLEN => {
                let first = self.byte()?;
                Record::Stolen {
                    color: self.color(first)?,
                    profile: self.small()?,
                    events: self.number()?,
                    left_ns: self.number()?,
                }
            }
            HOLD => Record::Hold {
                id: self.number()?,
                shared: self.yes_or_no()?,
                gap_ns: self.number()?,
            },
            HOLD_OVER => Record::HoldOver {
                id: self.number()?,
                gap_ns: self.number()?,
            },
            WROTE => Record::Wrote {
                took_ns: self.number()?,
                gap_ns: self.number()?,
            },
            _ => return Err(Fault::Not("a record is of an undefined kind")),
        })
    }
}
