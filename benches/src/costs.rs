//! What the handlers of the workloads compute, apart from the memory they touch: timed on a machine
//! once, and charged where runs are simulated.

use crate::measure::Spread;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

/// In ns, with all data in the first cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The check of an event's number.
    pub pass: f64,
    /// The check of one that several post to.
    pub relay: f64,
    /// Which event a producer of *fan-in* posts next.
    pub window: f64,
    /// Writing what an event of *penalty* reads: a kilobyte.
    pub write_part: f64,
    /// Reading it.
    pub read_part: f64,
    /// Filling half of an array of *cache efficient*.
    pub fill: f64,
    /// Sorting it.
    pub sort: f64,
    /// Merging two of them.
    pub merge: f64,
}

/// The names of [`Costs`], in their order.
const NAMES: [&str; 8] = [
    "pass",
    "relay",
    "window",
    "write_part",
    "read_part",
    "fill",
    "sort",
    "merge",
];

impl Costs {
    fn of(values: [f64; NAMES.len()]) -> Costs {
        let [
            pass,
            relay,
            window,
            write_part,
            read_part,
            fill,
            sort,
            merge,
        ] = values;
        Costs {
            pass,
            relay,
            window,
            write_part,
            read_part,
            fill,
            sort,
            merge,
        }
    }

    fn values(&self) -> [f64; NAMES.len()] {
        [
            self.pass,
            self.relay,
            self.window,
            self.write_part,
            self.read_part,
            self.fill,
            self.sort,
            self.merge,
        ]
    }

    /// Each of them multiplied: on another processor.
    #[must_use]
    pub fn times(&self, factor: f64) -> Costs {
        Costs::of(self.values().map(|ns| ns * factor))
    }

    /// Times them here.
    pub fn measure() -> Costs {
        let call_ns = ns(&mut || ());
        let each = |mut compute: Box<dyn FnMut()>| ns(&mut *compute) - call_ns;
        let mut costs = Costs::of(crate::workloads::computations().map(each));
        // What is sorted was filled each time.
        costs.sort -= costs.fill;
        costs
    }

    /// A line each: the name, and ns.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, ns) in NAMES.iter().zip(self.values()) {
            writeln!(text, "{name} {ns:.2}").expect("a string takes everything");
        }
        text
    }

    /// Reads what [`to_text`](Self::to_text) wrote.
    ///
    /// # Errors
    /// The line that is not as it should be.
    pub fn parse(text: &str) -> Result<Costs, String> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut values = [0.0; NAMES.len()];
        for (value, name) in values.iter_mut().zip(NAMES) {
            let line = lines.next().unwrap_or_default();
            let ns = line
                .strip_prefix(name)
                .and_then(|ns| ns.trim().parse().ok());
            let ns = ns.filter(|ns: &f64| ns.is_finite() && *ns > 0.0);
            *value = ns.ok_or_else(|| format!("`{name}` and its ns are due, not {line:?}"))?;
        }
        Ok(Costs::of(values))
    }
}

/// The median of some trials: neighbors that slow a processor down do so in the runs, too.
fn ns(compute: &mut dyn FnMut()) -> f64 {
    let trial = |_| {
        let start = Instant::now();
        let mut times = 0;
        while times < 64 || start.elapsed().as_nanos() < 20_000 {
            (0..8).for_each(|_| black_box(&mut *compute)());
            times += 8;
        }
        start.elapsed().as_nanos() as f64 / f64::from(times)
    };
    Spread::of((0..201).map(trial).collect()).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_as_they_were_written() {
        let costs = Costs::of([1.0, 2.5, 3.0, 30.0, 4.0, 500.25, 6.0, 7.0]);
        assert_eq!(Costs::parse(&costs.to_text()), Ok(costs.clone()));
        assert_eq!(costs.times(2.0).sort, 12.0);
        let wrong = costs.to_text().replace("fill 500.25", "fill much");
        let said = "`fill` and its ns are due, not \"fill much\"";
        assert_eq!(Costs::parse(&wrong), Err(said.to_owned()));
        assert!(Costs::parse("").is_err());
    }
}
