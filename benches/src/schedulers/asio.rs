//! Asio as its users serialize by key: a strand for each color. An event is a closure on the heap,
//! which Asio is given as a function and its argument.

use super::done::{Done, become_worker, worker};
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::thread;

/// asio.cpp's.
#[repr(C)]
struct Pool {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    /// Never freed: a run has a process of its own.
    fn mely_bench_asio_new(threads: c_int, colors: usize) -> *mut Pool;
    /// Calls `call(data)` once, on a thread that runs the pool, in the strand of that number.
    fn mely_bench_asio_post(
        pool: *mut Pool,
        color: u32,
        call: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    );
    /// Runs what is posted until the end.
    fn mely_bench_asio_run(pool: *mut Pool);
    /// Makes all threads return that run the pool.
    fn mely_bench_asio_end(pool: *mut Pool);
}

struct Shared {
    pool: *mut Pool,
    colors: usize,
    done: Done,
}

// SAFETY: the pool is only used through the functions above, all of which Asio allows from any
// thread, and is never freed.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

#[derive(Clone)]
struct Cx(Arc<Shared>);

thread_local! {
    /// Of the threads that run the pool.
    static CX: RefCell<Option<Cx>> = const { RefCell::new(None) };
}

/// # Safety
/// `data` is from `Box::into_raw` of a `Box<F>`, and given to one call only.
unsafe extern "C" fn call<F: FnOnce(&mut Cx)>(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let f = unsafe { Box::from_raw(data.cast::<F>()) };
    CX.with_borrow_mut(|cx| f(cx.as_mut().expect("set before the thread runs the pool")));
}

impl Outside<Cx> for Cx {
    #[inline]
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        assert!((color as usize) < self.0.colors);
        let data = Box::into_raw(Box::new(f)).cast();
        // SAFETY: the pool lives for ever and has a strand for every color below `colors`.
        // `call::<F>` gets the box of its `F` once, as Asio runs a handler once, on a thread that
        // `F: Send` allows.
        unsafe { mely_bench_asio_post(self.0.pool, color, call::<F>, data) };
    }
}

impl Context for Cx {
    type Outside = Cx;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        Outside::post(&*self, color, f);
    }

    fn core(&self) -> usize {
        worker()
    }

    fn outside(&self) -> Cx {
        self.clone()
    }

    fn stop(&mut self) {
        self.0.done.tell();
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Asio;

impl Scheduler for Asio {
    fn name(&self) -> &'static str {
        "asio"
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let colors = workload.colors_end(cores);
        let threads = c_int::try_from(cores).map_err(|error| error.to_string())?;
        let cx = Cx(Arc::new(Shared {
            // SAFETY: has no preconditions.
            pool: unsafe { mely_bench_asio_new(threads, colors) },
            colors,
            done: Done::default(),
        }));
        thread::scope(|scope| {
            for core in 0..cores {
                let cx = cx.clone();
                scope.spawn(move || {
                    become_worker(core);
                    let pool = cx.0.pool;
                    if core == 0 {
                        workload.start_all(&mut cx.clone(), world, cores);
                    }
                    CX.set(Some(cx));
                    // SAFETY: the pool lives for ever.
                    unsafe { mely_bench_asio_run(pool) };
                });
            }
            cx.0.done.wait();
            // SAFETY: as above.
            unsafe { mely_bench_asio_end(cx.0.pool) };
        });
        Ok(Extras::default())
    }
}
