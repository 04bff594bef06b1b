//! Prints what a recording of a run says.

use mely_recording::{Error, Recording, Timeline};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Usage: mely-recording summary FILE
       mely-recording timeline FILE [--out JSON]

Reads a recording of a mely runtime's run (Builder::record, or sws --record).

summary prints, for each handler, its events, what they took and how long they
waited, and what they posted; the use of each core; what steals cost and brought.

timeline writes the run as JSON that ui.perfetto.dev opens (and about:tracing):
a track for each core, with its events by handler and color, and another with
its steals, as arrows from the victim, and its sleeps.

Options:
      --out JSON      where the timeline goes; by default standard output
      --from-ms N     draw only what was not over N ms after the beginning
      --to-ms N       draw only what had begun N ms after the beginning
      --posts         draw an arrow from each event to what it posted
      --cut           read what is there of a recording that was cut short
  -h, --help          this text
  -V, --version       the version

exit code: 0, 1 if the output could not be written, 2 for wrong options and for
files that are no recordings, or damaged ones
";

fn main() -> ExitCode {
    let request = match Request::parse() {
        Ok(Some(request)) => request,
        Ok(None) => return written(print(HELP.as_bytes())),
        Err(error) => return refused(&format!("{error}\nTry 'mely-recording --help'.")),
    };
    if request.version {
        let text = format!("mely-recording {}\n", env!("CARGO_PKG_VERSION"));
        return written(print(text.as_bytes()));
    }
    let Some((what, path)) = request.what.zip(request.file) else {
        return refused(
            "`summary FILE` or `timeline FILE` is wanted\nTry 'mely-recording --help'.",
        );
    };
    let recording = match read(&path, request.cut) {
        Ok(recording) => recording,
        Err(error) => return refused(&format!("{}: {error}", path.display())),
    };
    if request.timeline.from_ns > recording.last_ns {
        let ms = |ns| ns as f64 / 1e6;
        return refused(&format!(
            "--from-ms {}: {} ends {} ms after the beginning",
            ms(request.timeline.from_ns),
            path.display(),
            ms(recording.last_ns)
        ));
    }
    match (what, request.out) {
        (What::Summary, _) => written(print(recording.summary().to_string().as_bytes())),
        (What::Timeline, None) => {
            let mut out = BufWriter::new(io::stdout().lock());
            let drawn = recording.timeline(request.timeline, &mut out);
            written(drawn.and_then(|()| out.flush()))
        }
        (What::Timeline, Some(out)) => match File::create(&out) {
            Ok(file) => {
                let mut file = BufWriter::new(file);
                let drawn = recording.timeline(request.timeline, &mut file);
                written(drawn.and_then(|()| file.flush()))
            }
            Err(error) => refused(&format!("{}: {error}", out.display())),
        },
    }
}

fn read(path: &PathBuf, cut: bool) -> Result<Recording, Error> {
    let bytes = std::fs::read(path)?;
    if cut {
        Recording::read_what_is_there(&bytes)
    } else {
        Recording::read(&bytes)
    }
}

fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())
}

/// A reader who has seen enough and closed the pipe is no error.
fn written(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("cannot write: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn refused(message: &str) -> ExitCode {
    say(message);
    ExitCode::from(2)
}

fn say(message: &str) {
    // If nobody reads it, nobody does.
    let _ = writeln!(io::stderr(), "mely-recording: {message}");
}

#[derive(Clone, Copy)]
enum What {
    Summary,
    Timeline,
}

/// The command line, understood.
#[derive(Default)]
struct Request {
    what: Option<What>,
    file: Option<PathBuf>,
    out: Option<PathBuf>,
    timeline: Timeline,
    cut: bool,
    version: bool,
}

impl Request {
    /// `None` asks for help.
    fn parse() -> Result<Option<Request>, lexopt::Error> {
        use lexopt::prelude::*;

        let mut request = Request::default();
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Short('V') | Long("version") => request.version = true,
                Long("out") => request.out = Some(parser.value()?.into()),
                Long("from-ms") => request.timeline.from_ns = ms(&mut parser)?,
                Long("to-ms") => request.timeline.to_ns = ms(&mut parser)?,
                Long("posts") => request.timeline.posts = true,
                Long("cut") => request.cut = true,
                Value(what) if request.what.is_none() => {
                    request.what = Some(match what.to_str() {
                        Some("summary") => What::Summary,
                        Some("timeline") => What::Timeline,
                        _ => return Err(Value(what).unexpected()),
                    });
                }
                Value(file) if request.file.is_none() => request.file = Some(file.into()),
                argument => return Err(argument.unexpected()),
            }
        }
        // No option is ignored in silence.
        let drawn = request.out.is_some() || request.timeline != Timeline::default();
        if matches!(request.what, Some(What::Summary)) && drawn {
            return Err("--out, --from-ms, --to-ms and --posts are for timeline".into());
        }
        if request.timeline.from_ns >= request.timeline.to_ns {
            return Err("--from-ms is not before --to-ms: nothing would be drawn".into());
        }
        Ok(Some(request))
    }
}

/// The value of an option, in ns.
fn ms(parser: &mut lexopt::Parser) -> Result<u64, lexopt::Error> {
    use lexopt::prelude::*;
    let ms: f64 = parser.value()?.parse()?;
    if !(0.0..1e12).contains(&ms) {
        return Err("milliseconds are from 0 to 1000000000000".into());
    }
    Ok((ms * 1e6) as u64)
}
