//! One mutant against a suite: the tests that reach it, the fast ones first, until one notices.

use crate::Result;
use crate::operators::Mutant;
use crate::process::{End, Ran};
use crate::suite::{Suite, Test};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What became of a mutant in a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A test failed with it twice, and passed without it.
    Killed {
        by: String,
        /// "failed", "died" or "timed out".
        how: String,
        why: String,
    },
    Survived {
        /// How many tests came to its place.
        reached_by: usize,
        /// Tests that failed once and not again.
        unsure: Vec<String>,
    },
}

impl Verdict {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Verdict::Killed { by, how, why } => json!({ "by": by, "how": how, "why": why }),
            Verdict::Survived { reached_by, unsure } => {
                json!({ "reached_by": reached_by, "unsure": unsure })
            }
        }
    }

    pub(crate) fn from_json(value: &Value) -> Option<Verdict> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(by) = text(&value["by"]) {
            let (how, why) = (text(&value["how"])?, text(&value["why"])?);
            return Some(Verdict::Killed { by, how, why });
        }
        let unsure = value["unsure"]
            .as_array()?
            .iter()
            .filter_map(text)
            .collect();
        let reached_by = value["reached_by"].as_u64()? as usize;
        Some(Verdict::Survived { reached_by, unsure })
    }
}

/// Tries a mutant. Under loom a test that takes too long proves nothing: there is more to explore.
pub(crate) fn try_mutant(suite: &Suite, mutant: &Mutant) -> Result<Verdict> {
    let reach: Vec<&Test> = suite
        .tests
        .iter()
        .filter(|test| test.reaches.contains(&mutant.id))
        .collect();
    let mut groups = BTreeMap::<_, Vec<&Test>>::new();
    for test in &reach {
        groups
            .entry(turn(suite, mutant, test))
            .or_default()
            .push(test);
    }
    let mut unsure = Vec::new();
    for group in groups.into_values() {
        if let Some(killed) = try_group(suite, mutant, group, &mut unsure)? {
            return Ok(killed);
        }
    }
    Ok(Verdict::Survived {
        reached_by: reach.len(),
        unsure,
    })
}

/// When a test has its turn: first the unit tests of the mutant's own module; then the fast ones,
/// those of the library first; then slower ones. Those with the same turn are run by one process.
fn turn(suite: &Suite, mutant: &Mutant, test: &Test) -> (bool, u32, usize, usize) {
    let module = mutant
        .file
        .trim_start_matches("src/")
        .trim_end_matches(".rs");
    let module = module.trim_end_matches("/mod").replace('/', "::");
    let in_library = suite.programs[test.program].0 == "lib";
    let is_own = in_library && test.name.starts_with(&format!("{module}::"));
    // 16 ms, 64 ms, ...
    let speed = (test.took.as_millis() as u64 / 16).max(1).ilog(4);
    (!is_own, speed, usize::from(!in_library), test.program)
}

/// Runs tests of one program. What fails is run again by itself, with the mutant and without.
fn try_group(
    suite: &Suite,
    mutant: &Mutant,
    mut group: Vec<&Test>,
    unsure: &mut Vec<String>,
) -> Result<Option<Verdict>> {
    while !group.is_empty() {
        let ran = suite.run(&group, Some(mutant.id), Suite::limit(&group))?;
        if ran.end == End::Passed {
            return Ok(None);
        }
        let at = group
            .iter()
            .position(|test| Some(&test.name) == ran.at.as_ref());
        let (by, again) = match at {
            Some(at) => (suite.full_name(group[at]), vec![group[at]]),
            // Before or after all tests.
            None => (suite.programs[group[0].program].0.clone(), group.clone()),
        };
        if let Some(ran) = fails_again(suite, mutant, &again, &ran)? {
            let how = how(ran.end).to_owned();
            return Ok(Some(Verdict::Killed {
                by,
                how,
                why: ran.why,
            }));
        }
        unsure.push(format!("{by} {}: {}", how(ran.end), ran.why));
        if at.is_none() {
            return Ok(None);
        }
        group
            .retain(|test| Some(&test.name) != ran.at.as_ref() && !ran.passed.contains(&test.name));
    }
    Ok(None)
}

fn fails_again(
    suite: &Suite,
    mutant: &Mutant,
    tests: &[&Test],
    first: &Ran,
) -> Result<Option<Ran>> {
    let is_late = |ran: &Ran| ran.end == End::TimedOut;
    if suite.name == "loom" && is_late(first) {
        return Ok(None);
    }
    // What was too slow gets more time, in case the machine was.
    let limit = Suite::limit(tests) * if is_late(first) { 2 } else { 1 };
    let with = suite.run(tests, Some(mutant.id), limit)?;
    if with.end == End::Passed || suite.name == "loom" && is_late(&with) {
        return Ok(None);
    }
    let without = suite.run(tests, None, limit.max(Duration::from_secs(60)))?;
    Ok((without.end == End::Passed).then_some(with))
}

fn how(end: End) -> &'static str {
    match end {
        End::Passed => "passed",
        End::Failed => "failed",
        End::Died => "died",
        End::TimedOut => "timed out",
    }
}
