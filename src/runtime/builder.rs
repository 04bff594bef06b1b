//! How a runtime is configured.

use super::{Runtime, pins};
use crate::ablation::{Rule, without};
use crate::color::{CoreId, HashKey, SLOT_BITS_MAX, SLOT_BITS_MIN};
use crate::event::makers;
#[cfg(feature = "sim")]
use crate::host::inner::Simulated;
use crate::host::inner::{Config, Inner};
use crate::host::panics::{OnPanic, PanicReport};
use crate::host::pool::{BlockingLimits, BlockingPool, SlowBlocking, SlowBlockingHook};
use crate::host::stage::{Stage, StageLimits};
use crate::host::unfinished::Unfinished;
use crate::host::watchdog::SlowHandler;
use crate::policy::numbers::{BATCH_EVENTS, UNKNOWN_NS, WAKE_NS, WATCH_NS};
use crate::policy::quantum::QUANTUM_BUSY_NS;
use crate::policy::{Policy, Stealing};
use crate::record::Recorder;
#[cfg(feature = "record")]
use crate::record::Setting;
#[cfg(feature = "record")]
use crate::record::format::Header;
use crate::shared::idle::wake_cost::WakeCost;
use crate::shared::{Setup, Shared};
use crate::sync::Arc;
use crate::topology::{Distance, Topology};
use std::fmt;
#[cfg(feature = "record")]
use std::path::PathBuf;
use std::time::Duration;
#[cfg(feature = "record")]
use std::time::SystemTime;

/// Most cores of one runtime.
const CORES_MAX: usize = 512;
/// Bounds of the batch threshold.
const BATCH_MAX: u32 = 1 << 16;
/// Most threads for blocking work.
const BLOCKING_THREADS_MAX: usize = 1_024;
/// The smallest stack of a thread: the runtime's own frames, unoptimized, and some to spare.
const STACK_BYTES_MIN: usize = 256 << 10;
/// Beyond this C libraries compute with sizes that are none. Less may be refused by the system.
const STACK_BYTES_MAX: usize = usize::MAX / 8;
/// Longest spinning of a runtime that exits when idle.
const SPIN_TO_EXIT_MAX: Duration = Duration::from_millis(1);
/// Cores of a simulation that was not told how many.
#[cfg(feature = "sim")]
const SIMULATED_CORES: usize = 4;
/// Longest spinning of a virtual core: while it spins, its steps find nothing.
#[cfg(feature = "sim")]
const SIMULATED_SPIN_MAX: Duration = Duration::from_micros(2);

/// Configures a [`Runtime`].
///
/// ```
/// use mely::runtime::Stealing;
/// use mely::Runtime;
/// use std::time::Duration;
/// let runtime = Runtime::builder()
///     .cores(2)
///     .pin(false) // on a machine with one processor
///     .stealing(Stealing::default())
///     .drain_deadline(Duration::from_secs(5))
///     .build()?;
/// # Ok::<(), mely::runtime::BuildError>(())
/// ```
#[must_use = "a builder builds nothing by itself"]
pub struct Builder {
    /// None: all.
    pub(crate) cores: Option<usize>,
    topology: Option<Topology>,
    /// None: as [`pins`] has it.
    pin: Option<bool>,
    policy: Policy,
    slots: usize,
    events_max: usize,
    spin: Duration,
    wake_cost: Option<Duration>,
    blocking: BlockingLimits,
    slow_blocking: Option<(Duration, SlowBlockingHook)>,
    #[cfg(feature = "record")]
    record: Option<Setting>,
    /// None: as a simulation does, or any other runtime.
    on_panic: Option<OnPanic>,
    config: Config,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            cores: None,
            topology: None,
            pin: None,
            policy: Policy {
                stealing: Stealing::ALL,
                batch: BATCH_EVENTS,
                quantum_busy_ns: QUANTUM_BUSY_NS,
            },
            slots: 65_536,
            events_max: 1 << 26,
            spin: Duration::from_nanos(UNKNOWN_NS.into()),
            wake_cost: None,
            blocking: BlockingLimits {
                threads_max: 64,
                queue_max: 4_096,
                idle: Duration::from_secs(10),
                stack_bytes: None,
            },
            slow_blocking: None,
            #[cfg(feature = "record")]
            record: None,
            on_panic: None,
            config: Config {
                on_panic: OnPanic::default(),
                panic_hook: None,
                slow: None,
                watch_period: Duration::from_nanos(WATCH_NS),
                drain_deadline: Duration::from_secs(10),
                stage_limits: StageLimits::default(),
                drain_hook: None,
                exit_when_idle: false,
                spin_ns: 0,
                oversubscribed: false,
                pins: None,
                must_pin: false,
                stack_bytes: None,
                follow_processors: false,
                #[cfg(feature = "sim")]
                simulated: Simulated::No,
                backend: None,
            },
        }
    }

    /// How many cores to use. By default every core that the calling thread may use: its affinity
    /// mask and cpuset, and no more than the process's CPU quota grants. (A thread that a handler
    /// spawns may be able to use that handler's core only: see [`pin`](Self::pin).)
    pub fn cores(mut self, cores: usize) -> Builder {
        self.cores = Some(cores);
        self
    }

    /// The machine; detected by default. A topology of another machine decides the victim orders
    /// all the same, but then [`pin`](Self::pin) should be off: if it is not, cores whose processor
    /// is not there are not pinned.
    pub fn topology(mut self, topology: Topology) -> Builder {
        self.topology = Some(topology);
        self
    }

    /// Whether each core's thread is pinned to its processor (Mely §IV-C).
    ///
    /// By default threads are pinned if the runtime has at least as many [cores](Self::cores) as
    /// there are processors in the calling thread's affinity mask (or cpuset), and if the process's
    /// CPU quota grants as many. A runtime with fewer cores leaves its threads to the system,
    /// because two programs that pin themselves to the same processor share it while others idle.
    /// So does a runtime that [follows](Self::follow_processors) its processors. If a thread cannot
    /// be pinned, it runs unpinned and
    /// [`CoreStats::pin_refused`](crate::metrics::CoreStats::pin_refused) says why.
    ///
    /// A pinned core gets nothing done while another program keeps its processor busy, and its
    /// colors that run or are checked out wait for it. On machines that are shared use `false`.
    ///
    /// With `true`, for a program that has its processors to itself, threads are always pinned, to
    /// the processors in turn; if one cannot be, the run fails
    /// ([`RunError::Start`](crate::RunError::Start)). With `false` no thread is pinned, and there may
    /// be more cores than processors, whose threads then take turns.
    ///
    /// Thieves choose victims by the distances between these processors, pinned or not. If a pinned
    /// runtime has fewer cores work
    /// ([`Poster::set_working_cores`](crate::Poster::set_working_cores)), they stay on the first
    /// processors. A thread that a pinned handler spawns inherits the handler's processor: spawn it
    /// elsewhere, or have it widen its mask.
    pub fn pin(mut self, pin: bool) -> Builder {
        self.pin = Some(pin);
        self
    }

    /// The size of the stack of each thread: of the cores', on which handlers run, and of those for
    /// blocking work; at least 256 KiB. By default it is the standard library's: 2 MiB, or the value
    /// of the environment variable `RUST_MIN_STACK`. Memory is used as the stack grows.
    ///
    /// In a simulation it is that of each virtual core, 2 MiB by default.
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.config.stack_bytes = Some(bytes);
        self.blocking.stack_bytes = Some(bytes);
        self
    }

    /// Whether as many cores work as the process may use processors, while it runs: by the affinity
    /// mask (or cpuset) of the thread that calls `run`, and by the CPU quota of the process's
    /// control group (of 2.5 processors two count). Off by default.
    ///
    /// That thread looks once a second, and has the first so many cores work
    /// ([`Poster::set_working_cores`](crate::Poster::set_working_cores)), if their number has
    /// changed since its last look; what the program sets holds until then. A runtime never has
    /// more cores than it was built with. Its threads are not pinned, unless [`pin`](Self::pin)
    /// says so: then one that is pinned to a processor which the mask no longer has is moved by the
    /// system. In a simulation nothing is followed.
    ///
    /// ```
    /// use mely::Runtime;
    /// let runtime = Runtime::builder().follow_processors(true).build()?;
    /// runtime.run(|cx| cx.stop())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow_processors(mut self, follow: bool) -> Builder {
        self.config.follow_processors = follow;
        self
    }

    /// Whether and how idle cores steal; with all heuristics by default.
    pub fn stealing(mut self, stealing: Stealing) -> Builder {
        self.policy.stealing = stealing;
        self
    }

    /// The batch threshold: at most this many events of one color in a row while others wait; 10 by
    /// default, as in Mely §IV-A, and from 1 to 65,536. A color whose events together have a
    /// [penalty](crate::Handler::penalty) of ten or more may go on after that for four quanta, of
    /// up to 256 events each, whatever the threshold.
    pub fn batch(mut self, events: u32) -> Builder {
        self.policy.batch = events;
        self
    }

    /// The number of color slots, a power of two from 16 to 1,048,576; 65,536 by default. 64 bytes
    /// each, of which the system provides what is used.
    pub fn color_slots(mut self, slots: usize) -> Builder {
        self.slots = slots;
        self
    }

    /// Most events queued at any time; 67 million by default (4 GiB if their closures are of up to
    /// 24 bytes, 8 up to 88, 16 up to 216; memory of one size is not used for another). This many
    /// fit in every case; what cores and other threads have in stock comes on top, which is a
    /// thirty-second of them, or two of each of these sizes for each core and as many for all other
    /// threads.
    ///
    /// At the limit methods with `try_`, as [`Post::try_post`](crate::Post::try_post), give the
    /// closure back, and the network is read no further (but for 64 events). Other methods of a
    /// handler's context, as [`Cx::post`](crate::Cx::post), go beyond it, up to a *reserve* of an
    /// eighth of the limit, at least 64 events, and panic when that is used up. Timers, results of
    /// blocking work and the runtime's own events, such as the first of a run and the drop of state
    /// in its color, are never refused; they count towards the reserve. An event that was accepted
    /// is never lost for the sake of the limit.
    pub fn events_max(mut self, events: usize) -> Builder {
        self.events_max = events;
        self
    }

    /// How long an idle core searches and polls before it sleeps, at most; 50 us by default, a few
    /// times what a wake-up takes. Spinning burns the core; sleeping costs whoever wakes it. A core
    /// whose sleeps turn out to be longer than this spins for less, down to nothing, until one is
    /// shorter.
    pub fn spin(mut self, time: Duration) -> Builder {
        self.spin = time;
        self
    }

    /// What a wake-up costs: work worth less than this wakes nobody, and a core that posts so
    /// little to a color of a core that sleeps takes the color over and runs it. Before a handler
    /// that takes as long, what waits is published, and a core that sleeps is woken for it; what it
    /// posts is published post by post.
    ///
    /// By default it is measured while the runtime runs: the mean of the last times from when a
    /// core rings another until that one runs, from 5 to 50 us, beginning with 10 us
    /// ([`Stats::wake_cost`](crate::metrics::Stats::wake_cost)). In a simulation without a machine
    /// it is 10 us.
    pub fn wake_cost(mut self, time: Duration) -> Builder {
        self.wake_cost = Some(time);
        self
    }

    /// From one look of the watchdog to the next, at least 50 us; 500 us by default.
    ///
    /// The watchdog is the thread that called `run`. It asks a core to look at its timers and at
    /// the network that has not done so for one to two of these periods, because its handlers take
    /// longer than was thought; and it wakes another core, if that one can take what waits there.
    /// It sleeps while no core is busy. With [`Duration::MAX`] it does nothing.
    pub fn watchdog(mut self, period: Duration) -> Builder {
        self.config.watch_period = period.max(Duration::from_micros(50));
        self
    }

    /// What to do about a panic of a handler. By default the panic ends its event, and the run goes
    /// on ([`OnPanic::DropEvent`]); in a simulation, which is a test, the run stops
    /// ([`OnPanic::Stop`]).
    ///
    /// ```
    /// use mely::runtime::OnPanic;
    /// use mely::{Color, RunError, Runtime};
    /// // In a test: a failed assertion in a handler is an error of the run.
    /// let builder = Runtime::builder().on_panic(OnPanic::Stop);
    /// let outcome = builder.build()?.run(|cx| {
    ///     cx.post(Color::from(7), |cx| assert_eq!(cx.color(), Color::from(8)));
    /// });
    /// let Err(RunError::Panicked { panic, .. }) = outcome else {
    ///     panic!("7 is not 8");
    /// };
    /// assert_eq!(panic.color, Color::from(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_panic(mut self, on_panic: OnPanic) -> Builder {
        self.on_panic = Some(on_panic);
        self
    }

    /// Calls `hook` with each panic of a handler, on the core it happened on, right after it. A
    /// hook that panics stops the runtime, also with [`OnPanic::DropEvent`], and `run` says so.
    ///
    /// Without a hook each panic is one line on standard error, with handler, color, core and
    /// place. It follows the lines of std's own hook, which have the message. The line has the
    /// message too if the program has set another hook (`std::panic::set_hook`). No core waits for
    /// a reader: if standard error takes no line at once, neither std's hook nor the runtime writes
    /// there, and the next line has the number of panics that were not written. Panics are counted
    /// in any case: [`Stats::panics`](crate::metrics::Stats::panics),
    /// [`HandlerProfile::panics`](crate::metrics::HandlerProfile::panics).
    ///
    /// Only hooks of `std::panic` learn the place of a panic. So the first run of a process sets
    /// one, which notes the place of panics on cores and calls the hook that was set before. A
    /// program that has a hook of its own sets it before its first run.
    pub fn panic_hook<F>(mut self, hook: F) -> Builder
    where
        F: Fn(&PanicReport) + Send + Sync + 'static,
    {
        self.config.panic_hook = Some(Box::new(hook));
        self
    }

    /// Calls `hook` once for each run of a handler that takes longer than `limit`, while it still
    /// runs, on the thread that called `run`. Seen to within a quarter of the limit, which is at
    /// least a millisecond. If the hook panics the run is cut short, and `run` panics when its
    /// cores have left. (In a simulation whatever steps it panics, at once.)
    pub fn on_slow_handler<F>(mut self, limit: Duration, hook: F) -> Builder
    where
        F: Fn(&SlowHandler) + Send + Sync + 'static,
    {
        self.config.slow = Some((limit.max(Duration::from_millis(1)), Box::new(hook)));
        self
    }

    /// Most threads for blocking work ([`Cx::try_blocking`](crate::Cx::try_blocking)); 64 by
    /// default, and from 1 to 1,024. None is there before there is work for it. They mostly wait,
    /// so there may be many more than processors.
    pub fn blocking_threads_max(mut self, threads: usize) -> Builder {
        self.blocking.threads_max = threads;
        self
    }

    /// Most blocking work that waits while all threads for it are busy; 4,096 by default. Beyond
    /// that it is given back: [`Reason::BlockingFull`](crate::Reason::BlockingFull).
    pub fn blocking_queue_max(mut self, jobs: usize) -> Builder {
        self.blocking.queue_max = jobs;
        self
    }

    /// How long a thread for blocking work has nothing to do before it ends; 10 s by default.
    pub fn blocking_idle(mut self, time: Duration) -> Builder {
        self.blocking.idle = time;
        self
    }

    /// Calls `hook` when blocking work has waited for a thread for longer than `limit`, which is at
    /// least a millisecond: once, and again only after nothing had to wait. On the thread that
    /// called `run`. If the hook panics the run is cut short, as with
    /// [`on_slow_handler`](Self::on_slow_handler). In a simulation nobody is told.
    ///
    /// ```
    /// use mely::Runtime;
    /// use std::time::Duration;
    /// let builder = Runtime::builder().blocking_threads_max(1);
    /// let builder = builder.on_slow_blocking(Duration::from_millis(5), |slow| {
    ///     eprintln!("{} waits for {} threads: {slow:?}", slow.queued, slow.threads);
    /// });
    /// builder.exit_when_idle(true).build()?.run(|cx| {
    ///     for _ in 0..3 {
    ///         let sleep = || std::thread::sleep(Duration::from_millis(10));
    ///         cx.try_blocking(sleep).expect("4,096 have room");
    ///     }
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_slow_blocking<F>(mut self, limit: Duration, hook: F) -> Builder
    where
        F: Fn(&SlowBlocking) + Send + Sync + 'static,
    {
        self.slow_blocking = Some((limit.max(Duration::from_millis(1)), Box::new(hook)));
        self
    }

    /// How long the whole end may take once the runtime was asked to stop; 10 s by default. Then
    /// the run is cut short, and `run` names the obstacles
    /// ([`RunError::Deadline`](crate::RunError::Deadline)).
    pub fn drain_deadline(mut self, deadline: Duration) -> Builder {
        self.config.drain_deadline = deadline;
        self
    }

    /// Limits how long one stage of the end may last, from when it begins. By default the stages
    /// [receive](Stage::Receive), [drain](Stage::Drain) and [close](Stage::Close) have a fifth, a
    /// half and a tenth of the [deadline](Self::drain_deadline), which ends all of them; and
    /// [flush](Stage::Flush) has the time that is left.
    ///
    /// A stage ends as soon as it has nothing to wait for. If it lasts until its limit, the hook of
    /// [`on_drain`](Self::on_drain) is told, and the next stage begins: input that had arrived and
    /// was not read by then stays unread, and work that is under way goes on beside the next
    /// stages. After the last stage the run is cut short. A run without connections and listeners
    /// has no other stage than drain, which only the deadline limits.
    ///
    /// ```
    /// use mely::runtime::Stage;
    /// use mely::Runtime;
    /// use std::time::Duration;
    /// // A client may take a minute for its upload, and each other client waits for that.
    /// let builder = Runtime::builder()
    ///     .drain_deadline(Duration::from_secs(75))
    ///     .stage_limit(Stage::Drain, Duration::from_secs(60))
    ///     .on_drain(|unfinished| eprintln!("{unfinished}"));
    /// # builder.build()?;
    /// # Ok::<(), mely::runtime::BuildError>(())
    /// ```
    pub fn stage_limit(mut self, stage: Stage, limit: Duration) -> Builder {
        self.config.stage_limits.set(stage, limit);
        self
    }

    /// Calls `hook` once a second while the run drains, with the events, holds, tasks and other
    /// things that the end waits for. The first call comes a second after the stop was asked for.
    /// Also calls it at once when the limit of a [stage](Self::stage_limit) has passed.
    /// On the thread that called `run`. If the hook panics the run is cut short, as with
    /// [`on_slow_handler`](Self::on_slow_handler). A runtime that ends by itself
    /// ([`exit_when_idle`](Self::exit_when_idle)) and was not asked to stop reports nothing.
    ///
    /// ```
    /// use mely::task::sleep;
    /// use mely::{Color, Handler, Runtime};
    /// use std::time::Duration;
    ///
    /// static WRITER: Handler = Handler::new("writer");
    ///
    /// let builder = Runtime::builder().drain_deadline(Duration::from_millis(5));
    /// let builder = builder.on_drain(|unfinished| eprintln!("{unfinished}"));
    /// let error = builder.build()?.run(|cx| {
    ///     let forgets_the_stop = async { sleep(Duration::from_secs(3_600)).await };
    ///     WRITER.spawn(cx, Color::from(7), forgets_the_stop);
    ///     cx.stop();
    /// });
    /// let text = error.unwrap_err().to_string();
    /// assert!(text.contains("task `writer` of color 7 waits"), "{text}");
    /// assert!(text.contains("timer `mely: sleep` of color 7 is due in"), "{text}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_drain<F>(mut self, hook: F) -> Builder
    where
        F: Fn(&Unfinished) + Send + Sync + 'static,
    {
        self.config.drain_hook = Some(Box::new(hook));
        self
    }

    /// Whether `run` returns by itself when nothing is left to do: no event queued, no operation of
    /// the event source under way, no blocking work, no task (also one that waits for a stop) and
    /// no strong [`Poster`](crate::Poster). Weak ones do not count. Off by
    /// default.
    pub fn exit_when_idle(mut self, exit: bool) -> Builder {
        self.config.exit_when_idle = exit;
        self
    }

    /// The event source. By default what the environment variable `MELY_BACKEND` says (`io_uring`,
    /// `epoll` or `auto`), and else io_uring, or epoll where io_uring cannot be had.
    pub fn backend(mut self, backend: crate::net::Backend) -> Builder {
        self.config.backend = Some(backend);
        self
    }

    /// Records the run in a file of at most `bytes_max` bytes, which is at least a mebibyte, and no
    /// more than the process may write to a file (`ulimit -f`): every
    /// event with its handler, color, core and time, who had posted it and what it posted; steals,
    /// sleeps, wake-ups and holds. A file of that name is overwritten. Anything but a regular file
    /// is refused (a pipe, a terminal, also `/dev/null`): cores would wait for its reader.
    ///
    /// `mely-recording summary FILE` prints what each handler took and posted, `mely-recording
    /// timeline FILE` draws it all on a time axis, and the crate `mely_recording` reads the file.
    /// [`Handler::working_set_bytes`](crate::Handler::working_set_bytes) adds what the runtime
    /// cannot measure. An event with one post takes some 15 bytes, and some 40 ns. A core that has
    /// 32 KiB together writes them itself: the file should be where that is quick. When the limit
    /// is reached the run goes on and the recording has ended, which [`Stats::recording`] says, and
    /// the file; so it is if the file cannot be written. The recording is complete once the run has
    /// ended.
    ///
    /// ```
    /// use mely::metrics::RecordingState;
    /// use mely::{Color, Runtime};
    ///
    /// let file = std::env::temp_dir().join(format!("mely-doc-{}.rec", std::process::id()));
    /// let runtime = Runtime::builder().record(&file, 64 << 20).build()?;
    /// let observer = runtime.poster();
    /// runtime.run(|cx| cx.post(Color::from(7), |cx| cx.stop()))?;
    /// let recording = observer.stats().recording.expect("it was asked for");
    /// assert_eq!(recording.state, RecordingState::Complete);
    /// # std::fs::remove_file(file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Stats::recording`]: crate::metrics::Stats::recording
    #[cfg(feature = "record")]
    pub fn record(mut self, file: impl Into<PathBuf>, bytes_max: u64) -> Builder {
        let path = file.into();
        self.record = Some(Setting { path, bytes_max });
        self
    }

    /// Builds the runtime. Threads start with `run`.
    ///
    /// # Errors
    /// [`BuildError`] names the setting that cannot be.
    pub fn build(mut self) -> Result<Runtime, BuildError> {
        self.config.on_panic = self.on_panic.unwrap_or_default();
        let topology = match self.topology.take() {
            Some(topology) => topology,
            None => Topology::detect().map_err(|error| BuildError::Topology(error.to_string()))?,
        };
        self.build_on(topology, HashKey::random())
    }

    /// A runtime whose cores have no threads, for [`simulate`](Self::simulate), and its network.
    #[cfg(feature = "sim")]
    pub(crate) fn build_virtual(
        mut self,
        seed: u64,
    ) -> Result<(Runtime, crate::net::SimNet), BuildError> {
        use crate::net::{Backend, SimNet};
        let topology = match (self.topology.take(), self.cores) {
            (Some(topology), _) => topology,
            (None, cores) => {
                let cores = cores.unwrap_or(SIMULATED_CORES);
                Topology::flat(cores).map_err(|_| BuildError::CoreCount(cores))?
            }
        };
        let net = match self.config.backend.take() {
            Some(Backend::Sim(net)) => net,
            _ => SimNet::new(seed),
        };
        self.spin = self.spin.min(SIMULATED_SPIN_MAX);
        let runtime = self.build_simulated(Simulated::BySeed, topology, net.clone(), seed)?;
        Ok((runtime, net))
    }

    /// A runtime with virtual cores, on this network.
    #[cfg(feature = "sim")]
    pub(crate) fn build_simulated(
        mut self,
        simulated: Simulated,
        topology: Topology,
        net: crate::net::SimNet,
        seed: u64,
    ) -> Result<Runtime, BuildError> {
        self.config.backend = Some(crate::net::Backend::Sim(net));
        self.config.simulated = simulated;
        self.config.on_panic = self.on_panic.unwrap_or(OnPanic::Stop);
        self.pin = Some(false);
        self.build_on(topology, HashKey::from_seed(seed))
    }

    fn build_on(mut self, topology: Topology, hash_key: HashKey) -> Result<Runtime, BuildError> {
        if self.policy.batch == 0 || self.policy.batch > BATCH_MAX {
            return Err(BuildError::Batch(self.policy.batch));
        }
        let bits = self.slots.trailing_zeros();
        if !self.slots.is_power_of_two() || !(SLOT_BITS_MIN..=SLOT_BITS_MAX).contains(&bits) {
            return Err(BuildError::ColorSlots(self.slots));
        }
        if self.events_max == 0 {
            return Err(BuildError::EventsMax);
        }
        let threads = self.blocking.threads_max;
        if threads == 0 || threads > BLOCKING_THREADS_MAX {
            return Err(BuildError::BlockingThreads(threads));
        }
        if let Some(bytes) = self.config.stack_bytes
            && !(STACK_BYTES_MIN..=STACK_BYTES_MAX).contains(&bytes)
        {
            return Err(BuildError::StackBytes(bytes));
        }
        let available = topology
            .cores()
            .len()
            .min(topology.usable_parallelism())
            .max(1);
        let cores = self.cores.unwrap_or(available);
        if cores == 0 || cores > CORES_MAX {
            return Err(BuildError::CoreCount(cores));
        }
        if cores > available && self.pin != Some(false) {
            return Err(BuildError::TooManyCores {
                asked: cores,
                available,
            });
        }
        self.config.oversubscribed = cores > available;
        let spin = if self.config.exit_when_idle {
            // Being idle is told when spinning is over.
            self.spin.min(SPIN_TO_EXIT_MAX)
        } else {
            self.spin
        };
        self.config.spin_ns = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
        let follows = self.config.follow_processors;
        self.config.pins = pins::choose(&topology, cores, available, follows, self.pin);
        self.config.must_pin = self.pin == Some(true);
        let recorder = self.recorder(cores)?;
        let shared = Shared::new(Setup {
            slot_bits: bits,
            hash_key,
            victims: victims(&topology, cores, available),
            policy: self.policy,
            events_max: self.events_max,
            makers: if self.config.is_simulated() {
                1
            } else {
                makers::count(self.events_max)
            },
            wake_cost: self.first_wake_cost(),
            watch_at_once: self.config.slow.is_some() || without(Rule::Fresh),
            recorder,
        });
        let registry = crate::net::Registry::new(cores);
        let pool = BlockingPool::new(self.blocking, self.slow_blocking);
        let inner = Inner::new(shared, self.config, pool, registry);
        Ok(Runtime::new(inner))
    }

    /// What a wake-up is taken to cost: measured by default, but in a simulation, where that would
    /// be what its random delays are.
    fn first_wake_cost(&self) -> WakeCost {
        let is_random = self.config.is_simulated() && !self.config.is_on_machine();
        let fixed = self
            .wake_cost
            .or(is_random.then_some(Duration::from_nanos(WAKE_NS)));
        fixed.map_or_else(WakeCost::measured, |time| {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            WakeCost::fixed(ns.max(1))
        })
    }

    #[cfg(not(feature = "record"))]
    fn recorder(&self, _cores: usize) -> Result<Option<Arc<Recorder>>, BuildError> {
        Ok(None)
    }

    /// Begins the recording, if one was asked for.
    #[cfg(feature = "record")]
    fn recorder(&self, cores: usize) -> Result<Option<Arc<Recorder>>, BuildError> {
        let Some(setting) = &self.record else {
            return Ok(None);
        };
        let simulated = self.config.is_simulated();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let header = Header {
            cores,
            simulated,
            // Nothing of a simulation depends on when it is run.
            began_unix_s: if simulated {
                0
            } else {
                now.map_or(0, |now| now.as_secs())
            },
            bytes_max: setting.bytes_max,
            wake_cost_ns: self.first_wake_cost().fixed_ns().unwrap_or(0),
            batch: self.policy.batch,
            stealing: stealing(&self.policy),
        };
        let recorder = Recorder::create(setting, &header).map_err(BuildError::Record)?;
        Ok(Some(Arc::new(recorder)))
    }
}

/// What a recording says of how cores steal: `off`, `base`, or the heuristics that are on.
#[cfg(feature = "record")]
fn stealing(policy: &Policy) -> String {
    let stealing = policy.stealing;
    let heuristics = [
        (stealing.locality, "locality"),
        (stealing.time_left, "time-left"),
        (stealing.penalty, "penalty"),
    ];
    let on = heuristics
        .iter()
        .filter_map(|&(on, name)| on.then_some(name));
    let on: Vec<&str> = on.collect();
    match (stealing.enabled, on.as_slice()) {
        (false, _) => "off".to_owned(),
        (true, []) => "base".to_owned(),
        (true, on) => on.join(", "),
    }
}

/// For each core the others by distance. With more cores than processors, core `i` is on processor
/// `i mod available`, and who shares a processor is nearest.
fn victims(topology: &Topology, cores: usize, available: usize) -> Vec<Vec<(CoreId, Distance)>> {
    (0..cores)
        .map(|thief| {
            let here = thief % available;
            let same = std::iter::once((here, Distance::SharedL1));
            same.chain(topology.victims(here))
                .flat_map(|(processor, distance)| {
                    (processor..cores)
                        .step_by(available)
                        .filter(move |&core| processor < available && core != thief)
                        .map(move |core| (CoreId::of(core), distance))
                })
                .collect()
        })
        .collect()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("cores", &self.cores)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Why a runtime could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The machine's topology could not be read, for this reason.
    Topology(String),
    /// A runtime has from 1 to 512 cores.
    CoreCount(usize),
    /// More cores than the process has processors, without [`pin(false)`](Builder::pin).
    TooManyCores {
        /// The cores asked for.
        asked: usize,
        /// The processors available to this process.
        available: usize,
    },
    /// Not a power of two from 16 to 1,048,576.
    ColorSlots(usize),
    /// The batch threshold is not from 1 to 65,536.
    Batch(u32),
    /// The limit of queued events is zero.
    EventsMax,
    /// Threads for blocking work: from 1 to 1,024.
    BlockingThreads(usize),
    /// The stack of a thread is too small, or larger than memory can be.
    StackBytes(usize),
    /// The run cannot be recorded ([`record`](Builder::record)), for this reason.
    Record(String),
    /// The system refused the thread of a virtual core ([`simulate`](Builder::simulate)), for this
    /// reason.
    #[cfg(feature = "sim")]
    Thread(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Topology(reason) => write!(f, "cannot read the topology: {reason}"),
            BuildError::CoreCount(n) => write!(f, "{n} cores: a runtime has from 1 to {CORES_MAX}"),
            BuildError::TooManyCores { asked, available } => write!(
                f,
                "{asked} cores on {available} processors: `pin(false)` allows that"
            ),
            BuildError::ColorSlots(n) => {
                write!(
                    f,
                    "{n} color slots: a power of two from 16 to 1,048,576 is needed"
                )
            }
            BuildError::Batch(n) => write!(f, "a batch threshold of {n}: from 1 to {BATCH_MAX}"),
            BuildError::BlockingThreads(n) => write!(
                f,
                "{n} threads for blocking work (`blocking_threads_max`): from 1 to \
                 {BLOCKING_THREADS_MAX}"
            ),
            BuildError::StackBytes(bytes) => write!(
                f,
                "a stack of {bytes} bytes (`stack_bytes`): from {STACK_BYTES_MIN} to \
                 {STACK_BYTES_MAX}"
            ),
            BuildError::Record(reason) => write!(f, "cannot record (`record`): {reason}"),
            #[cfg(feature = "sim")]
            BuildError::Thread(reason) => write!(
                f,
                "no thread for a virtual core (`simulate`): {reason}; fewer `cores` need fewer"
            ),
            BuildError::EventsMax => f.write_str("a limit of no queued events at all"),
        }
    }
}

impl std::error::Error for BuildError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// This number of cores on a machine with two processors.
    fn on_two(cores: usize) -> Builder {
        Runtime::builder()
            .cores(cores)
            .topology(Topology::flat(2).unwrap())
    }

    #[test]
    fn only_a_runtime_that_exits_when_idle_spins_for_a_limited_time() {
        let spin_ns = |exits| {
            let builder = on_two(1).spin(Duration::from_secs(1));
            let runtime = builder.exit_when_idle(exits).build().unwrap();
            Duration::from_nanos(runtime.inner.config.spin_ns)
        };
        assert_eq!(spin_ns(false), Duration::from_secs(1));
        assert_eq!(spin_ns(true), SPIN_TO_EXIT_MAX);
    }

    #[test]
    fn cores_are_pinned_in_turn_if_they_are_all_or_that_is_asked_for() {
        let pins = |builder: Builder| builder.build().unwrap().inner.config.pins.clone();
        assert_eq!(pins(on_two(2)), Some(vec![0, 1]));
        assert_eq!(pins(on_two(3).pin(false)), None);
        let refused = on_two(3).build().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "3 cores on 2 processors: `pin(false)` allows that"
        );
        assert_eq!(pins(on_two(1)), None, "the other one may be free");
        assert_eq!(pins(on_two(1).pin(true)), Some(vec![0]));
        assert_eq!(pins(on_two(2).follow_processors(true)), None);
    }

    /// Also if there are more processors than are available.
    #[test]
    fn each_core_has_every_other_as_its_victim_once() {
        let topology = Topology::flat(4).unwrap();
        for available in 1..=4 {
            for cores in 1..=9 {
                for (thief, victims) in victims(&topology, cores, available).iter().enumerate() {
                    let mut others: Vec<_> =
                        victims.iter().map(|&(core, _)| core.index()).collect();
                    others.sort_unstable();
                    let expected: Vec<_> = (0..cores).filter(|&core| core != thief).collect();
                    assert_eq!(others, expected, "{thief} of {cores} on {available}");
                    let nearest = |core: CoreId| core.index() % available == thief % available;
                    let shares = victims.iter().take_while(|&&(core, _)| nearest(core));
                    let shared = victims.iter().filter(|&&(core, _)| nearest(core));
                    assert_eq!(
                        shares.count(),
                        shared.count(),
                        "who shares a processor is first"
                    );
                }
            }
        }
    }
}
