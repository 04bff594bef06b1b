//! Running a model, and seeing it fail.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The environment variable that tells a child process which fault to seed.
const FAULT: &str = "MELY_LOOM_FAULT";
/// Printed by a child whose model did not notice the fault.
const UNNOTICED: &str = "explored without noticing the fault";

/// A model and its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The name of the test, which is how a fault's child process finds it.
    pub name: &'static str,
    /// Preemptions explored, unless `LOOM_MAX_PREEMPTIONS` says otherwise. A switch at a point
    /// where a thread blocks, yields or ends does not count.
    pub preemptions_max: usize,
    /// Fewer iterations than this mean that the model has lost its subject.
    pub iterations_min: u64,
}

impl Model {
    /// Explores `body`. In a fault's child process this must fail.
    ///
    /// # Panics
    /// If an execution fails, or if there were too few.
    pub fn explore(self, body: impl Fn() + Send + Sync + 'static) {
        let fault = std::env::var(FAULT).ok();
        if let Some(fault) = &fault {
            mely::model::set_fault(fault.clone());
        }
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(self.preemptions_max);
        builder.max_branches = builder.max_branches.max(20_000);
        let iterations = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let counter = Arc::clone(&iterations);
        builder.check(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            body();
        });
        let iterations = iterations.load(Ordering::Relaxed);
        println!(
            "model {}: {iterations} iterations in {:.2} s",
            self.name,
            start.elapsed().as_secs_f64()
        );
        if fault.is_some() {
            println!("{UNNOTICED}");
            return;
        }
        assert!(
            iterations >= self.iterations_min,
            "only {iterations} iterations of {}: has it lost its subject?",
            self.name
        );
    }
}

/// Runs the test `model` in a process of its own with a seeded fault, and sees it fail with one of
/// `complaints`.
///
/// A process of its own, because a fault is a setting of the process, and because loom may abort
/// when it unwinds a failed execution.
///
/// # Panics
/// If the model does not fail, or for another reason.
pub fn must_fail(model: &str, fault: &str, complaints: &[&str]) {
    let start = Instant::now();
    let output = Command::new(std::env::current_exe().expect("a test knows its own binary"))
        .args(["--exact", model, "--nocapture", "--test-threads=1"])
        .env(FAULT, fault)
        .output()
        .expect("the test's own binary runs");
    let text = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("running 1 test"),
        "no model is called {model}:\n{text}"
    );
    assert!(
        !text.contains(UNNOTICED) && !output.status.success(),
        "{model} did not notice the fault {fault:?}:\n{text}"
    );
    assert!(
        complaints.iter().any(|complaint| text.contains(complaint)),
        "{model} failed with {fault:?}, but not with any of {complaints:?}:\n{text}"
    );
    let complaint = complaints
        .iter()
        .find(|c| text.contains(**c))
        .unwrap_or(&"");
    println!(
        "fault {fault:?} found by {model} ({complaint:?}) in {:.2} s",
        start.elapsed().as_secs_f64()
    );
}
