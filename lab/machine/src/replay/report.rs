//! The answer as text.

use super::figures::{CoreShare, Figures, middle};
use super::program::Program;
use super::run::Outcome;
use super::{Answer, Load};
use mely_hardware::Machine;
use mely_recording::{ColorKind, Recording};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The longest line.
const COLUMNS: usize = 100;
/// Most handlers that are named in one sentence.
const NAMED_MAX: usize = 5;
/// From this share of the recorded run on it is said how long it waited for the world outside.
const THOUGHT_TOLD: f64 = 0.5;

/// What whoever reads the figures has to know.
pub(super) fn warnings(
    recording: &Recording,
    program: &Program,
    machine: &Machine,
    recorded: &Figures,
    (cores, load): (usize, Load),
) -> Vec<String> {
    let mut warnings = Vec::new();
    let recorded_cores = recording.header.cores;
    let has = machine.topology().cores().len();
    if recorded_cores > has {
        warnings.push(format!(
            "The recording is of {recorded_cores} cores, and the machine has {has}: the same run \
             cannot be simulated, and how far the model is off is not known."
        ));
    }
    about_colors(program, cores, &mut warnings);
    about_arrivals(program, recorded, load, &mut warnings);
    about_data(program, &mut warnings);
    about_the_recording(recording, &mut warnings);
    warnings
}

fn about_colors(program: &Program, cores: usize, warnings: &mut Vec<String>) {
    let by_color = program.work_by_color();
    let colors = by_color.iter().flatten().count();
    if cores > colors {
        warnings.push(format!(
            "{cores} cores, and the recording has events of {colors} colors: no more than {colors} \
             cores can work at a time."
        ));
    }
    let most_ns = by_color.into_iter().flatten().max().unwrap_or(0);
    if most_ns == 0 {
        return;
    }
    let useful = program.work_ns() as f64 / most_ns as f64;
    if useful < cores as f64 && colors >= cores {
        warnings.push(format!(
            "One color has {:.1} % of all work, which runs on one core at a time: no more than \
             {useful:.1} of {cores} cores can be of use.",
            100.0 / useful
        ));
    }
}

fn about_arrivals(program: &Program, recorded: &Figures, load: Load, warnings: &mut Vec<String>) {
    let (come_ns, span_ns) = (program.thought_ns(), recorded.span_ns);
    let (from, to) = middle(come_ns.len());
    let at = |place: usize| come_ns.get(place).copied().unwrap_or(0);
    let thought_ns = at(to.saturating_sub(1)) - at(from);
    if load == Load::Closed && thought_ns as f64 > THOUGHT_TOLD * span_ns as f64 {
        warnings.push(format!(
            "The recorded run took {}. Nine tenths of its arrivals would take {} if no event took \
             any time: with closed load no run is shorter. An arrival counts from when its core took it, so on a \
             busy core its think time contains the kernel's queue.",
            time(span_ns),
            time(thought_ns)
        ));
    }
}

fn about_data(program: &Program, warnings: &mut Vec<String>) {
    let has = &program.handlers_have;
    if has.silent.is_empty() {
        return;
    }
    if has.touches == 0 {
        warnings.push(
            "No handler has a working set (Handler::working_set_bytes): data is free, \
             wherever its color runs."
                .into(),
        );
        return;
    }
    let mut names: Vec<String> = (has.silent.iter().take(NAMED_MAX))
        .map(|name| printable(name, 30))
        .collect();
    if has.silent.len() > NAMED_MAX {
        names.push(format!("{} more", has.silent.len() - NAMED_MAX));
    }
    warnings.push(format!(
        "These handlers do not say which bytes they touch, and their data is free: {}.",
        names.join(", ")
    ));
}

fn about_the_recording(recording: &Recording, warnings: &mut Vec<String>) {
    let mut count = |count: usize, what: &str| {
        if count > 0 {
            warnings.push(format!("{count} {what}"));
        }
    };
    let events = &recording.events;
    let posts = &recording.posts;
    let refused = posts.iter().filter(|post| post.refused).count();
    let unbegun = posts.iter().filter(|post| post.event.is_none()).count() - refused;
    count(
        refused,
        "posts were refused in the recorded run, and are not made.",
    );
    count(
        unbegun,
        "posts had not begun to run when the recording ended, and are not made.",
    );
    let unended = events.iter().filter(|event| event.took_ns.is_none());
    count(
        unended.count(),
        "events have no end in the recording, and take no time.",
    );
    let unposted = events.iter().filter(|event| event.cause.is_none());
    count(
        unposted.count(),
        "events have no post in the recording, and arrive when they began.",
    );
    let panicked = events.iter().filter(|event| event.panicked);
    count(
        panicked.count(),
        "events panicked in the recorded run, and return in the simulated ones.",
    );
    let control =
        |event: &&mely_recording::Event| recording[event.color].kind == ColorKind::Control;
    count(
        events.iter().filter(control).count(),
        "events are of colors that stay on their cores, and may be stolen in the simulated runs.",
    );
    if !recording.is_whole() {
        warnings
            .push("The recording ended before its run did: what came later is not known.".into());
    }
}

/// A name from a file: no control characters, and not too long.
fn printable(name: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    let mut text: String = name.chars().map(plain).collect();
    let length = text.chars().count();
    if length > most {
        // The end of a type's name says more than its beginning.
        let end: String = text.chars().skip(length - most + 2).collect();
        text = format!("..{end}");
    }
    text
}

fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn rate(figures: &Figures) -> String {
    match figures.rate {
        rate if rate < 1e4 => format!("{rate:.1}"),
        rate if rate < 1e7 => format!("{:.1} K", rate / 1e3),
        rate => format!("{:.2} M", rate / 1e6),
    }
}

/// A paragraph of lines that are not too long.
fn wrapped(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            writeln!(f)?;
            column = 0;
        }
        if column > 0 {
            f.write_str(" ")?;
            column += 1;
        }
        f.write_str(word)?;
        column += length;
    }
    writeln!(f)
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = printable(self.machine.name(), 60);
        writeln!(
            f,
            "{name}, {} cores; load {}, seed {}: {} events\n",
            self.cores, self.question.load, self.question.seed, self.recorded.events
        )?;
        self.rates(f)?;
        self.uses(f)?;
        self.lines(f)?;
        self.sources(f)?;
        for warning in &self.warnings {
            wrapped(f, warning)?;
        }
        Ok(())
    }
}

impl Answer {
    /// The figures, with what they are of, and on how many cores.
    fn rows(&self) -> Vec<(String, usize, &Figures)> {
        let recorded_cores = self.recorded.cores.len();
        let recorded = format!("recorded ({})", self.recorded_mode.name);
        let mut rows = vec![(recorded, recorded_cores, &self.recorded)];
        let again = self.again.as_ref();
        rows.extend(
            again.map(|again| ("the same, simulated".into(), recorded_cores, &again.figures)),
        );
        rows.extend(
            self.modes
                .iter()
                .map(|(mode, outcome)| (mode.name.clone(), self.cores, &outcome.figures)),
        );
        rows
    }

    fn rates(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:32}{:>5}{:>10}{:>20}{:>21}{:>11}",
            "", "", "", "post to begin", "arrival to end", "taken late"
        )?;
        writeln!(
            f,
            "{:32}{:>5}{:>10}{:>10}{:>10}{:>11}{:>10}{:>11}",
            "", "cores", "events/s", "p50", "p99", "p50", "p99", "p99"
        )?;
        for (name, cores, figures) in self.rows() {
            let late = figures.late_ns.map_or("-".into(), |late| time(late.p99));
            let (waited, chain) = (figures.waited_ns, figures.chain_ns);
            writeln!(
                f,
                "{name:32}{cores:>5}{:>10}{:>10}{:>10}{:>11}{:>10}{late:>11}",
                rate(figures),
                time(waited.p50),
                time(waited.p99),
                time(chain.p50),
                time(chain.p99),
            )?;
        }
        if let Some(again) = &self.again
            && self.recorded.rate > 0.0
        {
            let error = 100.0 * (again.figures.rate / self.recorded.rate - 1.0);
            writeln!(
                f,
                "\nThe rate of the same run in simulation is off by {error:+.1} %."
            )?;
        }
        writeln!(f)
    }

    fn uses(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let share = |f: &mut Formatter<'_>, name: &str, share: &CoreShare| {
            let parts = [share.busy, share.stealing, share.asleep, share.rest];
            write!(f, "{name:32}")?;
            for part in parts {
                write!(f, "{:>9.1} %", 100.0 * part)?;
            }
            writeln!(f)
        };
        writeln!(
            f,
            "{:32}{:>11}{:>11}{:>11}{:>11}",
            "use of cores", "busy", "stealing", "asleep", "else"
        )?;
        for (name, _, figures) in self.rows() {
            share(f, &name, &figures.mean())?;
        }
        if let Some((mode, outcome)) = self.modes.first() {
            for (core, its) in outcome.figures.cores.iter().enumerate() {
                share(f, &format!("{}, core {core}", mode.name), its)?;
            }
        }
        writeln!(f)
    }

    fn lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (mode, outcome) in &self.modes {
            let Outcome { lines, steals, .. } = outcome;
            writeln!(
                f,
                "{:40}{:>20}{:>20}",
                format!("{}: {steals} steals", mode.name),
                "transfers an event",
                "ns waited an event"
            )?;
            let each = |sum: f64| sum / outcome.figures.events.max(1) as f64;
            for line in lines {
                let transfers = each(line.transfers as f64);
                let waited = each(line.waited_ns);
                writeln!(f, "  {:38}{transfers:>20.3}{waited:>20.1}", line.name)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// Where the numbers come from.
    fn sources(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut by_source: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, number) in self.machine.numbers() {
            let source = ["measured", "assumed", "fitted"];
            let source = source
                .into_iter()
                .find(|its| number.source.starts_with(its));
            let names = by_source.entry(source.unwrap_or("taken from documents"));
            names.or_default().push(key.to_string());
        }
        wrapped(
            f,
            "Measured: what each event took, posted and waited for in the recorded run. Not \
             scaled: the machine computes as fast as the recorded one.",
        )?;
        for (source, names) in by_source {
            let follows = if source == "assumed" {
                "; what follows from them is extrapolated"
            } else {
                ""
            };
            let (count, names) = (names.len(), names.join(", "));
            let text = format!("The machine's numbers, {source} ({count}): {names}{follows}.");
            wrapped(f, &text)?;
        }
        Ok(())
    }
}
