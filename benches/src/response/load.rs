//! Rows of the table, and the schedules of their requests.

use super::random::Random;
use std::fmt;

/// How long requests compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// All as long.
    Fixed,
    /// Exponentially distributed.
    Exp,
    /// [`LONG_SHARE`] of them [`LONG`] times the mean, the others [`SHORT`] times.
    Bimodal,
}

/// Of the short requests of [`Service::Bimodal`], in multiples of the mean.
pub const SHORT: f64 = 0.5;
/// Of the long ones.
pub const LONG: f64 = 5.5;
/// How many are long: 0.9 times 0.5 and 0.1 times 5.5 are 1.
pub const LONG_SHARE: f64 = 0.1;

/// The share of the first connection in a row that is skewed.
pub const SKEW_SHARE: f64 = 1.0 / 3.0;

impl Service {
    /// All of them.
    pub const ALL: [Service; 3] = [Service::Fixed, Service::Exp, Service::Bimodal];

    /// As in options.
    pub fn name(self) -> &'static str {
        match self {
            Service::Fixed => "fixed",
            Service::Exp => "exp",
            Service::Bimodal => "bimodal",
        }
    }

    /// The service of this name.
    pub fn find(name: &str) -> Option<Service> {
        Service::ALL.into_iter().find(|of| of.name() == name)
    }

    /// The time of a request in multiples of the mean.
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Service::Fixed => 1.0,
            Service::Exp => random.exponential(1.0),
            Service::Bimodal if random.uniform() < LONG_SHARE => LONG,
            Service::Bimodal => SHORT,
        }
    }
}

/// A row of the table: one kind of load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// How long requests compute.
    pub service: Service,
    /// On average.
    pub mean_us: f64,
    /// The share of each core that the requests take.
    pub load: f64,
    /// Connections; colors, if there are no connections.
    pub sources: usize,
    /// The first of them has [`SKEW_SHARE`] of the requests.
    pub skew: bool,
    /// Without connections: a foreign thread posts to colors.
    pub posts: bool,
}

const fn row(service: Service, mean_us: f64, load: f64) -> Row {
    Row {
        service,
        mean_us,
        load,
        sources: 64,
        skew: false,
        posts: false,
    }
}

/// The rows that are measured by default.
pub const ROWS: [Row; 6] = [
    row(Service::Exp, 1_000.0, 0.7),
    row(Service::Exp, 1_000.0, 0.85),
    row(Service::Bimodal, 1_000.0, 0.6),
    row(Service::Exp, 200.0, 0.6),
    Row {
        sources: 1_000,
        ..row(Service::Exp, 100.0, 0.5)
    },
    Row {
        posts: true,
        ..row(Service::Exp, 1_000.0, 0.7)
    },
];

/// The row's name: service, mean and load, as `exp-1000us-0.7`. `posts`, `skew` and a number of
/// connections other than 64 are added.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.posts {
            f.write_str("posts-")?;
        }
        let (service, mean_us, load) = (self.service.name(), self.mean_us, self.load);
        write!(f, "{service}-{mean_us}us-{load}")?;
        if self.sources != ROWS[0].sources {
            write!(f, "-{}", self.sources)?;
        }
        if self.skew {
            f.write_str("-skew")?;
        }
        Ok(())
    }
}

/// A request of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// When it is to be sent, from the start of the run.
    pub at_ns: u64,
    /// By which connection, or to which color.
    pub source: usize,
    /// How long it computes.
    pub service_ns: u64,
}

impl Row {
    /// The mean time between two requests to this many cores.
    pub fn gap_ns(&self, cores: usize) -> f64 {
        self.mean_us * 1e3 / (self.load * cores as f64)
    }

    /// The schedule that a seed decides: arrivals are a Poisson process.
    pub fn schedule(&self, cores: usize, requests: usize, seed: u64) -> Vec<Due> {
        let mut random = Random::new(seed);
        let gap_ns = self.gap_ns(cores);
        let mut at_ns = 0.0;
        let due = |_| {
            at_ns += random.exponential(gap_ns);
            let is_first = self.skew && random.uniform() < SKEW_SHARE;
            Due {
                at_ns: at_ns as u64,
                source: match self.sources {
                    _ if is_first => 0,
                    // The first has its share already.
                    sources if self.skew && sources > 1 => 1 + random.below(sources - 1),
                    sources => random.below(sources),
                },
                service_ns: (self.service.draw(&mut random) * self.mean_us * 1e3) as u64,
            }
        };
        (0..requests).map(due).collect()
    }

    /// The row as words, for the arguments of a process.
    pub fn words(&self) -> [String; 6] {
        [
            self.service.name().to_owned(),
            self.mean_us.to_string(),
            self.load.to_string(),
            self.sources.to_string(),
            u8::from(self.skew).to_string(),
            u8::from(self.posts).to_string(),
        ]
    }

    /// Reads [`words`](Self::words).
    ///
    /// # Errors
    /// The word that is none.
    pub fn of_words(words: &[String; 6]) -> Result<Row, String> {
        let [service, mean_us, load, sources, skew, posts] = words;
        let wrong = |word: &str| format!("{word}: not of a row");
        Ok(Row {
            service: Service::find(service).ok_or_else(|| wrong(service))?,
            mean_us: mean_us.parse().map_err(|_| wrong(mean_us))?,
            load: load.parse().map_err(|_| wrong(load))?,
            sources: sources.parse().map_err(|_| wrong(sources))?,
            skew: skew == "1",
            posts: posts == "1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: usize = 100_000;

    fn mean(values: impl Iterator<Item = f64>) -> f64 {
        values.sum::<f64>() / REQUESTS as f64
    }

    #[test]
    fn schedules_have_the_row_s_load_and_mean() {
        for service in Service::ALL {
            let row = row(service, 200.0, 0.6);
            let schedule = row.schedule(2, REQUESTS, 1);
            assert!(schedule.is_sorted_by_key(|due| due.at_ns));
            let service_us = mean(schedule.iter().map(|due| due.service_ns as f64 / 1e3));
            assert!((service_us / 200.0 - 1.0).abs() < 0.02, "{service_us}");
            let gap_us = schedule[REQUESTS - 1].at_ns as f64 / 1e3 / REQUESTS as f64;
            assert!((gap_us / (200.0 / 1.2) - 1.0).abs() < 0.02, "{gap_us}");
        }
    }

    #[test]
    fn connections_share_alike_unless_the_row_is_skewed() {
        for (skew, first) in [(false, 1.0 / 64.0), (true, SKEW_SHARE)] {
            let row = Row { skew, ..ROWS[0] };
            let schedule = row.schedule(2, REQUESTS, 1);
            let share = |source| {
                mean(schedule.iter().map(|due| {
                    let is_its = due.source == source;
                    f64::from(u8::from(is_its))
                }))
            };
            assert!((share(0) / first - 1.0).abs() < 0.1, "{}", share(0));
            let other = (1.0 - first) / 63.0;
            assert!((share(63) / other - 1.0).abs() < 0.1, "{}", share(63));
            assert!(schedule.iter().all(|due| due.source < 64));
        }
        let one = Row {
            skew: true,
            sources: 1,
            ..ROWS[0]
        };
        assert!(one.schedule(2, 100, 1).iter().all(|due| due.source == 0));
    }

    #[test]
    fn a_seed_makes_one_schedule() {
        let schedule = |seed| ROWS[0].schedule(2, 100, seed);
        assert_eq!(schedule(1), schedule(1));
        assert_ne!(schedule(1), schedule(2));
    }

    #[test]
    fn rows_have_names_of_their_own_and_are_read_as_they_were_written() {
        let mut names: Vec<_> = ROWS.iter().map(Row::to_string).collect();
        assert_eq!(
            names,
            [
                "exp-1000us-0.7",
                "exp-1000us-0.85",
                "bimodal-1000us-0.6",
                "exp-200us-0.6",
                "exp-100us-0.5-1000",
                "posts-exp-1000us-0.7"
            ]
        );
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            assert_eq!(Row::of_words(&row.words()), Ok(row));
        }
        let mut words = ROWS[0].words();
        words[0] = "huh".to_owned();
        assert_eq!(Row::of_words(&words), Err("huh: not of a row".to_owned()));
    }
}
