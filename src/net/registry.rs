//! What has callbacks of the user's, for as long as it lives: connections by their home core, and listeners.
//!
//! A callback mostly holds the very state that owns what calls it: a session has its stream, and the stream's
//! `on_data` has a handle to the session. Nobody would ever drop such a ring. So a callback is dropped after its
//! last call, and when the runtime is gone all that are left are dropped from here.

use super::conn::Conn;
use super::listener::Listening;
use crate::sync::Mutex;
use slab::Slab;
use std::sync::{Arc, Weak};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Registry {
    conns: Box<[Mutex<Slab<Weak<Conn>>>]>,
    listeners: Mutex<Vec<Weak<Listening>>>,
}

impl Registry {
    pub(crate) fn new(cores: usize) -> Registry {
        Registry {
            conns: (0..cores).map(|_| Mutex::new(Slab::new())).collect(),
            listeners: Mutex::new(Vec::new()),
        }
    }

    /// Notes a connection of this core, under the key that it is given back by.
    pub(super) fn add(&self, home: u32, conn: Weak<Conn>) -> usize {
        self.conns[home as usize].lock().unwrap().insert(conn)
    }

    pub(super) fn remove(&self, home: u32, key: usize) {
        // Dropped when the lock is free, though a weak reference runs nobody's code.
        let _conn = self.conns[home as usize].lock().unwrap().remove(key);
    }

    /// The connections whose home this core is.
    pub(super) fn of(&self, home: u32) -> Vec<Arc<Conn>> {
        let conns = self.conns[home as usize].lock().unwrap();
        conns
            .iter()
            .filter_map(|(_, conn)| conn.upgrade())
            .collect()
    }

    /// Notes a listener.
    pub(super) fn add_listener(&self, listening: Weak<Listening>) {
        let mut listeners = self.listeners.lock().unwrap();
        listeners.retain(|listening| listening.strong_count() > 0);
        listeners.push(listening);
    }

    /// Drops all callbacks that are left.
    ///
    /// # Safety
    /// No core of the runtime runs, and none will.
    pub(crate) unsafe fn drop_callbacks(&self) {
        for home in 0..self.conns.len() {
            for conn in self.of(home as u32) {
                // SAFETY: the caller's promise.
                unsafe { conn.drop_callbacks() };
            }
        }
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap());
        for listening in listeners.iter().filter_map(Weak::upgrade) {
            listening.drop_callback();
        }
    }
}
