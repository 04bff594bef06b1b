//! A thread's own way from a handler and closure type to its profile.

use super::node::{ProfileOf, Sort};
use super::profile::{Interned, Key, Profiles, key};
use super::vtable::{Vtable, VtableOf};
use crate::record::Log;
use crate::{Color, Cx, Handler};

/// One thread's way from a handler and closure type to the profile: an open-addressed
/// table that grows, behind a front of what was found last, so that the common post costs one probe
/// and no lock.
///
/// Of a thread that records its posts the front stays empty. So each post comes by the slow way,
/// and is recorded there; whoever does not record has nothing to ask.
#[derive(Debug)]
pub(crate) struct ProfileCache {
    front: Front,
    recording: Option<Box<Recording>>,
    entries: Box<[Interned]>,
    used: usize,
}

/// What was found last under each hash, for closures without a handler and with one: no pointer, no
/// length and no second probe between a post and its profile.
#[derive(Debug)]
struct Front {
    anonymous: [Interned; RECENT],
    handled: [Interned; RECENT],
}

/// Of a thread that records: its log, and what would be its front.
#[derive(Debug)]
struct Recording {
    log: Log,
    front: Front,
}

/// Entries in each half of a [`Front`]. Two pairs that share an entry evict each other for
/// as long as they take turns, at forty instructions a post, and whether they share one is the
/// linker's throw of the dice: a server's dozen pairs among 64 entries more often do than not.
const RECENT: usize = if cfg!(loom) { 64 } else { 512 };

impl Front {
    const EMPTY: Front = Front {
        anonymous: [Interned::NONE; RECENT],
        handled: [Interned::NONE; RECENT],
    };

    /// What was found last under this key's hash: something else, maybe.
    #[inline(always)]
    fn recent(&self, handler: Option<&'static Handler>, key: Key) -> Interned {
        let recent = match handler {
            None => &self.anonymous,
            Some(_) => &self.handled,
        };
        recent[recent_at(key)]
    }

    fn put(&mut self, handler: Option<&'static Handler>, key: Key, found: Interned) {
        let recent = match handler {
            None => &mut self.anonymous,
            Some(_) => &mut self.handled,
        };
        recent[recent_at(key)] = found;
    }
}

impl ProfileCache {
    pub(crate) fn new() -> ProfileCache {
        ProfileCache {
            front: Front::EMPTY,
            recording: None,
            entries: vec![Interned::NONE; 64].into(),
            used: 0,
        }
    }

    /// From now on each post is recorded.
    pub(super) fn record(&mut self, log: Log) {
        let front = Front::EMPTY;
        self.front = Front::EMPTY;
        self.recording = Some(Box::new(Recording { log, front }));
    }

    /// Nothing is recorded any more.
    pub(super) fn end_record(&mut self) {
        self.recording = None;
    }

    /// Where the thread records, if it does.
    #[inline]
    pub(super) fn log(&mut self) -> Option<&mut Log> {
        let recording = self.recording.as_ref();
        if recording.is_some_and(|recording| recording.log.is_over()) {
            self.end_record();
        }
        self.recording.as_mut().map(|recording| &mut recording.log)
    }

    /// The profile of the event of this sort, with a closure of type `F`, that is posted to `color`
    /// under this handler; none if the table is full.
    #[inline(always)]
    pub(super) fn find_of<F>(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        sort: Sort,
    ) -> Option<ProfileOf<F>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let found = self.find(profiles, handler, color, VtableOf::<F>::of(sort));
        found.of(sort)
    }

    #[inline(always)]
    fn find(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        vtable: &'static Vtable,
    ) -> Interned {
        let key = key(handler, vtable);
        let found = self.front.recent(handler, key);
        let (its_handler, its_vtable) = found.key();
        if its_vtable == key.1 && (handler.is_none() || its_handler == key.0) {
            return found;
        }
        self.find_slowly(profiles, handler, color, vtable)
    }

    #[inline(never)]
    fn find_slowly(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        vtable: &'static Vtable,
    ) -> Interned {
        if self.log().is_some()
            && let Some(mut recording) = self.recording.take()
        {
            let found = self.record_post(&mut recording, profiles, handler, color, vtable);
            self.recording = Some(recording);
            return found;
        }
        let found = self.find_behind(profiles, handler, vtable);
        if !found.is_none() {
            self.front.put(handler, key(handler, vtable), found);
        }
        found
    }

    /// The same of an event whose post is recorded.
    fn record_post(
        &mut self,
        recording: &mut Recording,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        color: Color,
        vtable: &'static Vtable,
    ) -> Interned {
        let key = key(handler, vtable);
        let mut found = recording.front.recent(handler, key);
        if found.key() != key {
            found = self.find_behind(profiles, handler, vtable);
        }
        if found.is_none() {
            return found;
        }
        recording.front.put(handler, key, found);
        let id = found.id();
        let definition = || profiles.get(id).definition();
        found.caused_by(recording.log.post(id.index(), definition, color))
    }

    /// Looks behind the front.
    fn find_behind(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        vtable: &'static Vtable,
    ) -> Interned {
        let key = key(handler, vtable);
        let mask = self.entries.len() - 1;
        let mut at = hash(key) & mask;
        loop {
            let entry = self.entries[at];
            if entry.key() == key {
                return entry;
            }
            if entry.is_none() {
                return self.insert(profiles, handler, vtable);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn insert(
        &mut self,
        profiles: &Profiles,
        handler: Option<&'static Handler>,
        vtable: &'static Vtable,
    ) -> Interned {
        let interned = profiles.intern(handler, vtable);
        if interned.is_none() {
            return interned;
        }
        if self.used * 2 >= self.entries.len() {
            let old = std::mem::take(&mut self.entries);
            self.entries = vec![Interned::NONE; old.len() * 2].into();
            let entries = old.iter().filter(|entry| !entry.is_none());
            entries.for_each(|&entry| self.place(entry));
        }
        self.place(interned);
        self.used += 1;
        interned
    }

    fn place(&mut self, entry: Interned) {
        let mask = self.entries.len() - 1;
        let mut at = hash(entry.key()) & mask;
        while !self.entries[at].is_none() {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }
}

/// Vtables and handlers lie side by side in the program, some words apart. Bits below the size of a
/// page only, which are the same wherever the program is loaded: a build is as fast each time it
/// runs.
#[inline(always)]
fn recent_at((handler, vtable): Key) -> usize {
    const { assert!(RECENT.is_power_of_two() && RECENT << 3 <= 4096) };
    ((vtable ^ handler) >> 3) % RECENT
}

fn hash((handler, vtable): Key) -> usize {
    let mixed = (handler as u64).rotate_left(32) ^ (vtable as u64);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cx;
    use crate::event::tag::ProfileId;
    use crate::event::vtable::VtableOf;
    use std::sync::LazyLock;

    const COLOR: Color = Color::DEFAULT;

    fn vtable<F: FnOnce(&mut Cx) + Send + 'static>(_: F) -> &'static Vtable {
        VtableOf::<F>::of(Sort::ORDINARY)
    }

    #[test]
    fn the_cache_finds_what_it_interned() {
        // More than there are places in the front, so that some share one.
        const COUNT: usize = if cfg!(miri) { 50 } else { 1_200 };
        static HANDLERS: LazyLock<Vec<Handler>> = LazyLock::new(|| {
            (0..COUNT)
                .map(|_| Handler::new("made at run time"))
                .collect()
        });
        let vtable = vtable(|_| ());
        let profiles = Profiles::new(false);
        let mut cache = ProfileCache::new();
        let found: Vec<ProfileId> = HANDLERS
            .iter()
            .map(|h| cache.find(&profiles, Some(h), COLOR, vtable).id())
            .collect();
        for (handler, expected) in HANDLERS.iter().zip(&found) {
            assert_eq!(
                cache.find(&profiles, Some(handler), COLOR, vtable).id(),
                *expected
            );
            assert!(std::ptr::eq(
                profiles.get(*expected).handler.unwrap(),
                handler
            ));
        }
        let distinct: std::collections::HashSet<_> = found.iter().map(|id| id.index()).collect();
        assert_eq!(distinct.len(), COUNT);
        assert_eq!(cache.used, COUNT, "each is there once");
    }

    #[test]
    fn closures_without_a_handler_have_profiles_of_their_own() {
        let profiles = Profiles::new(false);
        let mut cache = ProfileCache::new();
        let vtables = [vtable(|_| ()), vtable(|_| ()), vtable(|_| ())];
        let found = vtables.map(|vtable| cache.find(&profiles, None, COLOR, vtable).id());
        let [second, .., last] = [2, 3, 4, 5].map(|place| ProfileId::new(place).unwrap());
        assert_eq!(found.map(ProfileId::index), [2, 3, 4]);
        assert_eq!(
            vtables.map(|vtable| cache.find(&profiles, None, COLOR, vtable).id()),
            found
        );
        static HANDLER: Handler = Handler::new("with");
        assert_eq!(
            cache
                .find(&profiles, Some(&HANDLER), COLOR, vtables[0])
                .id(),
            last
        );
        assert_eq!(cache.find(&profiles, None, COLOR, vtables[0]).id(), second);
        // At hand, the one without a handler and the one with.
        let at = [None, Some(&HANDLER)].map(|handler| key(handler, vtables[0]));
        let entries = [
            cache.front.anonymous[recent_at(at[0])],
            cache.front.handled[recent_at(at[1])],
        ];
        assert_eq!(entries.map(Interned::key), at);
        assert_eq!(entries.map(Interned::id), [second, last]);
    }

    #[test]
    fn places_do_not_depend_on_where_the_program_is_loaded() {
        let handlers: Vec<usize> = (0..40)
            .map(|i| 0x5_4ff8 + i * size_of::<Handler>())
            .collect();
        let vtable = 0x6_1230;
        let places = |base: usize| -> Vec<usize> {
            let keys = handlers.iter().map(|h| (base + h, base + vtable));
            keys.map(recent_at).collect()
        };
        assert_eq!(places(0), places(0x7f_1234_5000));
        let distinct: std::collections::HashSet<_> = places(0).into_iter().collect();
        assert_eq!(distinct.len(), handlers.len(), "neighbors share");
    }
}
