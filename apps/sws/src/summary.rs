//! The plain text that is printed at exit.

use mely::metrics::{RecordingState, RecordingStats};
use std::fmt::Write;
use std::path::Path;

use crate::figures::{Figures, duration, grouped, time_or_dash};

/// What is to be said below the runtime's profile, which ends with a cost for each distance.
pub(crate) const STEAL_COST: &str = "\
(steal cost: what the scheduler expects one color to cost, a moving average; a visit may take several)
";

/// A line on the recording, if there is one.
pub(crate) fn recording(file: Option<&Path>, stats: Option<&RecordingStats>) -> String {
    let Some((file, RecordingStats { bytes, state, .. })) = file.zip(stats) else {
        return String::new();
    };
    let way_out = match state {
        RecordingState::AtTheLimit => " (--record-max-mib)",
        _ => "",
    };
    format!(
        "recording: {}, {} bytes, {state}{way_out}\n",
        file.display(),
        grouped(*bytes)
    )
}

/// Renders `figures`, with a line end after each line.
pub(crate) fn render(figures: &Figures) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, so the results are of no interest.
    let _ = write(&mut text, figures);
    text
}

fn write(text: &mut String, figures: &Figures) -> std::fmt::Result {
    let connections = &figures.connections;
    writeln!(text, "requests: {}", figures.requests())?;
    writeln!(
        text,
        "connections: {} accepted, {} rejected, {} still open",
        connections.accepted, connections.rejected, connections.open
    )?;
    if connections.cut > 0 {
        writeln!(
            text,
            "closed while they lingered, to make room: {}",
            connections.cut
        )?;
    }
    if connections.cut_off() > 0 {
        writeln!(
            text,
            "cut off when the time to finish was over: {} connections, {} in the middle of an \
             answer, {} of a request",
            connections.cut_off(),
            connections.cut_answers,
            connections.cut_requests
        )?;
    }
    writeln!(text, "uptime: {}", duration(figures.uptime))?;
    let reason = &figures.backend_reason;
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(" ({reason})")
    };
    writeln!(text, "backend: {}{reason}", figures.backend)?;
    for (index, core) in figures.cores.iter().enumerate() {
        writeln!(
            text,
            "core {index} ({}): {} events, {} steals, {} stolen, {} parks, longest handler {}",
            core.place(),
            grouped(core.events),
            grouped(core.steals_won),
            duration(core.stolen),
            grouped(core.parks),
            time_or_dash((core.handler_max_ns > 0).then_some(core.handler_max_ns)),
        )?;
    }
    if !figures.stealing {
        writeln!(text, "stealing: off")?;
    }
    for steals in &figures.steals {
        writeln!(
            text,
            "steals at {}: {} of {} tried",
            steals.distance,
            grouped(steals.won),
            grouped(steals.tried)
        )?;
    }
    writeln!(
        text,
        "median time of a visit that stole colors: {}",
        time_or_dash(figures.steal_cost_median_ns)
    )?;
    writeln!(text, "stolen time: {}", duration(figures.stolen()))?;
    writeln!(text, "parks: {}", grouped(figures.sum(|core| core.parks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample;

    #[test]
    fn it_says_all_that_was_asked_for() {
        let expected = "requests: 10000
connections: 1000 accepted, 2 rejected, 3 still open
closed while they lingered, to make room: 13
cut off when the time to finish was over: 29 connections, 15 in the middle of an answer, 14 of a request
uptime: 61.25 s
backend: epoll (io_uring refused: <EPERM> & \"seccomp\")
core 0 (cpu 0): 30,000 events, 4 steals, 1.50 ms stolen, 7 parks, longest handler 42.00 us
core 1 (cpu 1): 1,234,567 events, 4 steals, 1.50 ms stolen, 7 parks, longest handler 42.00 us
steals at L3: 8 of 18 tried
steals at package: 0 of 0 tried
median time of a visit that stole colors: 850 ns
stolen time: 3.00 ms
parks: 14
";
        assert_eq!(render(&sample()), expected);
    }

    #[test]
    fn a_server_that_did_nothing_has_a_summary_too() {
        let text = render(&Figures::default());
        assert!(text.starts_with("requests: 0\n") && text.contains("stealing: off\n"));
        assert!(text.contains("median time of a visit that stole colors: -\n"));
    }
}
