//! What the server knows about itself, as plain data: filled in by whoever drives the runtime,
//! shown by the page at `/_mely` and by the summary at exit.

use std::time::Duration;

/// A snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Since the start.
    pub(crate) uptime: Duration,
    /// Answers given, by the number of their status.
    pub(crate) answers: Vec<(u16, u64)>,
    /// Those of the last full second.
    pub(crate) last_second: u64,
    /// What the process takes.
    pub(crate) process: Process,
    /// Which event source is in use.
    pub(crate) backend: String,
    /// Why that one; empty if there is nothing to say.
    pub(crate) backend_reason: String,
    /// Whether cores steal.
    pub(crate) stealing: bool,
    /// The clients.
    pub(crate) connections: Connections,
    /// Events that wait, wherever they are.
    pub(crate) waiting: u64,
    /// The colors in which the most events wait, deepest first.
    pub(crate) deepest: Vec<Depth>,
    /// One row a core, in order.
    pub(crate) cores: Vec<Core>,
    /// One row a distance, nearest first.
    pub(crate) steals: Vec<Steals>,
    /// The median time of all visits that brought colors, if there were any.
    pub(crate) steal_cost_median_ns: Option<u64>,
}

/// Counts of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connections {
    /// Open now.
    pub(crate) open: u64,
    /// Taken so far.
    pub(crate) accepted: u64,
    /// Turned away with a 503 so far.
    pub(crate) rejected: u64,
    /// As many may be open at once.
    pub(crate) open_max: u64,
    /// Had their last answer and are still there.
    pub(crate) leaving: u64,
    /// As many may be.
    pub(crate) leaving_max: u64,
    /// Of those, closed before their time, since too many were leaving.
    pub(crate) cut: u64,
    /// In the middle of a request when the time to finish was over.
    pub(crate) cut_requests: u64,
    /// In the middle of an answer then.
    pub(crate) cut_answers: u64,
}

/// What the process takes of the system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// Descriptors that are open.
    pub(crate) descriptors: u64,
    /// Descriptors that may be.
    pub(crate) descriptors_max: u64,
    /// Memory in use.
    pub(crate) rss_bytes: u64,
}

/// What one core has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Core {
    /// The processor it is pinned to, if it is.
    pub(crate) cpu: Option<u32>,
    /// Events run.
    pub(crate) events: u64,
    /// Posts that stayed on this core.
    pub(crate) posts_local: u64,
    /// Posts to colors of other cores.
    pub(crate) posts_remote: u64,
    /// Steals tried, as the thief.
    pub(crate) steals_tried: u64,
    /// Steals that brought something.
    pub(crate) steals_won: u64,
    /// The median time of this core's visits that brought colors, if there were any.
    pub(crate) steal_cost_median_ns: Option<u64>,
    /// Estimated time of what it stole.
    pub(crate) stolen: Duration,
    /// How often it went to sleep.
    pub(crate) parks: u64,
    /// How often it was woken by another core.
    pub(crate) wakes: u64,
    /// The longest handler so far, in nanoseconds.
    pub(crate) handler_max_ns: u64,
    /// Events waiting now.
    pub(crate) queued: u64,
}

/// Colors that [`Figures::deepest`] has at most.
pub(crate) const DEEPEST: usize = 4;

/// How many events wait in a color.
#[derive(Clone, Debug, Default)]
pub(crate) struct Depth {
    /// The color, as the server knows it.
    pub(crate) color: String,
    /// Events.
    pub(crate) events: u64,
    /// The core that has it.
    pub(crate) core: usize,
}

/// Steals at one distance, over all cores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steals {
    /// What thief and victim share, as `L3` or `package`.
    pub(crate) distance: String,
    /// Tried.
    pub(crate) tried: u64,
    /// Brought something.
    pub(crate) won: u64,
    /// What the scheduler expects one color to cost: a moving average.
    pub(crate) color_cost_ns: u64,
}

impl Connections {
    /// All that were in the middle of something when the time to finish was over.
    pub(crate) fn cut_off(&self) -> u64 {
        self.cut_requests + self.cut_answers
    }
}

impl Figures {
    /// Answers given, errors included.
    pub(crate) fn requests(&self) -> u64 {
        self.answers.iter().map(|&(_, count)| count).sum()
    }

    /// A sum over the cores.
    pub(crate) fn sum(&self, of: impl Fn(&Core) -> u64) -> u64 {
        self.cores.iter().map(of).sum()
    }

    /// The time stolen by all cores.
    pub(crate) fn stolen(&self) -> Duration {
        self.cores.iter().map(|core| core.stolen).sum()
    }
}

impl Core {
    /// Which processor it runs on.
    pub(crate) fn place(&self) -> String {
        self.cpu
            .map_or_else(|| "not pinned".to_owned(), |cpu| format!("cpu {cpu}"))
    }
}

/// A number with its thousands apart, as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole, as `12.3 %`; of nothing it is nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Bytes as `12.3 MiB`.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Nanoseconds in the unit that needs the fewest digits: `850 ns`, `1.25 us`, `3.00 ms`, `12.50 s`.
pub(crate) fn time(ns: u64) -> String {
    let scaled = |unit: u64| ns as f64 / unit as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", scaled(1_000)),
        1_000_000..1_000_000_000 => format!("{:.2} ms", scaled(1_000_000)),
        _ => format!("{:.2} s", scaled(1_000_000_000)),
    }
}

/// [`time`] of a duration, saturating after 584 years.
pub(crate) fn duration(duration: Duration) -> String {
    time(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// [`time`], or a dash for what never happened.
pub(crate) fn time_or_dash(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time)
}

#[cfg(test)]
pub(crate) fn sample() -> Figures {
    let core = |cpu, events| Core {
        cpu: Some(cpu),
        events,
        posts_local: 10,
        posts_remote: 3,
        steals_tried: 9,
        steals_won: 4,
        steal_cost_median_ns: (cpu == 1).then_some(850),
        stolen: Duration::from_micros(1_500),
        parks: 7,
        wakes: 6,
        handler_max_ns: 42_000,
        queued: 5,
    };
    Figures {
        uptime: Duration::from_millis(61_250),
        answers: vec![(200, 9_990), (404, 10), (503, 0)],
        last_second: 7_654,
        process: Process {
            descriptors: 45,
            descriptors_max: 65_536,
            rss_bytes: 12_900_000,
        },
        backend: "epoll".to_owned(),
        backend_reason: "io_uring refused: <EPERM> & \"seccomp\"".to_owned(),
        stealing: true,
        connections: Connections {
            open: 3,
            accepted: 1_000,
            rejected: 2,
            open_max: 10_000,
            leaving: 12,
            leaving_max: 1_024,
            cut: 13,
            cut_requests: 14,
            cut_answers: 15,
        },
        waiting: 4_321,
        deepest: vec![Depth {
            color: "connection <17>".to_owned(),
            events: 1_200,
            core: 1,
        }],
        cores: vec![core(0, 30_000), core(1, 1_234_567)],
        steals: vec![
            Steals {
                distance: "L3".to_owned(),
                tried: 18,
                won: 8,
                color_cost_ns: 320,
            },
            Steals {
                distance: "package".to_owned(),
                tried: 0,
                won: 0,
                color_cost_ns: 1_000,
            },
        ],
        steal_cost_median_ns: Some(850),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (number, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), expected);
        }
        for (ns, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_250, "1.25 us"),
            (3_000_000, "3.00 ms"),
            (12_500_000_000, "12.50 s"),
        ] {
            assert_eq!(time(ns), expected);
        }
        assert_eq!(time_or_dash(None), "-");
        assert_eq!(
            (percent(1, 3), percent(0, 0)),
            ("33.3 %".into(), "0.0 %".into())
        );
        assert_eq!(mebibytes(3 << 19), "1.5 MiB");
        assert!(duration(Duration::MAX).ends_with(" s"));
    }

    #[test]
    fn sums() {
        assert_eq!(sample().sum(|core| core.events), 1_264_567);
        assert_eq!(sample().stolen(), Duration::from_millis(3));
        assert_eq!(Figures::default().sum(|core| core.events), 0);
    }
}
