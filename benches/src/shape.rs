//! What events are like, whatever the workload: how large their closures are, and how many of them
//! wait at a time.

use crate::{Context, Outside};
use std::marker::PhantomData;
use std::mem::{MaybeUninit, align_of, size_of};

/// Closures are of this size unless another one is asked for: a handler's reference and two words.
/// Those of tables that have one shape are at most as large.
pub const DEFAULT_BYTES: usize = 24;
/// Other sizes of closures that can be asked for, in bytes.
pub const CLOSURE_BYTES: [usize; 5] = [8, 32, 64, 96, 200];

/// See the module text. None: as the table says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// One of [`CLOSURE_BYTES`].
    pub closure_bytes: Option<usize>,
    /// Events that wait in all, about.
    pub depth: Option<u32>,
}

impl Shape {
    /// The size of closures that a user asks for.
    ///
    /// # Errors
    /// What is no size there is.
    pub fn closure_of(size: &str) -> Result<Option<usize>, String> {
        match size.parse() {
            Ok(DEFAULT_BYTES) => Ok(None),
            Ok(bytes) if CLOSURE_BYTES.contains(&bytes) => Ok(Some(bytes)),
            _ => Err(format!(
                "closures of {size} bytes: there are {DEFAULT_BYTES} and {CLOSURE_BYTES:?}"
            )),
        }
    }

    /// The number of events that a user wants to wait.
    ///
    /// # Errors
    /// What is no number, or 0.
    pub fn depth_of(depth: &str) -> Result<Option<u32>, String> {
        let events = depth.parse().ok().filter(|&events: &u32| events > 0);
        events
            .map(Some)
            .ok_or_else(|| format!("{depth}: not a number of events"))
    }

    /// For the command line of a run: 0 for what is as the table says.
    pub fn words(self) -> [String; 2] {
        [
            self.closure_bytes.unwrap_or(0).to_string(),
            self.depth.unwrap_or(0).to_string(),
        ]
    }

    /// What [`words`](Self::words) made.
    ///
    /// # Errors
    /// What is no number, or no size there is.
    pub fn of_words([bytes, depth]: [&str; 2]) -> Result<Shape, String> {
        Ok(Shape {
            closure_bytes: match bytes {
                "0" => None,
                _ => Shape::closure_of(bytes)?,
            },
            depth: match depth {
                "0" => None,
                _ => Shape::depth_of(depth)?,
            },
        })
    }
}

/// A context whose closures carry as many words as this, their own included.
//
// The workloads know nothing of it: what a handler posts is packed up here, and unpacked before it
// runs.
#[derive(Debug)]
#[repr(transparent)]
pub struct Packing<C: ?Sized, const WORDS: usize>(C);

impl<C: Context + ?Sized, const WORDS: usize> Packing<C, WORDS> {
    /// The same context.
    pub fn of(cx: &mut C) -> &mut Packing<C, WORDS> {
        let cx = std::ptr::from_mut(cx) as *mut Packing<C, WORDS>;
        // SAFETY: a transparent wrapper of what is borrowed exclusively, for as long.
        unsafe { &mut *cx }
    }

    fn packed<F>(f: F) -> impl FnOnce(&mut C) + Send + 'static
    where
        F: FnOnce(&mut Packing<C, WORDS>) + Send + 'static,
    {
        let packed = Packed::<F, WORDS>::new(f);
        move |cx: &mut C| packed.unpack()(Packing::of(cx))
    }
}

/// A closure, and what else it is to carry.
struct Packed<F, const WORDS: usize> {
    words: [MaybeUninit<usize>; WORDS],
    f: PhantomData<F>,
}

/// In the last word, which is looked at: a closure uses what it captures.
const MARK: usize = 0x5EED;

impl<F, const WORDS: usize> Packed<F, WORDS> {
    #[inline(always)]
    fn new(f: F) -> Self {
        const {
            assert!(size_of::<F>() <= WORDS * size_of::<usize>());
            assert!(align_of::<F>() <= align_of::<usize>());
        }
        let mut words = [MaybeUninit::new(0); WORDS];
        words[WORDS - 1] = MaybeUninit::new(MARK);
        // SAFETY: it fits, as was just asserted.
        unsafe { words.as_mut_ptr().cast::<F>().write(f) };
        Packed {
            words,
            f: PhantomData,
        }
    }

    #[inline(always)]
    fn unpack(self) -> F {
        if const { size_of::<F>() <= (WORDS - 1) * size_of::<usize>() } {
            // SAFETY: written by `new`, and not by the closure, which ends before.
            assert_eq!(unsafe { self.words[WORDS - 1].assume_init() }, MARK);
        }
        // SAFETY: written by `new`; read once. (One that never runs leaks what it captures:
        // closures of workloads capture plain words.)
        unsafe { self.words.as_ptr().cast::<F>().read() }
    }
}

impl<C: Context + ?Sized, const WORDS: usize> Context for Packing<C, WORDS> {
    type Outside = PackingOutside<C::Outside, WORDS>;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        self.0.post(color, Self::packed(f));
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn place(&mut self, color: u32, core: usize) {
        self.0.place(color, core);
    }

    fn core(&self) -> usize {
        self.0.core()
    }

    fn outside(&self) -> Self::Outside {
        PackingOutside(self.0.outside())
    }

    fn stop(&mut self) {
        self.0.stop();
    }
}

/// The same for threads outside.
#[derive(Clone, Debug)]
pub struct PackingOutside<O, const WORDS: usize>(O);

impl<C, O, const WORDS: usize> Outside<Packing<C, WORDS>> for PackingOutside<O, WORDS>
where
    C: Context + ?Sized,
    O: Outside<C>,
{
    #[inline]
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Packing<C, WORDS>) + Send + 'static,
    {
        self.0.post(color, Packing::packed(f));
    }
}
