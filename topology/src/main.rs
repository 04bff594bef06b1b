//! Draws a machine: its packages, nodes, caches and cores, and the victims of each core.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use mely_topology::{CpuList, Topology};

const HELP: &str = "\
Usage: mely-topology [OPTIONS] [FOLDER]

Draws a machine's packages, NUMA nodes, caches and cores (CPU numbers, in
brackets the hardware threads of one physical core), then for each core its
victims in the order in which it should try to take work from them.

  FOLDER            a sysfs tree; by default this machine, as far as this
                    process may use it

Options:
  -c, --cpus LIST   only these CPUs, such as 0-3,8
  -t, --take N      only the N cores that keep best company
  -h, --help        this text
  -V, --version     the version

With the feature hwloc, in place of FOLDER:
      --hwloc           this machine as hwloc sees it
      --xml FILE        a machine that hwloc's lstopo wrote
      --synthetic TEXT  a made-up machine, such as 'pack:2 l3:4 core:4 pu:2'
";

fn main() -> ExitCode {
    match run() {
        Ok(text) => print(&text),
        Err(message) => {
            let _ = writeln!(io::stderr(), "mely-topology: {message}");
            ExitCode::from(2)
        }
    }
}

/// Writes in one go. A reader who has seen enough and closed the pipe is no error.
fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "mely-topology: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run() -> Result<String, String> {
    let Some(request) = Request::parse().map_err(|error| error.to_string())? else {
        return Ok(HELP.to_string());
    };
    if request.version {
        return Ok(format!("mely-topology {}\n", env!("CARGO_PKG_VERSION")));
    }
    let mut topology = request.source.unwrap_or(Source::ThisMachine).read()?;
    if let Some(cpus) = request.cpus {
        let cpus: Vec<u32> = cpus.iter().collect();
        topology = topology
            .restrict(&cpus)
            .map_err(|error| error.to_string())?;
    }
    if let Some(n) = request.take {
        topology = topology.take(n).map_err(|error| error.to_string())?;
    }
    for warning in topology.warnings() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    Ok(describe(&topology))
}

fn describe(topology: &Topology) -> String {
    let mut text = topology.picture();
    if topology.usable_parallelism() < topology.cores().len() {
        let parallelism = topology.usable_parallelism();
        text.push_str(&format!(
            "a CPU quota allows {parallelism} of them at a time\n"
        ));
    }
    text.push_str("\nvictims of each CPU, nearest first\n");
    text.push_str(&topology.victim_table());
    text
}

/// Where the machine is described.
enum Source {
    ThisMachine,
    Sysfs(PathBuf),
    Hwloc,
    Xml(PathBuf),
    Synthetic(String),
}

impl Source {
    fn read(self) -> Result<Topology, String> {
        match self {
            Source::ThisMachine => Topology::detect().map_err(|error| error.to_string()),
            Source::Sysfs(root) => Topology::from_sysfs(&root).map_err(|error| error.to_string()),
            other => other.read_hwloc(),
        }
    }

    #[cfg(feature = "hwloc")]
    fn read_hwloc(self) -> Result<Topology, String> {
        let read = match self {
            Source::Xml(path) => Topology::from_hwloc_xml(&path),
            Source::Synthetic(description) => Topology::from_hwloc_synthetic(&description),
            _ => Topology::from_hwloc(),
        };
        read.map_err(|error| error.to_string())
    }

    #[cfg(not(feature = "hwloc"))]
    fn read_hwloc(self) -> Result<Topology, String> {
        let what = match self {
            Source::Xml(path) => format!("{}", path.display()),
            Source::Synthetic(description) => format!("{description:?}"),
            _ => "this machine".to_string(),
        };
        Err(format!(
            "cannot read {what} through hwloc: built without the feature hwloc"
        ))
    }
}

/// The command line, understood.
#[derive(Default)]
struct Request {
    source: Option<Source>,
    cpus: Option<CpuList>,
    take: Option<usize>,
    version: bool,
}

impl Request {
    /// `None` asks for help.
    fn parse() -> Result<Option<Request>, lexopt::Error> {
        use lexopt::prelude::*;

        let mut request = Request::default();
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            let source = match argument {
                Short('h') | Long("help") => return Ok(None),
                Short('V') | Long("version") => {
                    request.version = true;
                    continue;
                }
                Short('c') | Long("cpus") => {
                    request.cpus = Some(parser.value()?.parse()?);
                    continue;
                }
                Short('t') | Long("take") => {
                    request.take = Some(parser.value()?.parse()?);
                    continue;
                }
                Long("hwloc") => Source::Hwloc,
                Long("xml") => Source::Xml(parser.value()?.into()),
                Long("synthetic") => Source::Synthetic(parser.value()?.string()?),
                Value(folder) => Source::Sysfs(folder.into()),
                other => return Err(other.unexpected()),
            };
            if request.source.replace(source).is_some() {
                return Err("name one machine, not several".into());
            }
        }
        Ok(Some(request))
    }
}
