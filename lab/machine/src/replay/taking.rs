//! What it cost a core to take what arrived: the kernel's part and the event source's, between
//! events, as far as a recording tells.
//!
//! Arrivals that a core takes with nothing between them are a *batch*. The time from what the core
//! did before to the first of them was either spent on fetching the batch or on waiting for it. A
//! batch after a sleep was not waited for, and a busy core waits for few. So an arrival's cost is
//! its part of its batch's time, but no more than [`WAITED_TIMES`] of the median part: what is
//! longer was mostly waited.

use mely_recording::{By, Recording};

/// See the module text.
const WAITED_TIMES: u64 = 4;
/// So few sleeps or events before a batch say nothing.
const BATCHES_MIN: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// An event, a steal, or the writing of the recording.
    Work,
    Sleep,
    /// The post of this place.
    Arrival(usize),
}

/// Arrivals that were taken together.
struct Batch {
    after: What,
    posts: Vec<usize>,
    /// The part of each of them, in ns.
    part_ns: u64,
}

/// What it cost to take each post that came to a core from outside, in ns, by its place among all
/// posts.
pub(super) fn taking_ns(recording: &Recording) -> Vec<u64> {
    let mut taking_ns = vec![0; recording.posts.len()];
    let batches = batches(recording);
    let most_ns = median(&batches).saturating_mul(WAITED_TIMES);
    for batch in batches {
        for post in batch.posts {
            taking_ns[post] = batch.part_ns.min(most_ns);
        }
    }
    taking_ns
}

/// The median part, of batches after work or of those after sleeps, whichever is less.
fn median(batches: &[Batch]) -> u64 {
    let median = |sleep: bool| {
        let those = (batches.iter()).filter(|batch| (batch.after == What::Sleep) == sleep);
        let mut parts: Vec<u64> = those.map(|batch| batch.part_ns).collect();
        parts.sort_unstable();
        (parts.len() >= BATCHES_MIN).then(|| parts[parts.len() / 2])
    };
    let medians = [median(false), median(true)].into_iter().flatten();
    medians.min().unwrap_or(0)
}

fn batches(recording: &Recording) -> Vec<Batch> {
    let mut did: Vec<Vec<(u64, u64, What)>> = vec![Vec::new(); recording.header.cores];
    for event in &recording.events {
        did[event.core].push((event.begin_ns, event.end_ns(), What::Work));
    }
    for steal in &recording.steals {
        did[steal.thief].push((steal.begin_ns, steal.end_ns(), What::Work));
    }
    for write in &recording.writes {
        let end_ns = write.begin_ns.saturating_add(write.took_ns);
        did[write.core].push((write.begin_ns, end_ns, What::Work));
    }
    for sleep in &recording.sleeps {
        let to_ns = sleep.to_ns.unwrap_or(sleep.from_ns);
        did[sleep.core].push((sleep.from_ns, to_ns, What::Sleep));
    }
    for (place, post) in recording.posts.iter().enumerate() {
        if let By::Core(core) = post.by {
            did[core].push((post.at_ns, post.at_ns, What::Arrival(place)));
        }
    }
    let mut batches = Vec::new();
    for mut did in did {
        did.sort_by_key(|&(begin_ns, ..)| begin_ns);
        batches_of(&did, &mut batches);
    }
    batches
}

/// Those of one core, by what it did one after the other.
fn batches_of(did: &[(u64, u64, What)], batches: &mut Vec<Batch>) {
    let is_arrival = |what: What| matches!(what, What::Arrival(_));
    let mut before = None;
    for group in did.chunk_by(|a, b| is_arrival(a.2) && is_arrival(b.2)) {
        let &[.., (last_ns, end_ns, what)] = group else {
            continue;
        };
        if let What::Arrival(_) = what {
            let posts = group.iter().filter_map(|&(_, _, what)| match what {
                What::Arrival(post) => Some(post),
                What::Work | What::Sleep => None,
            });
            let posts: Vec<usize> = posts.collect();
            // Of what came before all else nothing is known.
            let (after, from_ns) = before.unwrap_or((What::Work, last_ns));
            let part_ns = last_ns.saturating_sub(from_ns) / posts.len() as u64;
            batches.push(Batch {
                after,
                posts,
                part_ns,
            });
        }
        before = Some((what, end_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mely_recording::format::{
        Cause, Color, ColorKind, Definition, End, Ended, Header, LogId, Page, Record,
    };

    /// A core that takes four arrivals at a time and runs them; each batch comes `gaps_ns` after
    /// what was before it.
    fn batches_after(gaps_ns: &[u64]) -> Recording {
        let (log, mut page, mut posts) = (LogId::core(0), Page::new(), 0);
        let name = "a".to_owned();
        let definition = Definition {
            name,
            ..Definition::default()
        };
        page.put(&Record::Define {
            profile: 1,
            definition,
        });
        let color = Color {
            kind: ColorKind::Given,
            value: 3,
        };
        for &gap_ns in gaps_ns {
            for gap_ns in [gap_ns, 20, 20, 20] {
                page.put(&Record::Arrival {
                    profile: 1,
                    color,
                    gap_ns,
                });
            }
            for _ in 0..4 {
                page.put(&Record::Begin {
                    profile: 1,
                    color,
                    cause: Cause::new(log, posts),
                    gap_ns: 50,
                });
                page.put(&Record::End {
                    took_ns: 700,
                    panicked: false,
                    waits: false,
                });
                posts += 1;
            }
        }
        let header = Header {
            cores: 1,
            ..Header::default()
        };
        let mut bytes = header.to_bytes();
        bytes.extend_from_slice(page.close(log, 0));
        let end = End {
            why: Ended::WithTheRun,
            at_ns: 0,
            pages: 1,
            cores_left: 0,
        };
        bytes.extend_from_slice(&end.to_bytes());
        Recording::read(&bytes).expect("it is a recording")
    }

    #[test]
    fn arrivals_share_what_their_batch_took_and_waits_do_not_count() {
        let mut gaps_ns = vec![1_940; 30];
        gaps_ns[9] = 3_940;
        gaps_ns[19] = 1_000_000;
        let taking_ns = taking_ns(&batches_after(&gaps_ns));
        assert_eq!(taking_ns.len(), 120);
        // Nobody knows what came before the first.
        let expected = |batch: usize| match batch {
            0 => 0,
            9 => 1_000,
            19 => 4 * 500,
            _ => 500,
        };
        for (post, ns) in taking_ns.into_iter().enumerate() {
            assert_eq!(ns, expected(post / 4), "post {post}");
        }
        let few = super::taking_ns(&batches_after(&[1_940; 10]));
        assert!(few.into_iter().all(|ns| ns == 0), "too few to know");
    }
}
