//! What a run came to.

use crate::costs::Ps;
use crate::world::World;
use std::collections::BTreeMap;

/// What a line of memory has cost, or a region of them.
#[derive(Clone, Debug, PartialEq)]
pub struct LineCost {
    /// `region[index].line`, or of a whole region its name.
    pub name: String,
    /// How often it came from another core, or was taken from one.
    pub transfers: u64,
    /// What cores waited for that, in ns.
    pub waited_ns: f64,
    /// What cores waited for it to come from their own farther caches, or from memory, in ns.
    pub missed_ns: f64,
}

/// What a core did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreUse {
    /// Handlers' work, in ns.
    pub worked_ns: f64,
    /// In the kernel, in ns.
    pub slept_ns: f64,
    /// In loops that found nothing, in ns.
    pub polled_ns: f64,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// From where counting began until it ended, or until the end, in ns.
    pub ns: f64,
    /// The whole run, in ns.
    pub all_ns: f64,
    /// By core, over the whole run.
    pub cores: Vec<CoreUse>,
    /// Lines that came from other cores or were waited for; what was waited for longest comes
    /// first.
    pub lines: Vec<LineCost>,
    /// Accesses that were charged.
    pub accesses: u64,
    /// How often the simulation went from one core to another.
    pub switches: u64,
}

fn ns(ps: Ps) -> f64 {
    ps as f64 / 1e3
}

impl Report {
    pub(crate) fn of(world: &World) -> Report {
        let end = world.memory.cores.iter().map(|core| core.now).max();
        let end = end.unwrap_or(0);
        // Without the visitor.
        let cores = world.cores.iter().take(world.cores.len() - 1);
        let cores = cores.map(|core| CoreUse {
            worked_ns: ns(core.worked),
            slept_ns: ns(core.slept),
            polled_ns: ns(core.polled),
        });
        let mut lines: Vec<LineCost> = (0..world.names.len() as u32)
            .filter_map(|line| {
                let cost = world.memory.cost(line);
                (cost.transfers > 0 || cost.waited > 0 || cost.missed > 0).then(|| LineCost {
                    name: world.names.text(line),
                    transfers: cost.transfers,
                    waited_ns: ns(cost.waited),
                    missed_ns: ns(cost.missed),
                })
            })
            .collect();
        sort(&mut lines);
        let counted_to = world.counted_to.unwrap_or(end);
        Report {
            ns: ns(counted_to.saturating_sub(world.counted_from)),
            all_ns: ns(end),
            cores: cores.collect(),
            lines,
            accesses: world.memory.cores.iter().map(|core| core.accesses).sum(),
            switches: world.switches,
        }
    }

    /// All transfers.
    pub fn transfers(&self) -> u64 {
        self.lines.iter().map(|line| line.transfers).sum()
    }

    /// The same by region, what was waited for longest first.
    pub fn regions(&self) -> Vec<LineCost> {
        let mut by_name: BTreeMap<&str, LineCost> = BTreeMap::new();
        for line in &self.lines {
            let name = line.name.split('[').next().unwrap_or(&line.name);
            let sum = by_name.entry(name).or_insert_with(|| LineCost {
                name: name.to_owned(),
                transfers: 0,
                waited_ns: 0.0,
                missed_ns: 0.0,
            });
            sum.transfers += line.transfers;
            sum.waited_ns += line.waited_ns;
            sum.missed_ns += line.missed_ns;
        }
        let mut regions: Vec<LineCost> = by_name.into_values().collect();
        sort(&mut regions);
        regions
    }
}

fn sort(lines: &mut [LineCost]) {
    lines.sort_by(|a, b| {
        let by_cost = b.waited_ns.total_cmp(&a.waited_ns);
        by_cost
            .then(b.transfers.cmp(&a.transfers))
            .then(a.name.cmp(&b.name))
    });
}
