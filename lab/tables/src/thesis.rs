//! The thesis's priority schedule (§3.4, Figure 3-4): a table of units of time instead of
//! nanoseconds, by the reconstruction's own choice of callbacks but without threads, so exact on
//! any machine.

use crate::libasync::mp::schedule_units;

/// As in `--table`.
pub const TABLE: &str = "thesis-priority";

/// Two threads, four callbacks of a unit of time each, the last two of color zero: without
/// priorities, and with color zero preferred.
const PAPER_UNITS: [usize; 2] = [3, 2];

/// Prints the table, or its JSON lines.
///
/// # Errors
/// If the reconstruction does not get the thesis's figures.
pub fn print(json: bool) -> Result<(), String> {
    let units = [false, true].map(schedule_units);
    let [plain, prioritized] = units;
    if json {
        for (scheduler, units) in [
            ("libasync-mp", plain),
            ("libasync-mp-prioritized", prioritized),
        ] {
            println!(
                "{{\"table\":\"{TABLE}\",\"scheduler\":\"{scheduler}\",\"cores\":2,\"units\":{units}}}"
            );
        }
    } else {
        let [paper_plain, paper_prioritized] = PAPER_UNITS;
        println!(
            "{TABLE}: callbacks 1 (color 1), 2 (color 2), 3 and 4 (color 0) on 2 cores, in units of time.\n  \
             thesis, Figure 3-4: {paper_plain} without priorities, {paper_prioritized} with color 0 \
             preferred\n  \
             libasync-mp:        {plain} without priorities, {prioritized} with color 0 preferred\n  \
             mely has no priorities: the callbacks of a color are its queue, and what waits in one \
             hinders no other.\n"
        );
    }
    match units {
        PAPER_UNITS => Ok(()),
        _ => Err(format!("{TABLE}: {units:?} units, not {PAPER_UNITS:?}")),
    }
}
