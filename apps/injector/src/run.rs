//! One run: warm-up, measured time, the end.

use crate::load::{Load, Plan};
use crate::measure::{Measure, Outcome};
use crate::server_cpu;
use crate::work::{Until, Work};
use mely::{Color, Colored, Cx, Handler};
use std::io;
use std::time::{Duration, Instant};

static RUN: Handler = Handler::new("Run");

const RUN_COLOR: Color = Color::new(2);

type OnEnd = Box<dyn FnOnce(&mut Cx, io::Result<Outcome>) + Send>;

struct Run {
    load: Option<Load>,
    clock: Clock,
    measure: Measure,
    /// Shares that have not ended.
    left: usize,
    on_end: Option<OnEnd>,
}

/// Measured time, here and on the server's processors.
#[derive(Debug)]
pub(crate) struct Clock {
    server_pids: Vec<u32>,
    since: Instant,
    server_since: Duration,
    /// The time and the server's, once it has stopped.
    stopped: Option<(Duration, Duration)>,
    failed: Option<io::Error>,
}

impl Clock {
    pub(crate) fn new(server_pids: Vec<u32>) -> Clock {
        Clock {
            server_pids,
            since: Instant::now(),
            server_since: Duration::ZERO,
            stopped: None,
            failed: None,
        }
    }

    fn server_cpu(&mut self) -> Duration {
        let pids = self.server_pids.iter();
        let used: io::Result<Vec<Duration>> = pids.map(|&pid| server_cpu::used_by(pid)).collect();
        used.map_or_else(
            |error| {
                self.failed.get_or_insert(error);
                Duration::ZERO
            },
            |used| used.iter().sum(),
        )
    }

    /// Measured time begins.
    pub(crate) fn start(&mut self) {
        self.server_since = self.server_cpu();
        self.since = Instant::now();
    }

    /// Measured time is over, unless it was before.
    pub(crate) fn stop(&mut self) {
        if self.stopped.is_none() {
            let server_cpu = self.server_cpu().saturating_sub(self.server_since);
            self.stopped = Some((self.since.elapsed(), server_cpu));
        }
    }

    /// What was measured meanwhile.
    ///
    /// # Errors
    /// If the server's time could not be read.
    pub(crate) fn outcome(&mut self, measure: Measure) -> io::Result<Outcome> {
        self.stop();
        let (time, server_cpu) = self.stopped.unwrap_or_default();
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(Outcome {
                measure,
                time,
                server_cpu: (!self.server_pids.is_empty()).then_some(server_cpu),
            }),
        }
    }
}

/// Does the work, and calls `on_end` with what was measured.
pub(crate) fn start(
    cx: &mut Cx,
    work: Work,
    number: u64,
    server_pids: Vec<u32>,
    on_end: impl FnOnce(&mut Cx, io::Result<Outcome>) + Send + 'static,
) {
    let until = work.until;
    // It lives as long as the process, and so requests are sent without a copy or a count.
    let plan: &'static Plan = Box::leak(Box::new(Plan::new(work)));
    let run = Run {
        load: None,
        clock: Clock::new(server_pids),
        measure: Measure::default(),
        left: 0,
        on_end: Some(Box::new(on_end)),
    };
    let run = Colored::new(cx, RUN_COLOR, run);
    let its = run.clone();
    let load = Load::new(cx, plan, number, move |cx, measure| {
        its.via(&RUN)
            .post(cx, move |run: &mut Run, cx| run.ended(cx, &measure));
    });
    let its = run.clone();
    let begin = move |run: &mut Run, cx: &mut Cx| {
        run.left = load.shares();
        load.start(cx);
        run.load = Some(load);
        match until {
            Until::Total(_) => run.measure(cx),
            Until::Time { warm_up, measured } => {
                let over = its.clone();
                later(cx, &its, warm_up, move |run, cx| {
                    run.measure(cx);
                    later(cx, &over, measured, Run::over);
                });
            }
        }
    };
    run.via(&RUN).post(cx, begin);
}

fn later(
    cx: &mut Cx,
    run: &Colored<Run>,
    after: Duration,
    f: impl FnOnce(&mut Run, &mut Cx) + Send + 'static,
) {
    cx.timer(after, run.on(&RUN, f));
}

impl Run {
    fn measure(&mut self, cx: &mut Cx) {
        self.clock.start();
        if let Some(load) = &self.load {
            load.measure(cx);
        }
    }

    fn over(&mut self, cx: &mut Cx) {
        self.clock.stop();
        if let Some(load) = &self.load {
            load.end(cx);
        }
    }

    /// A share has ended.
    fn ended(&mut self, cx: &mut Cx, measure: &Measure) {
        self.measure.add(measure);
        self.left -= 1;
        if self.left == 0
            && let Some(on_end) = self.on_end.take()
        {
            let outcome = self.clock.outcome(std::mem::take(&mut self.measure));
            on_end(cx, outcome);
        }
    }
}
