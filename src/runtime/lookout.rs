//! The thread that is told of what comes to sources that are watched; see
//! [`crate::shared::idle::lookout`].

use crate::color::CoreId;
use crate::host::inner::Inner;
use crate::host::pool::spawn;
use crate::host::sources::Watches;
use crate::io::Lookout;
use crate::sync::Arc;
use std::thread::JoinHandle;

/// The thread, while it runs. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watching {
    lookout: Arc<Lookout>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// For a runtime whose cores are to visit each other's sources; none for others. And none where
    /// the system refuses the thread or its descriptors: then a core is not woken for what comes
    /// for another one, and sees it only before it goes to sleep.
    pub(super) fn begin(inner: &Arc<Inner>) -> Option<Watching> {
        if !inner.shared.policy.stealing.enabled {
            return None;
        }
        let lookout = Arc::new(Lookout::new(inner.shared.cores.len()).ok()?);
        let (its, shared) = (Arc::clone(&lookout), Arc::clone(&inner.shared));
        let thread = spawn("mely-lookout".to_owned(), None, move || {
            while its.wait(|core| shared.seen(CoreId::of(core))) {}
        })
        .ok()?;
        let watches = Watches(Arc::downgrade(inner));
        let first = inner.shared.idle.lookout.set(Box::new(watches)).is_ok();
        debug_assert!(first, "a runtime runs once");
        Some(Watching {
            lookout,
            thread: Some(thread),
        })
    }

    /// Who is told.
    pub(super) fn lookout(&self) -> &Arc<Lookout> {
        &self.lookout
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.lookout.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
