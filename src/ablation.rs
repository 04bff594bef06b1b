//! Switches for what the scheduler does beyond the papers, in builds with the feature `ablation`:
//! `cargo bench -p mely-tables --bench ablation` asks what each rule is worth. Elsewhere they are
//! constants, and cost nothing.
//!
//! The environment variable `MELY_WITHOUT` names the rules, with commas between them, that a
//! process does without; it is read once.

macro_rules! rules {
    ($($rule:ident $name:literal,)*) => {
        /// A rule that can be switched off.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Rule { $($rule,)* }

        /// The rules' names, in the order of their bits.
        #[cfg(feature = "ablation")]
        const NAMES: &[&str] = &[$($name,)*];
    };
}

rules! {
    // Who has the next turn.
    Newest "newest",
    Drag "drag",
    First "first",
    HurryBudget "hurry-budget",
    // What is checked out.
    BusyQuantum "busy-quantum",
    Undisturbed "undisturbed",
    HalfLasting "half-lasting",
    // What stays checked out.
    Keep "keep",
    Straight "straight",
    // What thieves take.
    Sighting "sighting",
    Half "half",
    Many "many",
    // Balance among busy cores.
    Compare "compare",
    Endurance "endurance",
    // Waking.
    Rescue "rescue",
    LookBefore "look-before",
    Relieve "relieve",
    Takeover "takeover",
    Spin "spin",
    // Long and unknown events.
    Fresh "fresh",
    // Posts of long events.
    Row "row",
    // What is learned.
    LongRun "long-run",
    // Prefetching.
    Ahead "ahead",
    Scout "scout",
    Jump "jump",
}

/// Whether this process does without the rule.
#[cfg(not(feature = "ablation"))]
#[inline(always)]
pub(crate) const fn without(_: Rule) -> bool {
    false
}

/// Whether this process does without the rule.
#[cfg(feature = "ablation")]
#[inline]
pub(crate) fn without(rule: Rule) -> bool {
    use std::sync::OnceLock;
    static OFF: OnceLock<u64> = OnceLock::new();
    let off = OFF.get_or_init(|| {
        let names = std::env::var("MELY_WITHOUT").unwrap_or_default();
        let bit = |name: &str| {
            let at = NAMES.iter().position(|&known| known == name);
            1 << at.unwrap_or_else(|| panic!("MELY_WITHOUT: no rule `{name}` in {NAMES:?}"))
        };
        names
            .split(',')
            .filter(|name| !name.is_empty())
            .map(bit)
            .sum()
    });
    off & 1 << rule as u64 != 0
}
