//! Which files there are, what is in them, and how popular they are: all of it made from a seed, so
//! that an injector knows every byte a server should send without reading the server's files.

use std::fs;
use std::io;
use std::path::Path;

/// Directories of the SPECweb99-like set, each with the same 36 files: 720 in all, of 102 MB.
const DIRS: usize = 20;
/// Files of a class in a directory: the first is one unit long, the next two, up to nine.
const FILES: usize = 9;
/// The unit of each class, in bytes: up to 1 KB, 10 KB, 100 KB and 1 MB.
const UNITS_BYTES: [usize; 4] = [102, 1_024, 10_240, 102_400];
/// The largest file that is made, since it is kept in memory.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 30;
/// How often each class is asked for, in percent.
const CLASS_PERCENT: [u32; 4] = [35, 50, 14, 1];

/// Which files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One file.
    One {
        /// Its size.
        bytes: usize,
    },
    /// Sizes and mix of classes as in SPECweb99. Inside a class the middle file is the most popular
    /// and directories are asked for by Zipf's law; the exact weights here are our own.
    SpecWeb99,
}

/// A set that a seed makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSet {
    /// Which files.
    pub(crate) kind: Kind,
    /// What their bytes, and the order of requests, are made of.
    pub(crate) seed: u64,
}

/// The files of a set, in memory.
#[derive(Debug)]
pub(crate) struct Files {
    names: Vec<String>,
    sizes_bytes: Vec<usize>,
    /// Every file is a stretch of it that begins elsewhere.
    noise: Vec<u8>,
    kind: Kind,
    /// Sums of the directories' weights.
    dirs: Vec<f64>,
    /// Sums of the weights inside a class.
    files: Vec<f64>,
}

impl FileSet {
    /// The files.
    pub(crate) fn files(&self) -> Files {
        let (names, sizes_bytes): (Vec<_>, Vec<_>) = match self.kind {
            Kind::One { bytes } => (vec!["index.html".to_owned()], vec![bytes]),
            Kind::SpecWeb99 => (0..DIRS)
                .flat_map(|dir| (0..UNITS_BYTES.len()).map(move |class| (dir, class)))
                .flat_map(|(dir, class)| (0..FILES).map(move |file| (dir, class, file)))
                .map(|(dir, class, file)| {
                    let name = format!("dir{dir:05}/class{class}_{file}");
                    (name, UNITS_BYTES[class] * (file + 1))
                })
                .unzip(),
        };
        let largest_bytes = sizes_bytes.iter().copied().max().unwrap_or(0);
        let mut random = fastrand::Rng::with_seed(self.seed);
        // Room for every file to begin elsewhere: a server that mixes two up is found out.
        let noise = (0..largest_bytes + names.len()).map(|_| random.alphanumeric() as u8);
        let middle = FILES as f64 / 2.0 - 0.5;
        Files {
            noise: noise.collect(),
            kind: self.kind,
            dirs: sums((0..DIRS).map(|dir| 1.0 / (dir + 1) as f64)),
            files: sums((0..FILES).map(|file| 1.0 / (1.0 + (file as f64 - middle).abs()))),
            names,
            sizes_bytes,
        }
    }

    /// Writes the files below `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Of the file system, with the file's name.
    pub(crate) fn write_to(&self, dir: &Path) -> io::Result<()> {
        let files = self.files();
        for index in 0..files.len() {
            let path = dir.join(files.name(index));
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            fs::create_dir_all(path.parent().unwrap_or(dir)).map_err(named)?;
            fs::write(&path, files.body(index)).map_err(named)?;
        }
        Ok(())
    }
}

fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

fn pick(sums: &[f64], random: &mut fastrand::Rng) -> usize {
    let at = random.f64() * sums[sums.len() - 1];
    sums.partition_point(|&sum| sum <= at).min(sums.len() - 1)
}

impl Files {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The path below the server's root.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// What is in it.
    pub(crate) fn body(&self, index: usize) -> &[u8] {
        &self.noise[index..index + self.sizes_bytes[index]]
    }

    /// Which file is asked for next.
    pub(crate) fn choose(&self, random: &mut fastrand::Rng) -> usize {
        if let Kind::One { .. } = self.kind {
            return 0;
        }
        let mut percent = random.u32(0..100);
        let mut class = 0;
        while percent >= CLASS_PERCENT[class] {
            percent -= CLASS_PERCENT[class];
            class += 1;
        }
        let dir = pick(&self.dirs, random);
        (dir * UNITS_BYTES.len() + class) * FILES + pick(&self.files, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC_WEB: FileSet = FileSet {
        kind: Kind::SpecWeb99,
        seed: 5,
    };

    #[test]
    fn the_set_is_as_large_as_the_papers() {
        let files = SPEC_WEB.files();
        assert_eq!(files.len(), 720);
        let bytes: usize = (0..files.len()).map(|i| files.body(i).len()).sum();
        assert!((100_000_000..105_000_000).contains(&bytes), "{bytes}");
        assert_eq!(files.body(0).len(), 102);
        assert_eq!(files.body(719).len(), 921_600);
        assert_eq!(files.name(719), "dir00019/class3_8");
    }

    #[test]
    fn a_seed_makes_one_set_and_another_seed_another() {
        let (one, again) = (SPEC_WEB.files(), SPEC_WEB.files());
        assert_eq!(one.body(100), again.body(100));
        let other = FileSet {
            seed: 6,
            ..SPEC_WEB
        };
        assert_ne!(one.body(100), other.files().body(100));
        // Of the same size, and yet not the same.
        assert_eq!(one.body(0).len(), one.body(36).len());
        assert_ne!(one.body(0), one.body(36));
    }

    #[test]
    fn classes_are_asked_for_as_often_as_they_should() {
        let files = SPEC_WEB.files();
        let mut random = fastrand::Rng::with_seed(1);
        let mut classes = [0u32; 4];
        let mut dirs = [0u32; DIRS];
        for _ in 0..100_000 {
            let index = files.choose(&mut random);
            classes[index / FILES % 4] += 1;
            dirs[index / 36] += 1;
        }
        for (count, percent) in classes.into_iter().zip(CLASS_PERCENT) {
            assert!(count.abs_diff(percent * 1_000) < 600, "{classes:?}");
        }
        assert!(
            dirs[0] > 15 * dirs[DIRS - 1] && dirs[DIRS - 1] > 0,
            "{dirs:?}"
        );
    }

    #[test]
    fn files_are_written_as_they_are_expected() {
        let dir = std::env::temp_dir().join(format!("injector-files-{}", std::process::id()));
        let set = FileSet {
            kind: Kind::One { bytes: 1024 },
            seed: 3,
        };
        set.write_to(&dir).unwrap();
        let written = fs::read(dir.join("index.html")).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(written, set.files().body(0));
        assert_eq!(written.len(), 1024);
    }
}
