//! Who runs tasks: mely and tokio behind one trait, which costs neither of them anything.

use crate::machine;
use crate::schedulers::NO_WATCHDOG;
use mely::task::{JoinError, with_cx};
use mely::{Color, Colored, Runtime};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
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

    /// A value that many look at, and some change.
    type Shared<T: Send + Sync + 'static>: Send + 'static;

    /// From inside a task.
    fn share<T: Send + Sync + 'static>(value: T) -> Self::Shared<T>;

    /// Has `f` run with the value, beside others that look at it if the host can do that; from
    /// inside a task, which does not wait.
    fn look<T, F>(self, shared: &Self::Shared<T>, f: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(&T) + Send + 'static;

    /// Has `f` run with the value, and nothing beside it; from inside a task, which does not wait.
    fn change<T, F>(shared: &Self::Shared<T>, f: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(&mut T) + Send + 'static;
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
    type Task<T: Send + 'static> = mely::JoinHandle<T>;

    fn run<F>(self, cores: usize, future: F) -> Result<F::Output, String>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut builder = Runtime::builder().cores(cores).pin(true);
        if NO_WATCHDOG.load(Relaxed) {
            builder = builder.watchdog(Duration::MAX);
        }
        let runtime = builder.build().map_err(|error| error.to_string())?;
        let result = runtime.run_until(move |cx, finish| {
            let all = async move { finish.finish(future.await) };
            cx.spawn(Color::new(FIRST_COLOR), all);
        });
        result.map_err(|error| error.to_string())
    }

    #[inline]
    fn spawn<F>(self, place: u64, future: F) -> mely::JoinHandle<F::Output>
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
    async fn join<T: Send + 'static>(task: mely::JoinHandle<T>) -> T {
        let result: Result<T, JoinError> = task.await;
        result.expect("no task panics")
    }

    #[inline]
    fn detach<T: Send + 'static>(task: mely::JoinHandle<T>) {
        drop(task);
    }

    #[inline]
    fn yield_now() -> impl Future<Output = ()> + Send {
        mely::task::yield_now()
    }

    #[inline]
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        mely::task::sleep(time)
    }

    type Shared<T: Send + Sync + 'static> = Colored<T>;

    fn share<T: Send + Sync + 'static>(value: T) -> Colored<T> {
        with_cx(|cx| Colored::new(cx, Color::new(FIRST_COLOR + 1), value))
    }

    /// In the value's color, or as a reader with a color of its own.
    #[inline]
    fn look<T, F>(self, shared: &Colored<T>, f: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(&T) + Send + 'static,
    {
        with_cx(|cx| match self {
            Mely::OneColor => shared.post(cx, move |value, _cx| f(value)),
            Mely::ColorEach => drop(cx.read(shared, move |value, _cx| f(value))),
        });
    }

    #[inline]
    fn change<T, F>(shared: &Colored<T>, f: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(&mut T) + Send + 'static,
    {
        with_cx(|cx| shared.post(cx, move |value, _cx| f(value)));
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

    type Shared<T: Send + Sync + 'static> = Arc<RwLock<T>>;

    fn share<T: Send + Sync + 'static>(value: T) -> Arc<RwLock<T>> {
        Arc::new(RwLock::new(value))
    }

    /// A task with a lock that blocks: none is held over an await.
    #[inline]
    fn look<T, F>(self, shared: &Arc<RwLock<T>>, f: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(&T) + Send + 'static,
    {
        let shared = Arc::clone(shared);
        tokio::spawn(async move { f(&shared.read().expect("no task panics")) });
    }

    #[inline]
    fn change<T, F>(shared: &Arc<RwLock<T>>, f: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(&mut T) + Send + 'static,
    {
        let shared = Arc::clone(shared);
        tokio::spawn(async move { f(&mut shared.write().expect("no task panics")) });
    }
}
