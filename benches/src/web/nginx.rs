//! nginx, which has to be configured: in a directory of its own that goes with the server's files.

use super::servers::{Running, spawn};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(5);

/// Where it is, if it is installed.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Not every user's path has it.
    let beside = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(beside)
        .map(|dir| dir.join("nginx"))
        .find(|program| program.is_file())
}

pub(super) fn start(program: Option<&Path>, dir: &Path, cores: usize) -> Result<Running, String> {
    let program = program.ok_or("nginx is not installed")?;
    let named = |error: std::io::Error| format!("nginx: {error}");
    // Beside the files, which are in a directory of the bench's own.
    let home = dir.with_extension("nginx");
    fs::create_dir_all(&home).map_err(named)?;
    let addr = free_addr().map_err(named)?;
    let config = home.join("nginx.conf");
    fs::write(&config, configuration(addr, dir, cores)).map_err(named)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(&home).arg("-c").arg(&config);
    command.arg("-e").arg("error.log");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = spawn(&mut command, &(0..cores).collect::<Vec<_>>()).map_err(named)?;
    let master = child.id();
    let mut running = Running::new(child, vec![addr], Vec::new());
    let deadline = Instant::now() + START_MAX;
    // Those that serve are the master's children.
    while running.pids.len() < cores || TcpStream::connect(addr).is_err() {
        if Instant::now() > deadline {
            return Err(format!("nginx does not listen; see {}", home.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let children = children.map_err(named)?;
        running.pids = children.split_whitespace().flat_map(str::parse).collect();
    }
    Ok(running)
}

/// A port that was free just now: nginx cannot tell us which one it got.
fn free_addr() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn configuration(addr: SocketAddr, root: &Path, cores: usize) -> String {
    format!(
        "daemon off;
user root;
pid nginx.pid;
worker_processes {cores};
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  sendfile on;
  keepalive_requests 1000000;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen {addr} reuseport backlog=4096;
    root \"{}\";
  }}
}}
",
        root.display()
    )
}
