//! Messages that may come again and again: each kind is said at once, then counted for a while.

use std::time::Duration;

use crate::clock::Time;

/// A message is said at most once in this time.
pub(crate) const QUIET: Duration = Duration::from_secs(5);
/// Kinds that are told apart. There are fewer; beyond this, the one said first is forgotten.
const KINDS_MAX: usize = 16;

/// What was said lately, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Voice {
    kinds: Vec<Kind>,
}

#[derive(Debug)]
struct Kind {
    message: String,
    said: Time,
    suppressed: u64,
}

impl Voice {
    /// What to say about `message`, if anything. It is a kind of its own, so that no number that
    /// changes should be in it.
    #[must_use]
    pub(crate) fn hear(&mut self, message: String, now: Time) -> Option<String> {
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.message == message) {
            if now < kind.said + QUIET {
                kind.suppressed += 1;
                return None;
            }
            kind.said = now;
            return Some(match std::mem::take(&mut kind.suppressed) {
                0 => message,
                times => format!("{message} (and {times} times before this)"),
            });
        }
        if self.kinds.len() == KINDS_MAX {
            self.kinds.remove(0);
        }
        self.kinds.push(Kind {
            message: message.clone(),
            said: now,
            suppressed: 0,
        });
        Some(message)
    }

    /// What is to be said by now about what was not said before.
    pub(crate) fn due(&mut self, now: Time) -> Vec<String> {
        let due = self.kinds.iter_mut().filter(|k| now >= k.said + QUIET);
        due.filter_map(|kind| kind.say(now)).collect()
    }

    /// All that is still to be said, since there is no later.
    pub(crate) fn rest(&mut self, now: Time) -> Vec<String> {
        let kinds = self.kinds.iter_mut();
        kinds.filter_map(|kind| kind.say(now)).collect()
    }

    /// Whether something is counted and not said.
    pub(crate) fn holds_back(&self) -> bool {
        self.kinds.iter().any(|kind| kind.suppressed > 0)
    }
}

impl Kind {
    fn say(&mut self, now: Time) -> Option<String> {
        let times = std::mem::take(&mut self.suppressed);
        if times == 0 {
            return None;
        }
        self.said = now;
        let message = &self.message;
        Some(format!("{message} ({times} times more)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_and_the_others_are_counted() {
        let second = Duration::from_secs(1);
        let mut voice = Voice::default();
        let mut hear = |kind: &str, at| voice.hear(kind.to_owned(), at);
        assert_eq!(hear("a", second).as_deref(), Some("a"));
        for _ in 0..497 {
            assert_eq!(hear("a", 2 * second), None);
        }
        assert_eq!(hear("b", 2 * second).as_deref(), Some("b"));
        assert_eq!(
            hear("a", second + QUIET).as_deref(),
            Some("a (and 497 times before this)")
        );
        assert_eq!(hear("a", 2 * second + QUIET), None);
        assert_eq!(hear("b", 2 * second + QUIET).as_deref(), Some("b"));
        assert!(voice.holds_back());
        assert!(voice.due(2 * second + QUIET).is_empty());
        assert_eq!(voice.due(second + 2 * QUIET), ["a (1 times more)"]);
        assert!(!voice.holds_back() && voice.due(100 * second).is_empty());
    }

    #[test]
    fn nothing_is_left_unsaid_at_the_end() {
        let mut voice = Voice::default();
        for _ in 0..3 {
            let _ = voice.hear("a".to_owned(), Duration::ZERO);
        }
        assert_eq!(voice.rest(Duration::ZERO), ["a (2 times more)"]);
        assert!(voice.rest(Duration::ZERO).is_empty());
    }

    #[test]
    fn kinds_are_bounded() {
        let mut voice = Voice::default();
        for kind in 0..10 * KINDS_MAX {
            assert!(voice.hear(kind.to_string(), Duration::ZERO).is_some());
        }
        assert_eq!(voice.kinds.len(), KINDS_MAX);
    }
}
