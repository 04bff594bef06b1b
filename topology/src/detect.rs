//! This machine, as far as the caller may use it.

use std::path::Path;
use std::thread::available_parallelism;

use crate::affinity::allowed_cpus;
use crate::draft::{DraftCore, assemble};
use crate::warning::Warnings;
use crate::{CpuList, Error, Topology};

impl Topology {
    /// Reads this machine from `/sys`: exactly the CPUs on which the calling thread may run. A
    /// container with 2 of 64 CPUs gets 2 cores, under the numbers they have on the host. A CPU
    /// *quota* takes no core away, but bounds [`usable_parallelism`](Self::usable_parallelism).
    ///
    /// Call it before pinning threads: a pinned thread sees one core. Where `/sys` is hidden or
    /// incomplete, cores are taken for equal and [`warnings`](Self::warnings) says so.
    ///
    /// # Errors
    ///
    /// [`Error::Affinity`] when the kernel does not tell the thread's CPU mask.
    ///
    /// ```
    /// use mely_topology::{Error, Topology};
    ///
    /// let machine = Topology::detect()?;
    /// for warning in machine.warnings() {
    ///     eprintln!("{warning}");
    /// }
    /// assert!(machine.usable_parallelism() <= machine.cores().len());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn detect() -> Result<Topology, Error> {
        let mask = allowed_cpus()?;
        let topology = match Topology::from_sysfs_masked(Path::new("/sys"), &mask) {
            Err(Error::File { path, reason }) => flat_over(&mask, &path, reason)?,
            other => other?,
        };
        Ok(topology.limited_by_quota())
    }

    /// Lowers the usable parallelism to what the standard library finds, which knows cgroup quotas.
    pub(crate) fn limited_by_quota(mut self) -> Topology {
        if let Ok(parallelism) = available_parallelism() {
            self.usable_parallelism = self.usable_parallelism.min(parallelism.get());
        }
        self
    }
}

/// Equal cores under the numbers of the mask, and a warning.
fn flat_over(mask: &CpuList, path: &Path, reason: String) -> Result<Topology, Error> {
    let mut warnings = Warnings::default();
    warnings.add(path, reason, "equal cores without caches in one package");
    assemble(
        mask.iter().map(DraftCore::unknown).collect(),
        warnings.into_vec(path),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_sysfs_the_mask_alone_makes_a_flat_machine() {
        let mask = "3,40-41".parse().unwrap();
        let topology = flat_over(&mask, Path::new("/sys"), "hidden".into()).unwrap();
        assert_eq!(
            topology
                .cores()
                .iter()
                .map(|core| core.cpu)
                .collect::<Vec<_>>(),
            [3, 40, 41]
        );
        assert_eq!(topology.victims(0), Topology::flat(3).unwrap().victims(0));
        let warning = topology.warnings()[0].to_string();
        assert_eq!(
            warning,
            "/sys: hidden; assumed: equal cores without caches in one package"
        );
    }
}
