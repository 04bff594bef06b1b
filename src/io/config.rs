//! What can be asked of a backend, and what it answers about itself.

use std::fmt;
use std::io;

use super::sim::SimNet;

/// Sizes of one core's backend.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Buffers to receive into, a power of two.
    pub(crate) buffers: u16,
    /// Size of each.
    pub(crate) buffer_bytes: u32,
    /// Entries of the submission queue, a power of two (io_uring).
    pub(crate) submissions: u32,
    /// Entries of the completion queue, a power of two, at least four times as many (io_uring).
    pub(crate) completions: u32,
}

impl Default for Config {
    /// Buffers for the completions of one turn, not for the connections: 4 MiB a core, touched
    /// only as far as they are used.
    fn default() -> Config {
        Config {
            buffers: 1024,
            buffer_bytes: 4096,
            submissions: 1024,
            completions: 8192,
        }
    }
}

impl Config {
    /// Buffers are numbered in 16 bits, and some numbers mean none.
    pub(crate) const BUFFERS_MAX: u16 = 1 << 15;
    /// A buffer is lent out whole, so a large one is mostly waste.
    pub(crate) const BUFFER_BYTES_MAX: u32 = 1 << 20;
    /// The kernel's limit on a submission queue.
    pub(crate) const SUBMISSIONS_MAX: u32 = 1 << 15;

    /// Refuses what no backend could work with, in words.
    pub(crate) fn check(&self) -> io::Result<()> {
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let Config {
            buffers,
            buffer_bytes,
            submissions,
            completions,
        } = *self;
        if !buffers.is_power_of_two() || buffers > Self::BUFFERS_MAX {
            let max = Self::BUFFERS_MAX;
            return refuse(format!(
                "buffers: {buffers} is not a power of two up to {max}"
            ));
        }
        if !(16..=Self::BUFFER_BYTES_MAX).contains(&buffer_bytes) {
            let max = Self::BUFFER_BYTES_MAX;
            return refuse(format!(
                "buffer_bytes: {buffer_bytes} is not between 16 and {max}"
            ));
        }
        if !submissions.is_power_of_two() || !(4..=Self::SUBMISSIONS_MAX).contains(&submissions) {
            let max = Self::SUBMISSIONS_MAX;
            return refuse(format!(
                "submissions: {submissions} is not a power of two between 4 and {max}"
            ));
        }
        if !completions.is_power_of_two()
            || !(4 * submissions..=2 * Self::SUBMISSIONS_MAX.max(2 * submissions))
                .contains(&completions)
        {
            return refuse(format!(
                "completions: {completions} is not a power of two of at least 4 x {submissions}, \
                 the submissions"
            ));
        }
        Ok(())
    }
}

/// How a listener is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenOptions {
    /// Let several listeners, one a core, share the port (`SO_REUSEPORT`).
    pub(crate) reuse_port: bool,
    /// Connections the kernel keeps until they are accepted.
    pub(crate) backlog: i32,
    /// The permissions of a Unix socket's file; None: what the umask leaves.
    pub(crate) mode: Option<u32>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            reuse_port: false,
            backlog: 4096,
            mode: None,
        }
    }
}

/// Which backend to run on.
#[derive(Clone, Debug, Default)]
pub enum Backend {
    /// io_uring where the kernel lets us, epoll where it does not.
    #[default]
    Auto,
    /// io_uring or an error.
    IoUring,
    /// epoll or an error.
    Epoll,
    /// No kernel: an in-memory network, for tests.
    Sim(SimNet),
}

/// The environment variable that overrides [`Backend::Auto`].
pub(crate) const BACKEND_VARIABLE: &str = "MELY_BACKEND";

impl Backend {
    /// What the environment variable `MELY_BACKEND` asks for: `io_uring`, `epoll` or `auto`;
    /// [`Backend::Auto`] when it is not set or empty.
    ///
    /// # Errors
    ///
    /// For any other value, naming it and the values that are understood.
    pub(crate) fn from_env() -> io::Result<Backend> {
        match std::env::var_os(BACKEND_VARIABLE) {
            None => Ok(Backend::Auto),
            Some(value) => Backend::parse(&value.to_string_lossy()),
        }
    }

    fn parse(value: &str) -> io::Result<Backend> {
        match value {
            "" | "auto" => Ok(Backend::Auto),
            "io_uring" => Ok(Backend::IoUring),
            "epoll" => Ok(Backend::Epoll),
            other => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{BACKEND_VARIABLE}={other}: must be io_uring, epoll or auto"),
            )),
        }
    }
}

/// Which backend runs, and why it is this one. Meant to be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// `"io_uring"`, `"epoll"` or `"sim"`.
    pub name: &'static str,
    pub(super) detail: String,
    /// What was tried before and refused, each with the reason; empty when the first choice runs.
    pub refused: Vec<String>,
}

#[cfg(test)]
impl Report {
    pub(crate) fn named(name: &'static str) -> Report {
        Report {
            name,
            detail: String::new(),
            refused: Vec::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.detail)?;
        for (n, reason) in self.refused.iter().enumerate() {
            let lead = if n == 0 { ", because " } else { "; " };
            write!(f, "{lead}{reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_strictly() {
        assert!(matches!(Backend::parse("io_uring"), Ok(Backend::IoUring)));
        assert!(matches!(Backend::parse("epoll"), Ok(Backend::Epoll)));
        assert!(matches!(Backend::parse(""), Ok(Backend::Auto)));
        let error = Backend::parse("kqueue").unwrap_err();
        assert_eq!(
            error.to_string(),
            "MELY_BACKEND=kqueue: must be io_uring, epoll or auto"
        );
    }

    #[test]
    fn impossible_sizes_are_refused_in_words() {
        assert!(Config::default().check().is_ok());
        let bad = [
            Config {
                buffers: 0,
                ..Config::default()
            },
            Config {
                buffers: 1000,
                ..Config::default()
            },
            Config {
                buffer_bytes: 8,
                ..Config::default()
            },
            Config {
                submissions: 3,
                ..Config::default()
            },
            Config {
                completions: 2048,
                ..Config::default()
            },
        ];
        for config in bad {
            let error = config.check().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{config:?}");
        }
    }

    #[test]
    fn no_backend_is_made_of_an_impossible_size() {
        use super::super::EventSource;
        let none = Config {
            buffers: 0,
            ..Config::default()
        };
        let net = SimNet::new(1);
        for choice in [
            Backend::Auto,
            Backend::IoUring,
            Backend::Epoll,
            Backend::Sim(net),
        ] {
            let error = EventSource::new(choice, &none).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_bounds_of_each_size_are_its_own() {
        let check = |buffers, buffer_bytes, submissions, completions| {
            let config = Config {
                buffers,
                buffer_bytes,
                submissions,
                completions,
            };
            config.check().is_ok()
        };
        let buffers = [(1, true), (3, false), (1 << 15, true), (u16::MAX, false)];
        for (buffers, good) in buffers {
            assert_eq!(check(buffers, 4096, 1024, 8192), good, "{buffers} buffers");
        }
        let bytes = [
            (15, false),
            (16, true),
            (1 << 20, true),
            ((1 << 20) + 1, false),
        ];
        for (bytes, good) in bytes {
            assert_eq!(check(1024, bytes, 1024, 8192), good, "of {bytes} bytes");
        }
        let submissions = [(2, false), (4, true), (1 << 15, true), (1 << 16, false)];
        for (submissions, good) in submissions {
            let told = check(1024, 4096, submissions, 4 * submissions);
            assert_eq!(told, good, "{submissions} submissions");
        }
        let completions = [
            (2048, false),
            (4096, true),
            (6144, false),
            (1 << 16, true),
            (1 << 17, false),
        ];
        for (completions, good) in completions {
            let told = check(1024, 4096, 1024, completions);
            assert_eq!(told, good, "{completions} completions");
        }
    }
}
