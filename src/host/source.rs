//! What a core waits for besides its queues, as its worker sees it; and what the layers above keep
//! for the time of a runtime.

use super::inner::{Ended, Inner};
use super::panics::InTurn;
use super::stage::Stage;
use super::unfinished::UnderWay;
use crate::Cx;
use crate::sched::core::Core;
use crate::sync::Arc;
use std::fmt::Debug;

/// Where a core's completions come from, and what it sleeps on. The doorbell that ends a wait is
/// hung up apart ([`crate::shared::idle::bells::Bell`]). Who calls it has the lock of
/// [`super::sources`].
pub(crate) trait Source: Debug + Send {
    /// Turns completions into posts.
    fn look(&mut self, core: &mut Core);

    /// The same, called by another core while this source's own is inside an event: what can be
    /// had without that core, and a part of it at a time.
    fn visit(&mut self, _visitor: &mut Core) -> Visit {
        Visit::Nothing
    }

    /// Whether `look` would do something, as far as can be known without a system call.
    fn has_work(&mut self) -> bool;

    /// When `look` will have something to do though nothing completes.
    #[cfg(feature = "sim")]
    fn next_ns(&mut self) -> Option<u64>;

    /// Blocks until there is something to do, or the doorbell rings.
    fn wait(&mut self, core: &Core);

    /// Watches it, until it is looked at. True: something is there, or due.
    fn watch(&mut self) -> bool {
        false
    }

    /// Whether it is watched and something is there, or due: it is not watched any more then.
    #[cfg(feature = "sim")]
    fn has_come(&mut self) -> bool {
        false
    }

    /// Whether a visit would find something.
    #[cfg(all(feature = "sim", debug_assertions))]
    fn has_news(&mut self, _now_ns: u64) -> bool {
        false
    }

    /// Another number of cores works than before: what only working cores do goes to those.
    fn working_changed(&mut self, _core: &mut Core) {}

    /// A stage of the end has begun ([`super::stage`]): does its part for the operations and
    /// connections of this core. Each stage in turn, until the run is over.
    fn begin_stage(&mut self, stage: Stage, core: &mut Core);

    /// Whether all input is received that had arrived when the end was asked for.
    fn has_received(&self) -> bool {
        true
    }

    /// Whether nothing is under way that will still become an event, and that the stage waits for.
    fn is_quiet(&self) -> bool;

    /// Its timers and connections, for reports.
    fn under_way(&self, _now_ns: u64) -> UnderWay {
        UnderWay::default()
    }

    /// The source, or the one that it is around: what operations are started on, if any are.
    fn driver(&mut self) -> Option<&mut <Inner as Above>::Driver> {
        None
    }
}

/// What came of a visit, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Visit {
    /// There was nothing.
    Nothing,
    /// There is something that cannot be had yet.
    Soon,
    /// Something was brought out.
    Brought,
}

/// What an event has gathered, to be done when it has run.
pub(crate) trait AtEnd: Debug + Send + Sync {
    /// Does it, which runs no code of the user's; still in the event.
    fn at_end(self: Arc<Self>, cx: &mut Cx);
}

/// What the layer with connections keeps here of its own, and gets back as what it is.
pub(crate) trait Above {
    /// A core's event source.
    type Driver;
    /// One for each runtime.
    type Attached: Attached;
}

/// What a layer above keeps for as long as the runtime lives.
pub(crate) trait Attached: Debug + Send + Sync {
    /// Drops all callbacks of the user's that are left.
    fn drop_callbacks(&self, ended: &mut Ended<'_>, drops: &mut InTurn);
}

/// A source that completes nothing, and its doorbell. For models and unit tests.
#[cfg(any(test, loom))]
pub(crate) mod silence {
    use super::{Source, Stage};
    use crate::sched::core::Core;
    use crate::shared::idle::bells::Bell;
    use crate::sync::{Arc, Condvar, Mutex};

    #[derive(Debug)]
    pub(crate) struct Silence {
        pub(super) rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Silence {
        pub(crate) fn new() -> Arc<Silence> {
            Arc::new(Silence {
                rung: Mutex::new(false),
                changed: Condvar::new(),
            })
        }
    }

    impl Source for Arc<Silence> {
        fn look(&mut self, _core: &mut Core) {}

        fn has_work(&mut self) -> bool {
            false
        }

        #[cfg(feature = "sim")]
        fn next_ns(&mut self) -> Option<u64> {
            None
        }

        fn wait(&mut self, _core: &Core) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }

        fn begin_stage(&mut self, _stage: Stage, _core: &mut Core) {}

        fn is_quiet(&self) -> bool {
            true
        }
    }

    impl Bell for Arc<Silence> {
        fn ring(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Source;
    use super::silence::Silence;
    use crate::Runtime;
    use crate::clock::Clock;
    use crate::color::CoreId;
    use crate::sched::core::Core;
    use crate::shared::idle::bells::Bell;
    use crate::sync::Arc;
    use std::time::Instant;

    /// Else a core would find its doorbell rung for ever, and never sleep.
    #[test]
    fn a_wait_uses_up_the_ring() {
        let runtime = Runtime::builder().cores(1).build().unwrap();
        let shared = Arc::clone(&runtime.inner.shared);
        let core = Core::new(shared, CoreId::of(0), Clock::Real(Instant::now()));
        let bell = Silence::new();
        let mut source = Arc::clone(&bell);
        for _ in 0..2 {
            bell.ring();
            source.wait(&core);
            assert!(!*bell.rung.lock().unwrap());
        }
    }
}
