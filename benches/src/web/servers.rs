//! A server as a process of its own: started where it should run, and ended.

use super::nginx;
use crate::machine;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// SWS reads 100 MB before it listens.
const START_MAX: Duration = Duration::from_secs(20);
const END_MAX: Duration = Duration::from_secs(5);

/// What is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The floor.
    Minimal,
    /// SWS as it comes.
    Sws,
    /// SWS that does not steal.
    SwsNoStealing,
    /// SWS whose first core accepts all connections and receives for them.
    SwsOneHome,
    /// A process of SWS a core, each on a core and a port of its own, as the papers have it.
    SwsCopies,
    /// hyper on tokio.
    Hyper,
    /// nginx, if it is installed.
    Nginx,
}

impl Server {
    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Server::Minimal => "minimal",
            Server::Sws => "sws",
            Server::SwsNoStealing => "sws, no stealing",
            Server::SwsOneHome => "sws, one home",
            Server::SwsCopies => "sws, N copies",
            Server::Hyper => "hyper",
            Server::Nginx => "nginx",
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `minimal`, of this package.
    pub minimal: PathBuf,
    /// `hyper`, of this package.
    pub hyper: PathBuf,
    /// Of `apps/`.
    pub sws: PathBuf,
    /// Of `apps/`.
    pub injector: PathBuf,
    /// `None`: not installed.
    pub nginx: Option<PathBuf>,
}

/// A server that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    children: Vec<Child>,
    /// Where it listens.
    pub addrs: Vec<SocketAddr>,
    /// The processes that serve.
    pub pids: Vec<u32>,
}

/// Starts a server for the files below `dir` on the first `cores` cores.
///
/// # Errors
/// If it does not run, or does not listen in time.
pub fn start(
    server: Server,
    programs: &Programs,
    dir: &Path,
    cores: usize,
) -> Result<Running, String> {
    let sws = |options: &[&str]| {
        let mut command = Command::new(&programs.sws);
        command.arg("--root").arg(dir).args(options);
        command
    };
    let plain = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("127.0.0.1:0").arg(dir).arg(cores.to_string());
        command
    };
    let anywhere = ["--listen", "127.0.0.1:0"];
    let command = match server {
        Server::Nginx => return nginx::start(programs.nginx.as_deref(), dir, cores),
        Server::Minimal => plain(&programs.minimal),
        Server::Hyper => plain(&programs.hyper),
        Server::Sws => sws(&anywhere),
        Server::SwsNoStealing => sws(&[&anywhere[..], &["--stealing", "off"]].concat()),
        Server::SwsOneHome => sws(&[&anywhere[..], &["--accept", "single"]].concat()),
        Server::SwsCopies => {
            let mut all = Running::of(sws(&anywhere), &[0])?;
            for core in 1..cores {
                let mut one = Running::of(sws(&anywhere), &[core])?;
                all.addrs.append(&mut one.addrs);
                all.children.append(&mut one.children);
                all.pids.append(&mut one.pids);
            }
            return Ok(all);
        }
    };
    Running::of(command, &(0..cores).collect::<Vec<_>>())
}

impl Running {
    /// Starts a program on these cores, which prints where it listens.
    ///
    /// # Errors
    /// If it does not run, or does not listen in time.
    pub fn of(mut command: Command, cores: &[usize]) -> Result<Running, String> {
        let program = format!("{:?}", command.get_program());
        // What a server warns of would stand between the table's lines.
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = spawn(&mut command, cores).map_err(|e| format!("{program}: {e}"))?;
        let stdout = child.stdout.take().expect("piped above");
        let pids = vec![child.id()];
        // The guard from here on, so that nothing is left running.
        let mut running = Running::new(child, Vec::new(), pids);
        let (tell, told) = std::sync::mpsc::channel();
        // Until the server's end: one whose pipe nobody reads could fail.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(addr) = line.strip_prefix("listening on ") {
                    let _ = tell.send(addr.parse());
                }
            }
        });
        match told.recv_timeout(START_MAX) {
            Ok(Ok(addr)) => running.addrs.push(addr),
            _ => return Err(format!("{program} does not say where it listens")),
        }
        Ok(running)
    }

    pub(super) fn new(child: Child, addrs: Vec<SocketAddr>, pids: Vec<u32>) -> Running {
        Running {
            children: vec![child],
            addrs,
            pids,
        }
    }
}

/// Starts a process that may use these cores and no others.
pub(super) fn spawn(command: &mut Command, cores: &[usize]) -> std::io::Result<Child> {
    std::thread::scope(|scope| {
        // A child begins where the thread that makes it is; this one is made for that.
        let maker = scope.spawn(|| {
            machine::pin_to(cores);
            command.spawn()
        });
        maker.join().expect("it only spawns")
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &self.children {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                // It may be gone already.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + END_MAX;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
