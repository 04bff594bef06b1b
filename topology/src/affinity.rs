//! On which CPUs the calling thread may run.

use std::path::Path;

use crate::read::{in_words, read_text};
use crate::{CpuList, Error};

/// The calling thread's affinity mask, which the kernel keeps inside the process's cpuset. Never
/// empty.
pub(crate) fn allowed_cpus() -> Result<CpuList, Error> {
    let mask = match rustix::thread::sched_getaffinity(None) {
        Ok(set) => {
            let limit = rustix::thread::CpuSet::MAX_CPU as u32;
            (0..limit).filter(|&cpu| set.is_set(cpu as usize)).collect()
        }
        // The fixed-size set is too small for kernels made for more CPUs than it holds; they refuse
        // with "invalid argument". The same mask is to be had as text.
        Err(errno) => from_proc(Path::new("/proc/thread-self/status"))
            .map_err(|reason| Error::Affinity(format!("{}; {reason}", in_words(&errno.into()))))?,
    };
    if mask.is_empty() {
        Err(Error::NoCores)
    } else {
        Ok(mask)
    }
}

fn from_proc(path: &Path) -> Result<CpuList, String> {
    let in_file = |reason: String| format!("{}: {reason}", path.display());
    let text = read_text(path)
        .map_err(in_file)?
        .ok_or_else(|| in_file("no such file".into()))?;
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.ok_or_else(|| in_file("has no line Cpus_allowed_list".into()))?;
    list.parse()
        .map_err(|error: crate::CpuListError| in_file(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sources_agree() {
        let from_proc = from_proc(Path::new("/proc/thread-self/status")).unwrap();
        assert_eq!(allowed_cpus().unwrap(), from_proc);
    }

    #[test]
    fn a_status_file_without_the_line_is_an_error() {
        let reason = from_proc(Path::new("/proc/self/limits")).unwrap_err();
        assert_eq!(reason, "/proc/self/limits: has no line Cpus_allowed_list");
    }
}
