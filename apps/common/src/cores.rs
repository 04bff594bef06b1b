//! The cores of a program's runtime: as many as its option `--cores` says. With all that the
//! process may use, each is pinned to its processor.

use mely::Builder;
use mely::metrics::Stats;
use mely::runtime::BuildError;

/// Sets them.
pub fn set(builder: Builder, cores: Option<usize>) -> Builder {
    match cores {
        Some(cores) => builder.cores(cores),
        None => builder,
    }
}

/// Returns the warning that they are not pinned, once they have begun.
///
/// Where threads may not choose their processor, the system chooses: that costs some speed, and is
/// better than nothing.
pub fn told(stats: &Stats) -> Option<String> {
    let why = stats
        .cores
        .iter()
        .find_map(|core| core.pin_refused.as_ref())?;
    Some(format!("cores are not pinned to processors: {why}"))
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
            let builder = set(mely::Runtime::builder(), Some(cores));
            let error = refused(&builder.build().unwrap_err());
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("oversubscribe"), "{error}");
        }
    }
}
