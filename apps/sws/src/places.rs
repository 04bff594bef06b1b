//! How many clients there is room for: as many as `--max-clients` says, if there are descriptors.
//!
//! Beside those that are served, some descriptors are for connections that are on their way out
//! (each had its last answer, which may be that there is no room), and some for those that have
//! just come and are not looked at yet. So whoever comes when all is taken can still be told so.

/// Connections that may be on their way out at once: a quarter of the clients, within these bounds.
const LEAVING_MIN: u64 = 16;
const LEAVING_MAX: u64 = 1024;
/// Connections that come at once, and the program's own files now and then.
const SPARE: u64 = 72;
/// With fewer descriptors for connections there is no point in serving.
const ROOM_MIN: u64 = 8;

/// A division of the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Clients that are served at once.
    pub(crate) clients: u64,
    /// Connections on their way out.
    pub(crate) leaving: u64,
    /// Descriptors that this takes, those included that were open before.
    pub(crate) wanted: u64,
    /// Descriptors that there may be.
    pub(crate) limit: u64,
}

impl Places {
    /// For this many `clients`, while `open` descriptors are open and there may be `limit`.
    ///
    /// # Errors
    /// If hardly anybody could be served, in words for the user.
    pub(crate) fn plan(clients: u64, open: u64, limit: u64) -> Result<Places, String> {
        let leaving = (clients / 4).clamp(LEAVING_MIN, LEAVING_MAX);
        let wanted = clients.saturating_add(leaving + SPARE + open);
        let places = Places {
            clients,
            leaving,
            wanted,
            limit,
        };
        if wanted <= limit {
            return Ok(places);
        }
        let room = limit.saturating_sub(open);
        if room < ROOM_MIN {
            return Err(format!(
                "the limit of open files is {limit}, and {open} are taken before anybody connects: \
                 raise it to at least {} (ulimit -n, or LimitNOFILE= of a systemd unit)",
                open + ROOM_MIN
            ));
        }
        // A quarter for those who are not served, in two halves: on their way out, just come.
        let reserve = (room / 4).clamp(4, LEAVING_MAX + SPARE);
        let leaving = leaving.min(reserve / 2);
        Ok(Places {
            clients: clients.min(room - reserve),
            leaving,
            ..places
        })
    }

    /// What is wrong with it, if `clients` were wanted.
    pub(crate) fn warning(&self, clients: u64) -> Option<String> {
        let Places {
            clients: room,
            wanted,
            limit,
            ..
        } = *self;
        (room < clients).then(|| {
            format!(
                "the limit of open files is {limit}: {room} clients at once instead of \
                 --max-clients {clients}, others get a 503. Raise it to {wanted} (ulimit -n, or \
                 LimitNOFILE= of a systemd unit), or give --max-clients {room}"
            )
        })
    }

    /// What to say when somebody had to be turned away.
    pub(crate) fn full(&self, clients: u64) -> String {
        let room = self.clients;
        if room < clients {
            format!(
                "{room} clients are connected, all that the limit of open files allows: a new one \
                 gets a 503"
            )
        } else {
            format!("{room} clients are connected, which is --max-clients: a new one gets a 503")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fit_if_there_are_descriptors() {
        let places = Places::plan(10_000, 30, 1 << 20).unwrap();
        assert_eq!((places.clients, places.leaving), (10_000, 1024));
        assert_eq!(places.wanted, 10_000 + 1024 + SPARE + 30);
        assert_eq!(places.warning(10_000), None);
        assert!(places.full(10_000).contains("which is --max-clients"));
        let exactly = Places::plan(10_000, 30, places.wanted).unwrap();
        assert_eq!(exactly.warning(10_000), None);
        assert_eq!(Places::plan(10, 30, 1000).unwrap().leaving, 16);
    }

    #[test]
    fn fewer_descriptors_are_divided_and_the_numbers_are_named() {
        let places = Places::plan(10_000, 20, 64).unwrap();
        assert_eq!((places.clients, places.leaving), (33, 5));
        let warning = places.warning(10_000).unwrap();
        for part in [
            "limit of open files is 64",
            "33 clients",
            "--max-clients 10000",
            "to 11116",
            "ulimit -n",
            "--max-clients 33",
        ] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert!(places.full(10_000).contains("limit of open files"));
    }

    #[test]
    fn whatever_is_divided_there_is_something_for_everybody() {
        for limit in 0..3000 {
            for clients in [1, 2, 7, 100, 10_000, u64::MAX] {
                let open = 20;
                let Ok(places) = Places::plan(clients, open, limit) else {
                    assert!(limit < open + ROOM_MIN);
                    continue;
                };
                let room = limit - open;
                assert!(places.clients >= 1 && places.clients <= clients);
                assert!(places.leaving >= 1);
                assert!(places.clients + places.leaving < room, "{limit} {places:?}");
                let warned = places.warning(clients).is_some();
                assert_eq!(warned, places.clients < clients);
            }
        }
        let error = Places::plan(10_000, 20, 24).unwrap_err();
        assert!(
            error.contains("is 24, and 20") && error.contains("at least 28"),
            "{error}"
        );
    }
}
