//! Simulation beside real cores.

use super::{Setup, once};
use crate::validation::{COMPARED, CORES, Compared, Figure};
use std::fmt::Write;

/// How many seeds each row is simulated with, from the one that is given. It is run several times
/// on real cores, too: in some rows it is chance whether a color is stolen at the start, and stays
/// away.
const SEEDS: u64 = 5;
/// Schedulers differ if one takes this much longer than another.
const DIFFERS: f64 = 1.1;

/// The table of what was measured and what the same machine does in simulation; nothing is fitted
/// to any of it.
///
/// # Errors
/// A run that cannot be simulated.
pub fn table(setup: &Setup, figures: &[Figure]) -> Result<String, String> {
    let mut text = String::from(
        "| workload | scheduler | measured, ns (least to most) | simulated, ns (least to most) \
         | error |\n\
         |---|---|---|---|---|\n",
    );
    let mut pairs = Vec::new();
    for figure in figures {
        let compared = COMPARED.iter().find(|its| its.table == figure.table);
        let compared = compared.ok_or(format!("no table `{}`", figure.table))?;
        let simulated = simulated(setup, compared, &figure.scheduler)?;
        let ns = simulated.ns;
        pairs.push((figure, ns));
        writeln!(
            text,
            "| {} | {} | {:.1} ({:.1} to {:.1}) | {ns:.1} ({:.1} to {:.1}) | {:+.0} % |",
            figure.table,
            figure.scheduler,
            figure.ns,
            figure.least_ns,
            figure.most_ns,
            simulated.least_ns,
            simulated.most_ns,
            100.0 * (ns / figure.ns - 1.0),
        )
        .expect("a string takes everything");
    }
    Ok(text + &summary(&pairs))
}

/// The median of [`SEEDS`] runs, the least and the most.
fn simulated(setup: &Setup, compared: &Compared, scheduler: &str) -> Result<Figure, String> {
    let run = |more| {
        let seed = setup.seed.wrapping_add(more);
        let setup = Setup {
            seed,
            ..setup.clone()
        };
        let outcome = once(setup, compared.table, scheduler, CORES, compared.events)?;
        Ok(compared.ns(outcome.ns, &outcome.samples_ns))
    };
    let runs: Result<Vec<f64>, String> = (0..SEEDS).map(run).collect();
    Ok(Figure::of(compared.table, scheduler, runs?))
}

fn summary(pairs: &[(&Figure, f64)]) -> String {
    let errors = pairs
        .iter()
        .map(|(figure, ns)| (ns / figure.ns - 1.0).abs());
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    let Some(&most) = errors.last() else {
        return "Nothing was measured.\n".into();
    };
    let within = |limit: f64| errors.iter().filter(|&&error| error <= limit).count();
    let (mut ordered, mut differ) = (0, 0);
    for (at, (a, a_ns)) in pairs.iter().enumerate() {
        let later = pairs[at + 1..].iter().filter(|(b, _)| b.table == a.table);
        for (b, b_ns) in later {
            if a.ns > DIFFERS * b.ns || b.ns > DIFFERS * a.ns {
                differ += 1;
                ordered += usize::from((a.ns > b.ns) == (a_ns > b_ns));
            }
        }
    }
    format!(
        "\nMedian error {:.0} %, greatest {:.0} %; {} of {} within 15 %, {} within 30 %. Of {differ} \
         pairs of schedulers that differ by more than a tenth, {ordered} are in the right order.\n",
        100.0 * errors[errors.len() / 2],
        100.0 * most,
        within(0.15),
        errors.len(),
        within(0.30),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_orders_are_summed_up() {
        let figure = |scheduler: &str, ns: f64| Figure::of("hop16", scheduler, vec![ns]);
        let (a, b, c) = (figure("a", 100.0), figure("b", 200.0), figure("c", 205.0));
        let told = summary(&[(&a, 110.0), (&b, 90.0), (&c, 205.0)]);
        assert!(
            told.contains("Median error 10 %, greatest 55 %; 2 of 3 within 15 %"),
            "{told}"
        );
        assert!(told.contains("Of 2 pairs"), "{told}");
        assert!(told.contains("tenth, 1 are"), "{told}");
        assert_eq!(summary(&[]), "Nothing was measured.\n");
    }
}
