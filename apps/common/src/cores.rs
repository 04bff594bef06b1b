//! The cores of a program's runtime: as many as its option `--cores` says, each on its processor.

use mely::{BuildError, Builder, Cores};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// Sets them, and gives what is to be said about them, if anything.
///
/// Where threads may not choose their processor, cores run on whichever the system gives them: that
/// costs some speed, and is better than nothing.
pub fn set(builder: Builder, cores: Option<usize>) -> (Builder, Option<String>) {
    let builder = match cores {
        Some(cores) => builder.cores(Cores::Count(cores)),
        None => builder,
    };
    // What this thread has anyway, so that nothing but the permission is at stake.
    match sched_getaffinity(None).and_then(|set| sched_setaffinity(None, &set)) {
        Ok(()) => (builder, None),
        Err(errno) => {
            let error = std::io::Error::from(errno);
            let said = format!(
                "cores are not pinned to processors: sched_setaffinity is refused: {error}"
            );
            (builder.pin(false), Some(said))
        }
    }
}

/// Why there is no runtime, in terms of the option.
pub fn refused(error: &BuildError) -> String {
    match error {
        BuildError::TooManyCores { asked, available } => format!(
            "--cores {asked}: this process may use {available} (as its affinity, cpuset and CPU \
             quota have it); give --cores {available} or less"
        ),
        BuildError::CoreCount(_) => format!("--cores: {error}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_cores_are_refused_in_terms_of_the_option() {
        for (cores, expected) in [(500, "--cores 500: "), (513, "--cores: 513 cores")] {
            let (builder, said) = set(mely::Runtime::builder(), Some(cores));
            assert_eq!(said, None);
            let error = refused(&builder.build().unwrap_err());
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("oversubscribe"), "{error}");
        }
    }
}
