//! What the papers leave open of libasync-smp and of Mely. Each choice has a name and a default;
//! the defaults are what Figure 2 of Mely's paper shows.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// See the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// libasync-smp's thief scans the victim's queue to its end (§II-B), and not only until the
    /// color's counter says that this was the last of its callbacks (footnote 1).
    pub scan_to_end: bool,
    /// A thief looks whether a victim has anything before it locks it. Figure 2 locks first.
    pub look: bool,
    /// A thief goes on to the next victim if a lock is taken, instead of waiting for it.
    pub try_lock: bool,
    /// Pauses between two searches of an idle core.
    pub pauses: u32,
    /// The victim is unlocked before the thief is locked, as in Figure 2. Meanwhile the color is in
    /// no queue, and who posts to it waits: the paper does not say what prevents that a post
    /// overtakes the set. Else both are locked, in the order of their numbers.
    pub one_lock: bool,
    /// What Mely takes a steal to cost until some have been measured, in ns.
    pub first_cost_ns: u64,
    /// Each of the upper two of Mely's three time-left intervals begins at the beginning of the one
    /// below times this; the lowest begins at what a steal costs.
    pub interval_factor: u64,
}

impl Open {
    const DEFAULT: Open = Open {
        scan_to_end: false,
        look: false,
        try_lock: false,
        pauses: 1,
        one_lock: true,
        first_cost_ns: 1_000,
        interval_factor: 4,
    };
}

impl Default for Open {
    fn default() -> Open {
        Open::DEFAULT
    }
}

static OPEN: Mutex<Open> = Mutex::new(Open::DEFAULT);

impl Open {
    /// What schedulers choose from now on.
    pub fn set(self) {
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = self;
    }

    /// What they choose.
    pub fn get() -> Open {
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads choices that differ from the defaults: `scan=end,look=yes,lock=try,pauses=16,locks=2`,
    /// `cost=NS`, `interval=FACTOR`.
    ///
    /// # Errors
    /// The choice that there is not.
    pub fn parse(text: &str) -> Result<Open, String> {
        let mut open = Open::default();
        for choice in text.split(',').filter(|choice| !choice.is_empty()) {
            let unknown = || format!("`{choice}`: no such choice");
            let (name, value) = choice.split_once('=').ok_or_else(unknown)?;
            let number = || {
                let number = value.parse::<u32>().ok();
                number.filter(|&number| number > 0).ok_or_else(unknown)
            };
            match (name, value) {
                ("scan", "end" | "counter") => open.scan_to_end = value == "end",
                ("look", "yes" | "no") => open.look = value == "yes",
                ("lock", "try" | "wait") => open.try_lock = value == "try",
                ("locks", "1" | "2") => open.one_lock = value == "1",
                ("pauses", _) => open.pauses = number()?,
                ("cost", _) => open.first_cost_ns = number()?.into(),
                ("interval", _) => open.interval_factor = number()?.into(),
                _ => return Err(unknown()),
            }
        }
        Ok(open)
    }
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |on: bool, a: &'static str, b: &'static str| if on { a } else { b };
        write!(
            f,
            "scan={},look={},lock={},locks={},pauses={},cost={},interval={}",
            or(self.scan_to_end, "end", "counter"),
            or(self.look, "yes", "no"),
            or(self.try_lock, "try", "wait"),
            or(self.one_lock, "1", "2"),
            self.pauses,
            self.first_cost_ns,
            self.interval_factor,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        let text = "scan=end,look=yes,lock=try,locks=2,pauses=16,cost=300,interval=2";
        let open = Open::parse(text).unwrap();
        assert_eq!(open.to_string(), text);
        assert_eq!(Open::parse("").unwrap(), Open::default());
        assert_eq!(
            Open::parse(&Open::default().to_string()),
            Ok(Open::default())
        );
        for wrong in ["scan", "scan=far", "pauses=0", "pauses=x", "depth=1"] {
            assert_eq!(
                Open::parse(wrong),
                Err(format!("`{wrong}`: no such choice"))
            );
        }
    }
}
