//! What is counted while it is measured, and how several injectors' counts become one.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;

/// Between 1 us and a minute, to three digits; what is outside counts as the nearest.
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// What went wrong, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    /// No connection could be made.
    pub(crate) connect: u64,
    /// A connection ended before its response had.
    pub(crate) closed: u64,
    /// A response that is none, or of another length than it says.
    pub(crate) framing: u64,
    /// Another status than 200.
    pub(crate) status: u64,
    /// Another file than was asked for.
    pub(crate) body: u64,
    /// The server was silent for too long, which ended the run.
    pub(crate) silent: u64,
}

impl Errors {
    /// Of all kinds.
    pub(crate) fn sum(&self) -> u64 {
        self.connect + self.closed + self.framing + self.status + self.body + self.silent
    }
}

/// What one share of the clients measured, or all.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// From a request's write to its response's last byte.
    pub(crate) latency_ns: Histogram<u64>,
    /// From a connection's first step to its first response's last byte.
    pub(crate) first_ns: Histogram<u64>,
    /// Of bodies.
    pub(crate) bytes: u64,
    /// Connections made.
    pub(crate) connections: u64,
    /// Virtual clients.
    pub(crate) clients: u64,
    /// Clients that got no response at all.
    pub(crate) starved: u64,
    /// What went wrong.
    pub(crate) errors: Errors,
}

impl Default for Measure {
    fn default() -> Measure {
        let histogram = || {
            Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS).expect("these bounds fit")
        };
        Measure {
            latency_ns: histogram(),
            first_ns: histogram(),
            bytes: 0,
            connections: 0,
            clients: 0,
            starved: 0,
            errors: Errors::default(),
        }
    }
}

impl Measure {
    /// Responses that were right.
    pub(crate) fn responses(&self) -> u64 {
        self.latency_ns.len()
    }

    /// A response, so long after its request.
    pub(crate) fn response(&mut self, after: Duration, bytes: usize) {
        self.latency_ns.saturating_record(ns(after));
        self.bytes += bytes as u64;
    }

    /// A connection's first response, so long after the connection was begun.
    pub(crate) fn first_response(&mut self, after: Duration) {
        self.first_ns.saturating_record(ns(after));
    }

    /// Adds what others measured meanwhile.
    pub(crate) fn add(&mut self, other: &Measure) {
        let same = "all histograms are made alike";
        self.latency_ns.add(&other.latency_ns).expect(same);
        self.first_ns.add(&other.first_ns).expect(same);
        self.bytes += other.bytes;
        self.connections += other.connections;
        self.clients += other.clients;
        self.starved += other.starved;
        self.errors.connect += other.errors.connect;
        self.errors.closed += other.errors.closed;
        self.errors.framing += other.errors.framing;
        self.errors.status += other.errors.status;
        self.errors.body += other.errors.body;
        self.errors.silent += other.errors.silent;
    }

    /// For the wire; without losing anything.
    pub(crate) fn to_json(&self) -> Value {
        let pairs = |histogram: &Histogram<u64>| -> Vec<(u64, u64)> {
            histogram
                .iter_recorded()
                .map(|v| (v.value_iterated_to(), v.count_at_value()))
                .collect()
        };
        json!({
            "latency_ns": pairs(&self.latency_ns),
            "first_ns": pairs(&self.first_ns),
            "bytes": self.bytes,
            "connections": self.connections,
            "clients": self.clients,
            "starved": self.starved,
            "errors": [
                self.errors.connect,
                self.errors.closed,
                self.errors.framing,
                self.errors.status,
                self.errors.body,
                self.errors.silent,
            ],
        })
    }

    /// From the wire. None: it is not what `to_json` makes.
    pub(crate) fn from_json(value: &Value) -> Option<Measure> {
        let mut measure = Measure::default();
        let number = |name: &str| value[name].as_u64();
        let fill = |histogram: &mut Histogram<u64>, name: &str| -> Option<()> {
            for pair in value[name].as_array()? {
                histogram.saturating_record_n(pair[0].as_u64()?, pair[1].as_u64()?);
            }
            Some(())
        };
        fill(&mut measure.latency_ns, "latency_ns")?;
        fill(&mut measure.first_ns, "first_ns")?;
        measure.bytes = number("bytes")?;
        measure.connections = number("connections")?;
        measure.clients = number("clients")?;
        measure.starved = number("starved")?;
        let error = |index: usize| value["errors"][index].as_u64();
        measure.errors = Errors {
            connect: error(0)?,
            closed: error(1)?,
            framing: error(2)?,
            status: error(3)?,
            body: error(4)?,
            silent: error(5)?,
        };
        Some(measure)
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What is told at the end.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What all clients measured.
    pub(crate) measure: Measure,
    /// In so much time.
    pub(crate) time: Duration,
    /// The server's processor time in that time, if it was asked for.
    pub(crate) server_cpu: Option<Duration>,
}

#[cfg(test)]
pub(crate) fn sample() -> Measure {
    let mut measure = Measure::default();
    for us in 1..=1_000 {
        measure.response(Duration::from_micros(us), 1_024);
    }
    measure.first_response(Duration::from_millis(3));
    measure.connections = 7;
    measure.clients = 5;
    measure.starved = 1;
    measure.errors.closed = 2;
    measure.errors.body = 1;
    measure.errors.silent = 3;
    measure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_loses_nothing() {
        let measure = sample();
        let line = measure.to_json().to_string();
        let back = Measure::from_json(&serde_json::from_str(&line).unwrap()).unwrap();
        assert_eq!(back.latency_ns, measure.latency_ns);
        assert_eq!(back.first_ns, measure.first_ns);
        assert_eq!(back.errors, measure.errors);
        assert_eq!(
            (back.bytes, back.connections, back.clients, back.starved),
            (1_024_000, 7, 5, 1)
        );
        assert!(Measure::from_json(&json!({"bytes": 1})).is_none());
    }

    #[test]
    fn two_halves_are_a_whole() {
        let mut sum = Measure::default();
        sum.add(&sample());
        sum.add(&sample());
        assert_eq!(sum.responses(), 2_000);
        let median = sum.latency_ns.value_at_quantile(0.5);
        assert!(median.abs_diff(500_000) < 1_000, "{median}");
        assert_eq!((sum.errors.sum(), sum.starved, sum.clients), (12, 2, 10));
    }
}
