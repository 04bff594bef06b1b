//! Which load on which cores makes which row, and one run of the injector.

use super::servers::{Programs, Running, Server, spawn};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Not measured: until all clients have connected and the server is warm.
const WARM_UP: Duration = Duration::from_millis(500);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// One file of 1 KB, 150 requests a connection: the Mely paper's load.
    One,
    /// 720 files of 100 MB, 10 requests a connection: libasync-smp's load, after SPECweb99.
    SpecWeb99,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As in `--table`.
    pub table: &'static str,
    /// What is asked for.
    pub files: Files,
    /// By how many clients.
    pub clients: usize,
    /// 1: the server on the first core, the injector on the second. More: both on all of them.
    pub cores: usize,
    /// The first is what the others are compared to.
    pub servers: &'static [Server],
}

const PEERS: &[Server] = &[Server::Minimal, Server::Sws, Server::Hyper, Server::Nginx];
const SHARED: &[Server] = &[
    Server::Minimal,
    Server::Sws,
    Server::SwsCopies,
    Server::SwsOneHome,
    Server::SwsNoStealing,
    Server::Hyper,
    Server::Nginx,
];

const fn row(table: &'static str, files: Files, clients: usize) -> Row {
    Row {
        table,
        files,
        clients,
        cores: 1,
        servers: PEERS,
    }
}

/// All rows, in the order in which they are printed.
pub const ROWS: &[Row] = &[
    row("one64", Files::One, 64),
    row("one200", Files::One, 200),
    row("one1000", Files::One, 1_000),
    row("one2000", Files::One, 2_000),
    row("spec800", Files::SpecWeb99, 800),
    Row {
        cores: 2,
        servers: SHARED,
        ..row("shared200", Files::One, 200)
    },
    Row {
        cores: 2,
        servers: PEERS,
        ..row("shared1000", Files::One, 1_000)
    },
];

/// The files of the bench, and where they are written.
#[derive(Debug)]
pub struct Dirs {
    root: PathBuf,
}

impl Dirs {
    /// Has the injector write what these rows ask for.
    ///
    /// # Errors
    /// If it does not.
    pub fn new(root: PathBuf, programs: &Programs, rows: &[Row]) -> Result<Dirs, String> {
        let dirs = Dirs { root };
        for files in [Files::One, Files::SpecWeb99] {
            if rows.iter().any(|row| row.files == files) {
                let mut command = Command::new(&programs.injector);
                command.arg("files").arg(dirs.of(files));
                command.args(["--set", files.name()]);
                output(&mut command, &[0])?;
            }
        }
        Ok(dirs)
    }

    /// Below which directory a row's files are.
    pub fn of(&self, files: Files) -> PathBuf {
        self.root.join(files.name())
    }
}

impl Drop for Dirs {
    fn drop(&mut self) {
        // Only left-over files if it fails.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Files {
    /// As the injector calls it.
    fn name(self) -> &'static str {
        match self {
            Files::One => "one",
            Files::SpecWeb99 => "specweb99",
        }
    }

    fn requests_per_connection(self) -> u32 {
        match self {
            Files::One => 150,
            Files::SpecWeb99 => 10,
        }
    }
}

/// One repetition: what the injector says.
///
/// # Errors
/// If it fails.
pub fn inject(
    row: Row,
    programs: &Programs,
    server: &Running,
    time: Duration,
) -> Result<Value, String> {
    let mut command = Command::new(&programs.injector);
    command
        .arg("--json")
        .args(server.addrs.iter().map(|addr| format!("--target={addr}")))
        .arg(format!("--clients={}", row.clients))
        .arg(format!("--set={}", row.files.name()))
        .arg(format!(
            "--requests-per-connection={}",
            row.files.requests_per_connection()
        ))
        .arg(format!("--warm-up={}", WARM_UP.as_secs_f64()))
        .arg(format!("--seconds={}", time.as_secs_f64()));
    for pid in &server.pids {
        command.arg(format!("--pid={pid}"));
    }
    let cores: Vec<usize> = match row.cores {
        1 => vec![1],
        cores => (0..cores).collect(),
    };
    let text = output(&mut command, &cores)?;
    serde_json::from_str(&text).map_err(|error| format!("injector: {error}: {text}"))
}

/// What a process prints, which ends by itself.
fn output(command: &mut Command, cores: &[usize]) -> Result<String, String> {
    let program = Path::new(command.get_program()).display().to_string();
    let failed = |error: std::io::Error| format!("{program}: {error}");
    command.stdout(Stdio::piped());
    let child = spawn(command, cores).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("{program}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{program}: {error}"))
}
