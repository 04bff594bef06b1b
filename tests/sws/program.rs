//! The programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::SystemTime;

/// The server.
pub fn sws() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| path("sws"));
    &PATH
}

/// What loads it.
pub fn injector() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| path("injector"));
    &PATH
}

/// Where a program is, of the same profile as this test.
///
/// Cargo builds examples for a plain `cargo test`, but not for `cargo test --test sws`: then there
/// may be none, or, worse, one older than its sources. So it is built here if need be.
fn path(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("tests are in target/PROFILE/deps");
    let program = profile.join("examples").join(example);
    if modified(&program).is_none_or(|built| built < sources_modified(example)) {
        build(profile, example);
    }
    assert!(
        program.is_file(),
        "there is no {program:?}: run `cargo build --example {example}` with the profile of this \
         test"
    );
    program
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// When the newest file that the program is made of last changed.
fn sources_modified(example: &str) -> SystemTime {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut newest = SystemTime::UNIX_EPOCH;
    let mut directories: Vec<PathBuf> = ["src", "examples/common", "topology/src"]
        .map(|directory| root.join(directory))
        .into();
    directories.push(root.join("examples").join(example));
    while let Some(directory) = directories.pop() {
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            newest = newest.max(modified(&path).unwrap_or(newest));
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    newest
}

fn build(profile_directory: &Path, example: &str) {
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let profile = match name(profile_directory).as_str() {
        "debug" => "dev".to_owned(),
        other => other.to_owned(),
    };
    let mut target = profile_directory
        .parent()
        .expect("target is above")
        .to_owned();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "build",
        "--example",
        example,
        "--profile",
        &profile,
    ]);
    // `cargo test --target TRIPLE` puts a directory in between.
    let triple = name(&target);
    if triple.contains("-linux-") {
        cargo.args(["--target", &triple]);
        target.pop();
    }
    let status = cargo.arg("--target-dir").arg(&target).status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "`cargo build --example {example}` failed: {status:?}"
    );
}
