
// What follows is in the copy only.

/// Whether this mutant runs, by the variable `MELY_MUTANT`. If that is `cover`, none does, and each
/// one that is asked for is noted in the file that `MELY_MUTANT_SEEN` names.
#[inline(always)]
pub(crate) fn mutant(n: u32) -> bool {
    let running = mutants::RUNNING.load(std::sync::atomic::Ordering::Relaxed);
    running == n || running >= mutants::COVER && mutants::first(running, n)
}

mod mutants {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    /// More than there are mutants.
    const COUNT: usize = 0;
    const UNKNOWN: u32 = u32::MAX;
    pub(super) const COVER: u32 = u32::MAX - 1;
    pub(super) static RUNNING: AtomicU32 = AtomicU32::new(UNKNOWN);
    static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    #[cold]
    pub(super) fn first(running: u32, n: u32) -> bool {
        if running == UNKNOWN {
            let asked = std::env::var("MELY_MUTANT").unwrap_or_default();
            let running = if asked == "cover" { COVER } else { asked.parse().unwrap_or(0) };
            RUNNING.store(running, Relaxed);
            return super::mutant(n);
        }
        if !SEEN[n as usize].load(Relaxed) && note(n).is_ok() {
            SEEN[n as usize].store(true, Relaxed);
        }
        false
    }

    fn note(n: u32) -> std::io::Result<()> {
        let path = std::env::var("MELY_MUTANT_SEEN").unwrap_or_default();
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        std::io::Write::write_all(&mut file, &n.to_le_bytes())
    }
}
