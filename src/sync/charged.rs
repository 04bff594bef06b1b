//! std's atomics, mutexes and reference counts, with a charge on a virtual core.
//!
//! They are laid out as std's are, so that what shares a line shares it here. Lock guards are types
//! of their own.
//!
//! For the crates of this repository that simulate machines: a build that has the feature `machine`
//! is slower on threads, and no other has these.

#![doc(hidden)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

pub mod atomic;
pub mod charge;

/// As std's. On a virtual core, who waits does so in virtual time, asleep.
#[derive(Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// As std's.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.lock_by(true)
    }

    /// As std's, and asleep while it waits, or not.
    fn lock_by(&self, asleep: bool) -> LockResult<MutexGuard<'_, T>> {
        let is_free = || !matches!(self.0.try_lock(), Err(TryLockError::WouldBlock));
        loop {
            charge::rmw(self);
            match self.0.try_lock() {
                Ok(guard) => return Ok(self.guard(guard)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Err(PoisonError::new(self.guard(poisoned.into_inner())));
                }
                Err(TryLockError::WouldBlock) => {}
            }
            while charge::wait_for_lock(self, asleep, is_free) {
                charge::reach(self);
                if is_free() {
                    break;
                }
            }
            if !charge::is_charged() {
                let locked = self.0.lock().map(|guard| self.guard(guard));
                return locked.map_err(|error| PoisonError::new(self.guard(error.into_inner())));
            }
        }
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        charge::rmw(self);
        match self.0.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(PoisonError::new(
                self.guard(poisoned.into_inner()),
            ))),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            guard: Some(guard),
            mutex: self,
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As std's.
pub struct MutexGuard<'a, T: ?Sized> {
    /// None once it was released, or taken by a condition variable.
    guard: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        let of = self.guard.as_ref().expect("held until it is dropped");
        charge::read(&**of);
        of
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        let of = self.guard.as_mut().expect("held until it is dropped");
        charge::write(&**of);
        of
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            charge::unlock(self.mutex, || drop(guard));
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// A mutex that is not poisoned. On a virtual core, a spin lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SpinMutex<T: ?Sized>(Mutex<T>);

impl<T> SpinMutex<T> {
    /// Not locked.
    pub const fn new(value: T) -> SpinMutex<T> {
        SpinMutex(Mutex::new(value))
    }
}

impl<T: ?Sized> SpinMutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let locked = self.0.lock_by(false);
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// As std's; not for virtual cores, which are all on one thread.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// As std's.
    pub const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        let waited = self.0.wait(guard.guard.take().expect("held"));
        waited
            .map(|guard| mutex.guard(guard))
            .map_err(|error| PoisonError::new(mutex.guard(error.into_inner())))
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> LockResult<(MutexGuard<'a, T>, std::sync::WaitTimeoutResult)> {
        let mutex = guard.mutex;
        let waited = self
            .0
            .wait_timeout(guard.guard.take().expect("held"), timeout);
        waited
            .map(|(guard, result)| (mutex.guard(guard), result))
            .map_err(|error| {
                let (guard, result) = error.into_inner();
                PoisonError::new((mutex.guard(guard), result))
            })
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        let waited = self
            .0
            .wait_while(guard.guard.take().expect("held"), condition);
        waited
            .map(|guard| mutex.guard(guard))
            .map_err(|error| PoisonError::new(mutex.guard(error.into_inner())))
    }

    /// As std's.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// As std's.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As std's: a clone and a drop are read-modify-writes of the count.
pub struct Arc<T: ?Sized>(Option<std::sync::Arc<T>>);

impl<T> Arc<T> {
    /// As std's.
    pub fn new(value: T) -> Arc<T> {
        Arc(Some(std::sync::Arc::new(value)))
    }

    /// As std's.
    pub fn new_cyclic(f: impl FnOnce(&Weak<T>) -> T) -> Arc<T> {
        Arc(Some(std::sync::Arc::new_cyclic(|weak| {
            f(&Weak(weak.clone()))
        })))
    }

    /// As std's.
    ///
    /// # Errors
    /// As std's.
    pub fn try_unwrap(mut this: Arc<T>) -> Result<T, Arc<T>> {
        this.charge();
        let inner = this.0.take().expect("there until it is dropped");
        std::sync::Arc::try_unwrap(inner).map_err(|inner| Arc(Some(inner)))
    }

    /// As std's.
    pub fn into_inner(mut this: Arc<T>) -> Option<T> {
        this.charge();
        std::sync::Arc::into_inner(this.0.take().expect("there until it is dropped"))
    }
}

impl<T: ?Sized> Arc<T> {
    fn inner(&self) -> &std::sync::Arc<T> {
        self.0.as_ref().expect("there until it is dropped")
    }

    fn charge(&self) {
        if let Some(inner) = &self.0 {
            charge::count(&**inner);
        }
    }

    /// As std's.
    pub fn ptr_eq(this: &Arc<T>, other: &Arc<T>) -> bool {
        std::sync::Arc::ptr_eq(this.inner(), other.inner())
    }

    /// As std's.
    pub fn as_ptr(this: &Arc<T>) -> *const T {
        std::sync::Arc::as_ptr(this.inner())
    }

    /// As std's.
    pub fn downgrade(this: &Arc<T>) -> Weak<T> {
        this.charge();
        Weak(std::sync::Arc::downgrade(this.inner()))
    }

    /// As std's.
    pub fn get_mut(this: &mut Arc<T>) -> Option<&mut T> {
        std::sync::Arc::get_mut(this.0.as_mut().expect("there until it is dropped"))
    }

    /// As std's.
    pub fn strong_count(this: &Arc<T>) -> usize {
        std::sync::Arc::strong_count(this.inner())
    }

    /// std's, which charges nothing.
    pub fn into_std(mut this: Arc<T>) -> std::sync::Arc<T> {
        this.0.take().expect("there until it is dropped")
    }
}

impl<T: ?Sized> From<std::sync::Arc<T>> for Arc<T> {
    fn from(inner: std::sync::Arc<T>) -> Arc<T> {
        Arc(Some(inner))
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    #[inline]
    fn clone(&self) -> Arc<T> {
        self.charge();
        Arc(self.0.clone())
    }
}

impl<T: ?Sized> Drop for Arc<T> {
    #[inline]
    fn drop(&mut self) {
        self.charge();
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.inner()
    }
}

impl<T: ?Sized> AsRef<T> for Arc<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Arc<T> {
        Arc::new(T::default())
    }
}

/// As std's.
pub struct Weak<T: ?Sized>(std::sync::Weak<T>);

impl<T> Weak<T> {
    /// As std's.
    pub const fn new() -> Weak<T> {
        Weak(std::sync::Weak::new())
    }
}

impl<T: ?Sized> Weak<T> {
    /// As std's.
    pub fn upgrade(&self) -> Option<Arc<T>> {
        let arc = Arc(Some(self.0.upgrade()?));
        arc.charge();
        Some(arc)
    }

    /// As std's.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// As std's.
    pub fn ptr_eq(&self, other: &Weak<T>) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl<T: ?Sized> Clone for Weak<T> {
    fn clone(&self) -> Weak<T> {
        Weak(self.0.clone())
    }
}

impl<T: ?Sized> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Weak<T> {
        Weak::new()
    }
}
