//! Answers that still hold.

use super::message::Family;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// By name and family: the addresses, none if there are none, and until when.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<(String, Family), (Vec<IpAddr>, Duration)>,
}

impl Cache {
    pub(super) fn get(&self, name: &str, family: Family, now: Duration) -> Option<Vec<IpAddr>> {
        let (addrs, until) = self.entries.get(&(name.to_owned(), family))?;
        (*until > now).then(|| addrs.clone())
    }

    /// Keeps at most `most` entries: those that hold for longest.
    pub(super) fn put(
        &mut self,
        name: &str,
        family: Family,
        addrs: Vec<IpAddr>,
        (now, ttl): (Duration, Duration),
        most: usize,
    ) {
        if ttl.is_zero() || most == 0 {
            return;
        }
        let key = (name.to_owned(), family);
        if self.entries.len() >= most && !self.entries.contains_key(&key) {
            self.entries.retain(|_, (_, until)| *until > now);
            // A tenth at once, so that a full cache is not looked through for each.
            while self.entries.len() >= most {
                let mut ends: Vec<Duration> = self.entries.values().map(|its| its.1).collect();
                let tenth = ends.len() / 10;
                let (_, end, _) = ends.select_nth_unstable(tenth);
                let end = *end;
                self.entries.retain(|_, (_, until)| *until > end);
            }
        }
        self.entries.insert(key, (addrs, now + ttl));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn entries_hold_for_their_time() {
        let mut cache = Cache::default();
        let addrs = vec![IpAddr::from([10, 0, 0, 1])];
        cache.put("a", Family::V4, addrs.clone(), (S, 5 * S), 10);
        cache.put("a", Family::V6, Vec::new(), (S, 2 * S), 10);
        cache.put("never", Family::V4, addrs.clone(), (S, Duration::ZERO), 10);
        assert_eq!(cache.get("a", Family::V4, 5 * S), Some(addrs));
        assert_eq!(cache.get("a", Family::V4, 6 * S), None);
        assert_eq!(cache.get("a", Family::V6, 2 * S), Some(Vec::new()));
        assert_eq!(cache.get("a", Family::V6, 3 * S), None);
        assert_eq!(cache.get("never", Family::V4, S), None);
    }

    #[test]
    fn those_that_hold_for_longest_stay() {
        let mut cache = Cache::default();
        for number in 0..1_000_u32 {
            let name = number.to_string();
            cache.put(&name, Family::V4, Vec::new(), (S, number * S), 100);
            assert!(cache.entries.len() <= 100);
        }
        assert!(cache.get("999", Family::V4, S).is_some());
        assert!(cache.entries.len() > 80);
        assert!(cache.get("100", Family::V4, S).is_none());
        // One time for all, and none at all.
        let mut cache = Cache::default();
        for number in 0..50 {
            cache.put(&number.to_string(), Family::V4, Vec::new(), (S, S), 10);
            assert!(cache.entries.len() <= 10);
        }
        cache.put("x", Family::V4, Vec::new(), (S, S), 0);
        assert!(cache.get("x", Family::V4, S).is_none());
    }
}
