//! Who runs tasks: mely and tokio behind one trait, which costs neither of them anything.

use crate::machine;
use crate::schedulers::NO_WATCHDOG;
use mely::{Color, Cores, NoReply, Runtime, with_cx};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

/// What the workloads need of a runtime.
pub(super) trait Host: Copy + fmt::Debug + Send + Sync + 'static {
    /// The handle of a task.
    type Task<T: Send + 'static>: Send + 'static;

    /// Runs `future` as a task on a new runtime of this number of cores; returns its result.
    fn run<F>(self, cores: usize, future: F) -> Result<F::Output, String>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// From inside a task. `place` is the color, where tasks have colors of their own.
    fn spawn<F>(self, place: u64, future: F) -> Self::Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Waits for what a task returns.
    fn join<T: Send + 'static>(task: Self::Task<T>) -> impl Future<Output = T> + Send;

    /// Lets a task go on.
    fn detach<T: Send + 'static>(task: Self::Task<T>);

    /// Lets others go first.
    fn yield_now() -> impl Future<Output = ()> + Send;

    /// Sleeps.
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
}

/// The color of the task that measures. A multiple of any sensible number of cores, so that color
/// `FIRST_COLOR + i` begins on core `i % cores`.
pub(super) const FIRST_COLOR: u64 = 5_040;

/// mely, with all tasks in one color or a color each.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mely {
    OneColor,
    ColorEach,
}

impl Host for Mely {
    type Task<T: Send + 'static> = mely::Task<T>;

    fn run<F>(self, cores: usize, future: F) -> Result<F::Output, String>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut builder = Runtime::builder().cores(Cores::Count(cores));
        if NO_WATCHDOG.load(Relaxed) {
            builder = builder.watchdog(Duration::MAX);
        }
        let runtime = builder.build().map_err(|error| error.to_string())?;
        let result = runtime.run_until(move |cx, finish| {
            let all = async move { finish.finish(future.await) };
            cx.spawn(Color::new(FIRST_COLOR), all).detach();
        });
        result.map_err(|error| error.to_string())
    }

    #[inline]
    fn spawn<F>(self, place: u64, future: F) -> mely::Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let place = match self {
            Mely::OneColor => 0,
            Mely::ColorEach => place,
        };
        with_cx(|cx| cx.spawn(Color::new(FIRST_COLOR + place), future))
    }

    #[inline]
    async fn join<T: Send + 'static>(task: mely::Task<T>) -> T {
        let result: Result<T, NoReply> = task.await;
        result.expect("no task panics")
    }

    #[inline]
    fn detach<T: Send + 'static>(task: mely::Task<T>) {
        task.detach();
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        mely::yield_now()
    }

    #[inline]
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        mely::sleep(time)
    }
}

/// tokio's two runtimes, with no drivers but that of time, where it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokio {
    pub(super) current_thread: bool,
    pub(super) time: bool,
}

impl Host for Tokio {
    type Task<T: Send + 'static> = JoinHandle<T>;

    fn run<F>(self, cores: usize, future: F) -> Result<F::Output, String>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut builder = if self.current_thread {
            machine::pin(0);
            Builder::new_current_thread()
        } else {
            let next = AtomicUsize::new(0);
            let mut builder = Builder::new_multi_thread();
            builder
                .worker_threads(cores)
                .on_thread_start(move || machine::pin(next.fetch_add(1, Relaxed)));
            builder
        };
        if self.time {
            builder.enable_time();
        }
        let runtime = builder.build().map_err(|error| error.to_string())?;
        let task = runtime.spawn(future);
        let result = runtime.block_on(task);
        result.map_err(|error| error.to_string())
    }

    #[inline]
    fn spawn<F>(self, _place: u64, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(future)
    }

    #[inline]
    async fn join<T: Send + 'static>(task: JoinHandle<T>) -> T {
        task.await.expect("no task panics")
    }

    #[inline]
    fn detach<T: Send + 'static>(task: JoinHandle<T>) {
        drop(task);
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    #[inline]
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }
}
