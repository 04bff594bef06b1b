//! [`Profile`] as text.

use super::profile::{HandlerProfile, Profile, Recommendation};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// Columns of the table at most.
const WIDTH_MAX: usize = 100;
/// Columns of a time, as `-` or `1.25 us`, and of a share, under its heading.
const TIME: usize = 7;
const SHARE: usize = 6;

impl Display for Recommendation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Recommendation::NotSampled => f.pad("never sampled"),
            Recommendation::AsAnnotated => f.pad("as annotated"),
            Recommendation::Annotate { time, penalty } => {
                let ns = time.as_nanos();
                let (unit, count) = match ns {
                    _ if ns % 1_000_000 == 0 => ("millis", ns / 1_000_000),
                    _ if ns % 1_000 == 0 => ("micros", ns / 1_000),
                    _ => ("nanos", ns),
                };
                write!(f, ".time(Duration::from_{unit}({count}))")?;
                if penalty != 1 {
                    write!(f, ".penalty({penalty})")?;
                }
                Ok(())
            }
        }
    }
}

impl Display for Profile {
    /// The handlers, a row each, then a line for each whose closures are boxed or whose events have
    /// panicked, and for each distance.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cells = self.handlers.iter().map(cells).collect::<Vec<_>>();
        let widest = |of: fn(&Cells) -> usize, heading: &str| {
            cells.iter().map(of).fold(heading.len(), usize::max)
        };
        let events = widest(|cells| cells.events.len(), EVENTS);
        let advice = widest(|cells| cells.advice.len(), ADVICE);
        let rest = 1 + events + 2 * (1 + TIME) + 1 + SHARE + 2 + advice;
        let name = widest(|cells| cells.name.chars().count(), NAME)
            .min(WIDTH_MAX.saturating_sub(rest).max(NAME.len()));
        let headings = Cells {
            name: NAME,
            events: EVENTS.to_owned(),
            mean: "mean".to_owned(),
            deviation: "+-".to_owned(),
            share: "stolen".to_owned(),
            advice: ADVICE.to_owned(),
        };
        for row in std::iter::once(&headings).chain(&cells) {
            writeln!(
                f,
                "{:<name$} {:>events$} {:>TIME$} {:>TIME$} {:>SHARE$}  {}",
                shortened(row.name, name),
                row.events,
                row.mean,
                row.deviation,
                row.share,
                row.advice
            )?;
        }
        for row in self.handlers.iter().filter(|row| row.is_boxed) {
            let room = WIDTH_MAX - BOXED.len();
            writeln!(f, "{BOXED}{}", shortened(row.name, room))?;
        }
        for row in self.handlers.iter().filter(|row| row.panics > 0) {
            let panics = format!("{} events panicked: ", row.panics);
            let room = WIDTH_MAX - panics.len();
            writeln!(f, "{panics}{}", shortened(row.name, room))?;
        }
        for at in &self.steals {
            let cost = at.steal_cost.map_or("not measured".to_owned(), short);
            writeln!(
                f,
                "steal cost at {}: {cost}; {} steals, {} stolen",
                at.distance,
                at.steals,
                short(at.stolen)
            )?;
        }
        Ok(())
    }
}

/// What is said of a handler whose closures are boxed.
const BOXED: &str = "closures of more than 216 bytes, each allocated by itself: ";
const NAME: &str = "handler";
const EVENTS: &str = "events";
const ADVICE: &str = "recommended annotation";

/// A row as text.
struct Cells {
    name: &'static str,
    events: String,
    mean: String,
    deviation: String,
    share: String,
    advice: String,
}

fn cells(row: &HandlerProfile) -> Cells {
    let time = |time: Option<Duration>| time.map_or("-".to_owned(), short);
    Cells {
        name: row.name,
        events: row.events().to_string(),
        mean: time(row.mean),
        deviation: time(row.deviation),
        share: format!("{:.1}%", row.share_stolen() * 100.0),
        advice: row.recommendation().to_string(),
    }
}

/// The end of a name that is too long: the beginning of a closure's type is the crate.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let dots = "..";
    let end = name.chars().skip(length - width + dots.len());
    dots.chars().chain(end).collect()
}

/// Three digits, in the unit that suits: `850 ns`, `1.25 us`, `12.5 ms`, `125 s`.
pub(super) fn short(time: Duration) -> String {
    let mut scaled = time.as_nanos() as f64;
    let mut unit = "ns";
    for larger in ["us", "ms", "s"] {
        // What would be rounded to 1000.
        if scaled < 999.5 {
            break;
        }
        scaled /= 1_000.0;
        unit = larger;
    }
    // What has that many digits once rounded.
    let decimals = match scaled {
        _ if unit == "ns" || scaled >= 99.95 => 0,
        _ if scaled >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::profile::StealProfile;
    use crate::topology::Distance;

    fn row(name: &'static str, events: u64, mean_ns: u64) -> HandlerProfile {
        HandlerProfile {
            name,
            events_by_core: vec![events, 0],
            is_boxed: false,
            events_stolen: events / 4,
            panics: 0,
            mean: (mean_ns > 0).then(|| Duration::from_nanos(mean_ns)),
            deviation: (mean_ns > 0).then(|| Duration::from_nanos(mean_ns / 10)),
            annotated_time: None,
            annotated_penalty: 1,
        }
    }

    #[test]
    fn it_is_an_aligned_table() {
        let index = HandlerProfile {
            annotated_penalty: 100,
            is_boxed: true,
            panics: 3,
            ..row("index", 1_000, 80_400)
        };
        let parse = HandlerProfile {
            annotated_time: Some(Duration::from_micros(2)),
            annotated_penalty: 4,
            ..row("parse", 12_345, 2_100)
        };
        let steal = |distance, steal_cost| StealProfile {
            distance,
            steal_cost,
            steals: 7,
            stolen: Duration::from_micros(12_500),
        };
        let profile = Profile {
            handlers: vec![index, parse, row("site::main::{{closure}}", 1, 0)],
            steals: vec![
                steal(Distance::ALL[0], Some(Duration::from_nanos(420))),
                steal(Distance::ALL[1], None),
            ],
        };
        let (near, far) = (Distance::ALL[0], Distance::ALL[1]);
        let expected = format!(
            "\
handler                 events    mean      +- stolen  recommended annotation
index                     1000 80.4 us 8.04 us  25.0%  .time(Duration::from_micros(80)).penalty(100)
parse                    12345 2.10 us  210 ns  25.0%  as annotated
site::main::{{{{closure}}}}      1       -       -   0.0%  never sampled
closures of more than 216 bytes, each allocated by itself: index
3 events panicked: index
steal cost at {near}: 420 ns; 7 steals, 12.5 ms stolen
steal cost at {far}: not measured; 7 steals, 12.5 ms stolen
"
        );
        assert_eq!(profile.to_string(), expected);
    }

    #[test]
    fn it_fits_whatever_the_names() {
        let long = "a::module::of::a::crate::function<that, is, generic>::{{closure}}::{{closure}}";
        let worst = HandlerProfile {
            annotated_penalty: 1 << 20,
            is_boxed: true,
            panics: u64::MAX,
            ..row(long, 1_000_000_000_000_000, 4_200_000_000)
        };
        for handlers in [
            vec![worst],
            vec![row(long, 1, 0)],
            vec![row("\u{e9}\u{e9}", 5, 20)],
        ] {
            let handlers = [handlers, vec![row("x", 3, 995)]].concat();
            let steals = Vec::new();
            let profile = Profile { handlers, steals };
            let text = profile.to_string();
            let columns = text.lines().map(|line| line.chars().count()).max();
            assert!(columns.unwrap() <= WIDTH_MAX, "{text}");
            let name = text.lines().nth(1).unwrap().split(' ').next().unwrap();
            let whole = profile.handlers[0].name;
            assert!(name == whole || whole.ends_with(&name[2..]), "{text}");
        }
    }

    #[test]
    fn times_have_three_digits() {
        for (ns, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (99_940, "99.9 us"),
            (99_950, "100 us"),
            (999_400, "999 us"),
            (999_500, "1.00 ms"),
            (125_000_000_000, "125 s"),
        ] {
            assert_eq!(short(Duration::from_nanos(ns)), expected);
        }
    }

    #[test]
    fn of_a_long_name_the_end_is_left() {
        for (width, expected) in [(9, "a::parser"), (8, "..parser"), (3, "..r")] {
            assert_eq!(shortened("a::parser", width), expected);
        }
    }
}
